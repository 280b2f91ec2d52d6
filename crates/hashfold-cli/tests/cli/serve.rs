//! `hashfold serve`, as a user starts and stops it.

use crate::support::Work;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A running server.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    /// Starts a server on a free port, and waits until it listens.
    fn start(work: &Work, arguments: &str) -> Serving {
        Serving::run(work, &format!("serve {arguments} --listen 127.0.0.1:0 --json"))
    }

    /// Starts a server with a command, which prints JSON, and waits until it listens.
    fn run(work: &Work, command: &str) -> Serving {
        let mut command = work.command(command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["event"], "serving");
        let address = line["addresses"][0].as_str().unwrap().to_owned();
        Serving { child, address }
    }

    /// Sends bytes, and returns as many bytes of the reply as are expected.
    fn ask(&self, bytes: &str, expected: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(bytes.as_bytes()).unwrap();
        let mut reply = vec![0; expected.len()];
        socket.read_exact(&mut reply).unwrap();
        String::from_utf8(reply).unwrap()
    }

    #[track_caller]
    fn check(&self, bytes: &str, expected: &str) {
        assert_eq!(self.ask(bytes, expected), expected);
    }

    /// Stops the server with a signal. Returns its exit code, and what it wrote on standard error.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let kill =
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

fn work() -> Work {
    let work = Work::new();
    work.write("people.csv", "id,name\n4711,Eve\n4712,Bob\n");
    assert_eq!(work.run("update people people.csv --key id").code, 0);
    work
}

#[test]
fn a_store_is_served_and_followed_until_a_signal() {
    let work = work();
    for signal in ["-INT", "-TERM"] {
        let serving = Serving::start(&work, "people");
        serving.check("GET 4711\r\n", "$3\r\nEve\r\n");
        work.write("more.csv", "id,name\n4711,Mallory\n");
        assert_eq!(work.run("update people more.csv --key id").code, 0);
        // The server looks for another version by its own clock.
        let changed = "$7\r\nMallory\r\n";
        while serving.ask("GET 4711\r\n", "$3\r\nEve\r\n") != changed[..9] {
            std::thread::sleep(Duration::from_millis(20));
        }
        serving.check("GET 4711\r\n", changed);
        assert_eq!(work.run("rollback people").code, 0);
        let (code, text) = serving.stop(signal);
        assert_eq!(code, Some(0), "{text}");
        for expected in [
            "hashfold: stopping; Ctrl-C again ends at once\n",
            "INFO serving a version store=people version=",
            "INFO stopping",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        work.write("people.csv", "id,name\n4711,Eve\n");
        assert_eq!(work.run("update people people.csv --key id").code, 0);
    }
}

#[test]
fn the_log_is_for_programs_too() {
    let work = work();
    let (_, text) = Serving::start(&work, "people --log json").stop("-TERM");
    let lines = text.lines().filter(|line| !line.starts_with("hashfold: "));
    let lines: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let version = lines.iter().find(|line| line["message"] == "serving a version").unwrap();
    assert_eq!((&version["level"], &version["store"]), (&"INFO".into(), &"people".into()));
    let (_, text) = Serving::start(&work, "people --log off").stop("-TERM");
    assert_eq!(text, "hashfold: stopping; Ctrl-C again ends at once\n");
}

#[test]
fn a_filter_that_clients_change_is_durable_when_the_server_stops() {
    let work = work();
    let serving = Serving::start(&work, "people --filters made");
    serving.check("BF.RESERVE urls 0.001 100\r\nBF.ADD urls a\r\n", "+OK\r\n:1\r\n");
    assert_eq!(serving.stop("-TERM").0, Some(0));
    let outcome = work.run("filter contains made/urls a b");
    assert_eq!((outcome.code, outcome.text()), (1, "a\n"), "{outcome:?}");
}

#[test]
fn data_in_memory_are_a_version_of_a_store_when_the_server_stops() {
    let work = Work::new();
    work.write(
        "s.toml",
        "listen = ['127.0.0.1:0']\n[data.clicks]\nkind = 'memory'\nmemory = '16MiB'\npath = 'clicks'\n",
    );
    for (records, size) in [("ab", 2), ("abab", 4)] {
        let serving = Serving::run(&work, "serve --config s.toml --json");
        serving.check("APPEND eve ab\r\n", &format!(":{size}\r\n"));
        assert_eq!(serving.stop("-TERM").0, Some(0));
        let outcome = work.ok("get clicks eve");
        assert!(outcome.text().contains(&format!("\"{records}\"")), "{outcome:?}");
    }
    work.ok("serve --config s.toml --check");
    work.write("s.toml", "[data.clicks]\nkind = 'memory'\nmemory = '1MiB'\n");
    let outcome = work.run("serve --config s.toml --check");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("expected at least 8388608 bytes"), "{outcome:?}");
}

