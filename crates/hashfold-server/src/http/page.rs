//! The admin page: what is served, and forms that change it. It works without JavaScript.

use super::{
    api::{self, blocking},
    facts::{
        self, ClusterFacts, CommandFacts, Difference, FilterFacts, GroupFacts, ProcessFacts,
        TableFacts, VersionsFacts,
    },
    problems, words,
};
use crate::{
    access::{Caller, Denied, Way},
    audit::{Event, Line},
    change::{Change, ChangeError},
    shared::Shared,
};
use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use std::sync::Arc;

/// Number of lines of the audit log that are shown.
const AUDIT_LINES: usize = 200;

/// Number of slots in a cluster, the width of the map of slots.
const SLOTS: u32 = hashfold::store::SLOTS;

/// What all pages have: who looks, and where to go.
#[derive(Clone)]
struct Frame {
    caller: Caller,
    /// The path of the page, among those in the navigation.
    here: &'static str,
    /// Whether the browser loads the page again every few seconds.
    is_live: bool,
    has_group: bool,
    has_cluster: bool,
    has_audit: bool,
    /// The name of the server in its group or cluster, or its first address.
    server: String,
}

impl Frame {
    fn new(shared: &Shared, caller: Caller, here: &'static str) -> Frame {
        let node = shared.deployment.as_ref().map(|deployment| deployment.config().node.clone());
        let address = shared.config.listen.first().map(ToString::to_string);
        Frame {
            caller,
            here,
            is_live: false,
            has_group: shared.changer.group().is_some(),
            has_cluster: shared.cluster.is_on(),
            has_audit: shared.changer.audit().is_some(),
            server: node.or(address).unwrap_or_default(),
        }
    }

    fn live(self) -> Frame {
        Frame { is_live: true, ..self }
    }
}

/// Renders a page.
fn show(page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// A message in place of a page.
#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    title: String,
    message: String,
}

fn message(frame: Frame, status: StatusCode, title: &str, message: impl Into<String>) -> Response {
    let page = MessagePage { frame, title: title.to_owned(), message: message.into() };
    (status, show(&page)).into_response()
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    problems: Vec<String>,
    process: ProcessFacts,
    tables: Vec<TableFacts>,
    filters: Vec<FilterFacts>,
    commands: Vec<CommandFacts>,
}

pub(super) async fn overview(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    show(&OverviewPage {
        frame: Frame::new(&shared, caller, "/").live(),
        problems: problems(&shared),
        process: facts::process(&shared),
        tables: facts::tables(&shared),
        filters: facts::filters(&shared),
        commands: facts::commands(&shared),
    })
}

#[derive(Template)]
#[template(path = "store.html")]
struct StorePage {
    frame: Frame,
    facts: VersionsFacts,
    served: TableFacts,
    difference: Option<Difference>,
    error: String,
}

/// Two versions to compare on the page of a store.
#[derive(Deserialize)]
pub(super) struct MaybePair {
    from: Option<u64>,
    to: Option<u64>,
}

pub(super) async fn store(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Query(pair): Query<MaybePair>,
) -> Result<Response, Response> {
    let frame = Frame::new(&shared, caller, "/");
    let Some(data) = facts::find(&shared, &name).filter(|data| data.is_store()) else {
        let text = format!("There is no store {name}.");
        return Ok(message(frame, StatusCode::NOT_FOUND, "No such store", text));
    };
    let found = blocking(move || {
        let difference = match (pair.from, pair.to) {
            (Some(from), Some(to)) => Some(facts::difference(&data, from, to)),
            _ => None,
        };
        (facts::versions(&shared, &data), TableFacts::of(&data), difference.transpose())
    });
    let (versions, served, difference) = found.await?;
    let facts = match versions {
        Ok(facts) => facts,
        Err(error) => {
            let title = "The versions cannot be read";
            return Ok(message(frame, StatusCode::BAD_GATEWAY, title, error));
        }
    };
    let (difference, error) = match difference {
        Ok(difference) => (difference, String::new()),
        Err(error) => (None, error),
    };
    Ok(show(&StorePage { frame, facts, served, difference, error }))
}

#[derive(Template)]
#[template(path = "deploy.html")]
struct DeployPage {
    frame: Frame,
    group: GroupFacts,
    limit: u64,
    error: String,
}

