//! Client libraries of others.

use crate::{
    cluster::Nodes,
    fixture::{Client, ENTRIES, Home, key, value},
    kill::{Process, start},
};
use fred::{
    clients::Client as FredClient,
    interfaces::{ClientLike as _, KeysInterface as _},
    types::{
        Builder,
        config::{Config, ReconnectPolicy, ServerConfig},
    },
};
use hashfold::work::{Clock as _, SystemClock};
use hashfold_server::ClusterConfig;
use redis::{
    AsyncCommands as _, Commands as _, RedisResult, Value,
    cluster::{ClusterClient, ClusterConnection},
    cluster_read_routing::RandomReplicaStrategy,
};
use std::time::Duration;

#[test]
fn the_rust_client_reads_and_pipelines() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    for suffix in ["", "/?protocol=resp3"] {
        let url = format!("redis://{}{suffix}", server.addresses()[0]);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let found: Option<String> = connection.get(key(1)).unwrap();
        assert_eq!(found, Some(value(1, 1)));
        let found: Option<String> = connection.get("nope").unwrap();
        assert_eq!(found, None);
        let found: Vec<Option<String>> = connection.mget(&[key(1), "nope".into(), key(2)]).unwrap();
        assert_eq!(found, [Some(value(1, 1)), None, Some(value(2, 1))]);
        let (a, b): (String, bool) =
            redis::pipe().get(key(3)).exists(key(4)).query(&mut connection).unwrap();
        assert_eq!((a, b), (value(3, 1), true));
        let written: RedisResult<()> = connection.set("a", "b");
        assert_eq!(written.unwrap_err().code(), Some("NOPERM"));
        let keys: Vec<String> = connection.scan().unwrap().map(Result::unwrap).collect();
        assert_eq!(keys.len(), 2000);
    }
}

#[test]
fn the_rust_client_runs_transactions() {
    let home = Home::new();
    let server = home.serve_with(&["people"], |config| config.filters = Some(home.path("made")));
    for suffix in ["", "/?protocol=resp3"] {
        let url = format!("redis://{}{suffix}", server.addresses()[0]);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for i in 0..500 {
            pipeline.get(key(i));
        }
        let found: Vec<String> = pipeline.query(&mut connection).unwrap();
        assert_eq!(found, (0..500).map(|i| value(i, 1)).collect::<Vec<_>>());
        let refused: RedisResult<Value> =
            redis::pipe().atomic().get(key(1)).cmd("NOPE").query(&mut connection);
        assert_eq!(refused.unwrap_err().code(), Some("EXECABORT"));
        let name = format!("seen{}", suffix.len());
        // The first try is in vain: the key that is watched was changed meanwhile.
        let mut tries = 0;
        let added: (bool, bool) =
            redis::transaction(&mut connection, &[&name], |connection, pipeline| {
                tries += 1;
                if tries == 1 {
                    Client::of(&server).check(&format!("BF.ADD {name} other"), "1");
                }
                let item = |command: &str| redis::cmd(command).arg(&name).arg("item").clone();
                pipeline.add_command(item("BF.EXISTS")).add_command(item("BF.ADD"));
                pipeline.query(connection)
            })
            .unwrap();
        assert_eq!((tries, added), (2, (false, true)));
    }
}

#[test]
fn the_rust_client_finds_its_way_in_a_cluster() {
    let home = Home::new();
    let server = home.serve_with(&["people"], |config| config.cluster = ClusterConfig::Emulated);
    let url = format!("redis://{}", server.addresses()[0]);
    let client = ClusterClient::new(vec![url]).unwrap();
    let mut connection = client.get_connection().unwrap();
    for i in 0..100 {
        let found: String = connection.get(key(i)).unwrap();
        assert_eq!(found, value(i, 1));
    }
}

/// Servers of a cluster in processes of their own: two groups of two.
struct Cluster {
    nodes: Nodes,
    processes: Vec<Option<Process>>,
}

impl Cluster {
    fn new() -> Cluster {
        let mut cluster = Cluster { nodes: Nodes::new(), processes: Vec::new() };
        cluster.processes.extend((0..4).map(|_| None));
        cluster.start();
        cluster
    }

    /// Starts the servers that do not run, and waits until all see each other.
    fn start(&mut self) {
        for (i, process) in self.processes.iter_mut().enumerate().filter(|(_, it)| it.is_none()) {
            let port = self.nodes.ports[i];
            let config = format!(
                "listen = ['127.0.0.1:{port}']\ncluster = 'topology.json'\nnode = 'n{i}'\n\
                 [data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n"
            );
            *process = Some(start(&self.nodes.home.path(""), &config));
        }
        for process in self.processes.iter().flatten() {
            let mut client = Client::connect(process.address);
            client.wait_for("CLUSTER NODES", &|nodes| !nodes.contains("fail"));
        }
    }

    fn kill(&mut self, i: usize) {
        self.processes[i].take().unwrap().kill();
    }

