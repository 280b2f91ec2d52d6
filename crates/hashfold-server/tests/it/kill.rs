//! A server that follows a group, and one that changes a map: each is killed again and again. Run them with
//! `cargo test -p hashfold-server --test it kill -- --ignored --nocapture`.
#![expect(clippy::disallowed_methods, reason = "the test starts and kills processes")]

use crate::{
    deploy::Scene,
    fixture::{Client, ENTRIES, Home, key, request, value},
};
use hashfold::{
    Env,
    store::{Pointer, verify, versions},
    work::{Clock as _, Random as _, SeededRandom, SystemClock, Watch},
};
use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Names the folder of the data in the process that is killed, and its configuration.
const FOLDER: &str = "HASHFOLD_SERVE_UNTIL_KILLED";
const SETTINGS: &str = "HASHFOLD_SERVE_SETTINGS";
/// Longest life of a process after a version was published.
const LIFE_MS_MAX: u64 = 250;
const SIGKILL: i32 = 9;

const CONFIG: &str = "listen = ['127.0.0.1:0']\nnode = 'a'\ndeploy.remote = 'remote'\n\
                      [data.shop]\npath = 'node/shop'\n[user.default]\nspace = 'shop'\n";

#[test]
#[ignore = "is started by the other test, and killed"]
fn serve_until_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let config = env::var(SETTINGS).unwrap();
    let config = hashfold_server::Config::parse(&config, "test.toml", Path::new(&folder)).unwrap();
    let server = hashfold_server::Server::start(config, &Env::system()).unwrap();
    println!("at {}", server.addresses()[0]);
    SystemClock.sleep(Duration::MAX);
}

/// A server in a process of its own, which ends with the value.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Kills the process with a signal that it cannot catch.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(SIGKILL));
    }
}

/// Starts a server in a process of its own, and waits until it listens.
pub(crate) fn start(folder: &Path, config: &str) -> Process {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "kill::serve_until_killed"])
        .env(FOLDER, folder)
        .env(SETTINGS, config)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.filter_map(|line| line.strip_prefix("at ")?.parse().ok()).next();
    Process { child, address: address.expect("the server says where it listens") }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Reads until a moment: each answer must be a value that some published version has. Returns the newest
/// version that was seen.
fn read_until(client: &mut Client, end: Instant, published: u32, random: &SeededRandom) -> u32 {
    let mut newest = 0;
    while Instant::now() < end {
        let i = random.next_u64() as u32 % ENTRIES;
        let reply = client.call(&format!("GET {}", key(i)));
        let version = (1..=published).find(|version| reply == format!("{:?}", value(i, *version)));
        assert!(version.is_some() || reply.starts_with("-LOADING"), "{reply}");
        newest = newest.max(version.unwrap_or(0));
    }
    newest
}

/// Checks that every version in the local store is complete. Returns their number.
fn check_whole(folder: &Path) -> usize {
    let env = Env::system();
    if Pointer::read(env.disk.as_ref(), folder).is_err_and(|error| error.is_absent()) {
        return 0;
    }
    let all = versions(&env, folder).unwrap();
    for (number, info) in &all {
        info.as_ref().unwrap();
        let report = verify(&env, folder, *number, &Watch::default()).unwrap();
        assert!(report.damage.is_empty(), "version {number}: {}", report.damage[0]);
    }
    all.len()
}

