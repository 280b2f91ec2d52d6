//! Slots, redirections, and servers that do not answer.

use crate::fixture::{Client, ENTRIES, Home, key};
use hashfold::{Env, store::slot_of, work::Watch};
use hashfold_deploy::{Controller, ErrorKind, PublishOptions, Remote, push};
use hashfold_server::{ClusterConfig, Config, Node, Server, Shard, Topology};
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

/// Returns ports that are free now.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

pub(crate) struct Nodes {
    pub(crate) home: Home,
    pub(crate) ports: [u16; 4],
}

impl Nodes {
    /// Two groups of two servers, with half of the slots each.
    pub(crate) fn new() -> Nodes {
        let nodes = Nodes { home: Home::new(), ports: free_ports() };
        let node = |i: usize| Node {
            id: format!("n{i}"),
            host: "127.0.0.1".into(),
            port: nodes.ports[i],
            tls_port: None,
            zone: None,
        };
        let topology = Topology {
            epoch: 1,
            shards: vec![
                Shard { slots: vec![(0, 8191)], nodes: vec![node(0), node(1)] },
                Shard { slots: vec![(8192, 16_383)], nodes: vec![node(2), node(3)] },
            ],
            ..Topology::default()
        };
        #[expect(clippy::disallowed_methods, reason = "a file as an operator writes it")]
        fs::write(nodes.home.path("topology.json"), serde_json::to_vec(&topology).unwrap())
            .unwrap();
        nodes
    }

    fn start(&self, i: usize) -> Server {
        self.start_in(&self.home, i)
    }

    /// Starts a server with the data of another home.
    fn start_in(&self, home: &Home, i: usize) -> Server {
        home.serve_with(&["people"], |config| {
            config.listen = vec![SocketAddr::from(([127, 0, 0, 1], self.ports[i]))];
            config.cluster =
                ClusterConfig::Topology(self.home.path("topology.json"), format!("n{i}"));
        })
    }
}

#[test]
fn replicas_have_an_offset_so_that_clients_read_from_them() {
    let nodes = Nodes::new();
    let server = nodes.start(0);
    let mut client = Client::of(&server);
    let shards = client.call("CLUSTER SHARDS");
    assert_eq!(shards.matches("\"replication-offset\" 1").count(), 4, "{shards}");
    let info = client.call("INFO replication");
    assert!(info.contains("master_repl_offset:1\\r\\nslave_repl_offset:1\\r\\n"), "{info}");
}

#[test]
fn a_server_that_is_about_to_stop_answers_and_sends_clients_elsewhere() {
    let nodes = Nodes::new();
    let servers: Vec<Server> = (0..2).map(|i| nodes.start(i)).collect();
    let mut client = Client::of(&servers[0]);
    let own = format!(" {} ", nodes.ports[0]);
    let lists_own = |slots: &str| slots.replace(['[', ']'], " ").contains(&own);
    let other = nodes.ports[1].to_string();
    client.wait_for("CLUSTER SLOTS", &|slots| lists_own(slots) && slots.contains(&other));
    assert_eq!(servers[0].begin_stop(), Duration::ZERO, "no configuration file says otherwise");
    let slots = client.call("CLUSTER SLOTS");
    assert!(!lists_own(&slots) && slots.contains(&other), "{slots}");
    let own_key = (0..).map(key).find(|key| slot_of(key.as_bytes()) < 8192).unwrap();
    let reply = client.call(&format!("GET {own_key}"));
    assert!(reply.starts_with("\"value"), "{reply}");
}

#[test]
fn a_primary_is_no_replica_whatever_its_host_is_called() {
    let nodes = Nodes::new();
    let path = nodes.home.path("topology.json");
    let text = fs::read_to_string(&path).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a file as an operator writes it")]
    fs::write(&path, text.replacen("127.0.0.1", "redis-slave-1.invalid", 1)).unwrap();
    let server = nodes.start(0);
    let mut client = Client::of(&server);
    let id = client.call("CLUSTER MYID");
    let replicas = client.call(&format!("CLUSTER REPLICAS {}", id.trim_matches('"')));
    let port = nodes.ports[1];
    assert!(replicas.contains(&format!("127.0.0.1:{port}@")), "{replicas}");
    assert!(!replicas.contains("redis-slave-1"), "{replicas}");
}

