//! Clients that send nonsense, too much, or read nothing, harm nobody else.

use crate::fixture::{Client, Home, request};
use hashfold::{Env, TableBuilder, io::Access, table::TableOptions};
use hashfold_server::{Config, Server};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

#[test]
fn violations_of_the_protocol_end_the_connection_with_an_error() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    for (bytes, expected) in [
        (&b"*1\r\n+OK\r\n"[..], "expected '$', got '+'"),
        (b"*99999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$99999999\r\n", "invalid bulk length"),
        (b"GET \"a\r\n", "unbalanced quotes in request"),
        (b"POST / HTTP/1.1\r\n", "a request of HTTP, expected one of Redis"),
        (
            b"Host: 127.0.0.1:6379\r\nHASHFOLD.ROLLBACK people\r\n",
            "a request of HTTP, expected one of Redis",
        ),
    ] {
        let mut client = Client::of(&server);
        client.send(&request(&["GET", "key-1"]));
        client.send(bytes);
        assert_eq!(client.reply(), "\"value 1 of version 0\"");
        assert_eq!(client.reply(), format!("-ERR Protocol error: {expected}"));
        assert!(client.is_closed());
    }
    let mut client = Client::of(&server);
    client.check("GET key-1", "\"value 1 of version 0\"");
}

#[test]
fn arbitrary_bytes_harm_nobody_else() {
    let home = Home::new();
    let server = home.serve(&["table", "seen"]);
    let mut state: u64 = 7;
    for _ in 0..300 {
        let mut socket = TcpStream::connect(server.addresses()[0]).unwrap();
        let bytes: Vec<u8> = (0..2000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b"*$\r\n0123GET keyPING\"' "[(state >> 33) as usize % 22]
            })
            .collect();
        // The server may have closed the connection before it took all.
        let _ = socket.write_all(&bytes);
    }
    Client::of(&server).check("GET key-1", "\"value 1 of version 0\"");
}

/// A client that reads nothing is not waited for, and its replies do not fill the memory.
#[test]
fn a_client_that_reads_nothing_stops_only_itself() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut lazy = TcpStream::connect(server.addresses()[0]).unwrap();
    lazy.set_nonblocking(true).unwrap();
    let keys: Vec<String> = (0..1000).map(crate::fixture::key).collect();
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    let all = request(&words).repeat(100);
    let mut sent = 0;
    let mut client = Client::of(&server);
    for _ in 0..2000 {
        match lazy.write(&all[sent % all.len()..]) {
            Ok(count) => sent += count,
            Err(_) => client.check("PING", "+PONG"),
        }
    }
    let info = client.call("CLIENT LIST");
    let waiting: Vec<usize> = info
        .split("omem=")
        .skip(1)
        .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
        .collect();
    // A pause of 1 MiB, and what one turn adds.
    assert!(waiting.iter().all(|bytes| *bytes < 64 << 20), "{waiting:?}");
    client.check("GET key-1", "\"value 1 of version 0\"");
}

#[test]
fn more_connections_than_allowed_are_refused() {
    let home = Home::new();
    let server = home.serve_with(&["table"], |config| config.clients_max = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::of(&server)).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG"));
    let mut more = Client::of(&server);
    assert_eq!(more.reply(), "-ERR max number of clients reached");
    assert!(more.is_closed());
    drop(clients.pop());
    // The place is free once the server has seen the end of the other connection.
    for _ in 0..1000 {
        let mut socket = TcpStream::connect(server.addresses()[0]).unwrap();
        // A connection that is refused may be closed at any moment of this.
        let mut reply = [0; 7];
        let asked = socket.write_all(b"PING\r\n").and_then(|()| socket.read_exact(&mut reply));
        if asked.is_ok() && reply == *b"+PONG\r\n" {
            return;
        }
    }
    panic!("no place became free");
}

#[test]
fn requests_that_were_read_are_answered_when_the_server_stops() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    client.check("PING", "+PONG");
    server.stop().unwrap();
    assert!(client.is_closed());
}

#[test]
fn long_keys_and_values_are_no_trouble() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    let longest = "k".repeat(65_535);
    client.check(&format!("GET {longest}"), "nil");
    client.check(&format!("GET {longest}k"), "-ERR a key has at most 65535 bytes");
    let echo = "e".repeat(1 << 20);
    assert_eq!(client.call(&format!("ECHO {echo}")).len(), echo.len() + 2);
}

/// A line is as good as an array, also if it comes in several parts.
#[test]
fn long_lines_are_answered_and_longer_ones_are_refused() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    for blanks in [32 << 10, 60_000] {
        let mut client = Client::of(&server);
        client.send(format!("GET key-1{}\r\nGET key-2\r\n", " ".repeat(blanks)).as_bytes());
        assert_eq!(client.reply(), "\"value 1 of version 0\"");
        assert_eq!(client.reply(), "\"value 2 of version 0\"");
    }
    let mut client = Client::of(&server);
    client.send(format!("GET key-1{}\r\n", " ".repeat(64 << 10)).as_bytes());
    assert_eq!(client.reply(), "-ERR Protocol error: too big inline request");
}