pub(super) async fn deploy(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Response> {
    let frame = Frame::new(&shared, caller, "/deploy");
    let Some(deployment) = &shared.deployment else {
        let text = "The configuration has no section deploy.";
        return Ok(message(frame, StatusCode::NOT_FOUND, "No group is followed", text));
    };
    let (limit, error) = (deployment.limit(), deployment.state().error.unwrap_or_default());
    match blocking(move || facts::group(&shared)).await? {
        Some(Ok(group)) => Ok(show(&DeployPage { frame: frame.live(), group, limit, error })),
        found => {
            let text = found.and_then(Result::err).unwrap_or_default();
            let title = "The group cannot be read";
            Ok(message(frame.live(), StatusCode::BAD_GATEWAY, title, text))
        }
    }
}

#[derive(Template)]
#[template(path = "cluster.html")]
struct ClusterPage {
    frame: Frame,
    cluster: ClusterFacts,
}

pub(super) async fn cluster(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let frame = Frame::new(&shared, caller, "/cluster").live();
    match facts::cluster(&shared) {
        Some(cluster) => show(&ClusterPage { frame, cluster }),
        None => {
            let text = "The configuration has no cluster.";
            message(frame, StatusCode::NOT_FOUND, "No cluster", text)
        }
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    lines: Vec<Line>,
}

pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let frame = Frame::new(&shared, caller, "/audit");
    match shared.changer.audit() {
        Some(audit) => show(&AuditPage { frame, lines: audit.last(AUDIT_LINES) }),
        None => {
            let text = "The configuration names no file for one: [admin] audit.";
            message(frame, StatusCode::NOT_FOUND, "No audit log", text)
        }
    }
}

/// A change that a person has not confirmed yet.
#[derive(Clone, Deserialize)]
pub(super) struct Asked {
    store: String,
    action: String,
    version: Option<u64>,
}

#[derive(Template)]
#[template(path = "change.html")]
struct ChangePage {
    frame: Frame,
    asked: Asked,
    group: Option<String>,
    /// The version that is current.
    current: Option<u64>,
    seq: u64,
    is_bad: bool,
    reason: String,
    error: String,
}

impl ChangePage {
    /// Returns the form for a change, with the state that it is about.
    fn new(shared: &Shared, frame: Frame, asked: Asked) -> Result<ChangePage, String> {
        let data = facts::find(shared, &asked.store).filter(|data| data.is_store());
        let data = data.ok_or_else(|| format!("There is no store {}.", asked.store))?;
        api::action(&asked.action, asked.version, false, None)?;
        let VersionsFacts { group, seq, versions, .. } = facts::versions(shared, &data)?;
        let is_bad = versions.iter().any(|it| it.bad && Some(it.number) == asked.version);
        let current = versions.iter().find(|it| it.current).map(|it| it.number);
        let (reason, error) = Default::default();
        Ok(ChangePage { frame, asked, group, current, seq, is_bad, reason, error })
    }

    /// Returns what happens, as the button says it.
    fn verb(&self) -> String {
        let version = self.asked.version.map(|version| format!(" {version}")).unwrap_or_default();
        match self.asked.action.as_str() {
            "rollback" => "Roll back".to_owned() + &version,
            "cancel" => "Withdraw what is fetched".to_owned(),
            "publish" => "Publish".to_owned() + &version,
            "pin" => "Pin".to_owned() + &version,
            _ => "Unpin".to_owned() + &version,
        }
    }
}

pub(super) async fn confirm(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Query(asked): Query<Asked>,
) -> Result<Response, Response> {
    let frame = Frame::new(&shared, caller, "/");
    if !frame.caller.may_change() {
        return Ok(not_allowed(frame));
    }
    let again = frame.clone();
    Ok(match blocking(move || ChangePage::new(&shared, frame, asked)).await? {
        Ok(page) => show(&page),
        Err(text) => message(again, StatusCode::CONFLICT, "This is not possible", text),
    })
}

fn not_allowed(frame: Frame) -> Response {
    let text = "Only the holder of an operator's token may change something. The configuration file has \
                the hash of each token.";
    message(frame, StatusCode::FORBIDDEN, "Not allowed", text)
}

/// A change that a person has confirmed.
#[derive(Deserialize)]
pub(super) struct Confirmed {
    #[serde(flatten)]
    asked: AskedText,
    /// The sequence number of the pointer that the person has seen. A form without it is refused.
    #[serde(default)]
    seq: String,
    reason: String,
    /// The name of the store, typed by hand.
    confirm: String,
    /// Whether a version is published that is marked bad or does not pass gates: `on`, or absent.
    force: Option<String>,
    csrf: String,
}

/// [`Asked`] as a form sends it: all values are texts.
#[derive(Deserialize)]
struct AskedText {
    store: String,
    action: String,
    #[serde(default)]
    version: String,
}

impl AskedText {
    /// Returns the change; `None` if the version is no number.
    fn parse(self) -> Option<Asked> {
        let AskedText { store, action, version } = self;
        let version = match version.as_str() {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        Some(Asked { store, action, version })
    }
}

pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Form(form): Form<Confirmed>,
) -> Result<Response, Response> {
    let frame = Frame::new(&shared, caller.clone(), "/");
    if !is_own_form(&shared, &caller, &headers, &form.csrf) {
        let text =
            "The form was not from this page, or the session has ended. Sign in and try again.";
        return Ok(message(frame, StatusCode::FORBIDDEN, "Not allowed", text));
    }
    if !caller.may_change() {
        return Ok(not_allowed(frame));
    }
    let (Some(seq), Some(asked)) = (api::sequence_number(&form.seq), form.asked.parse()) else {
        let text = "The form does not say which state it is about. Open it again.";
        return Ok(message(frame, StatusCode::BAD_REQUEST, "Not a form of this page", text));
    };
    let (reason, force, confirm) = (form.reason, form.force.is_some(), form.confirm);
    let again = frame.clone();
    let done = blocking(move || {
        let mut page = ChangePage::new(&shared, frame, asked)?;
        let mut status = StatusCode::CONFLICT;
        page.error = match refusal(&page.asked, &reason, &confirm) {
            Some(refusal) => refusal,
            None => match make(&shared, &page.asked, force, &reason, caller.who, seq) {
                Ok(()) => return Ok(Err(page.asked.store)),
                Err(error) => {
                    status = api::status(&error);
                    // The attempt may have changed the pointer, by an announcement say.
                    let again = ChangePage::new(&shared, page.frame.clone(), page.asked.clone());
                    page = again.unwrap_or(page);
                    error.to_string()
                }
            },
        };
        page.reason = reason;
        Ok(Ok((status, page)))
    });
    Ok(match done.await? {
        Ok(Err(store)) => to_store(&store),
        Ok(Ok((status, page))) => (status, show(&page)).into_response(),
        Err::<_, String>(text) => {
            message(again, StatusCode::CONFLICT, "This is not possible", text)
        }
    })
}

/// Sends a browser to the page of a store.
fn to_store(name: &str) -> Response {
    match askama::filters::urlencode_strict(name) {
        Ok(name) => Redirect::to(&format!("/store/{name}")).into_response(),
        Err(never) => match never {},
    }
}

/// Returns why a form is not complete.
fn refusal(asked: &Asked, reason: &str, confirm: &str) -> Option<String> {
    if reason.trim().is_empty() {
        return Some("Say why: the reason is in the audit log and in the history.".into());
    }
    (confirm.trim() != asked.store).then(|| format!("Type the name of the store: {}", asked.store))
}

fn make(
    shared: &Shared,
    asked: &Asked,
    is_forced: bool,
    reason: &str,
    who: String,
    seq: u64,
) -> Result<(), ChangeError> {
    let data = facts::find(shared, &asked.store);
    let data = data.ok_or_else(|| ChangeError::Refused("the store is gone".into()))?;
    let action = api::action(&asked.action, asked.version, is_forced, None);
    let action = action.map_err(ChangeError::Refused)?;
    let reason = reason.trim().to_owned();
    let change = Change { data, action, reason, who, via: "page", seq: Some(seq) };
    shared.changer.apply(&change).map(|_| ())
}

/// Whether a form was on a page of this server, in the session of this caller.
fn is_own_form(shared: &Shared, caller: &Caller, headers: &HeaderMap, csrf: &str) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let public_url = shared.access.public_url();
    let is_own = match (text(header::ORIGIN), text(header::HOST)) {
        (None, _) => true,
        // A proxy may have another name for this server.
        (Some(origin), _) if public_url.as_deref() == Some(origin) => true,
        (Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, from)| from == host)
        }
        (Some(_), None) => false,
    };
    is_own && caller.has_session() && caller.csrf == csrf
}

