//! A key is a string or a filter, never both: whatever clients do to it at the same time.

use crate::{
    fixture::{Client, Home},
    maps::{SlowDisk, Trouble, TroubleDisk},
    slow_device::Gate,
};
use hashfold::{
    Env, ErrorKind, Place, Result,
    io::{BlockFile, Disk, DiskLayer, OsDisk},
    work::{Clock, SystemClock},
};
use hashfold_server::Server;
use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// The spaces in which clients change strings and make filters: with a map, and in memory.
const SPACES: [&str; 2] = ["sess", "clicks"];

/// A disk that makes the files of filters only while its gate is open.
#[derive(Clone, Debug, Default)]
struct GatedDisk(Arc<Gate>);

impl DiskLayer for GatedDisk {
    fn below(&self) -> &dyn Disk {
        &OsDisk
    }

    fn over_created(&self, path: &Path, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        if path.components().any(|name| name.as_os_str() == "made") {
            self.0.pass();
        }
        file
    }
}

fn home() -> Home {
    let home = Home::new();
    home.make_map("sess");
    home
}

fn serve(home: &Home, space: &str, env: &Env) -> Server {
    let file = format!(
        "threads = 2\nfilters.path = 'made'\n[data.sess]\npath = 'sess'\ndurability = 'no'\n\
         [data.clicks]\nkind = 'memory'\nmemory = '16MiB'\n\
         [user.default]\nmakes-filters = true\nspace = '{space}'\n"
    );
    home.start_file_in(&file, env).unwrap()
}

#[test]
fn a_filter_that_is_being_made_gives_way_to_a_string() {
    for space in SPACES {
        let (home, disk) = (home(), GatedDisk::default());
        let env = Env::on(Arc::new(disk.clone()));
        let server = serve(&home, space, &env);
        let (mut maker, mut writer) = (Client::of(&server), Client::of(&server));
        for (make, write) in [
            ("BF.ADD k x", "SET k v"),
            ("BF.RESERVE k 0.01 100", "MSET other 1 k v"),
            ("BF.INSERT k ITEMS x", "APPEND k v"),
            ("CF.ADD k x", "SET k v NX"),
            ("CF.RESERVE k 100", "RENAME source k"),
        ] {
            writer.check("SET source v", "+OK");
            disk.0.set_closed(true);
            maker.ask(make);
            disk.0.wait_for(1);
            let reply = if write.starts_with("APPEND") { "1" } else { "+OK" };
            writer.check(write, reply);
            disk.0.set_closed(false);
            assert_eq!(maker.reply(), WRONG_TYPE, "{space}: {make} beside {write}");
            writer.check("TYPE k", "+string");
            writer.check("GET k", "\"v\"");
            writer.check("DEL k", "1");
            writer.check("EXISTS k", "0");
            // The name is free, and its string leaves nothing behind.
            maker.check("BF.ADD k x", "1");
            maker.check("SET k v", "+OK");
            maker.check("TYPE k", "+string");
            maker.check("DEL k", "1");
        }
        drop((maker, writer, server));
        let server = serve(&home, space, &Env::system());
        Client::of(&server).check("EXISTS k", "0");
    }
}

#[test]
fn commands_at_the_same_time_leave_a_string_or_a_filter() {
    for space in SPACES {
        let home = home();
        let server = serve(&home, space, &Env::system());
        let mut clients = [Client::of(&server), Client::of(&server)];
        for round in 0..60 {
            clients[0].check("FLUSHALL", "+OK");
            let write = ["SET k v", "MSET k v o v", "APPEND k v", "INCR k", "SETNX k v"][round % 5];
            let lines = ["BF.ADD k x", write];
            let order = [round % 2, 1 - round % 2];
            order.iter().for_each(|i| clients[*i].ask(lines[*i]));
            let [made, written] = clients.each_mut().map(Client::reply);
            let is_replaced = write.starts_with("SET k") || write.starts_with("MSET");
            let expected = match (&*made, &*written) {
                (WRONG_TYPE, reply) if reply != WRONG_TYPE => "+string",
                ("1", WRONG_TYPE) if !is_replaced => "+MBbloom--",
                ("1", "+OK") if is_replaced => "+string",
                replies => panic!("{space}, {write}: {replies:?}"),
            };
            clients[1].check("TYPE k", expected);
            // A string that a filter hides would be here after it.
            clients[1].check("BF.ADD other x", "1");
            clients[1].check("RENAME k moved", "+OK");
            clients[1].check("EXISTS k", "0");
        }
    }
}

