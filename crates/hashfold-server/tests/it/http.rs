//! Health, metrics and descriptions over HTTP.

use crate::fixture::{Client, Home};
use hashfold_server::Server;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

/// The reply to an HTTP request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        });
        value.unwrap_or_default()
    }
}

/// Sends a request with further headers.
pub(crate) fn call(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut socket = TcpStream::connect(server.http_addresses()[0]).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    write!(socket, "{request}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Returns the status line and the body of a reply.
pub(crate) fn get(server: &Server, path: &str) -> (String, String) {
    let Answer { head, body, .. } = call(server, "GET", path, &[], "");
    (head.lines().next().unwrap().to_owned(), body)
}

#[test]
fn operators_see_health_metrics_and_data() {
    let home = Home::new();
    let server = home.serve_with(&["people", "seen"], |config| {
        config.http_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    });
    let mut client = Client::of(&server);
    client.call("GET key-1");
    client.call("GET nope");
    client.call("SET a b");
    assert_eq!(get(&server, "/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    assert_eq!(get(&server, "/readyz").0, "HTTP/1.1 200 OK");
    let (_, metrics) = get(&server, "/metrics");
    for line in [
        "hashfold_commands_total{command=\"get\",result=\"ok\"} 2",
        "hashfold_lookups_total{result=\"hit\"} 1",
        "hashfold_errors_total{code=\"NOPERM\"} 1",
        "hashfold_entries{data=\"people\"} 2000",
        "hashfold_version{data=\"people\"} 1",
        "hashfold_command_duration_seconds_count{command=\"get\"} 2",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    let (_, data) = get(&server, "/v1/data");
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["data"][0]["version"]["number"], 1);
    assert_eq!(data["data"][1]["kind"], "filter");
    assert_eq!(get(&server, "/nope").0, "HTTP/1.1 404 Not Found");
}

#[test]
fn a_version_with_a_missing_table_is_not_ready() {
    let home = Home::new();
    let tables = home.path("people").join("tables");
    let first = std::fs::read_dir(tables).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir_all(first).unwrap();
    let server = home.serve_with(&["people"], |config| {
        config.http_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    });
    let (status, body) = get(&server, "/readyz");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(body.contains("people: "), "{body}");
    assert!(Client::of(&server).call("GET key-1").starts_with("-DAMAGED "));
}
