//! Encrypted connections: TLS, certificates of clients, and certificates that change.
#![expect(clippy::disallowed_methods, reason = "the files of certificates are no data")]

use crate::fixture::{Client, Home, key, request};
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
    net::TcpStream,
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
    StreamOwned::new(tls, Client::socket(server.tls_addresses()[0]))
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
                    tls = { certificate = 'server.pem', key = 'server.key' }\n";
        let config = hashfold_server::Config::parse(text, "f", home.path("").as_path()).unwrap();
        let error = Server::check(&config, &hashfold::Env::system()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(expected), "{error}");
    }
}
