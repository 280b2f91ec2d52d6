//! Encrypted connections: TLS, certificates of clients, and certificates that change.
#![expect(clippy::disallowed_methods, reason = "the files of certificates are no data")]

use crate::{
    fixture::{Client, Home, key, request},
    http::call,
};
use hashfold_server::Server;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

type Pair = CertifiedKey<KeyPair>;

fn pair() -> Pair {
    generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap()
}

/// Writes a certificate and its key as files of a server.
fn write(home: &Home, pair: &Pair) {
    fs::write(home.path("server.key"), pair.signing_key.serialize_pem()).unwrap();
    fs::write(home.path("server.pem"), pair.cert.pem()).unwrap();
}

fn serve(home: &Home, more: &str) -> Server {
    home.serve_file(&format!(
        "tls-listen = ['127.0.0.1:0']\n\
         tls = {{ certificate = 'server.pem', key = 'server.key' {more} }}\n\
         [data.table]\npath = 'table'\n[user.default]\nspace = 'table'\n"
    ))
}

/// Connects to a server that has this certificate, and shows a certificate of its own if there is one.
fn connect(
    server: &Server,
    trusted: &Pair,
    own: Option<&Pair>,
) -> StreamOwned<ClientConnection, TcpStream> {
    connect_to(server.tls_addresses()[0], trusted, own)
}

fn connect_to(
    address: SocketAddr,
    trusted: &Pair,
    own: Option<&Pair>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.cert.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
            let certificates: Vec<CertificateDer<'static>> = vec![own.cert.der().clone()];
            builder.with_client_auth_cert(certificates, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(tls, Client::socket(address))
}

#[test]
fn encrypted_clients_get_the_same_answers() {
    let (home, own) = (Home::new(), pair());
    write(&home, &own);
    let server = serve(&home, "");
    let mut client = Client::over(connect(&server, &own, None));
    client.check("PING", "+PONG");
    client.check("GET key-1", "\"value 1 of version 0\"");
    Client::of(&server).check("GET key-1", "\"value 1 of version 0\"");
    // The server says goodbye, so that the client knows that nothing was cut off.
    let mut stream = connect(&server, &own, None);
    stream.write_all(&request(&["QUIT"])).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, b"+OK\r\n");
    // Many requests at once, whose replies take several records.
    let keys: Vec<String> = (0..2000).map(key).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    for _ in 0..20 {
        client.send(&request(&words));
    }
    let replies: Vec<String> = (0..20).map(|_| client.reply()).collect();
    assert!(replies.iter().all(|reply| reply.ends_with("\"value 1999 of version 0\"]")));
    assert!(replies.iter().all(|reply| *reply == replies[0]));
}

#[test]
fn clients_without_encryption_and_bytes_that_are_no_tls_are_refused() {
    let (home, own) = (Home::new(), pair());
    write(&home, &own);
    let server = serve(&home, "");
    let mut plain = Client::connect(server.tls_addresses()[0]);
    plain.send(b"*1\r\n$4\r\nPING\r\n");
    let mut reply = Vec::new();
    // An alert, or nothing, and the end.
    let mut socket = Client::socket(server.tls_addresses()[0]);
    socket.write_all(&[0xff; 600]).unwrap();
    let _ = socket.read_to_end(&mut reply);
    assert!(reply.len() < 16, "{reply:?}");
    // Others are served.
    Client::over(connect(&server, &own, None)).check("PING", "+PONG");
    Client::over(connect(&server, &own, None)).check("PING", "+PONG");
}

#[test]
fn clients_must_have_a_certificate_if_authorities_are_named() {
    let (home, own, friend, stranger) = (Home::new(), pair(), pair(), pair());
    write(&home, &own);
    fs::write(home.path("clients.pem"), friend.cert.pem()).unwrap();
    let server = serve(&home, ", client-ca = 'clients.pem'");
    Client::over(connect(&server, &own, Some(&friend))).check("PING", "+PONG");
    for refused in [None, Some(&stranger)] {
        let mut stream = connect(&server, &own, refused);
        let mut reply = Vec::new();
        let asked = stream.write_all(&request(&["PING"]));
        assert!(asked.is_err() || stream.read_to_end(&mut reply).is_err());
        assert!(reply.is_empty());
    }
}

