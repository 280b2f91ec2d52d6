//! Passwords, rules, and what each user sees.

use crate::fixture::{Client, Home, request};
use argon2::{Argon2, PasswordHasher as _, password_hash::SaltString};
use hashfold::{
    Env,
    work::{Clock, Signal, SystemClock},
};
use hashfold_server::{Config, Server};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

fn hash(password: &str) -> String {
    let salt = SaltString::from_b64("c2FsdHNhbHQ").unwrap();
    Argon2::default().hash_password(password.as_bytes(), &salt).unwrap().to_string()
}

#[test]
fn a_user_selects_the_data_set() {
    let home = Home::new();
    let server = home.serve(&["table", "people", "seen"]);
    let mut client = Client::of(&server);
    let choose = "-NOAUTH choose a data set with AUTH NAME \"\": people, table";
    for command in ["GET key-1", "MGET key-1 key-2", "EXISTS key-1", "SET key-1 x"] {
        client.check(command, choose);
    }
    client.check("EXISTS seen", "1");
    client.check("SCAN 0", "[\"0\" [\"seen\"]]");
    client.check("PING", "+PONG");
    client.check("AUTH people anything", "+OK");
    client.check("GET key-1", "\"value 1 of version 1\"");
    client.check("ACL WHOAMI", "\"people\"");
    client.check(
        "HELLO 2 AUTH nobody x",
        "-WRONGPASS invalid username-password pair or user is disabled.",
    );
    client.check("GET key-1", "\"value 1 of version 1\"");
    client.check("AUTH table x", "+OK");
    client.check("GET key-1", "\"value 1 of version 0\"");
}

#[test]
fn strangers_may_only_say_who_they_are() {
    let home = Home::new();
    let server = home.serve_file(&format!(
        "[data.people]\npath = 'people'\n[data.table]\npath = 'table'\n\
         [user.people]\npassword = '{}'\ncommands = ['+@read', '+@connection', '-mget']\nkeys = ['key-1*']\n\
         [user.both]\npassword = '{}'\nspace = 'table'\nspaces = ['people', 'table']\n",
        hash("secret"),
        hash("other")
    ));
    let mut client = Client::of(&server);
    client.check("GET key-1", "-NOAUTH Authentication required.");
    client.check("PING", "-NOAUTH Authentication required.");
    assert!(
        client.call("HELLO 3").starts_with("-NOAUTH HELLO must be called with the client already")
    );
    client.check(
        "AUTH people wrong",
        "-WRONGPASS invalid username-password pair or user is disabled.",
    );
    client.check("AUTH people secret", "+OK");
    client.check("AUTH people secret", "+OK");
    client.check("GET key-1", "\"value 1 of version 1\"");
    client.check("GET key-2", "-NOPERM No permissions to access a key");
    client.check("MGET key-1", "-NOPERM User people has no permissions to run the 'mget' command");
    client.check(
        "CONFIG GET *",
        "-NOPERM User people has no permissions to run the 'config|get' command",
    );
    // Requests behind a password wait for it.
    let mut client = Client::of(&server);
    for line in
        ["AUTH people secret", "GET key-1", "HELLO 3 AUTH people wrong", "GET key-1", "GET nope"]
    {
        client.ask(line);
    }
    assert_eq!(client.reply(), "+OK");
    assert_eq!(client.reply(), "\"value 1 of version 1\"");
    assert!(client.reply().starts_with("-WRONGPASS"));
    assert_eq!(client.reply(), "\"value 1 of version 1\"");
    assert_eq!(client.reply(), "-NOPERM No permissions to access a key");
    let mut client = Client::of(&server);
    client.check("AUTH both other", "+OK");
    client.check("GET key-1", "\"value 1 of version 0\"");
    client.check("GET people:{key-1}", "\"value 1 of version 1\"");
    client.check(
        "MGET people:{key-1} people:{key-2}",
        "[\"value 1 of version 1\" \"value 2 of version 1\"]",
    );
    client.check("MGET people:{key-1} key-2", "-ERR keys of one command must be in one data set");
    client.check("ACL DRYRUN people get key-1", "+OK");
    client.check("ACL DRYRUN people get key-2", "\"No permissions to access a key\"");
    client.check("ACL SETUSER x on", "-ERR users are set in the configuration file");
    assert!(
        client
            .call("ACL LIST")
            .contains("user people on #(argon2) ~key-1* +@read +@connection -mget")
    );
}

