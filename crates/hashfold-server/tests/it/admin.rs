//! The admin page and the changes over HTTP: tokens, forms, and the audit log.
#![expect(clippy::disallowed_methods, reason = "the test reads the audit log behind its back")]

use crate::{
    fixture::{Client, Home},
    http::{Answer, call},
};
use hashfold_server::Server;
use serde_json::{Value, json};
use std::fs;

/// A program or a browser.
pub(crate) struct Visitor<'a> {
    server: &'a Server,
    headers: Vec<(&'a str, String)>,
}

impl<'a> Visitor<'a> {
    fn with(server: &'a Server, name: &'a str, value: impl Into<String>) -> Visitor<'a> {
        Visitor { server, headers: vec![(name, value.into())] }
    }

    fn program(server: &'a Server, token: &str) -> Visitor<'a> {
        Visitor::with(server, "Authorization", format!("Bearer {token}"))
    }

    /// Signs in with a token, as a browser does.
    pub(crate) fn browser(server: &'a Server, token: &str) -> Visitor<'a> {
        let answer = call(server, "POST", "/sign-in", FORM, &format!("token={token}"));
        assert_eq!(answer.status, 303, "{}", answer.body);
        let cookie = answer.header("set-cookie");
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        Visitor::with(server, "Cookie", cookie.split(';').next().unwrap())
    }

    fn call(&self, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
        let own = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        call(self.server, method, path, &headers, body)
    }

    fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], "")
    }

    /// Posts a document, and returns the status and the reply's document.
    fn post(&self, path: &str, document: &Value) -> (u16, Value) {
        let answer = self.call("POST", path, &[], &document.to_string());
        let body = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
        (answer.status, body)
    }

    /// Opens the form of a change, and returns its hidden fields.
    pub(crate) fn form(&self, query: &str) -> String {
        let page = self.get(&format!("/change?{query}"));
        assert_eq!(page.status, 200, "{}", page.body);
        let fields = page.body.split("<input type=\"hidden\" ").skip(1).filter(|it| {
            // The form of signing out comes first.
            it.starts_with("name")
        });
        let mut pairs: Vec<String> = fields
            .map(|field| {
                let mut texts = field.split('"');
                let name = texts.nth(1).unwrap();
                format!("{name}={}", texts.nth(1).unwrap())
            })
            .collect();
        pairs.dedup();
        let csrf = pairs.remove(0);
        pairs.retain(|pair| !pair.starts_with("csrf="));
        format!("{csrf}&{}", pairs.join("&"))
    }

    pub(crate) fn submit(&self, form: &str) -> Answer {
        self.call("POST", "/change", FORM, form)
    }
}

const FORM: &[(&str, &str)] = &[("Content-Type", "application/x-www-form-urlencoded")];

const TOKENS: &str = "http-listen = ['127.0.0.1:0']
admin.audit = 'audit.jsonl'
[admin.token.eve]
sha256 = '145c5b8f45e2749b637681cffce6b2d6f0a713533b1e990593f5076c734e1937'
role = 'operator'
[admin.token.bob]
sha256 = '0f66ae12bc9ba00d431d1c97d5a4b76355aa8e20a0954905b4cb0708dc82baa0'
role = 'viewer'
";

const EVE: &str = "secret of eve";
const BOB: &str = "secret of bob";

/// A store with three versions, of which the last is current.
fn home() -> Home {
    let home = Home::new();
    home.publish(2);
    home.publish(3);
    home
}

fn serve(home: &Home) -> Server {
    home.serve_file(&format!(
        "{TOKENS}[data.people]\npath = 'people'\n[data.table]\npath = 'table'\n\
         [user.default]\nspace = 'people'\n"
    ))
}