#[derive(Template)]
#[template(path = "sign-in.html")]
struct SignInPage {
    error: &'static str,
}

pub(super) async fn sign_in_form() -> Response {
    show(&SignInPage { error: "" })
}

/// The form of signing in.
#[derive(Deserialize)]
pub(super) struct SignIn {
    token: String,
}

pub(super) async fn sign_in(
    State(shared): State<Arc<Shared>>,
    Extension(way): Extension<Way>,
    Form(form): Form<SignIn>,
) -> Response {
    match shared.access.sign_in(form.token.trim(), way, shared.now()) {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        Err(denied) => {
            let (status, error) = match denied {
                Denied::Unknown => (StatusCode::UNAUTHORIZED, "This token is not known."),
                Denied::TooMany => {
                    (StatusCode::TOO_MANY_REQUESTS, "Too many wrong tokens. Wait a second.")
                }
            };
            (status, show(&SignInPage { error })).into_response()
        }
    }
}

/// The form of signing out.
#[derive(Deserialize)]
pub(super) struct SignOut {
    csrf: String,
}

pub(super) async fn sign_out(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Extension(way): Extension<Way>,
    headers: HeaderMap,
    Form(form): Form<SignOut>,
) -> Response {
    if !is_own_form(&shared, &caller, &headers, &form.csrf) {
        return Redirect::to("/").into_response();
    }
    let cookie = shared.access.sign_out(&headers, way);
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

pub(super) async fn style() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (kind, include_str!("../../templates/style.css")).into_response()
}