    /// Returns a client, which waits a second for a server at most.
    fn client(&self, reads_from_replicas: bool) -> ClusterClient {
        let urls = self.nodes.ports.map(|port| format!("redis://127.0.0.1:{port}"));
        let builder = ClusterClient::builder(urls)
            .connection_timeout(Duration::from_secs(1))
            .response_timeout(Duration::from_secs(1));
        match reads_from_replicas {
            true => builder.read_routing_strategy(RandomReplicaStrategy).build().unwrap(),
            false => builder.build().unwrap(),
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Number of times that a client tries to read a key while a server is gone.
const TRIES: usize = 200;

#[test]
fn the_rust_client_goes_on_with_a_new_connection_when_servers_are_killed() {
    let mut cluster = Cluster::new();
    for (round, reads_from_replicas) in [false, true].into_iter().enumerate() {
        let client = cluster.client(reads_from_replicas);
        let mut connection = client.get_connection().unwrap();
        let get = |connection: &mut ClusterConnection, i| {
            for _ in 0..TRIES {
                match connection.get::<_, String>(key(i)) {
                    Ok(found) => return assert_eq!(found, value(i, 1)),
                    // A connection of this client asks for other servers only when it is made.
                    Err(_) => {
                        SystemClock.sleep(Duration::from_millis(50));
                        *connection = client.get_connection().unwrap();
                    }
                }
            }
            panic!("{}: {:?}", key(i), connection.get::<_, String>(key(i)));
        };
        (0..ENTRIES).for_each(|i| get(&mut connection, i));
        let mut pipeline = redis::cluster::cluster_pipe();
        for i in 0..200 {
            pipeline.get(key(i));
        }
        let found: Vec<String> = pipeline.query(&mut connection).unwrap();
        assert_eq!(found, (0..200).map(|i| value(i, 1)).collect::<Vec<_>>());
        for killed in [round, 2 + round] {
            cluster.kill(killed);
            (0..ENTRIES).for_each(|i| get(&mut connection, i));
        }
        cluster.start();
    }
}

#[test]
fn the_asynchronous_rust_client_goes_on_when_servers_are_killed() {
    let mut cluster = Cluster::new();
    runtime().block_on(async {
        let client = cluster.client(true);
        let mut connection = client.get_async_connection().await.unwrap();
        for killed in [None, Some(0), Some(3)] {
            killed.iter().for_each(|killed| cluster.kill(*killed));
            for i in 0..ENTRIES {
                let mut found = connection.get::<_, String>(key(i)).await;
                for _ in 0..TRIES {
                    if found.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    found = connection.get(key(i)).await;
                }
                assert_eq!(found.unwrap(), value(i, 1));
            }
            let keys: Vec<String> = (0..100).map(key).collect();
            let found: Vec<String> = connection.mget(&keys).await.unwrap();
            assert_eq!(found, (0..100).map(|i| value(i, 1)).collect::<Vec<_>>());
        }
    });
}

/// Returns a client of the crate `fred`, which waits a second for a reply at most, and connects again for ever.
async fn fred_client(server: ServerConfig) -> FredClient {
    let config = Config { server, ..Config::default() };
    let client = Builder::from_config(config)
        .with_performance_config(|it| it.default_command_timeout = Duration::from_secs(1))
        .with_connection_config(|it| it.connection_timeout = Duration::from_secs(1))
        .set_policy(ReconnectPolicy::new_constant(0, 50))
        .build()
        .unwrap();
    client.init().await.unwrap();
    client
}

#[test]
fn fred_reads_and_pipelines() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    let port = server.addresses()[0].port();
    runtime().block_on(async {
        let client = fred_client(ServerConfig::new_centralized("127.0.0.1", port)).await;
        let found: Option<String> = client.get("nope").await.unwrap();
        assert_eq!(found, None);
        let keys: Vec<String> = (0..100).map(key).collect();
        let found: Vec<String> = client.mget(keys).await.unwrap();
        assert_eq!(found, (0..100).map(|i| value(i, 1)).collect::<Vec<_>>());
        let pipeline = client.pipeline();
        for i in 0..500 {
            let () = pipeline.get(key(i)).await.unwrap();
        }
        let found: Vec<String> = pipeline.all().await.unwrap();
        assert_eq!(found, (0..500).map(|i| value(i, 1)).collect::<Vec<_>>());
        client.quit().await.unwrap();
    });
}

#[test]
fn fred_goes_on_when_servers_are_killed() {
    let mut cluster = Cluster::new();
    let nodes = cluster.nodes.ports.map(|port| ("127.0.0.1", port)).to_vec();
    runtime().block_on(async {
        let client = fred_client(ServerConfig::new_clustered(nodes)).await;
        for killed in [None, Some(0), Some(3)] {
            killed.iter().for_each(|killed| cluster.kill(*killed));
            for i in 0..ENTRIES {
                let mut found: Result<String, _> = client.get(key(i)).await;
                for _ in 0..TRIES {
                    if found.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    found = client.get(key(i)).await;
                }
                assert_eq!(found.unwrap(), value(i, 1));
            }
        }
        client.quit().await.unwrap();
    });
}
