//! Clusters of three groups of two servers, each server a process.

use crate::{
    Result,
    data::Data,
    serve::{serve_alone, wait_until_open},
};
use hashfold::{Env, TableBuilder, TableOptions};
use redis::{
    Commands as _,
    cluster::{ClusterClient, NodeAddress},
    cluster_read_routing::{ReadCandidates, ReadRoutingStrategy},
};
use serde_json::json;
use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Number of groups, and of servers in each.
const GROUPS: usize = 3;
const COPIES: usize = 2;
const SLOTS: usize = 16_384;
/// Highest port of a server: Redis Cluster uses the port that is 10,000 higher, too.
const PORT_MAX: u16 = 55_000;
/// Number of times that a server is asked, each 100 ms, whether it sees the whole cluster.
const TRIES: usize = 600;
/// Number of entries in a pipeline.
const PIPELINE: u64 = 1000;

/// Running servers, which end with this.
pub struct Cluster {
    nodes: Vec<Child>,
    pub ports: Vec<u16>,
    pub note: String,
}

impl Cluster {
    /// Returns the process id of the server at a place.
    pub fn pid(&self, place: usize) -> i32 {
        i32::try_from(self.nodes[place].id()).expect("process ids are small")
    }

    /// Returns a client that reads from the servers of a group in turn.
    pub fn client(&self, timeout: Duration) -> Result<ClusterClient> {
        let urls = self.ports.iter().map(|port| format!("redis://127.0.0.1:{port}"));
        let client = ClusterClient::builder(urls)
            .read_routing_strategy(InTurn::default())
            .connection_timeout(timeout)
            .response_timeout(timeout)
            .build()?;
        Ok(client)
    }
}

/// Reads from all servers of a group in turn: a read that is repeated goes to another server.
#[derive(Debug, Default)]
struct InTurn(AtomicUsize);

impl ReadRoutingStrategy for InTurn {
    fn route_read<'a>(&self, candidates: &ReadCandidates<'a>) -> &'a NodeAddress {
        let turn = self.0.fetch_add(1, Relaxed);
        match candidates {
            ReadCandidates::AnyNode(all) => {
                let place = turn % (1 + all.replicas().len().get());
                place.checked_sub(1).and_then(|i| all.replicas().get(i)).unwrap_or(all.primary())
            }
            ReadCandidates::ReplicasOnly(all) => {
                let place = turn % all.replicas().len().get();
                all.replicas().get(place).unwrap_or(all.replicas().first())
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Returns free ports.
fn ports() -> Result<Vec<u16>> {
    let (mut listeners, mut ports) = (Vec::new(), Vec::new());
    while ports.len() < GROUPS * COPIES {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        listeners.push(listener);
        if port <= PORT_MAX {
            ports.push(port);
        }
    }
    Ok(ports)
}

/// Builds a table, and serves it by a cluster with a topology file.
pub fn hashfold(data: &Data, folder: &Path) -> Result<Option<Cluster>> {
    let table = folder.join("table");
    let mut builder = TableBuilder::with(&table, TableOptions::new().env(Env::system()))?;
    let mut value = Vec::new();
    for number in 0..data.count {
        data.fill_value(number, &mut value);
        builder.push(data.key(number), &value)?;
    }
    builder.finish()?;
    let ports = ports()?;
    let node = |place: usize| json!({ "id": format!("n{place}"), "host": "127.0.0.1", "port": ports[place] });
    let shard = |group: usize| {
        let slots = [[SLOTS * group / GROUPS, SLOTS * (group + 1) / GROUPS - 1]];
        let nodes: Vec<_> = (0..COPIES).map(|copy| node(group + copy * GROUPS)).collect();
        json!({ "slots": slots, "nodes": nodes })
    };
    let shards: Vec<_> = (0..GROUPS).map(shard).collect();
    let topology = json!({ "epoch": 1, "shards": shards });
    fs::write(folder.join("topology.json"), topology.to_string())?;
    let note = "one network thread a server".to_owned();
    let mut cluster = Cluster { nodes: Vec::new(), ports, note };
    for (place, port) in cluster.ports.iter().enumerate() {
        let config = folder.join(format!("n{place}.toml"));
        let text = format!(
            "listen = [\"127.0.0.1:{port}\"]\nthreads = 1\nnode = \"n{place}\"\n\
             cluster = \"topology.json\"\n[data.table]\npath = {table:?}\n"
        );
        fs::write(&config, text)?;
        cluster.nodes.push(serve_alone(&config)?);
    }
    cluster.ports.iter().try_for_each(|port| wait_until_open(*port))?;
    wait_until_listed(&cluster)?;
    Ok(Some(cluster))
}

/// Starts and fills a Redis Cluster with its default time-outs; `None` if there is no redis-server.
pub fn redis(data: &Data, folder: &Path) -> Result<Option<Cluster>> {
    let version = match Command::new("redis-server").arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => return Ok(None),
    };
    let note = format!("{version}, default time-outs");
    let mut cluster = Cluster { nodes: Vec::new(), ports: ports()?, note };
    for port in &cluster.ports {
        let home = folder.join(port.to_string());
        fs::create_dir_all(&home)?;
        let node = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--cluster-enabled", "yes"])
            .current_dir(&home)
            .stdout(Stdio::null())
            .spawn()?;
        cluster.nodes.push(node);
    }
    cluster.ports.iter().try_for_each(|port| wait_until_open(*port))?;
    let addresses = cluster.ports.iter().map(|port| format!("127.0.0.1:{port}"));
    let made = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(addresses)
        .args(["--cluster-replicas", "1", "--cluster-yes"])
        .output()?;
    if !made.status.success() {
        return Err(format!("redis-cli: {}", String::from_utf8_lossy(&made.stdout)).into());
    }
    wait_until("sees a complete cluster", &cluster, |server| {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(server)?;
        Ok(info.contains("cluster_state:ok"))
    })?;
    fill(&cluster, data)?;
    wait_until_listed(&cluster)?;
    Ok(Some(cluster))
}

/// Waits until every server lists all servers: clients go on only with those that they know. Redis lists a replica
/// once it has the data.
fn wait_until_listed(cluster: &Cluster) -> Result<()> {
    wait_until("lists all servers", cluster, |server| {
        let groups: Vec<Vec<redis::Value>> = redis::cmd("CLUSTER").arg("SLOTS").query(server)?;
        // Behind the first slot and the last one.
        Ok(groups.len() == GROUPS && groups.iter().all(|group| group.len() == 2 + COPIES))
    })
}

fn wait_until(
    what: &str,
    cluster: &Cluster,
    is_so: impl Fn(&mut redis::Connection) -> redis::RedisResult<bool>,
) -> Result<()> {
    for port in &cluster.ports {
        let mut server = redis::Client::open(("127.0.0.1", *port))?.get_connection()?;
        let mut tries = 0;
        while !is_so(&mut server)? {
            tries += 1;
            if tries == TRIES {
                return Err(
                    format!("not so after a minute: the server at port {port} {what}").into()
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

fn fill(cluster: &Cluster, data: &Data) -> Result<()> {
    let mut connection = cluster.client(Duration::from_secs(10))?.get_connection()?;
    let mut value = Vec::new();
    for start in (0..data.count).step_by(PIPELINE as usize) {
        let mut pipeline = redis::cluster::cluster_pipe();
        for number in start..data.count.min(start + PIPELINE) {
            data.fill_value(number, &mut value);
            pipeline.set(&data.key(number), &value[..]).ignore();
        }
        pipeline.query::<()>(&mut connection)?;
    }
    let _: Option<Vec<u8>> = connection.get(&data.key(0))?;
    Ok(())
}