/// Many large values at once get an error, and neither the others nor the memory suffer.
#[test]
fn requests_for_too_much_are_refused_and_others_are_answered() {
    let home = Home::new();
    let mut table = TableBuilder::with(home.path("large"), TableOptions::new()).unwrap();
    for i in 0..3 {
        table.push(format!("large-{i}"), vec![b'a'; 20 << 20]).unwrap();
    }
    table.push("small", "value").unwrap();
    table.finish().unwrap();
    for access in [Access::Mapped, Access::Direct] {
        let server = home.serve_with(&["large"], |config| {
            config.data.get_mut("large").unwrap().access = Some(access);
        });
        let mut client = Client::of(&server);
        let many = format!("MGET{}", " large-0".repeat(100));
        for line in
            [&*many, "GET small", "GET large-1", "EXISTS large-0 large-1 large-2 nope", "GET small"]
        {
            client.ask(line);
        }
        client.ask(&format!("EXISTS{}", " large-2".repeat(20)));
        let too_large =
            "-ERR the values of one request have at most 64 MiB; ask for fewer keys at once";
        assert_eq!(client.reply(), too_large);
        assert_eq!(client.reply(), "\"value\"");
        assert_eq!(client.reply().len(), (20 << 20) + 2);
        assert_eq!(client.reply(), "3");
        assert_eq!(client.reply(), "\"value\"");
        assert_eq!(client.reply(), "20");
    }
}

/// Values take no more memory than the buffers of clients may, whatever is asked for at once.
#[test]
fn requests_for_more_than_the_memory_of_clients_are_refused() {
    let home = Home::new();
    let mut table = TableBuilder::with(home.path("large"), TableOptions::new()).unwrap();
    for i in 0..4 {
        table.push(format!("large-{i}"), vec![b'a'; 1 << 20]).unwrap();
    }
    table.finish().unwrap();
    for access in [Access::Mapped, Access::Direct] {
        let server = home.serve_with(&["large"], |config| {
            config.client_memory_bytes = 3 << 20;
            config.data.get_mut("large").unwrap().access = Some(access);
        });
        let mut client = Client::of(&server);
        let refused = "-ERR the values of one request have at most 3145728 bytes, the memory of clients; ask for \
                       fewer keys at once";
        client.check("MGET large-0 large-1 large-2 large-3", refused);
        assert_eq!(client.call("GET large-3").len(), (1 << 20) + 2);
        client.check("EXISTS large-0 large-1 large-2 large-3", "4");
        client.check("MULTI", "+OK");
        for i in 0..4 {
            client.check(&format!("GET large-{i}"), "+QUEUED");
        }
        let replies = client.call("EXEC");
        assert_eq!(replies.matches(refused).count(), 4, "{} bytes", replies.len());
        client.check("EXISTS large-0", "1");
    }
}

/// A client that sends much of a request and never its end, beside one that asks in time.
#[test]
fn buffers_of_all_connections_together_are_limited() {
    let home = Home::new();
    let server = home.serve_with(&["people"], |config| config.client_memory_bytes = 4 << 20);
    let mut greedy: Vec<Client> = (0..3).map(|_| Client::of(&server)).collect();
    for client in &mut greedy {
        client.send(b"*20\r\n$4\r\nMGET\r\n");
        let argument = [b"$500000\r\n".as_slice(), &[b'k'; 500_000], b"\r\n"].concat();
        // Some of it may meet a connection that is closed already.
        (0..4).for_each(|_| client.try_to_send(&argument));
    }
    let mut modest = Client::of(&server);
    modest.wait_for("INFO stats", &|stats| !stats.contains("evicted_clients:0"));
    modest.wait_for("CLIENT LIST", &|clients| clients.matches("laddr=").count() < 4);
    modest.check("GET key-1", "\"value 1 of version 1\"");
}

#[test]
fn two_servers_do_not_share_an_address() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut config = Config::of_folders(&[home.path("people")]).unwrap();
    config.listen = server.addresses().to_vec();
    let error = Server::start(config, &Env::system()).unwrap_err();
    assert!(error.to_string().contains("listen on 127.0.0.1:"), "{error}");
    Client::of(&server).check("GET key-1", "\"value 1 of version 0\"");
}

#[test]
fn names_of_clients_are_short_and_a_login_is_not_in_the_slow_log() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    let long = "x".repeat(2000);
    client.check(&format!("CLIENT SETNAME {long}"), "-ERR Client names have at most 1024 bytes.");
    client
        .check(&format!("CLIENT SETINFO lib-name {long}"), "-ERR lib-name has at most 1024 bytes.");
    client.check("CONFIG SET slowlog-log-slower-than 0", "+OK");
    client.call("AUTH table secret");
    let log = client.call("SLOWLOG GET");
    assert!(log.to_lowercase().contains("auth") && !log.contains("secret"), "{log}");
}

/// Number of lines in a pipeline.
const LINES: usize = 200_000;

/// A pipeline of lines is answered while others are served, and takes no more memory than a turn has.
#[test]
fn many_lines_at_once_are_all_answered() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    let mut sender = TcpStream::connect(server.addresses()[0]).unwrap();
    let mut reader = sender.try_clone().unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut replies = vec![0; LINES * b"+PONG\r\n".len()];
            reader.read_exact(&mut replies).unwrap();
            replies.chunks(7).all(|reply| reply == b"+PONG\r\n")
        });
        sender.write_all(&b"PING\n".repeat(LINES)).unwrap();
        client.check("GET key-1", "\"value 1 of version 0\"");
        assert!(reading.join().unwrap());
    });
}