#[test]
fn clients_are_sent_to_the_owner_of_a_slot() {
    let nodes = Nodes::new();
    let servers: Vec<Server> = (0..4).map(|i| nodes.start(i)).collect();
    let mut clients: Vec<Client> = servers.iter().map(Client::of).collect();
    for client in &mut clients {
        client.wait_for("CLUSTER NODES", &|nodes| !nodes.contains("fail"));
    }
    for i in 0..50 {
        let key = key(i);
        let slot = slot_of(key.as_bytes());
        let owners = if slot < 8192 { [0, 1] } else { [2, 3] };
        for (number, client) in clients.iter_mut().enumerate() {
            let reply = client.call(&format!("GET {key}"));
            match owners.contains(&number) {
                true => assert_eq!(reply, format!("{:?}", crate::fixture::value(i, 1))),
                false => {
                    let moved = format!("-MOVED {slot} 127.0.0.1:{}", nodes.ports[owners[0]]);
                    assert_eq!(reply, moved);
                }
            }
        }
    }
    clients[0].check("CLUSTER KEYSLOT foo", "12182");
    let slots = clients[0].call("CLUSTER SLOTS");
    assert!(
        slots.starts_with("[[0 8191 [\"127.0.0.1\" ") && slots.contains("[8192 16383 "),
        "{slots}"
    );
    let names = clients[0].call("CLUSTER NODES");
    assert_eq!(names.matches("master").count(), 2, "{names}");
    assert!(clients[0].call("CLUSTER INFO").contains("cluster_state:ok"));
    assert!(clients[0].call("CLUSTER SHARDS").contains("\"health\" \"online\""));
    clients[0].check(
        "MGET key-1 key-2 key-3 key-4",
        "-CROSSSLOT Keys in request don't hash to the same slot",
    );
    clients[0].check("READONLY", "+OK");
}

/// A group goes on with one server; a group without any says so, and keeps its slots in the list.
#[test]
fn a_dead_server_is_left_out() {
    let nodes = Nodes::new();
    let (first, third) = (nodes.start(0), nodes.start(2));
    let mut client = Client::of(&first);
    let (dead, gone) = (nodes.ports[3].to_string(), nodes.ports[2].to_string());
    client.wait_for("CLUSTER SLOTS", &|slots| slots.contains(&gone) && !slots.contains(&dead));
    drop(third);
    client.wait_for("CLUSTER INFO", &|info| info.contains("cluster_state:fail"));
    let slots = client.call("CLUSTER SLOTS");
    assert!(slots.contains(&dead) && slots.contains(&gone), "{slots}");
    let key = (0..).map(key).find(|key| slot_of(key.as_bytes()) >= 8192).unwrap();
    client.check(&format!("GET {key}"), "-CLUSTERDOWN Hash slot not served");
}

#[test]
fn a_cluster_of_one_has_all_slots() {
    let home = Home::new();
    let server = home.serve_with(&["people"], |config| config.cluster = ClusterConfig::Emulated);
    let mut client = Client::of(&server);
    client.check("MGET key-1 key-2", "[\"value 1 of version 1\" \"value 2 of version 1\"]");
    assert!(client.call("CLUSTER SLOTS").starts_with("[[0 16383 "));
    let server = home.serve(&["people"]);
    Client::of(&server).check("CLUSTER SLOTS", "-ERR This instance has cluster support disabled");
}