#[test]
fn a_transaction_sees_the_strings_that_it_has_put() {
    for space in SPACES {
        let home = home();
        let server = serve(&home, space, &Env::system());
        let mut client = Client::of(&server);
        for (lines, replies, kind) in [
            (&["SET k v", "BF.ADD k x"][..], format!("[+OK {WRONG_TYPE}]"), "+string"),
            (&["DEL k", "BF.ADD k x", "SET k v"], "[1 1 +OK]".into(), "+string"),
            (&["DEL k", "BF.ADD k x"], "[1 1]".into(), "+MBbloom--"),
            (&["BF.ADD k y", "APPEND k v"], format!("[1 {WRONG_TYPE}]"), "+MBbloom--"),
            (&["FLUSHALL", "CF.ADD k x"], "[+OK 1]".into(), "+MBbloomCF"),
        ] {
            client.check("MULTI", "+OK");
            lines.iter().for_each(|line| client.check(line, "+QUEUED"));
            client.check("EXEC", &replies);
            client.check("TYPE k", kind);
        }
        // One without changes of strings.
        client.check("FLUSHALL", "+OK");
        client.check("MULTI", "+OK");
        client.check("BF.ADD k x", "+QUEUED");
        client.check("EXEC", "[1]");
        client.check("TYPE k", "+MBbloom--");
    }
}

/// A disk that refuses to write the data file of a map while a flag is set.
#[derive(Debug, Default)]
struct Refusal(AtomicBool);

impl Trouble for Refusal {
    fn before_write(&self, file: &Place) -> Result<()> {
        match self.0.load(SeqCst) && file.to_string().contains("map-data") {
            true => {
                let source = Arc::new(io::Error::from(io::ErrorKind::StorageFull));
                Err(ErrorKind::Io { action: "write", source }.into())
            }
            false => Ok(()),
        }
    }
}

/// Queues the deletion of a string, a filter of its key, and a value that is written at once, to blocks of its own.
fn replace_by_a_filter(client: &mut Client, make: &str) {
    client.check("SET k v", "+OK");
    client.check("WAITAOF 1 0 0", "[1 0]");
    let large = format!("SET large {}", "v".repeat(2000));
    client.check("MULTI", "+OK");
    ["DEL k", make, &large].iter().for_each(|line| client.check(line, "+QUEUED"));
}

#[test]
fn a_transaction_that_cannot_be_written_leaves_the_string_and_no_filter() {
    let (home, disk) = (home(), TroubleDisk::<Refusal>::default());
    let env = Env::on(Arc::new(disk.clone()));
    let server = serve(&home, "sess", &env);
    let mut client = Client::of(&server);
    for make in ["BF.RESERVE k 0.01 100", "CF.ADD k x"] {
        replace_by_a_filter(&mut client, make);
        disk.0.0.store(true, SeqCst);
        let reply = client.call("EXEC");
        assert!(reply.starts_with("-MISCONF changes cannot be written: "), "{reply}");
        disk.0.0.store(false, SeqCst);
        client.check("TYPE k", "+string");
        client.check("GET k", "\"v\"");
        client.check("KEYS *", "[\"k\"]");
        client.check("DEL k", "1");
        client.check("EXISTS k", "0");
        // And one that can be written leaves the filter.
        replace_by_a_filter(&mut client, make);
        assert!(client.call("EXEC").starts_with("[1 "));
        client.check("DEL k large", "2");
        client.check("EXISTS k", "0");
    }
}