fn lines(home: &Home) -> Vec<Value> {
    let text = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn without_tokens_everybody_sees_and_nobody_changes() {
    let home = home();
    let server = home.serve_file(
        "http-listen = ['127.0.0.1:0']\nfilters.path = 'filters'\n[data.people]\npath = 'people'\n\
         [data.seen]\npath = 'seen'\n[user.default]\nspace = 'people'\nfilters = ['seen']\n",
    );
    let mut client = Client::of(&server);
    client.call("GET key-1");
    let nobody = Visitor { server: &server, headers: Vec::new() };
    let page = nobody.get("/");
    assert_eq!(page.status, 200);
    for expected in ["Ready", "people", "seen", "<code>get</code>", "2,000"] {
        assert!(page.body.contains(expected), "{expected}: {}", page.body);
    }
    assert!(page.header("content-security-policy").starts_with("default-src 'self'"));
    let page = nobody.get("/store/people?from=1&to=3");
    assert!(page.body.contains("100.0 %") && !page.body.contains("Roll back"), "{}", page.body);
    assert!(page.body.contains("operator's token"), "{}", page.body);
    assert_eq!(nobody.get("/store/nope").status, 404);
    assert_eq!(nobody.get("/store/seen").status, 404);
    for path in ["/deploy", "/cluster", "/audit", "/v1/group", "/v1/cluster", "/v1/audit"] {
        assert_eq!(nobody.get(path).status, 404, "{path}");
    }
    for path in ["/nope", "/v1", "/v1/nope"] {
        let absent = nobody.get(path);
        assert!(
            absent.status == 404 && absent.body.contains("at /v1/data"),
            "{path}: {}",
            absent.body
        );
    }
    assert_eq!(nobody.get("/change?store=people&action=rollback").status, 403);
    let (status, body) = nobody.post("/v1/data/people/rollback", &json!({ "reason": "x" }));
    assert_eq!(status, 403, "{body}");
    client.check("GET key-1", "\"value 1 of version 3\"");
}

#[test]
fn programs_with_a_token_change_versions() {
    let home = home();
    let server = serve(&home);
    let (eve, bob) = (Visitor::program(&server, EVE), Visitor::program(&server, BOB));
    for path in ["/v1/data", "/v1/data/people/versions", "/v1/audit"] {
        assert_eq!(call(&server, "GET", path, &[], "").status, 401, "{path}");
        assert_eq!(bob.get(path).status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(call(&server, "GET", path, &[], "").status, 200, "{path}");
    }
    assert_eq!(bob.post("/v1/data/people/rollback", &json!({ "reason": "x" })).0, 403);

    let (status, body) = eve.post("/v1/data/people/rollback", &json!({ "reason": "wrong" }));
    assert_eq!((status, &body["version"], &body["previous"]), (200, &json!(2), &json!(3)));
    let mut client = Client::of(&server);
    client.check("GET key-1", "\"value 1 of version 2\"");
    let publish = json!({ "version": 3, "reason": "right after all" });
    let (status, body) = eve.post("/v1/data/people/publish", &publish);
    assert_eq!(status, 409, "{body}");
    assert!(body["error"].as_str().unwrap().contains("version 3 is marked bad"), "{body}");
    let forced = json!({ "version": 3, "reason": "right after all", "force": true });
    assert_eq!(eve.post("/v1/data/people/publish", &forced).0, 200);
    client.check("GET key-1", "\"value 1 of version 3\"");
    assert_eq!(eve.post("/v1/data/people/pin", &json!({ "version": 1, "reason": "audit" })).0, 200);
    let versions: Value = serde_json::from_str(&bob.get("/v1/data/people/versions").body).unwrap();
    let seq = versions["seq"].as_u64().unwrap();
    assert_eq!(versions["versions"][2]["pinned"], true);
    assert_eq!(versions["versions"][0]["current"], true);
    let log = lines(&home);
    let events: Vec<&str> = log.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["begin", "done", "begin", "failed", "begin", "done", "begin", "done"]);
    assert_eq!((&log[1]["who"], &log[1]["via"]), (&json!("eve"), &json!("http")));
    assert_eq!((&log[7]["seq"], &log[7]["version"]), (&json!(seq), &json!(1)));

    // A change of a state that is no longer there.
    let old = (seq - 1).to_string();
    let late = json!({ "reason": "late" }).to_string();
    let answer = eve.call("POST", "/v1/data/people/rollback", &[("If-Match", &old)], &late);
    assert_eq!(answer.status, 412, "{}", answer.body);
    let now = format!("\"{seq}\"");
    let answer = eve.call("POST", "/v1/data/people/rollback", &[("If-Match", &now)], &late);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Returns the sequence number of the pointer of the store.
fn seq(visitor: &Visitor<'_>) -> String {
    let versions: Value =
        serde_json::from_str(&visitor.get("/v1/data/people/versions").body).unwrap();
    versions["seq"].to_string()
}

/// Issue 15.
#[test]
fn a_form_without_the_state_that_was_seen_changes_nothing() {
    let home = home();
    let server = serve(&home);
    let eve = Visitor::browser(&server, "secret+of+eve");
    for (query, action) in [
        ("publish&version=2", "publish"),
        ("rollback", "rollback"),
        ("rollback&version=1", "rollback to a version"),
        ("pin&version=2", "pin"),
        ("unpin&version=2", "unpin"),
    ] {
        let form = eve.form(&format!("store=people&action={query}"));
        let good = format!("{form}&reason=tested&confirm=people");
        let seq = good.split('&').find(|field| field.starts_with("seq=")).unwrap();
        let fields = good.split('&').filter(|field| !field.starts_with("version="));
        let wrong_version = fields.chain(["version=two"]).collect::<Vec<_>>().join("&");
        for (forged, status) in [
            (good.replace(&format!("&{seq}"), ""), 400),
            (good.replace(seq, "seq="), 400),
            (good.replace(seq, "seq=now"), 400),
            (good.replace(seq, "seq=-1"), 400),
            (good.replace(seq, "seq=%2B1"), 400),
            (good.replace(seq, "seq=1e3"), 400),
            (good.replace(seq, "seq=99999999999999999999"), 400),
            (good.replace(seq, "seq=0"), 412),
            (good.replace(seq, "seq=18446744073709551615"), 412),
            (good.replace(seq, &format!("{seq}&{seq}")), 422),
            (wrong_version, 400),
        ] {
            let answer = eve.submit(&forged);
            assert_eq!(answer.status, status, "{action}: {forged}: {}", answer.body);
        }
    }
    assert!(lines(&home).iter().all(|line| line["event"] != "done"));
    Client::of(&server).check("GET key-1", "\"value 1 of version 3\"");
}

#[test]
fn requests_that_make_no_sense_change_nothing() {
    let home = home();
    let server = serve(&home);
    let eve = Visitor::program(&server, EVE);
    let why = json!({ "reason": "x" });
    let version = |number: i64| json!({ "version": number, "reason": "x" });
    let limit = |max: f64| json!({ "version": 3, "reason": "x", "max_change": max });
    for (path, document, status, message) in [
        ("people/publish", why.clone(), 400, "expected a version, got none"),
        ("people/publish", json!({ "version": 3 }), 400, "missing field `reason`"),
        ("people/publish", json!({ "version": 3, "reason": " " }), 400, "reason: expected a text"),
        ("people/publish", version(-3), 400, "got invalid value: integer `-3`"),
        ("people/publish", json!({ "reason": "x", "more": 1 }), 400, "got unknown field `more`"),
        ("people/publish", limit(5.0), 400, "max_change: expected a fraction from 0 to 1, got 5"),
        ("people/pin", limit(0.5), 400, "max_change: expected it for publish only"),
        ("people/publish", version(99), 409, "people has no version 99"),
        ("people/pin", version(99), 409, "people has no version 99"),
        ("people/cancel", why.clone(), 409, "nothing to cancel"),
        ("people/explode", why.clone(), 400, "expected publish, rollback"),
        ("table/rollback", why.clone(), 409, "table is a table"),
        ("nope/rollback", why.clone(), 404, "there is no store nope"),
    ] {
        let (got, body) = eve.post(&format!("/v1/data/{path}"), &document);
        assert_eq!(got, status, "{path} {document}: {body}");
        assert!(body["error"].as_str().unwrap().contains(message), "{path} {document}: {body}");
    }
    assert_eq!(eve.call("POST", "/v1/data/people/rollback", &[], "{").status, 400);
    for wrong in ["many", "*", "", "-1", "+1", "1.0", "\"1", "\"1\", \"2\"", "99999999999999999999"]
    {
        let if_match = [("If-Match", wrong)];
        let answer = eve.call("POST", "/v1/data/people/rollback", &if_match, &why.to_string());
        assert_eq!(answer.status, 400, "{wrong}");
    }
    let seq = seq(&eve);
    for action in ["publish", "rollback", "pin", "unpin"] {
        let path = format!("/v1/data/people/{action}");
        let document = match action {
            "rollback" => why.to_string(),
            _ => json!({ "version": 2, "reason": "x" }).to_string(),
        };
        let answer = eve.call("POST", &path, &[("If-Match", "0")], &document);
        assert_eq!(answer.status, 412, "{action}: {}", answer.body);
        let twice = [("If-Match", seq.as_str()), ("If-Match", seq.as_str())];
        assert_eq!(eve.call("POST", &path, &twice, &document).status, 400, "{action}");
    }
    assert_eq!(self::seq(&eve), seq);
    Client::of(&server).check("GET key-1", "\"value 1 of version 3\"");
}

#[test]
fn people_sign_in_and_change_versions_with_forms() {
    let home = home();
    let server = serve(&home);
    assert_eq!(call(&server, "GET", "/", &[], "").header("location"), "/sign-in");
    let wrong = call(&server, "POST", "/sign-in", FORM, "token=guess");
    assert!(wrong.status == 401 && wrong.body.contains("not known"));
    let bob = Visitor::browser(&server, "secret+of+bob");
    assert!(!bob.get("/store/people").body.contains("Roll back"));
    assert_eq!(bob.get("/change?store=people&action=rollback").status, 403);

    let eve = Visitor::browser(&server, "secret+of+eve");
    assert!(eve.get("/store/people").body.contains("Roll back"));
    let form = eve.form("store=people&action=publish&version=2");
    let good = format!("{form}&reason=older+prices&confirm=people");
    let old_csrf = form.split('&').next().unwrap();
    for (form, status, expected) in [
        (good.replace(old_csrf, "csrf=guess"), 403, "Not allowed"),
        (format!("{form}&reason=+&confirm=people"), 409, "Say why"),
        (format!("{form}&reason=older&confirm=peple"), 409, "Type the name"),
    ] {
        let answer = eve.submit(&form);
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    let foreign = [FORM[0], ("Origin", "http://evil.example")];
    assert_eq!(eve.call("POST", "/change", &foreign, &good).status, 403);
    // A session is no token: other sites could use it.
    assert_eq!(eve.post("/v1/data/people/rollback", &json!({ "reason": "x" })).0, 403);
    let mut client = Client::of(&server);
    client.check("GET key-1", "\"value 1 of version 3\"");

    let own = [FORM[0], ("Origin", "http://x")];
    let done = eve.call("POST", "/change", &own, &good);
    assert_eq!((done.status, done.header("location")), (303, "/store/people"), "{}", done.body);
    client.check("GET key-1", "\"value 1 of version 2\"");
    // The state that the form was about is no longer there.
    let again = eve.submit(&good);
    assert!(again.status == 412 && again.body.contains("look again"), "{}", again.body);
    let audit = eve.get("/audit").body;
    for expected in ["publish people 2", "older prices", "eve (page)", "done"] {
        assert!(audit.contains(expected), "{expected}: {audit}");
    }
    let form = eve.form("store=people&action=rollback");
    eve.call("POST", "/sign-out", FORM, form.split('&').next().unwrap());
    assert_eq!(eve.get("/").header("location"), "/sign-in");
}

#[test]
fn names_and_reasons_are_texts_and_never_markup() {
    let home = home();
    let server = serve(&home);
    let eve = Visitor::program(&server, EVE);
    let attack = "<script>alert('x')</script>";
    let pin = json!({ "version": 1, "reason": attack });
    assert_eq!(eve.post("/v1/data/people/pin", &pin).0, 200);
    let eve = Visitor::browser(&server, "secret+of+eve");
    for page in [
        eve.get("/audit"),
        eve.get("/store/%3Cscript%3Ealert"),
        eve.submit(&format!(
            "{}&reason=%3Cscript%3E&confirm=no",
            eve.form("store=people&action=rollback")
        )),
    ] {
        assert!(!page.body.contains("<script>"), "{}", page.body);
        assert!(page.body.contains("script"), "{}", page.body);
    }
}

#[test]
fn commands_are_in_the_audit_log_with_their_reasons() {
    let home = home();
    let server = serve(&home);
    let mut client = Client::of(&server);
    client.call("HASHFOLD.PUBLISH people 2 REASON tested");
    client.call("HASHFOLD.PIN people 3");
    client.call("HASHFOLD.PUBLISH people 77");
    let log = lines(&home);
    let short = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        [text("event"), text("who"), text("via"), text("action"), text("reason")].join(" ")
    };
    let short: Vec<String> = log.iter().map(short).collect();
    assert_eq!(
        short,
        [
            "begin default redis publish tested",
            "done default redis publish tested",
            "begin default redis pin ",
            "done default redis pin ",
            "begin default redis publish ",
            "failed default redis publish ",
        ]
    );
    server.stop().unwrap();
    // The next server goes on with the numbers.
    let server = serve(&home);
    Client::of(&server).call("HASHFOLD.UNPIN people 3");
    assert_eq!(lines(&home)[6]["change"], 4);
    server.stop().unwrap();
    // A log that was changed is noticed.
    let path = home.path("audit.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("tested", "rested", 1)).unwrap();
    let config = format!("{TOKENS}[data.people]\npath = 'people'\n");
    let error = home.start_file(&config).unwrap_err().to_string();
    assert!(error.contains("audit.jsonl") && error.contains("line of the audit log"), "{error}");
}