#[test]
fn a_configuration_is_checked_without_serving() {
    let work = work();
    work.write(
        "s.toml",
        "listen = ['127.0.0.1:0']\n[data.people]\npath = 'people'\n[user.people]\n",
    );
    let checked = work.ok("serve --config s.toml --check");
    assert_eq!(checked.text(), "checked: 1 data set and 1 user, no problem\n");
    let checked = work.ok("serve --config s.toml --check --json");
    assert_eq!(checked.text(), "{\"event\":\"checked\",\"data\":1,\"users\":1}\n");
    work.write("s.toml", "listen = ['0.0.0.0:0']\n[data.people]\npath = 'people'\n[user.people]\n");
    let outcome = work.run("serve --config s.toml --check");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("expected a password for each user"), "{outcome:?}");
    work.write("s.toml", "listn = []\n");
    let outcome = work.run("serve --config s.toml --check");
    assert!(outcome.code == 2 && outcome.stderr.contains("line 1"), "{outcome:?}");
}

/// A server would start, and answer from what is left.
#[test]
fn a_check_finds_a_current_version_that_is_damaged_or_missing() {
    let work = work();
    work.write(
        "s.toml",
        "listen = ['127.0.0.1:0']\n[data.people]\npath = 'people'\n[user.people]\n",
    );
    let table = fs::read_dir(work.path("people/tables")).unwrap().next().unwrap().unwrap().path();
    let file = |role: &str| {
        let mut files = fs::read_dir(&table).unwrap().map(|file| file.unwrap().path());
        files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(role)).unwrap()
    };
    let check = |file: &Path, text: &str| {
        assert_eq!(work.run("serve --config s.toml --check").code, 0);
        let bytes = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let outcome = work.run("serve --config s.toml --check");
        assert_eq!(outcome.code, 4, "{outcome:?}");
        assert!(outcome.stderr.contains(text), "{outcome:?}");
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        let outcome = work.run("serve --config s.toml --check");
        assert_eq!(outcome.code, 4, "{outcome:?}");
        assert!(outcome.stderr.contains(text), "{outcome:?}");
        fs::write(file, bytes).unwrap();
    };
    check(&file("data"), "data-");
    check(&file("index"), "index-");
    check(&work.path("people/versions/0000000001"), "0000000001");
    check(&work.path("people/CURRENT"), "CURRENT");
}

#[test]
fn folders_that_cannot_be_served_are_named() {
    let work = work();
    let outcome = work.run("serve nothing --check --listen 127.0.0.1:0");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("nothing"), "{outcome:?}");
    let outcome = work.run("serve people.csv --check");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("people.csv: is a file, not a folder"), "{outcome:?}");
    let outcome = work.run("serve");
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("--config <FILE>"), "{outcome:?}");
    for address in ["6380", "localhost:6380"] {
        let outcome = work.run(&format!("serve people --listen {address}"));
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains("expected IP:PORT, such as 127.0.0.1:6380"), "{outcome:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let outcome = work.run(&format!("serve people --listen {}", taken.local_addr().unwrap()));
    assert_eq!(outcome.code, 5, "{outcome:?}");
    assert!(outcome.stderr.contains("cannot listen on 127.0.0.1:"), "{outcome:?}");
    assert!(outcome.stderr.contains("choose another port"), "{outcome:?}");
}

#[test]
fn a_password_is_hashed_for_the_configuration() {
    let work = Work::new();
    let hash = |input: &[u8]| work.feed("serve --hash-password", input);
    let first = hash(b"secret\nnot read\n");
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.text().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{first:?}");
    assert_ne!(first.text(), hash(b"secret\n").text(), "each hash has its own salt");
    for wrong in [&b""[..], b"\n", &[b'x'; 20_000]] {
        assert_eq!(hash(wrong).code, 2);
    }
    assert_eq!(work.run("serve people --hash-password").code, 2);
}

#[test]
fn rows_of_a_map_are_objects_in_transactions_too() {
    let work = Work::new();
    work.write("people.csv", "id,name,age\n4711,Eve,30\n");
    work.ok("map import people people.csv --key id");
    let serving = Serving::start(&work, "people");
    let row = "{\"name\":\"Eve\",\"age\":\"30\"}";
    let bulk = format!("${}\r\n{row}\r\n", row.len());
    serving.check("GET 4711\r\n", &bulk);
    serving.check(
        "MULTI\r\nGET 4711\r\nTTL 4711\r\nEXEC\r\n",
        &format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{bulk}:-1\r\n"),
    );
    serving.check("WATCH 4711\r\nGET 4711\r\n", &format!("+OK\r\n{bulk}"));
    serving.stop("-TERM");
}