#[test]
#[ignore = "kills processes; see CONTRIBUTING.md"]
fn a_process_that_follows_a_group_serves_whole_versions_after_kills() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds = number("HASHFOLD_KILL_ROUNDS").unwrap_or(50) as u32;
    let random = SeededRandom::new(number("HASHFOLD_KILL_SEED").unwrap_or(1));
    let scene = Scene::new();
    let local = scene.home.path("node/shop");
    let mut seen = 0;
    for round in 1..=rounds {
        if round > 1 {
            scene.home.publish(round);
        }
        scene.push("shop", u64::from(round));
        let process = start(&scene.home.path(""), CONFIG);
        let mut client = Client::connect(process.address);
        scene.publish(&[("shop", u64::from(round))]);
        let life = Duration::from_millis(random.next_u64() % LIFE_MS_MAX);
        seen = seen.max(read_until(&mut client, Instant::now() + life, round, &random));
        if round % 3 == 0 {
            signal(&process.child, "-STOP");
            SystemClock.sleep(Duration::from_millis(random.next_u64() % LIFE_MS_MAX));
            signal(&process.child, "-CONT");
            seen = seen.max(read_until(&mut client, Instant::now() + life, round, &random));
        }
        process.kill();
        println!("killed after {life:?}: {} versions are whole", check_whole(&local));
    }
    let process = start(&scene.home.path(""), CONFIG);
    let last = format!("{:?}", value(1, rounds));
    Client::connect(process.address).wait_for("GET key-1", &|reply| reply == last);
    process.kill();
    assert!(check_whole(&local) > 0);
    println!("version {seen} was the last one that was seen before a kill");
}

/// Number of clients that change a map while its server is killed.
const WRITERS: usize = 8;

/// Changes two keys to one number after the other, in a transaction each, until the server is gone. Returns the last
/// number whose change was acknowledged.
fn write_until_killed(address: SocketAddr, writer: usize, mut number: u64) -> u64 {
    const REPLY: &[u8] = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n";
    let Ok(mut socket) = TcpStream::connect(address) else { return number };
    loop {
        let next = (number + 1).to_string();
        let commands = [
            request(&["MULTI"]),
            request(&["SET", &format!("a-{writer}"), &next]),
            request(&["SET", &format!("b-{writer}"), &next]),
            request(&["EXEC"]),
        ];
        let mut reply = [0; REPLY.len()];
        let sent = socket.write_all(&commands.concat());
        if sent.and_then(|()| socket.read_exact(&mut reply)).is_err() {
            return number;
        }
        assert_eq!(reply, REPLY);
        number += 1;
    }
}

#[test]
#[ignore = "kills processes; see CONTRIBUTING.md"]
fn a_process_that_changes_a_map_keeps_acknowledged_changes_after_kills() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds = number("HASHFOLD_KILL_ROUNDS").unwrap_or(50);
    let random = SeededRandom::new(number("HASHFOLD_KILL_SEED").unwrap_or(1));
    let home = Home::new();
    home.make_map("sess");
    let mut acknowledged = [0; WRITERS];
    for round in 0..rounds {
        let durability = ["group", "always"][round as usize % 2];
        let config = format!(
            "listen = ['127.0.0.1:0']\n[data.sess]\npath = 'sess'\ndurability = '{durability}'\n\
             [user.default]\nspace = 'sess'\n"
        );
        let process = start(&home.path(""), &config);
        let mut client = Client::connect(process.address);
        for (writer, last) in acknowledged.iter_mut().enumerate() {
            let pair = client.call(&format!("MGET a-{writer} b-{writer}"));
            if pair == "[nil nil]" {
                assert_eq!(*last, 0);
                continue;
            }
            let (a, b) = pair.trim_matches(['[', ']']).split_once(' ').unwrap();
            let found: u64 = a.trim_matches('"').parse().unwrap();
            assert_eq!(a, b, "a part of a transaction");
            assert!((*last..=*last + 1).contains(&found), "{found}, acknowledged {last}");
            *last = found;
        }
        let life = Duration::from_millis(random.next_u64() % LIFE_MS_MAX);
        let address = process.address;
        std::thread::scope(|scope| {
            let write = |(writer, last): (usize, &u64)| {
                let last = *last;
                scope.spawn(move || write_until_killed(address, writer, last))
            };
            let writers: Vec<_> = acknowledged.iter().enumerate().map(write).collect();
            SystemClock.sleep(life);
            process.kill();
            for (last, writer) in acknowledged.iter_mut().zip(writers) {
                *last = writer.join().unwrap();
            }
        });
        println!("killed after {life:?}: {acknowledged:?} were acknowledged");
    }
    let has_written = acknowledged.iter().all(|last| *last > 0);
    assert!(has_written || rounds < 10);
}
