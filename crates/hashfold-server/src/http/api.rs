//! The JSON documents below `/v1`, and the changes that programs make there.

use super::facts::{self, TableFacts};
use crate::{
    access::Caller,
    change::{Action, Change, ChangeError, Changed},
    data::DataSet,
    shared::Shared,
};
use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of lines of the audit log in a document.
const AUDIT_LINES: usize = 1000;

/// Returns an error as a document.
pub(super) fn error(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(json!({ "error": message.into() }))).into_response()
}

/// Runs work that may wait for the device or the network, on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "the request has failed"))
}

/// Returns the store of a name, or the error document.
#[expect(clippy::result_large_err, reason = "the error is the reply, made once for a request")]
pub(super) fn store(shared: &Shared, name: &str) -> Result<Arc<DataSet>, Response> {
    match facts::find(shared, name) {
        Some(data) if data.is_store() => Ok(data),
        Some(_) => {
            Err(error(StatusCode::CONFLICT, format!("{name} is a table, which has no versions")))
        }
        None => Err(error(StatusCode::NOT_FOUND, format!("there is no store {name}"))),
    }
}

pub(super) async fn data(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let tables: Vec<TableFacts> = facts::tables(&shared);
    let all = tables.iter().map(|it| json!(it));
    let filters = facts::filters(&shared);
    Json(json!({ "data": all.chain(filters.iter().map(|it| json!(it))).collect::<Vec<_>>() }))
}

pub(super) async fn versions(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Response, Response> {
    let data = store(&shared, &name)?;
    let found = blocking(move || facts::versions(&shared, &data)).await?;
    found
        .map(|found| Json(found).into_response())
        .map_err(|message| error(StatusCode::INTERNAL_SERVER_ERROR, message))
}

/// Two versions to compare.
#[derive(Deserialize)]
pub(super) struct Pair {
    pub(super) from: u64,
    pub(super) to: u64,
}

pub(super) async fn difference(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Query(Pair { from, to }): Query<Pair>,
) -> Result<Response, Response> {
    let data = store(&shared, &name)?;
    let found = blocking(move || facts::difference(&data, from, to)).await?;
    found
        .map(|found| Json(found).into_response())
        .map_err(|message| error(StatusCode::CONFLICT, message))
}

pub(super) async fn deploy(State(shared): State<Arc<Shared>>) -> Response {
    let Some(deployment) = &shared.deployment else { return no_group() };
    let (config, state) = (deployment.config(), deployment.state());
    let unreachable_s =
        state.unreachable_since.map(|since| shared.now().saturating_sub(since).as_secs());
    Json(json!({
        "group": config.group,
        "node": config.node,
        "zone": config.zone,
        "seq": state.report.seq,
        "versions": state.report.versions,
        "fetch_limit_bytes_per_second": deployment.limit(),
        "unreachable_seconds": unreachable_s,
        "error": state.error,
    }))
    .into_response()
}

pub(super) async fn group(State(shared): State<Arc<Shared>>) -> Result<Response, Response> {
    match blocking(move || facts::group(&shared)).await? {
        None => Ok(no_group()),
        Some(Ok(group)) => Ok(Json(group).into_response()),
        Some(Err(message)) => Err(error(StatusCode::BAD_GATEWAY, message)),
    }
}

fn no_group() -> Response {
    error(StatusCode::NOT_FOUND, "no group is followed")
}

pub(super) async fn cluster(State(shared): State<Arc<Shared>>) -> Response {
    match facts::cluster(&shared) {
        None => error(StatusCode::NOT_FOUND, "the server is in no cluster"),
        Some(cluster) => Json(cluster).into_response(),
    }
}

pub(super) async fn audit(State(shared): State<Arc<Shared>>) -> Response {
    match shared.changer.audit() {
        None => error(StatusCode::NOT_FOUND, "there is no audit log"),
        Some(audit) => Json(json!({ "lines": audit.last(AUDIT_LINES) })).into_response(),
    }
}

/// What a program asks for, besides the action.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    version: Option<u64>,
    reason: String,
    #[serde(default)]
    force: bool,
    /// Maximum fraction of a sample of keys that may be missing or have another value.
    max_change: Option<f64>,
}

/// Returns the action of a name.
///
/// # Errors
/// There is no such action, it needs a version, or it takes no limit of changes.
pub(super) fn action(
    name: &str,
    version: Option<u64>,
    is_forced: bool,
    change_max: Option<f64>,
) -> Result<Action, String> {
    if let Some(max) = change_max.filter(|max| !(0.0..=1.0).contains(max)) {
        return Err(format!("max_change: expected a fraction from 0 to 1, got {max}"));
    }
    if change_max.is_some() && name != "publish" {
        return Err(format!("max_change: expected it for publish only, got it for {name}"));
    }
    match (name, version) {
        ("publish", Some(version)) => Ok(Action::Publish { version, is_forced, change_max }),
        ("pin", Some(version)) => Ok(Action::Pin { version }),
        ("unpin", Some(version)) => Ok(Action::Unpin { version }),
        ("rollback", to) => Ok(Action::RollBack { to }),
        ("cancel", None) => Ok(Action::Cancel),
        ("publish" | "pin" | "unpin", None) => Err(format!("{name}: expected a version, got none")),
        _ => Err("expected publish, rollback, pin, unpin or cancel".into()),
    }
}

/// Makes a change.
pub(super) async fn apply(shared: Arc<Shared>, change: Change) -> Result<Changed, Response> {
    let result = blocking(move || shared.changer.apply(&change)).await?;
    result.map_err(|failure| error(status(&failure), failure.to_string()))
}

/// Returns the status of the reply to a change that was not done as it should be.
pub(super) fn status(failure: &ChangeError) -> StatusCode {
    match failure {
        ChangeError::Moved(_) => StatusCode::PRECONDITION_FAILED,
        ChangeError::Refused(_) => StatusCode::CONFLICT,
        ChangeError::Incomplete(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path((name, verb)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Response> {
    if caller.has_session() {
        let message = "a program sends its token: Authorization: Bearer TOKEN";
        return Err(error(StatusCode::FORBIDDEN, message));
    }
    if !caller.may_change() {
        let message =
            "expected the token of an operator; the configuration file has the hash of each token";
        return Err(error(StatusCode::FORBIDDEN, message));
    }
    let bad = |message: String| error(StatusCode::BAD_REQUEST, message);
    let ask: Ask = serde_json::from_slice(&body).map_err(|error| {
        bad(format!(
            "expected a document such as {{\"version\": 41, \"reason\": \"…\"}}, got {error}"
        ))
    })?;
    if ask.reason.trim().is_empty() {
        return Err(bad("reason: expected a text, got none".into()));
    }
    let change = Change {
        data: store(&shared, &name)?,
        action: action(&verb, ask.version, ask.force, ask.max_change).map_err(bad)?,
        reason: ask.reason,
        who: caller.who,
        via: "http",
        seq: if_match(&headers).map_err(bad)?,
    };
    let Changed { version, previous, seq } = apply(shared, change).await?;
    Ok(Json(json!({ "version": version, "previous": previous, "seq": seq })).into_response())
}

/// Returns the sequence number in a header `If-Match: "17"`; `None` without the header.
///
/// # Errors
/// The header is something else, or is there twice: it must not be taken for no condition.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, String> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match sequence_number(quoted.unwrap_or(text)).filter(|_| more.is_none()) {
        None => Err(format!("If-Match: expected one sequence number, got {text}")),
        found => Ok(found),
    }
}

/// Returns the sequence number that a text of digits is.
pub(super) fn sequence_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