/// The folder as it is while the changes of the transaction are being written, and afterwards.
#[test]
fn a_crash_leaves_the_string_or_the_filter_of_a_transaction() {
    let (home, disk) = (home(), SlowDisk::default());
    let env = Env::on(Arc::new(disk.clone()));
    let server = serve(&home, "sess", &env);
    let mut client = Client::of(&server);
    let check_copy = |kind: &str| {
        let crashed = home.copy();
        let server = serve(&crashed, "sess", &Env::system());
        let mut client = Client::of(&server);
        client.check("TYPE k", kind);
        client.check("DEL k", "1");
        client.check("EXISTS k", "0");
        client.check("BF.ADD k x", "1");
    };
    replace_by_a_filter(&mut client, "BF.ADD k x");
    disk.0.is_slow.store(true, SeqCst);
    client.ask("EXEC");
    while disk.0.waiting.load(SeqCst) == 0 {
        SystemClock.sleep(Duration::from_millis(1));
    }
    check_copy("+string");
    disk.0.is_slow.store(false, SeqCst);
    assert_eq!(client.reply(), "[1 1 +OK]");
    check_copy("+MBbloom--");
}

/// With `durability = 'no'`, the deletion of the string is durable when the filter is.
#[test]
fn a_filter_is_not_durable_before_the_deletion_of_its_string() {
    let home = home();
    let server = serve(&home, "sess", &Env::system());
    let mut client = Client::of(&server);
    client.check("SET k v", "+OK");
    client.check("WAITAOF 1 0 0", "[1 0]");
    client.check("DEL k", "1");
    client.check("BF.ADD k x", "1");
    let crashed = home.copy();
    let server = serve(&crashed, "sess", &Env::system());
    let mut client = Client::of(&server);
    client.check("TYPE k", "+MBbloom--");
    // No string is hidden behind the filter.
    client.check("RENAME k moved", "+OK");
    client.check("EXISTS k", "0");
    client.check("DBSIZE", "1");
}

/// Users whose data sets share the filters, one who sees no filters, and one who names the data sets in keys.
const USERS: &str = "[user.sess]\nmakes-filters = true\nspace = 'sess'\n\
    [user.clicks]\nmakes-filters = true\nspace = 'clicks'\n\
    [user.other]\nmakes-filters = true\nspace = 'other'\n\
    [user.none]\nmakes-filters = true\nspaces = []\n\
    [user.plain-sess]\nspace = 'sess'\n[user.plain-clicks]\nspace = 'clicks'\n\
    [user.names]\nmakes-filters = true\nspaces = ['sess', 'clicks']\n";

/// The users of [`USERS`] who change strings beside the filters.
const SHARING: [&str; 3] = ["sess", "clicks", "other"];

fn serve_users(home: &Home) -> Server {
    let data = "threads = 2\nfilters.path = 'made'\n[data.sess]\npath = 'sess'\ndurability = 'no'\n\
        [data.other]\npath = 'other'\ndurability = 'no'\n\
        [data.clicks]\nkind = 'memory'\nmemory = '16MiB'\n";
    home.start_file(&format!("{data}{USERS}")).unwrap()
}

fn home_of_users() -> Home {
    let home = home();
    home.make_map("other");
    home
}

fn client_of(server: &Server, user: &str) -> Client {
    let mut client = Client::of(server);
    client.check(&format!("AUTH {user} x"), "+OK");
    client
}

#[test]
fn a_key_that_is_a_string_for_one_user_becomes_no_filter_for_another() {
    let home = home_of_users();
    let server = serve_users(&home);
    for own in SHARING {
        let mut owner = client_of(&server, own);
        owner.check("SET k v", "+OK");
        for user in SHARING.into_iter().chain(["none", "names"]) {
            let mut maker = client_of(&server, user);
            for make in ["BF.ADD k x", "CF.RESERVE k 100"] {
                maker.check(make, WRONG_TYPE);
                maker.check("MULTI", "+OK");
                maker.check(make, "+QUEUED");
                maker.check("EXEC", &format!("[{WRONG_TYPE}]"));
            }
            maker.check("BF.ADD f x", "1");
            if user != own {
                let refused =
                    format!("-ERR key 'k' is a string of {own}, whose users see the same filters");
                maker.check("RENAME f k", &refused);
                maker.check("MULTI", "+OK");
                maker.check("RENAMENX f k", "+QUEUED");
                maker.check("EXEC", &format!("[{refused}]"));
            }
            maker.check("DEL f", "1");
        }
        owner.check("GET k", "\"v\"");
        owner.check("DEL k", "1");
    }
}

