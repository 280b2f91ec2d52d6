//! HTTP for operators: health, readiness, Prometheus metrics, and a description of what is served.
//!
//! | path | |
//! |---|---|
//! | `/healthz` | 200 while the process answers |
//! | `/readyz` | 200 while all data sets are open and undamaged, else 503 with the reasons |
//! | `/metrics` | counters in the text format of Prometheus |
//! | `/v1/data` | data sets with their versions, as JSON; null for a store without a version |
//! | `/v1/deploy` | the group that the stores follow, and the versions that are fetched or ready, as JSON |
//!
//! There are no passwords here: listen on loopback, or behind a proxy that asks for them.

mod metrics;

use crate::shared::Shared;
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use std::{
    io,
    net::TcpListener,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::runtime::Builder;

/// Answers HTTP requests until the server stops.
///
/// # Errors
/// The system refuses the runtime or the listener.
pub(crate) fn run(shared: Arc<Shared>, listeners: Vec<TcpListener>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async move {
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/v1/data", get(data))
            .route("/v1/deploy", get(deploy))
            .with_state(shared.clone());
        let mut tasks = Vec::new();
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tasks.push(tokio::spawn(axum::serve(listener, router.clone()).into_future()));
        }
        // Requests are answered at once, so none is cut off that took longer than this.
        while !shared.is_stopping.load(Relaxed) {
            tokio::time::sleep(super::server::STOP_INTERVAL).await;
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(())
    })
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
    if shared.is_stopping.load(Relaxed) {
        problems.push("the server stops".to_owned());
    }
    for data in &shared.data {
        let Some(view) = data.view() else {
            problems.push(format!("{}: no version yet", data.name()));
            continue;
        };
        let damage = view.version().map_or(&[][..], |version| version.damage());
        problems.extend(damage.iter().map(|error| format!("{}: {error}", data.name())));
    }
    let deployment = shared.deployment.as_ref();
    problems.extend(deployment.and_then(|deployment| deployment.problem(shared.now())));
    problems
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, metrics::text(&shared)).into_response()
}

async fn data(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let tables = shared.data.iter().map(|data| {
        let view = data.view();
        let info = view.as_ref().and_then(|view| view.version()).map(|version| version.info());
        let version = info.map(|info| {
            json!({
                "number": info.name.number,
                "id": format!("{:016x}", info.name.id),
                "created_at": info.created_s,
            })
        });
        let entries = view.as_ref().map(|view| {
            let entries = view.entries();
            json!({ "min": entries.start(), "max": entries.end() })
        });
        json!({
            "name": &**data.name(),
            "kind": if data.is_store() { "store" } else { "table" },
            "version": version,
            "entries": entries,
            "data_bytes": view.as_ref().map(|view| view.data_bytes()),
            "index_bytes": view.as_ref().map(|view| view.index_bytes()),
            "in_memory": view.as_ref().map(|view| view.is_in_memory()),
        })
    });
    let filters = shared.filters().into_iter().map(|filter| {
        let stats = filter.stats();
        json!({
            "name": filter.name(),
            "kind": "filter",
            "items_max": stats.keys_max(),
            "data_bytes": stats.file_bytes,
            "memory_bytes": stats.memory_bytes,
            "writable": filter.is_writable(),
        })
    });
    Json(json!({ "data": tables.chain(filters).collect::<Vec<_>>() }))
}

async fn deploy(State(shared): State<Arc<Shared>>) -> Response {
    let Some(deployment) = &shared.deployment else {
        return (StatusCode::NOT_FOUND, "no group is followed\n").into_response();
    };
    let (config, state) = (deployment.config(), deployment.state());
    let unreachable_s =
        state.unreachable_since.map(|since| shared.now().saturating_sub(since).as_secs());
    Json(json!({
        "group": config.group,
        "node": config.node,
        "seq": state.report.seq,
        "versions": state.report.versions,
        "fetch_limit_bytes_per_second": deployment.limit(),
        "unreachable_seconds": unreachable_s,
        "error": state.error,
    }))
    .into_response()
}