#[test]
fn new_certificates_are_used_when_the_files_change() {
    let (home, old, new) = (Home::new(), pair(), pair());
    write(&home, &old);
    let server = serve(&home, "");
    let mut before = Client::over(connect(&server, &old, None));
    before.check("PING", "+PONG");
    write(&home, &new);
    let mut plain = Client::of(&server);
    plain.wait_for("PING", &|_| {
        let mut stream = connect(&server, &new, None);
        stream.write_all(&request(&["PING"])).is_ok()
    });
    Client::over(connect(&server, &new, None)).check("PING", "+PONG");
    before.check("GET key-1", "\"value 1 of version 0\"");
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let (home, own) = (Home::new(), pair());
    write(&home, &own);
    for (file, expected) in [
        ("server.pem", "expected certificates in the PEM format"),
        ("server.key", "expected a private key in the PEM format"),
    ] {
        write(&home, &own);
        fs::write(home.path(file), "nothing").unwrap();
        let text = "tls-listen = ['127.0.0.1:0']\nlisten = []\n\
                    tls = { certificate = 'server.pem', key = 'server.key' }\n\
                    [data.table]\npath = 'table'\n";
        let config = hashfold_server::Config::parse(text, "f", home.path("").as_path()).unwrap();
        let error = Server::check(&config, &hashfold::Env::system()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(expected), "{error}");
    }
}

/// Sends an HTTP request over TLS, and returns the reply.
fn ask(server: &Server, trusted: &Pair, own: Option<&Pair>, request: &str) -> String {
    let mut stream = connect_to(server.https_addresses()[0], trusted, own);
    let mut reply = Vec::new();
    let (head, body) = request.split_once('\n').unwrap_or((request, ""));
    let sent = write!(
        stream,
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // A server that refuses the connection says so, or ends it.
    let _ = sent.and_then(|()| stream.read_to_end(&mut reply));
    String::from_utf8(reply).unwrap()
}

/// The token `secret`.
const TOKEN: &str = "[admin.token.eve]\n\
    sha256 = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b'\n\
    role = 'operator'\n";

fn serve_page(home: &Home, more: &str, admin: &str) -> Server {
    home.serve_file(&format!(
        "http-listen = ['127.0.0.1:0']\nhttps-listen = ['127.0.0.1:0']\n\
         tls = {{ certificate = 'server.pem', key = 'server.key' {more} }}\n\
         [data.table]\npath = 'table'\n[user.default]\nspace = 'table'\n{admin}\n{TOKEN}"
    ))
}

#[test]
fn the_admin_page_is_reached_by_tls_and_its_cookie_stays_there() {
    let (home, own) = (Home::new(), pair());
    write(&home, &own);
    let server = serve_page(&home, "", "");
    // Connections that never say anything keep nobody waiting.
    let silent: Vec<TcpStream> =
        (0..10).map(|_| Client::socket(server.https_addresses()[0])).collect();
    let reply = ask(&server, &own, None, "GET /healthz");
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.ends_with("ok\n"), "{reply}");
    let cookie = |reply: &str| {
        let line = reply.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        line.unwrap_or_else(|| panic!("{reply}")).to_owned()
    };
    let signed_in = cookie(&ask(&server, &own, None, "POST /sign-in\ntoken=secret"));
    assert!(signed_in.ends_with("; Secure"), "{signed_in}");
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let plain = call(&server, "POST", "/sign-in", &form, "token=secret");
    assert!(!plain.header("set-cookie").contains("Secure"), "{}", plain.head);
    // Bytes that are no TLS are refused.
    let mut stream = Client::socket(server.https_addresses()[0]);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(reply.len() < 16, "{reply:?}");
    drop(silent);
    server.stop().unwrap();
}

#[test]
fn behind_a_proxy_the_public_url_says_how_browsers_reach_the_page() {
    let (home, own, friend) = (Home::new(), pair(), pair());
    write(&home, &own);
    fs::write(home.path("clients.pem"), friend.cert.pem()).unwrap();
    let admin = "[admin]\npublic-url = 'https://ops.example.org'";
    let server = serve_page(&home, ", client-ca = 'clients.pem'", admin);
    // Programs and browsers show a certificate, too, if clients must.
    assert_eq!(ask(&server, &own, None, "GET /healthz"), "");
    assert!(ask(&server, &own, Some(&friend), "GET /healthz").ends_with("ok\n"));
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let signed_in = call(&server, "POST", "/sign-in", &[form], "token=secret");
    let cookie = signed_in.header("set-cookie").to_owned();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    // The proxy has another name for this server: `x`.
    let session = ("Cookie", cookie.split(';').next().unwrap());
    let sign_out = |origin: &str| {
        let page = call(&server, "GET", "/", &[session], "").body;
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let headers = [form, session, ("Origin", origin)];
        call(&server, "POST", "/sign-out", &headers, &format!("csrf={csrf}"));
        call(&server, "GET", "/", &[session], "").status == 303
    };
    assert!(!sign_out("https://evil.example.org"));
    assert!(sign_out("https://ops.example.org"));
}