/// Replies keep the order of requests, whichever data sets these are about, and however they are read.
#[test]
fn a_pipeline_over_several_data_sets_is_answered_in_order() {
    let home = Home::new();
    for access in ["mapped", "direct"] {
        let server = home.serve_file(&format!(
            "[data.people]\npath = 'people'\naccess = '{access}'\n[data.table]\npath = 'table'\n\
             [user.default]\nspace = 'table'\nspaces = ['people']\n"
        ));
        let mut client = Client::of(&server);
        for i in 0..200 {
            client.ask(&format!("GET key-{i}"));
            client.ask(&format!("GET people:{{key-{i}}}"));
            client.ask(&format!("GET other:{{key-{i}}}"));
        }
        for i in 0..200 {
            assert_eq!(client.reply(), format!("\"value {i} of version 0\""));
            assert_eq!(client.reply(), format!("\"value {i} of version 1\""));
            assert_eq!(client.reply(), "nil", "there is no such data set, and no such key");
        }
    }
}

/// More than a stranger may send ends the connection.
#[test]
fn strangers_have_small_limits() {
    let home = Home::new();
    let config =
        format!("[data.people]\npath = 'people'\n[user.people]\npassword = '{}'\n", hash("secret"));
    let server = home.serve_file(&config);
    let mut client = Client::of(&server);
    client.send(b"*11\r\n");
    assert_eq!(client.reply(), "-ERR Protocol error: unauthenticated multibulk length");
    assert!(client.is_closed());
    let mut client = Client::of(&server);
    client.send(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n");
    assert_eq!(client.reply(), "-ERR Protocol error: unauthenticated bulk length");
    assert!(client.is_closed());
}

#[test]
fn users_can_be_replaced_while_the_server_runs() {
    let home = Home::new();
    let text = |user: &str| {
        format!(
            "listen = ['127.0.0.1:0']\n[data.table]\npath = 'table'\n[user.{user}]\nspace = 'table'\n"
        )
    };
    let config = |text: &str| Config::parse(text, "f", &home.path("")).unwrap();
    let server = Server::start(config(&text("eve")), &Env::system()).unwrap();
    let mut before = Client::of(&server);
    before.check("AUTH eve x", "+OK");
    server.reload(&config(&text("adam"))).unwrap();
    before.check("GET key-1", "\"value 1 of version 0\"");
    let mut after = Client::of(&server);
    assert!(after.call("AUTH eve x").starts_with("-WRONGPASS"));
    after.check("AUTH adam x", "+OK");
    let other = config("listen = ['127.0.0.1:0']\n[data.more]\npath = 'nothing'\n[user.more]\n");
    let error = server.reload(&other).unwrap_err().to_string();
    assert!(error.contains("nothing"), "{error}");
    after.check("GET key-1", "\"value 1 of version 0\"");
    after.check("AUTH adam x", "+OK");
}

#[test]
fn rules_of_the_first_user_do_not_keep_others_from_logging_in() {
    let home = Home::new();
    let config = "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n\
                  commands = ['+get']\n[user.all]\nspace = 'people'\n";
    let server = home.serve_file(config);
    let mut client = Client::of(&server);
    client.check("GET key-1", "\"value 1 of version 1\"");
    client.check("DBSIZE", "-NOPERM User default has no permissions to run the 'dbsize' command");
    client.check("AUTH all x", "+OK");
    client.check("DBSIZE", "2000");
}

#[test]
fn a_password_that_is_known_does_not_wait_for_others() {
    const TRIES: usize = 5;
    let home = Home::new();
    let server = home.serve_file(&format!(
        "[data.people]\npath = 'people'\n[user.people]\npassword = '{}'\n\
         [user.app]\nspace = 'people'\npassword = '{}'\n",
        hash("secret"),
        hash("other")
    ));
    let mut known = Client::of(&server);
    known.check("AUTH people secret", "+OK");
    // On a machine that stalls, the others may be answered before the reply arrives here.
    let is_first = |_| {
        let mut sockets: Vec<_> = (0..4).map(|_| Client::socket(server.addresses()[0])).collect();
        for socket in &mut sockets {
            socket.write_all(&request(&["AUTH", "app", "wrong"])).unwrap();
        }
        Client::of(&server).check("AUTH people secret", "+OK");
        Client::of(&server)
            .check("HELLO 2 AUTH people@2 secret", "-NOVERSION people has no version 2");
        let is_first = sockets.iter().all(|socket| {
            socket.set_nonblocking(true).unwrap();
            socket.peek(&mut [0]).is_err()
        });
        for mut socket in sockets {
            socket.set_nonblocking(false).unwrap();
            let mut start = [0; 10];
            socket.read_exact(&mut start).unwrap();
            assert_eq!(start, *b"-WRONGPASS");
        }
        is_first
    };
    assert!((0..TRIES).any(is_first));
}

/// A clock that the test moves.
#[derive(Debug, Default)]
struct SteppedClock(AtomicU64);

impl Clock for SteppedClock {
    fn now(&self) -> Duration {
        Duration::from_secs(1000 + self.0.load(Relaxed))
    }

    fn unix_time(&self) -> Duration {
        self.now()
    }

    fn wait(&self, signal: &Signal, seen: u64, _: Duration) {
        SystemClock.wait(signal, seen, SystemClock.now() + Duration::from_millis(10));
    }
}

#[test]
fn a_client_that_gives_no_password_loses_its_place() {
    let home = Home::new();
    let text = format!(
        "listen = ['127.0.0.1:0']\n[data.people]\npath = 'people'\n[user.people]\npassword = '{}'\n",
        hash("secret")
    );
    let config = Config::parse(&text, "f", &home.path("")).unwrap();
    let clock = Arc::new(SteppedClock::default());
    let server = Server::start(config, &Env { clock: clock.clone(), ..Env::system() }).unwrap();
    let mut known = Client::of(&server);
    known.check("AUTH people secret", "+OK");
    let mut stranger = TcpStream::connect(server.addresses()[0]).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let seconds = (0..1000).find(|_| {
        clock.0.fetch_add(1, Relaxed);
        matches!(stranger.read(&mut [0]), Ok(0))
    });
    assert!(seconds.is_some_and(|seconds| seconds >= 10), "{seconds:?}");
    known.check("GET key-1", "\"value 1 of version 1\"");
}

#[test]
fn an_address_may_fail_ten_times_a_second() {
    let home = Home::new();
    let text = format!(
        "listen = ['127.0.0.1:0']\n[data.people]\npath = 'people'\n[user.people]\npassword = '{}'\n\
         [user.app]\nspace = 'people'\npassword = '{}'\n",
        hash("secret"),
        hash("other")
    );
    let config = Config::parse(&text, "f", &home.path("")).unwrap();
    let clock = Arc::new(SteppedClock::default());
    let server = Server::start(config, &Env { clock: clock.clone(), ..Env::system() }).unwrap();
    let mut client = Client::of(&server);
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    let too_many =
        "-WRONGPASS too many logins from this address have failed; try again in a second";
    client.check("AUTH people secret", "+OK");
    client.check("AUTH people wrong", wrong);
    client.check("HELLO 3 AUTH app wrong", wrong);
    (0..8).for_each(|_| client.check("AUTH nobody wrong", wrong));
    client.check("AUTH nobody wrong", too_many);
    client.check("AUTH people wrong", too_many);
    client.check("HELLO 2 AUTH app other", too_many);
    // A password that was right before is so without a check.
    client.check("AUTH people secret", "+OK");
    clock.0.fetch_add(1, Relaxed);
    client.check("AUTH app other", "+OK");
}