/// A client gets its answer from another server of the group if a block is damaged on one.
#[test]
fn clients_are_sent_to_a_sibling_for_damaged_keys() {
    let nodes = Nodes::new();
    let damaged = Home::new();
    damaged.damage("people");
    let servers = [nodes.start_in(&damaged, 0), nodes.start(1)];
    let [mut first, mut second] = [0, 1].map(|i| Client::of(&servers[i]));
    first.wait_for("CLUSTER NODES", &|nodes| nodes.matches("fail").count() == 2);
    let own = (0..ENTRIES).map(key).filter(|key| slot_of(key.as_bytes()) <= 8191);
    let mut redirected = 0;
    for key in own {
        let reply = first.call(&format!("GET {key}"));
        if reply.starts_with("\"value") {
            continue;
        }
        let slot = slot_of(key.as_bytes());
        assert_eq!(reply, format!("-ASK {slot} 127.0.0.1:{}", nodes.ports[1]));
        assert_eq!(first.call(&format!("MGET {key} {key}")), reply);
        second.check("ASKING", "+OK");
        assert!(second.call(&format!("GET {key}")).starts_with("\"value"));
        // A client that was sent here already is not sent back and forth.
        first.check("ASKING", "+OK");
        assert!(first.call(&format!("GET {key}")).starts_with("-DAMAGED "), "{key}");
        assert!(first.call(&format!("GET {key}")).starts_with("-ASK "), "{key}");
        redirected += 1;
    }
    assert!(redirected > 0);
    // Without a sibling, the client learns what is wrong.
    let [_, sibling] = servers;
    sibling.stop().unwrap();
    first.wait_for("CLUSTER NODES", &|nodes| nodes.matches("fail").count() == 3);
    let mut is_damaged = |i: u32| {
        slot_of(key(i).as_bytes()) <= 8191
            && first.call(&format!("GET {}", key(i))).starts_with("-DAMAGED ")
    };
    assert!((0..ENTRIES).filter(|i| is_damaged(*i)).count() == redirected);
}

/// Each server has a part of the slots, and reports that; a version is published when each slot has a server that
/// is ready.
#[test]
fn a_cluster_follows_a_group_when_each_range_of_slots_is_ready() {
    let (nodes, env, watch) = (Nodes::new(), Env::system(), Watch::default());
    let remote = Remote::open(&env, nodes.home.path("remote").to_str().unwrap()).unwrap();
    push(&env, &nodes.home.path("people"), Some(1), &remote, "shop", &watch).unwrap();
    let start = |i: usize| {
        let text = format!(
            "listen = ['127.0.0.1:{}']\ncluster = 'topology.json'\nnode = 'n{i}'\n\
             deploy.remote = 'remote'\n[data.shop]\npath = 'n{i}/shop'\n\
             [user.default]\nspace = 'shop'\n",
            nodes.ports[i]
        );
        let config = Config::parse(&text, "test.toml", &nodes.home.path("")).unwrap();
        Server::start(config, &env).unwrap()
    };
    let controller = Controller::new(&env, &remote, "main", "test").unwrap();
    let publish = |wait_s| {
        let options = PublishOptions {
            wait: Duration::from_secs(wait_s),
            lead: Duration::ZERO,
            ..PublishOptions::default()
        };
        controller.publish(&[("shop".to_owned(), 1)], &options, &watch)
    };
    let first = start(0);
    let reported = |name: &str| {
        let nodes = controller.status().unwrap().nodes;
        nodes.get(name).map(|node| node.slots.clone())
    };
    let mut client = Client::of(&first);
    client.wait_for("PING", &|_| reported("n0").is_some());
    let error = publish(1).unwrap_err();
    let ErrorKind::NotReady { expected: 1, got } = error.kind() else { panic!("{error}") };
    assert_eq!(got, "0 in slots 8192 to 16383 of shop: no server");
    let second = start(2);
    client.wait_for("PING", &|_| reported("n2").is_some());
    assert_eq!(reported("n0"), Some(vec![(0, 8191)]));
    assert_eq!(reported("n2"), Some(vec![(8192, 16_383)]));
    publish(30).unwrap();
    let mut other = Client::of(&second);
    for i in 0..50 {
        let key = key(i);
        let owner = if slot_of(key.as_bytes()) < 8192 { &mut client } else { &mut other };
        let expected = format!("{:?}", crate::fixture::value(i, 1));
        owner.wait_for(&format!("GET {key}"), &|reply| reply == expected);
    }
}
