//! The limit of memory: data sets, versions and filters that do not fit are refused, and what was served stays.

use crate::{
    deploy::Scene,
    dumps::dump,
    fixture::{Client, ENTRIES, Home, key, request},
    http::get,
    maps::SlowDisk,
};
use hashfold::{
    Env,
    work::{Clock as _, SystemClock},
};
use hashfold_server::{Config, Server};
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

/// The part of the memory that buffers of connections may take.
const BUFFERS: u64 = 1 << 20;

/// Returns the value of a field of `INFO memory`.
fn field(client: &mut Client, name: &str) -> u64 {
    let info = client.call("INFO memory");
    let (_, rest) = info.split_once(&format!("{name}:")).unwrap();
    rest.split("\\r").next().unwrap().parse().unwrap()
}

/// The start of a configuration with a limit of memory.
fn limited(bytes: u64) -> String {
    format!("memory = {bytes}\nclient-memory = {BUFFERS}\nhttp-listen = ['127.0.0.1:0']\n")
}

const PEOPLE: &str =
    "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n[user.people]\n";

/// Returns the memory of the index of the store, in bytes.
fn index_bytes(home: &Home) -> u64 {
    let server = home.serve_file(&format!("{}{PEOPLE}", limited(1 << 30)));
    field(&mut Client::of(&server), "reserved_memory") - BUFFERS
}

fn is_refusal(reply: &str, limit: u64) -> bool {
    reply.starts_with("-OOM ") && reply.contains(&format!(" of {limit} are taken"))
}

/// Issue 15.
#[test]
fn a_version_that_does_not_fit_is_not_opened_and_the_one_before_stays() {
    let home = Home::new();
    let index = index_bytes(&home);
    assert!(index > 0);
    let limit = BUFFERS + index + index / 2;
    let server = home.serve_file(&format!("{}{PEOPLE}", limited(limit)));
    let mut client = Client::of(&server);
    client.check("GET key-1", "\"value 1 of version 1\"");
    home.publish(2);
    let error = server.refresh().unwrap_err().to_string();
    let numbers = format!("and {} of {limit} are taken", BUFFERS + index);
    assert!(error.contains(&numbers), "{error}");
    client.check("GET key-1", "\"value 1 of version 1\"");
    for command in ["HASHFOLD.USE 2", "AUTH people@2 x"] {
        let reply = client.call(command);
        assert!(is_refusal(&reply, limit) && reply.contains("version 2"), "{command}: {reply}");
    }
    // The store's folder has version 2, but no server that has no room for it makes it current.
    assert!(client.call("HASHFOLD.ROLLBACK people").contains("\"version\" 1"));
    let refused = client.call("HASHFOLD.PUBLISH people 2 FORCE");
    assert!(refused.starts_with("-ERR ") && refused.contains(&numbers), "{refused}");
    assert!(client.call("HASHFOLD.VERSION").contains("\"version\" 1"));
    assert_eq!(field(&mut client, "reserved_memory"), BUFFERS + index);
    let metric = format!("hashfold_memory_bytes{{part=\"reserved\"}} {}", BUFFERS + index);
    assert!(get(&server, "/metrics").1.contains(&metric));
    drop(server);
    let config = format!("{}{PEOPLE}", limited(BUFFERS + index / 2));
    let error = home.start_file(&config).unwrap_err().to_string();
    assert!(error.contains("bytes of memory, and "), "{error}");
    let table = "[data.table]\npath = 'table'\n";
    let error = home.start_file(&format!("{}{table}", limited(BUFFERS + 1))).unwrap_err();
    assert!(error.to_string().contains("table: needs "), "{error}");
    let none_left = Config::parse(&limited(BUFFERS), "test.toml", &home.path("")).unwrap_err();
    assert!(none_left.message.contains("client-memory: expected less"), "{none_left}");
}

fn serve_with_filters(home: &Home, limit: u64) -> Server {
    home.serve_file(&format!(
        "{}filters = {{ path = 'made', memory = '16MiB' }}\n[data.table]\npath = 'table'\n\
         [user.default]\nspace = 'table'\nmakes-filters = true\n",
        limited(limit)
    ))
}

/// Issue 15.
#[test]
fn filters_that_do_not_fit_are_refused_and_others_go_on() {
    let home = Home::new();
    let limit = 40 << 20;
    let server = serve_with_filters(&home, limit);
    let mut client = Client::of(&server);
    client.check("BF.RESERVE a 0.01 1000", "+OK");
    for i in 0..ENTRIES {
        client.call(&format!("BF.ADD a {}", key(i)));
    }
    let pieces = dump(&mut client, "BF.SCANDUMP", "a");
    client.check("CF.RESERVE b 1000", "+OK");
    for command in ["BF.RESERVE c 0.01 1000", "CF.RESERVE c 1000", "BF.ADD c x", "CF.ADD c x"] {
        let reply = client.call(command);
        assert!(is_refusal(&reply, limit), "{command}: {reply}");
    }
    let reply = client.load("BF.LOADCHUNK", "c", &pieces[0]);
    assert!(is_refusal(&reply, limit), "{reply}");
    client.check("BF.EXISTS c x", "0");
    client.check("BF.EXISTS a key-1", "1");
    client.check("CF.ADD b x", "1");
    drop(server);
    // Filters that are there already do not fit in less memory.
    let config = format!(
        "{}filters = {{ path = 'made', memory = '16MiB' }}\n[data.table]\npath = 'table'\n",
        limited(20 << 20)
    );
    let error = home.start_file(&config).unwrap_err().to_string();
    assert!(error.contains("made/b: needs 16777216 bytes of memory"), "{error}");
    // A load that fails gives its memory back.
    let server = serve_with_filters(&home, 50 << 20);
    let mut client = Client::of(&server);
    let before = field(&mut client, "reserved_memory");
    for piece in &pieces {
        assert_eq!(client.load("BF.LOADCHUNK", "c", piece), "+OK");
    }
    assert_eq!(field(&mut client, "reserved_memory"), before + (16 << 20));
}