#[test]
fn a_string_takes_the_place_of_a_filter_only_for_users_who_see_it() {
    let home = home_of_users();
    let server = serve_users(&home);
    let mut maker = client_of(&server, "none");
    let refused =
        "-NOPERM key 'k' is a filter that other users see, who have `makes-filters = true`";
    maker.check("BF.ADD k x", "1");
    for (user, key) in
        [("plain-sess", "k"), ("plain-clicks", "k"), ("names", "sess:{k}"), ("names", "clicks:{k}")]
    {
        let mut client = client_of(&server, user);
        for write in ["SET KEY v", "APPEND KEY v", "MSET KEY v", "SETNX KEY v", "INCR KEY"] {
            let write = write.replace("KEY", key);
            client.check(&write, refused);
            client.check("MULTI", "+OK");
            client.check(&write, "+QUEUED");
            client.check("EXEC", &format!("[{refused}]"));
        }
        client.check(&format!("DEL {key}"), "0");
        client.check(&format!("EXISTS {key}"), "0");
    }
    maker.check("TYPE k", "+MBbloom--");
    for user in SHARING {
        let mut client = client_of(&server, user);
        client.check("APPEND k v", WRONG_TYPE);
        client.check("SET k v", "+OK");
        client.check("DEL k", "1");
        maker.check("BF.ADD k x", "1");
    }
}

/// Commands of a transaction on a data set that its keys name, and of another one beside the same filters.
#[test]
fn a_transaction_that_names_another_data_set_leaves_a_string_or_a_filter() {
    let home = home_of_users();
    let server = serve_users(&home);
    let mut client = client_of(&server, "names");
    for space in ["sess", "clicks"] {
        let key = format!("{space}:{{k}}");
        client.check("MULTI", "+OK");
        client.check(&format!("SET {key} v"), "+QUEUED");
        client.check("BF.ADD k x", "+QUEUED");
        client.check("EXEC", &format!("[+OK {WRONG_TYPE}]"));
        client.check("MULTI", "+OK");
        client.check(&format!("DEL {key}"), "+QUEUED");
        client.check("BF.ADD k x", "+QUEUED");
        client.check("EXEC", "[1 1]");
        client.check(&format!("EXISTS {key}"), "0");
        client.check("DEL k", "1");
    }
}

#[test]
fn users_of_several_data_sets_at_the_same_time_leave_a_string_or_a_filter() {
    let home = home_of_users();
    let server = serve_users(&home);
    let mut clients = SHARING.map(|user| client_of(&server, user));
    for round in 0..90 {
        let (writer, maker) = (round % 3, (round + 1 + round / 3 % 2) % 3);
        for client in &mut clients {
            client.check("FLUSHALL", "+OK");
        }
        clients[maker].check("BF.ADD f x", "1");
        let write = ["SET k v", "APPEND k v", "MSET k v o v"][round / 9 % 3];
        let make = ["BF.ADD k x", "RENAME f k"][round % 2];
        let lines = [(writer, write), (maker, make)];
        let order = [round / 2 % 2, 1 - round / 2 % 2];
        order.iter().for_each(|i| clients[lines[*i].0].ask(lines[*i].1));
        let replies = lines.map(|(client, _)| clients[client].reply());
        let kind = clients[writer].call("TYPE k");
        let seen = format!("round {round}: {lines:?} {replies:?} {kind}");
        match &*kind {
            "+string" => clients[writer].check("GET k", "\"v\""),
            "+MBbloom--" => {
                assert!(replies[0] == WRONG_TYPE && !write.starts_with("SET"), "{seen}");
            }
            _ => panic!("{seen}"),
        }
        // A string that a filter hides would be there after it.
        let is_filter = kind != "+string";
        for (i, client) in clients.iter_mut().enumerate().filter(|(i, _)| is_filter || *i != writer)
        {
            client.check("TYPE k", if is_filter { "+MBbloom--" } else { "+none" });
            if is_filter && i == 2 {
                client.check("RENAME k moved", "+OK");
            }
        }
        if is_filter {
            clients.iter_mut().for_each(|client| client.check("EXISTS k", "0"));
        }
    }
}
