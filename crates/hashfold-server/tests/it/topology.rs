//! The topology as an object of a remote: slots that move while servers run, and starts without the remote.

use crate::{
    cluster::free_ports,
    fixture::{Client, ENTRIES, Home, key, value},
    http::get,
};
use hashfold::{
    Env, ReadOptions, Store, StoreOptions,
    run::SortOptions,
    store::{StoreWriter, TableSizes, UpdateMode, Version, VersionFacts, slot_of},
    work::Watch,
};
use hashfold_deploy::{Controller, PublishOptions, Remote, push};
use hashfold_server::{Config, Node, Server, Shard, StartError, Topology};
use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
    time::Duration,
};

/// Maximum number of redirections that clients follow.
const REDIRECTIONS_MAX: usize = 5;

/// Two groups of servers over one remote, which has their topology.
struct Nodes {
    home: Home,
    env: Env,
    remote: Remote,
    ports: [u16; 4],
}

impl Nodes {
    /// The first group has the slots below `first`.
    fn new(first: u32) -> Nodes {
        let (home, env) = (Home::new(), Env::system());
        fs::create_dir(home.path("remote")).unwrap();
        let remote = Remote::open(&env, home.path("remote").to_str().unwrap()).unwrap();
        let nodes = Nodes { home, env, remote, ports: free_ports() };
        nodes.move_to(first);
        nodes
    }

    /// Gives the slots below `first` to the first group, and all others to the second one.
    fn move_to(&self, first: u32) -> u64 {
        let node = |i: usize| Node {
            id: format!("n{i}"),
            host: "127.0.0.1".into(),
            port: self.ports[i],
            ..Node::default()
        };
        let shards = vec![
            Shard { slots: vec![(0, first - 1)], nodes: vec![node(0), node(1)] },
            Shard { slots: vec![(first, 16_383)], nodes: vec![node(2), node(3)] },
        ];
        let topology = Topology { shards, ..Topology::default() };
        self.remote.set_topology(&self.env, &topology).unwrap().epoch
    }

    fn url(&self) -> String {
        format!("file://{}", self.home.path("remote").display())
    }

    /// Starts a server with what the text says of its data.
    fn try_start(&self, i: usize, data: &str) -> Result<Server, StartError> {
        let text = format!(
            "listen = ['127.0.0.1:{}']\ncluster = '{}'\nnode = 'n{i}'\n{data}",
            self.ports[i],
            self.url()
        );
        let config = Config::parse(&text, "test.toml", &self.home.path("")).unwrap();
        Server::start(config, &self.env)
    }

    /// Starts a server that follows a group.
    fn start(&self, i: usize) -> Server {
        let data = format!(
            "deploy.remote = 'remote'\n[data.shop]\npath = 'n{i}/shop'\n[user.default]\nspace = 'shop'\n"
        );
        self.try_start(i, &data).unwrap()
    }

    fn publish(&self, number: u64) {
        let options = PublishOptions { lead: Duration::ZERO, ..PublishOptions::default() };
        let controller = Controller::new(&self.env, &self.remote, "main", "test").unwrap();
        controller.publish(&[("shop".to_owned(), number)], &options, &Watch::default()).unwrap();
    }

    fn push(&self, number: u64) {
        let (people, watch) = (self.home.path("people"), Watch::default());
        push(&self.env, &people, Some(number), &self.remote, "shop", &watch).unwrap();
    }

    fn copy(&self, i: usize) -> PathBuf {
        self.home.path(&format!("n{i}.topology.json"))
    }
}

/// A client in cluster mode without a memory: it asks any server, and goes where it is sent.
struct Reader {
    clients: BTreeMap<u16, Client>,
    ports: [u16; 4],
}

impl Reader {
    fn of(nodes: &Nodes) -> Reader {
        let connect = |port| (port, Client::connect(SocketAddr::from(([127, 0, 0, 1], port))));
        Reader { clients: nodes.ports.map(connect).into(), ports: nodes.ports }
    }