/// Issue 15.
#[test]
fn a_version_of_the_group_that_does_not_fit_is_reported_as_failed() {
    let scene = Scene::new();
    let index = index_bytes(&scene.home);
    let limit = BUFFERS + index + index / 2;
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let config = |limit| {
        format!(
            "{}node = 'a'\ndeploy.remote = 'remote'\n[data.shop]\npath = 'node/shop'\n\
             [user.default]\nspace = 'shop'\n",
            limited(limit)
        )
    };
    let server = scene.home.serve_file(&config(limit));
    let mut client = Client::of(&server);
    client.wait_for("GET key-1", &|reply| reply == "\"value 1 of version 1\"");
    scene.home.publish(2);
    scene.push("shop", 2);
    scene.publish(&[("shop", 2)]);
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_2:failed"));
    let info = client.call("INFO deploy");
    assert!(info.contains("bytes of memory, and "), "{info}");
    assert!(get(&server, "/v1/deploy").1.contains("bytes of memory, and "));
    client.check("GET key-1", "\"value 1 of version 1\"");
    drop(server);
    // With less memory, nothing is served, and everything after the next start with more.
    let server = scene.home.serve_file(&config(BUFFERS + index / 2));
    let mut client = Client::of(&server);
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_2:failed"));
    assert!(client.call("GET key-1").starts_with("-LOADING "));
    drop(server);
    let server = scene.home.serve_file(&config(BUFFERS + 3 * index));
    Client::of(&server).wait_for("GET key-1", &|reply| reply == "\"value 1 of version 2\"");
}

/// Replies of the thread of a map take memory of clients, as those to other lookups do.
#[test]
fn a_reply_for_which_there_is_no_memory_is_an_error_and_its_command_changes_nothing() {
    let home = Home::new();
    home.make_map("sess");
    let map = "[data.sess]\npath = 'sess'\nmemory = '8MiB'\n[user.default]\nspace = 'sess'\n";
    let server = home.serve_file(&format!("{}{map}", limited(64 << 20)));
    let mut client = Client::of(&server);
    client.check("SETRANGE big 4000000 x", "4000001");
    client.send(
        &[
            request(&["SET", "small", "1"]),
            request(&["GET", "big"]),
            request(&["GETSET", "big", "1"]),
            request(&["MGET", "big", "small"]),
            request(&["STRLEN", "big"]),
            request(&["GET", "small"]),
        ]
        .concat(),
    );
    assert_eq!(client.reply(), "+OK");
    for _ in 0..3 {
        let reply = client.reply();
        assert!(reply.starts_with("-ERR the values of one request have at most 1048576 bytes"));
    }
    assert_eq!((client.reply(), client.reply()), ("4000001".into(), "\"1\"".into()));
}

/// Returns the memory of buffers that the metrics show, in bytes.
fn buffers(server: &Server) -> u64 {
    let text = get(server, "/metrics").1;
    let (_, rest) = text.split_once("hashfold_memory_bytes{part=\"buffers\"} ").unwrap();
    rest.lines().next().unwrap().trim().parse().unwrap()
}

#[test]
fn requests_that_wait_for_a_map_take_memory_of_clients_until_they_are_answered() {
    const SIZE: usize = 400_000;
    let home = Home::new();
    home.make_map("sess");
    let disk = SlowDisk::default();
    let env = Env { disk: Arc::new(disk.clone()), ..Env::system() };
    let map = "[data.sess]\npath = 'sess'\nmemory = '8MiB'\n[user.default]\nspace = 'sess'\n";
    let config = format!("threads = 1\n{}{map}", limited(64 << 20));
    let server = home.start_file_in(&config, &env).unwrap();
    disk.0.is_slow.store(true, SeqCst);
    let mut first = Client::of(&server);
    let value = "v".repeat(SIZE);
    first.send(&request(&["SET", "0", &value]));
    while disk.0.waiting.load(SeqCst) == 0 {
        SystemClock.sleep(Duration::from_millis(1));
    }
    // The thread shows its memory at the end of its turn, or at the next tick.
    SystemClock.sleep(Duration::from_millis(300));
    let used = buffers(&server);
    assert!(used >= SIZE as u64, "{used}");
    disk.0.is_slow.store(false, SeqCst);
    assert_eq!(first.reply(), "+OK");
    while buffers(&server) >= SIZE as u64 {
        SystemClock.sleep(Duration::from_millis(1));
    }
}
