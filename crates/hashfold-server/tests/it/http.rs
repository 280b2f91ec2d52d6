//! Health, metrics and descriptions over HTTP.

use crate::fixture::{Client, Home};
use hashfold_server::Server;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
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

/// Connections that ask for nothing need no token, and could take all files that the server may open.
#[test]
fn the_oldest_connections_make_place_for_others() {
    let home = Home::new();
    let server = home.serve_with(&["table"], |config| {
        config.http_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    });
    let slow = |_| {
        let mut socket = Client::socket(server.http_addresses()[0]);
        socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").unwrap();
        socket
    };
    let mut all: Vec<TcpStream> = (0..200).map(slow).collect();
    assert_eq!(get(&server, "/healthz").1, "ok\n");
    let mut rest = all.split_off(150);
    for socket in &mut all[..100] {
        let ended = socket.read(&mut [0]);
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(ended.as_ref().map_or_else(is_reset, |count| *count == 0), "{ended:?}");
    }
    for socket in &mut rest {
        socket.write_all(b"Connection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("ok\n"), "{reply}");
    }
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

/// Returns the value of a metric.
fn value(metrics: &str, name: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("hashfold_{name} ")));
    line.map(|value| value.parse().unwrap())
}

#[test]
fn lookups_are_timed_by_version_as_long_as_it_is_held() {
    let home = Home::new();
    let server = home.serve_with(&["people", "table"], |config| {
        config.http_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    });
    let count = |data: &str, version: u32| {
        let labels = format!("{{data=\"{data}\",version=\"{version}\"}}");
        value(&get(&server, "/metrics").1, &format!("lookup_duration_seconds_count{labels}"))
    };
    let (mut table, mut pinned) = (Client::of(&server), Client::of(&server));
    let mut client = Client::of(&server);
    table.check("AUTH table x", "+OK");
    pinned.check("AUTH people@1 x", "+OK");
    client.check("AUTH people x", "+OK");
    table.call("GET key-1");
    client.call("GET key-1");
    client.call("MGET key-1 key-2");
    assert_eq!((count("people", 1), count("people", 2)), (Some(2), None));
    for version in 2..5 {
        home.publish(version);
        server.refresh().unwrap();
        (0..version).for_each(|_| drop(client.call("GET key-1")));
    }
    pinned.check("GET key-1", "\"value 1 of version 1\"");
    // The current one, the one before, and the one that a connection holds.
    let counts = (1..6).map(|version| count("people", version)).collect::<Vec<_>>();
    assert_eq!(counts, [Some(3), None, Some(3), Some(4), None]);
    let (_, metrics) = get(&server, "/metrics");
    let of_table = "lookup_duration_seconds_count{data=\"table\"}";
    assert_eq!(value(&metrics, of_table), Some(1));
    let failed = "lookups_failed_total{data=\"people\",version=\"4\"}";
    assert_eq!(value(&metrics, failed), Some(0));
    let last = "lookup_duration_seconds_bucket{data=\"people\",version=\"4\",le=\"+Inf\"}";
    assert_eq!(value(&metrics, last), Some(4));
    let (_, page) = get(&server, "/store/people");
    assert!(page.contains("Latency by version"), "{page}");
    for version in [1, 3, 4] {
        let drawing = format!("distribution of times in version {version}\">\n<rect");
        assert!(page.contains(&drawing), "{drawing}: {page}");
    }
    let versions: serde_json::Value =
        serde_json::from_str(&get(&server, "/v1/data/people/versions").1).unwrap();
    let latency = &versions["latencies"][0];
    assert_eq!((&latency["version"], &latency["calls"]), (&4.into(), &4.into()));
    // The threads forget the version with its last connection.
    pinned.call("QUIT");
    client.wait_for("PING", &|_| count("people", 1).is_none());
    // A rollback: the version that was rolled back is the one before.
    client.call("HASHFOLD.ROLLBACK people");
    client.call("GET key-1");
    assert_eq!((count("people", 3), count("people", 4)), (Some(4), Some(4)));
}

#[test]
fn a_server_that_is_about_to_stop_is_not_ready_and_answers() {
    let home = Home::new();
    let config = "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n";
    for (head, seconds) in [("", 5), ("drain-seconds = 0\n", 0)] {
        let server = home.serve_file(&format!("http-listen = ['127.0.0.1:0']\n{head}{config}"));
        assert_eq!(get(&server, "/readyz").1, "ready\n");
        assert_eq!(server.begin_stop(), Duration::from_secs(seconds));
        let (status, body) = get(&server, "/readyz");
        assert!(status.contains("503") && body.contains("the server stops"), "{status} {body}");
        Client::of(&server).check("GET key-1", "\"value 1 of version 1\"");
        server.stop().unwrap();
    }
    let server = home.serve_file(config);
    assert_eq!(server.begin_stop(), Duration::ZERO, "nobody goes elsewhere");
}