    /// Returns the value of a key, and follows redirections.
    #[track_caller]
    fn get(&mut self, first: usize, key: &str) -> String {
        let (mut port, mut path) = (self.ports[first], Vec::new());
        loop {
            let reply = self.clients.get_mut(&port).unwrap().call(&format!("GET {key}"));
            let Some((_, next)) = reply.strip_prefix("-MOVED ").and_then(|it| it.rsplit_once(':'))
            else {
                return reply;
            };
            port = next.parse().unwrap();
            path.push(reply);
            assert!(path.len() <= REDIRECTIONS_MAX, "{key}: {path:?}");
        }
    }
}

/// Returns a key with a slot of a range.
fn key_in(slots: std::ops::Range<u32>) -> String {
    (0..ENTRIES).map(key).find(|key| slots.contains(&slot_of(key.as_bytes()))).unwrap()
}

/// Slots move to another group and back, while a version is published and clients read: each answer is right, no
/// answer goes back to the version before, and none needs many redirections.
#[test]
fn slots_move_under_readers() {
    let nodes = Nodes::new(8192);
    nodes.home.publish(2);
    nodes.push(1);
    nodes.push(2);
    let servers: Vec<Server> = (0..4).map(|i| nodes.start(i)).collect();
    nodes.publish(1);
    let mut clients: Vec<Client> = servers.iter().map(Client::of).collect();
    let (low, middle) = (key_in(0..4096), key_in(4096..8192));
    for (client, key) in
        clients.iter_mut().zip([&low, &low, &key_in(8192..16_384), &key_in(8192..16_384)])
    {
        client.wait_for(&format!("GET {key}"), &|reply| reply.starts_with("\"value"));
    }
    let (is_done, oldest, reads) = (AtomicBool::new(false), AtomicU32::new(1), AtomicU32::new(0));
    let read = |offset: u32| {
        let mut reader = Reader::of(&nodes);
        for i in (offset..).step_by(7) {
            if is_done.load(SeqCst) {
                break;
            }
            let (number, least) = (i % ENTRIES, oldest.load(SeqCst));
            let reply = reader.get(i as usize % 4, &key(number));
            let is_right = (least..=2).any(|it| reply == format!("{:?}", value(number, it)));
            assert!(is_right, "{reply}, at least version {least}");
            reads.fetch_add(1, SeqCst);
        }
    };
    // The clients of the servers see a change when its slots are open, and the end of the time after it.
    let wait_for = |clients: &mut [Client], epoch: u64| {
        let expected = format!("cluster_current_epoch:{epoch}\\r");
        for client in clients {
            client.wait_for("CLUSTER INFO", &|info| info.contains(&expected));
        }
    };
    let is_moved = |reply: &str| reply.starts_with("-MOVED");
    thread::scope(|scope| {
        let readers = [0, 1].map(|offset| scope.spawn(move || read(offset)));
        // A test that fails ends the readers, too.
        let check = || {
            let get = format!("GET {middle}");
            let epoch = nodes.move_to(4096);
            nodes.publish(2);
            wait_for(&mut clients, epoch);
            clients[2].wait_for(&get, &|reply| reply.contains("of version 2"));
            clients[0].wait_for(&get, &is_moved);
            assert!(clients[0].call(&get).ends_with(&format!(":{}", nodes.ports[2])));
            assert!(clients[3].call("CLUSTER SLOTS").starts_with("[[0 4095 "));
            let versions = |clients: &mut [Client]| {
                clients[1].wait_for(&format!("GET {low}"), &|reply| reply.contains("version 2"));
                clients[3].wait_for(&get, &|reply| reply.contains("version 2"));
                clients[0].wait_for(&format!("GET {low}"), &|reply| reply.contains("version 2"));
            };
            versions(&mut clients);
            oldest.store(2, SeqCst);
            let epoch = nodes.move_to(8192);
            wait_for(&mut clients, epoch);
            clients[2].wait_for(&get, &is_moved);
            clients[3].wait_for(&get, &is_moved);
            assert!(clients[1].call(&get).contains("of version 2"));
            let before = reads.load(SeqCst);
            clients[0].wait_for("PING", &|_| reads.load(SeqCst) > before + 100);
        };
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        is_done.store(true, SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    // Each server has reported what it serves now, and with which topology.
    let controller = Controller::new(&nodes.env, &nodes.remote, "main", "test").unwrap();
    clients[0].wait_for("PING", &|_| {
        let nodes = controller.status().unwrap().nodes;
        nodes.values().all(|node| node.topology == Some(3)) && nodes["n0"].slots == [(0, 8191)]
    });
}

/// Makes a store in which every chunk has a table of its own.
fn store_of_many_tables(nodes: &Nodes) {
    let path = nodes.home.path("apart");
    let mut writer =
        StoreWriter::create(&path, StoreOptions::new().env(nodes.env.clone())).unwrap();
    writer.set_table_sizes(TableSizes { base_bytes_min: 0, delta_bytes_min: 0 });
    let mut batch = writer.batch(SortOptions::within(1 << 20)).unwrap();
    for i in 0..ENTRIES {
        batch.push(key(i).as_bytes(), Some(value(i, 1).as_bytes())).unwrap();
    }
    let facts = VersionFacts { id: 1, ..VersionFacts::default() };
    let info = writer.write(batch, UpdateMode::Merge, facts, &Watch::default()).unwrap();
    writer.publish(info.name.number).unwrap();
}

/// A table of new slots that cannot be opened changes nothing, until it can. Later changes are not lost.
#[test]
fn slots_that_cannot_be_opened_are_opened_later() {
    let nodes = Nodes::new(8192);
    store_of_many_tables(&nodes);
    let data = "http-listen = ['127.0.0.1:0']\n[data.apart]\npath = 'apart'\n[user.default]\nspace = 'apart'\n";
    let server = nodes.try_start(2, data).unwrap();
    let mut client = Client::of(&server);
    let (middle, high) = (key_in(4096..8192), key_in(8192..16_384));
    client.check(&format!("GET {high}"), &expected(&high));
    // The tables of the slots that come.
    let store = nodes.home.path("apart");
    let info = Version::open(&store, 1, &ReadOptions::new()).unwrap().info().clone();
    let coming = info.bases.iter().filter(|base| base.chunks.count_in(&(4..8)) > 0);
    let tables: Vec<PathBuf> =
        coming.map(|base| store.join(format!("tables/{:016x}", base.table))).collect();
    assert_eq!(tables.len(), 4);
    let hidden = |table: &PathBuf| table.with_extension("hidden");
    #[expect(clippy::disallowed_methods, reason = "damage comes from behind")]
    tables.iter().for_each(|table| fs::rename(table, hidden(table)).unwrap());
    nodes.move_to(4096);
    client.wait_for(&format!("GET {middle}"), &|reply| reply.starts_with("-TRYAGAIN Slot "));
    assert!(client.call("CLUSTER INFO").contains("cluster_current_epoch:1"));
    let facts = get(&server, "/v1/cluster").1;
    assert!(facts.contains("\"epoch\":1") && facts.contains("table of the version"), "{facts}");
    // Other slots are served, and a new version becomes current.
    client.check(&format!("GET {high}"), &expected(&high));
    let mut update = Store::open(&store).unwrap().update().unwrap().mode(UpdateMode::Delta);
    update.put(&high, "new").unwrap();
    update.publish().unwrap();
    client.wait_for(&format!("GET {high}"), &|reply| reply == "\"new\"");
    client.check(&format!("GET {}", key_in(0..4096)), "-CLUSTERDOWN Hash slot not served");
    let last = nodes.move_to(2048);
    #[expect(clippy::disallowed_methods, reason = "the damage is repaired")]
    tables.iter().for_each(|table| fs::rename(hidden(table), table).unwrap());
    let last = format!("cluster_current_epoch:{last}\\r");
    client.wait_for("CLUSTER INFO", &|info| info.contains(&last));
    for key in [&key_in(2048..4096), &middle] {
        client.check(&format!("GET {key}"), &expected(key));
    }
    client.check(&format!("GET {high}"), "\"new\"");
}

/// The reply with the value of a key in version 1.
fn expected(key: &str) -> String {
    format!("{:?}", value(key["key-".len()..].parse().unwrap(), 1))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "files as operators and accidents leave them")]
fn a_server_starts_without_the_remote_with_the_topology_that_it_has_seen() {
    let nodes = Nodes::new(8192);
    let data = "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n";
    let start = || nodes.try_start(0, data);
    let server = start().unwrap();
    let mut client = Client::of(&server);
    let has_copied = |epoch: u64| {
        let text = fs::read_to_string(nodes.copy(0)).unwrap_or_default();
        text.contains(&format!("\"epoch\":{epoch},")) && text.contains(&nodes.url())
    };
    client.wait_for("PING", &|_| has_copied(1));
    nodes.move_to(4096);
    client.wait_for("PING", &|_| has_copied(2));
    client.wait_for("CLUSTER SLOTS", &|slots| slots.starts_with("[[0 4095 "));
    let (remote, away) = (nodes.home.path("remote"), nodes.home.path("away"));
    fs::rename(&remote, &away).unwrap();
    // The one that runs goes on.
    let low = key_in(0..4096);
    client.check(&format!("GET {low}"), &expected(&low));
    server.stop().unwrap();
    let server = start().unwrap();
    let mut client = Client::of(&server);
    assert!(client.call("CLUSTER SLOTS").starts_with("[[0 4095 "));
    client.check(&format!("GET {low}"), &expected(&low));
    // The remote comes back with another topology.
    fs::rename(&away, &remote).unwrap();
    nodes.move_to(2048);
    client.wait_for("CLUSTER SLOTS", &|slots| slots.starts_with("[[0 2047 "));
    client.wait_for("PING", &|_| has_copied(3));
    server.stop().unwrap();
    // A copy that is damaged, or of another remote, is not used.
    let good = fs::read_to_string(nodes.copy(0)).unwrap();
    let foreign = good.replace(&nodes.url(), "s3://other");
    let older = good.replace("\"epoch\":3", "\"epoch\":2");
    for bad in [&good[..good.len() / 2], &foreign, "", &good.replace("16383", "16384")] {
        fs::write(nodes.copy(0), bad).unwrap();
        fs::rename(&remote, &away).unwrap();
        let error = start().unwrap_err().to_string();
        assert!(error.contains("remote: cannot read: the folder does not exist"), "{error}");
        fs::rename(&away, &remote).unwrap();
        let server = start().unwrap();
        Client::of(&server).wait_for("PING", &|_| has_copied(3));
        server.stop().unwrap();
    }
    // An older copy gives way to the remote, and an older topology of the remote to the copy.
    fs::write(nodes.copy(0), older).unwrap();
    let server = start().unwrap();
    assert!(Client::of(&server).call("CLUSTER INFO").contains("cluster_current_epoch:3"));
    server.stop().unwrap();
    fs::write(nodes.copy(0), good.replace("\"epoch\":3", "\"epoch\":9")).unwrap();
    let server = start().unwrap();
    assert!(Client::of(&server).call("CLUSTER INFO").contains("cluster_current_epoch:9"));
}

/// A server that a topology does not have any more goes on with the one before.
#[test]
fn a_topology_without_this_server_is_not_taken_up() {
    let nodes = Nodes::new(8192);
    let data = "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n";
    let server = nodes.try_start(0, data).unwrap();
    let mut client = Client::of(&server);
    let other = Node { id: "x".into(), host: "127.0.0.1".into(), port: 1, ..Node::default() };
    let all = Shard { slots: vec![(0, 16_383)], nodes: vec![other] };
    let without = Topology { shards: vec![all], ..Topology::default() };
    nodes.remote.set_topology(&nodes.env, &without).unwrap();
    client.wait_for("PING", &|_| {
        fs::read_to_string(nodes.copy(0)).is_ok_and(|copy| copy.contains("\"epoch\":2,"))
    });
    assert!(client.call("CLUSTER INFO").contains("cluster_current_epoch:1"));
    let low = key_in(0..4096);
    client.check(&format!("GET {low}"), &expected(&low));
    let error = nodes.try_start(1, data).unwrap_err().to_string();
    assert!(error.contains("node \"n1\" is not in the topology"), "{error}");
    let last = nodes.move_to(4096);
    let last = format!("cluster_current_epoch:{last}\\r");
    client.wait_for("CLUSTER INFO", &|info| info.contains(&last));
}
