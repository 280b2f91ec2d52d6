//! HTTP for operators: health, readiness, metrics, JSON documents, and the admin page.
//!
//! | path | |
//! |---|---|
//! | `/` | the admin page |
//! | `/healthz` | 200 while the process answers |
//! | `/readyz` | 200 while all data sets are open and undamaged, else 503 with the reasons |
//! | `/metrics` | counters in the text format of Prometheus |
//! | `/v1/data` | data sets with their versions; null for a store without a version |
//! | `/v1/data/STORE/versions` | all versions of a store |
//! | `/v1/data/STORE/difference?from=41&to=42` | two versions compared by about 1000 keys of each |
//! | `/v1/data/STORE/ACTION` | POST: `publish`, `rollback`, `pin`, `unpin` or `cancel` |
//! | `/v1/deploy` | the group that the stores follow, and what this server has fetched |
//! | `/v1/group` | the group's pointer, and what all of its servers have reported |
//! | `/v1/cluster` | slots and servers |
//! | `/v1/audit` | the last lines of the audit log |
//!
//! `/healthz`, `/readyz` and `/metrics` ask for nothing. The others ask for a token, if the configuration
//! has tokens. Requests come from this machine or a proxy, or are encrypted.

mod api;
mod facts;
mod limit;
mod metrics;
mod page;
mod tls;
mod words;

use self::{limit::Limited, tls::TlsListener};
use crate::{
    access::{Denied, Way},
    shared::Shared,
};
use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{Next, from_fn_with_state, map_response},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use std::{
    io,
    net::TcpListener,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::runtime::Builder;

/// Maximum size of the body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Threads for requests that wait for the device or the network.
const BLOCKING_THREADS: usize = 16;

/// Time that these threads have to end when the server stops: what waits for others is told to.
const BLOCKING_END: Duration = Duration::from_secs(5);

/// Answers HTTP requests until the server stops.
///
/// # Errors
/// The system refuses the runtime or the listener.
pub(crate) fn run(
    shared: &Arc<Shared>,
    plain: Vec<TcpListener>,
    encrypted: Vec<TcpListener>,
) -> io::Result<()> {
    let mut builder = Builder::new_current_thread();
    let runtime =
        builder.enable_io().enable_time().max_blocking_threads(BLOCKING_THREADS).build()?;
    let served = runtime.block_on(async {
        let mut tasks = Vec::new();
        for listener in plain {
            let listener = Limited::new(tokio_listener(listener)?);
            let router = router(shared).layer(Extension(Way::Plain));
            tasks.push(tokio::spawn(axum::serve(listener, router).into_future()));
        }
        for listener in encrypted {
            let listener =
                Limited::new(TlsListener::new(tokio_listener(listener)?, shared.clone())?);
            let router = router(shared).layer(Extension(Way::Tls));
            tasks.push(tokio::spawn(axum::serve(listener, router).into_future()));
        }
        while !shared.is_stopping.load(Relaxed) {
            tokio::time::sleep(super::server::STOP_INTERVAL).await;
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(())
    });
    runtime.shutdown_timeout(BLOCKING_END);
    served
}

fn tokio_listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

fn router(shared: &Arc<Shared>) -> Router {
    let pages = Router::new()
        .route("/", get(page::overview))
        .route("/store/{name}", get(page::store))
        .route("/deploy", get(page::deploy))
        .route("/cluster", get(page::cluster))
        .route("/audit", get(page::audit))
        .route("/change", get(page::confirm).post(page::change))
        .route("/sign-out", post(page::sign_out))
        .route_layer(from_fn_with_state(shared.clone(), for_people));
    let documents = Router::new()
        .route("/v1/data", get(api::data))
        .route("/v1/data/{name}/versions", get(api::versions))
        .route("/v1/data/{name}/difference", get(api::difference))
        .route("/v1/data/{name}/{action}", post(api::change))
        .route("/v1/deploy", get(api::deploy))
        .route("/v1/group", get(api::group))
        .route("/v1/cluster", get(api::cluster))
        .route("/v1/audit", get(api::audit))
        .route_layer(from_fn_with_state(shared.clone(), for_programs));
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/style.css", get(page::style))
        .route("/sign-in", get(page::sign_in_form).post(page::sign_in))
        .merge(pages)
        .merge(documents)
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(map_response(with_rules))
        .with_state(shared.clone())
}

/// Passes a request on with its caller, or replies why it has none.
async fn identified(
    shared: &Shared,
    mut request: Request,
    next: Next,
    refuse: impl FnOnce(Denied) -> Response,
) -> Response {
    match shared.access.caller(request.headers(), shared.now()) {
        Err(denied) => refuse(denied),
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
    }
}

/// Sends people without a session to the page where they sign in.
async fn for_people(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    identified(&shared, request, next, |_| Redirect::to("/sign-in").into_response()).await
}

/// Refuses programs without a token.
async fn for_programs(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let refuse = |denied| match denied {
        Denied::TooMany => {
            api::error(StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens; wait a second")
        }
        Denied::Unknown => {
            let message = "expected a known token: Authorization: Bearer TOKEN";
            let refused = api::error(StatusCode::UNAUTHORIZED, message);
            ([(header::WWW_AUTHENTICATE, "Bearer")], refused).into_response()
        }
    };
    identified(&shared, request, next, refuse).await
}

/// Adds what browsers must know: nothing is loaded from elsewhere, no other page shows this one in a frame,
/// and nothing is kept.
async fn with_rules(mut response: Response) -> Response {
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers requests for paths that are not there.
async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "there is nothing here: pages begin at /, documents at /v1/data\n")
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let problems = problems(&shared);
    match problems.is_empty() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n").into_response(),
    }
}

/// Returns the reasons why the server should get no requests.
fn problems(shared: &Shared) -> Vec<String> {
    let mut problems = Vec::new();
    if shared.is_draining.load(Relaxed) || shared.is_stopping.load(Relaxed) {
        problems.push("the server stops".to_owned());
    }
    for data in shared.data() {
        if data.is_withdrawn() {
            continue;
        }
        let Some(view) = data.view() else {
            problems.push(format!("{}: no version yet", data.name()));
            continue;
        };
        let damage = view.version().map_or(&[][..], |version| version.damage());
        problems.extend(damage.iter().map(|error| format!("{}: {error}", data.name())));
        let error = view.map().and_then(|map| map.sync_error());
        problems.extend(error.map(|error| format!("{}: not durable: {error}", data.name())));
    }
    for filter in shared.filters() {
        let error = filter.sync_error();
        problems.extend(error.map(|error| format!("{}: not durable: {error}", filter.name())));
    }
    let deployment = shared.deployment.as_ref();
    problems.extend(deployment.and_then(|deployment| deployment.problem(shared.now())));
    problems
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, metrics::text(&shared)).into_response()
}
