//! The configuration of a server: what it listens on, what it serves, and to whom.

mod file;

use crate::process::machine_memory;
use hashfold::io::Access;
use serde::Deserialize;
use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

/// Memory of a filter that clients make, in bytes, unless the configuration says otherwise.
const FILTER_MEMORY_BYTES: usize = 16 << 20;

/// Memory of a map, in bytes, unless the configuration says otherwise.
const MAP_MEMORY_BYTES: usize = 64 << 20;

/// Least memory of a data set in memory, in bytes.
const TABLE_MEMORY_BYTES_MIN: usize = 8 << 20;

/// Part of the memory that buffers of connections may take, unless the configuration says otherwise.
const CLIENT_MEMORY_PART: u64 = 8;

/// Least limit of transfers, in bytes per second: slow replies do not lower it further.
pub(crate) const RATE_MIN: u64 = 1 << 20;

/// The configuration of a server. `hashfold serve --config FILE` reads one; [`Config::of_folders`] makes
/// one of folders.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses for Redis clients.
    pub listen: Vec<SocketAddr>,
    /// Addresses for Redis clients with encrypted connections.
    pub tls_listen: Vec<SocketAddr>,
    /// The certificates of encrypted connections.
    pub tls: Option<TlsConfig>,
    /// Addresses for operators: the admin page, `/healthz`, `/readyz`, `/metrics` and `/v1`.
    pub http_listen: Vec<SocketAddr>,
    /// Addresses for operators with encrypted connections.
    pub https_listen: Vec<SocketAddr>,
    /// The cluster that the server is a part of.
    pub cluster: ClusterConfig,
    /// Maximum memory of indexes, maps, filters, data sets in memory and buffers of connections together, in bytes; 0 for
    /// no limit. A data set, a version or a filter that does not fit is not opened.
    pub memory_bytes: u64,
    /// Maximum memory of the buffers of all connections, in bytes. If they take more, the connections with
    /// the largest buffers are closed.
    pub client_memory_bytes: u64,
    /// Number of network threads.
    pub threads: usize,
    /// Maximum number of connections.
    pub clients_max: usize,
    /// Time for which a server that is about to stop goes on answering, so that clients and load balancers can go
    /// elsewhere ([`Server::begin_stop`](crate::Server::begin_stop)).
    pub drain: Duration,
    /// Data sets by name.
    pub data: BTreeMap<String, DataConfig>,
    /// The folder in which clients make filters.
    pub filters: Option<PathBuf>,
    /// Memory of each filter that clients make, in bytes.
    pub filter_memory_bytes: usize,
    /// Users by name.
    pub users: BTreeMap<String, UserConfig>,
    /// The group whose pointer decides which versions of the stores are served.
    pub deploy: Option<DeployConfig>,
    /// Who may see and change what the server serves, over HTTP.
    pub admin: AdminConfig,
}

/// Operators, and the log of what they change. Without tokens, everybody who can connect over HTTP sees
/// everything, and nobody can change anything there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminConfig {
    /// The file to which each change is appended, also those by commands such as `HASHFOLD.PUBLISH`:
    /// who, what, why. JSON Lines, each with the SHA-256 hash of the line before.
    pub audit: Option<PathBuf>,
    /// Tokens by the name of their holder.
    pub tokens: BTreeMap<String, TokenConfig>,
    /// The address under which browsers reach the admin page through a proxy: `https://ops.example.org`,
    /// without a path.
    pub public_url: Option<String>,
}

/// A token, which its holder shows over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// The SHA-256 hash of the token, in hexadecimal digits.
    pub sha256: String,
    /// What its holder may do.
    pub role: Role,
}

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See everything.
    Viewer,
    /// See everything, and change which versions are current and pinned.
    Operator,
}

/// The group whose versions a server serves: those that `hashfold deploy publish` makes current.
///
/// All stores in [`Config::data`] follow it, under their names; a folder that does not exist becomes a
/// store. Tables and filters stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployConfig {
    /// The object storage: a URL such as `s3://bucket/prefix`, or a folder.
    pub remote: String,
    /// Name of the group.
    pub group: String,
    /// Name of this server, which no other server of the group has.
    pub node: String,
    /// Zone of this server, which can get versions before all others; `None` for the one in the topology
    /// file, if there is one.
    pub zone: Option<String>,
    /// Limit of transfers in bytes per second, at least 1 MiB. Transfers are slower than that while
    /// replies are slow.
    pub rate_bytes_per_s: u64,
    /// Files with public keys of which one must have signed each version that is fetched; without files,
    /// versions need no signature. They are read when the server starts.
    pub trusted_keys: Vec<PathBuf>,
}

/// The certificates of encrypted connections (TLS 1.2 and 1.3), files in the PEM format. They are read
/// again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Authorities of which one must have signed the certificate of each client; without them, clients
    /// need none.
    pub client_ca: Option<PathBuf>,
}

/// The cluster that a server is a part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterConfig {
    /// None: cluster commands are errors.
    #[default]
    Off,
    /// A cluster of this server alone, which has all slots, so that clients in cluster mode work.
    Emulated,
    /// The cluster in a topology file, and the name that this server has there.
    Topology(PathBuf, String),
    /// The cluster in the topology of a remote, which can change while servers run.
    Remote {
        /// URL of the remote.
        url: String,
        /// The name that this server has in the topology.
        node: String,
        /// File of the local copy, with which the server starts if the remote does not answer.
        copy: PathBuf,
    },
}

/// Where a data set is while it is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataKind {
    /// In its folder, which says whether it is a table, a store, a map or a filter.
    #[default]
    Folder,
    /// In memory: an [`AppendTable`](hashfold::memory::AppendTable), which takes the commands of Redis for strings that
    /// do not expire.
    Memory,
}

/// A data set to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataConfig {
    /// Where the data set is.
    pub kind: DataKind,
    /// Folder of the data set. Of one in memory, the folder of the store that it is loaded from when the server starts,
    /// and saved to when it stops; empty for none.
    pub path: PathBuf,
    /// Folder of the table or store that a data set in memory is loaded from if the store in `path` has no version.
    pub load: Option<PathBuf>,
    /// How blocks are read; `None` decides by the memory that is free.
    pub access: Option<Access>,
    /// Whether a filter or a map is opened for writing, and whether clients may change a data set in memory.
    pub is_writable: bool,
    /// When changes of a map are durable.
    pub durability: MapDurability,
    /// Memory of a map, in bytes, at least 8 MiB: for its log, for changes that are not in order on the device,
    /// and for Bloom filters. Of a data set in memory, the limit of its keys, values and index together.
    pub memory_bytes: usize,
    /// Folders of a map's other devices, if they have moved; empty for those that the map names.
    pub devices: Vec<PathBuf>,
    /// Space for copies of often-read parts of a map on a second one of its devices, in bytes; 0 for none.
    pub mirror_bytes: u64,
}

impl DataConfig {
    /// Returns the entry of a folder that is opened for writing, with the defaults of a configuration file.
    pub fn of_folder(path: PathBuf) -> DataConfig {
        DataConfig {
            kind: DataKind::Folder,
            path,
            load: None,
            access: None,
            is_writable: true,
            durability: MapDurability::default(),
            memory_bytes: MAP_MEMORY_BYTES,
            devices: Vec::new(),
            mirror_bytes: 0,
        }
    }

    /// Returns the entry of an empty data set in memory, which clients may change and which is not saved.
    pub fn in_memory(memory_bytes: usize) -> DataConfig {
        DataConfig { kind: DataKind::Memory, memory_bytes, ..DataConfig::of_folder(PathBuf::new()) }
    }

    /// Whether the data set is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.kind == DataKind::Memory
    }

    /// Whether the data set is in memory, and is saved to a folder.
    pub(crate) fn is_saved(&self) -> bool {
        self.is_in_memory() && !self.path.as_os_str().is_empty()
    }

    /// Checks the memory of a data set in memory.
    fn check(&self) -> Result<(), String> {
        match self.is_in_memory() && self.memory_bytes < TABLE_MEMORY_BYTES_MIN {
            true => Err(format!(
                "memory: expected at least {TABLE_MEMORY_BYTES_MIN} bytes for a data set in memory, got {}",
                self.memory_bytes
            )),
            false => Ok(()),
        }
    }
}

/// When changes of a map are durable, in the terms of `appendfsync` of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapDurability {
    /// Before the reply: one sync covers the changes of all clients that wait.
    Always,
    /// As [`MapDurability::Always`], but a sync waits a moment for clients that were just answered: at most half of the
    /// time of the last sync, and 1 ms.
    #[default]
    Group,
    /// Within a second.
    #[serde(rename = "everysec")]
    EverySecond,
    /// When the buffer of the log is full, at checkpoints, and when the server stops.
    No,
}

impl MapDurability {
    /// Returns the name in a configuration file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MapDurability::Always => "always",
            MapDurability::Group => "group",
            MapDurability::EverySecond => "everysec",
            MapDurability::No => "no",
        }
    }

    /// Returns the name that Redis has for it.
    pub(crate) fn of_redis(self) -> &'static str {
        match self {
            MapDurability::Group => MapDurability::Always.name(),
            other => other.name(),
        }
    }
}

/// A user.
#[derive(Clone, Debug)]
pub struct UserConfig {
    /// The Argon2 hash of the password, in the PHC format; without one, everybody who can connect may be
    /// this user.
    pub password: Option<String>,
    /// The table, store, map or data set in memory that the user sees.
    pub space: Option<String>,
    /// Further tables, stores, maps and data sets in memory: the key `name:{key}` is looked up in the one with this name.
    pub spaces: Vec<String>,
    /// Filters that the user sees.
    pub filters: Vec<String>,
    /// Rules such as `+@all`, `-flushall`.
    pub commands: Vec<String>,
    /// Patterns of keys that the user may use; all keys if there is none.
    pub keys: Vec<String>,
    /// Whether the user may make filters.
    pub makes_filters: bool,
}

impl Default for UserConfig {
    fn default() -> UserConfig {
        UserConfig {
            password: None,
            space: None,
            spaces: Vec::new(),
            filters: Vec::new(),
            commands: vec!["+@all".into()],
            keys: Vec::new(),
            makes_filters: true,
        }
    }
}

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, or what else the configuration comes from.
    pub place: String,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Default for Config {
    fn default() -> Config {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            tls_listen: Vec::new(),
            tls: None,
            http_listen: Vec::new(),
            https_listen: Vec::new(),
            cluster: ClusterConfig::Off,
            memory_bytes: 0,
            client_memory_bytes: machine_memory() / CLIENT_MEMORY_PART,
            threads: cores.saturating_sub(1).max(1),
            clients_max: 10_000,
            drain: Duration::ZERO,
            data: BTreeMap::new(),
            filters: None,
            filter_memory_bytes: FILTER_MEMORY_BYTES,
            users: BTreeMap::new(),
            deploy: None,
            admin: AdminConfig::default(),
        }
    }
}

impl Config {
    /// Returns the configuration that serves folders without a file: on loopback, without passwords.
    /// Each data set has the name of its folder.
    ///
    /// # Errors
    /// Two folders of one name, or one without a name.
    pub fn of_folders(folders: &[PathBuf]) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for folder in folders {
            let wrong = |message: &str| ConfigError {
                place: folder.display().to_string(),
                message: message.into(),
            };
            let full = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            let name = full.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| wrong("expected a folder with a name of text"))?;
            let data = DataConfig::of_folder(folder.clone());
            if config.data.insert(name.to_owned(), data).is_some() {
                let message =
                    "another folder has the same name; give them names in a configuration file";
                return Err(wrong(message));
            }
        }
        Ok(config)
    }

    /// Checks that names have a meaning, and that strangers cannot connect from other machines.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn check(&self) -> Result<(), String> {
        for (name, data) in &self.data {
            data.check().map_err(|message| format!("data set \"{name}\": {message}"))?;
        }
        for (name, user) in &self.users {
            let named = user.space.iter().chain(&user.spaces).chain(&user.filters);
            if let Some(absent) = named.into_iter().find(|space| !self.data.contains_key(*space)) {
                return Err(format!("user \"{name}\": there is no data set \"{absent}\""));
            }
        }
        if let Some(rate) = self.deploy.as_ref().map(|deploy| deploy.rate_bytes_per_s)
            && rate < RATE_MIN
        {
            return Err(format!("rate: expected at least {RATE_MIN} bytes per second, got {rate}"));
        }
        for (name, token) in &self.admin.tokens {
            let is_hash = token.sha256.len() == 64 && is_lower_hex(&token.sha256);
            if !is_hash {
                return Err(format!(
                    "token \"{name}\": expected the SHA-256 hash of the token in 64 lower-case \
                     hexadecimal digits, got {} characters",
                    token.sha256.len()
                ));
            }
        }
        if self.memory_bytes > 0 && self.client_memory_bytes >= self.memory_bytes {
            return Err(format!(
                "client-memory: expected less than memory, which is {} bytes, got {}",
                self.memory_bytes, self.client_memory_bytes
            ));
        }
        if self.threads == 0 || self.threads > 1024 {
            return Err(format!("threads: expected 1 to 1024, got {}", self.threads));
        }
        for (name, addresses) in
            [("tls-listen", &self.tls_listen), ("https-listen", &self.https_listen)]
        {
            if self.tls.is_none() && !addresses.is_empty() {
                return Err(format!("{name}: expected a section `tls` with certificate and key"));
            }
        }
        self.check_admin()?;
        let is_open =
            self.users.is_empty() || self.users.values().any(|user| user.password.is_none());
        let mut addresses = self.listen.iter().chain(&self.tls_listen);
        match addresses.find(|address| !address.ip().is_loopback()) {
            Some(address) if is_open => Err(format!(
                "listen on {address}: expected a password for each user, since other machines can connect; \
                 set `password` of every user in the configuration file"
            )),
            _ => Ok(()),
        }
    }
}

impl Config {
    /// Checks that strangers see nothing over HTTP, and that the address of the proxy is one.
    fn check_admin(&self) -> Result<(), String> {
        let is_remote = |address: &&SocketAddr| !address.ip().is_loopback();
        if let Some(address) = self.http_listen.iter().find(is_remote) {
            return Err(format!(
                "http-listen on {address}: expected an address of loopback, since it is not encrypted; \
                 other machines need `https-listen`, or a proxy"
            ));
        }
        if let Some(address) = self.https_listen.iter().find(is_remote)
            && self.admin.tokens.is_empty()
        {
            return Err(format!(
                "https-listen on {address}: expected a token in the section `admin`, since other machines \
                 can connect"
            ));
        }
        match self.admin.public_url.as_deref().filter(|url| !is_origin(url)) {
            None => Ok(()),
            Some(url) => Err(format!(
                "public-url: expected https:// and a host, without a path, got \"{url}\""
            )),
        }
    }
}

/// Whether a URL is a scheme, a host and perhaps a port.
fn is_origin(url: &str) -> bool {
    let host = url.strip_prefix("https://").or(url.strip_prefix("http://"));
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]_".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_of_host))
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_served_under_their_names() {
        let config = Config::of_folders(&["a/people".into(), "b/seen".into()]).unwrap();
        assert_eq!(config.data.keys().collect::<Vec<_>>(), ["people", "seen"]);
        assert!(Config::of_folders(&["a/people".into(), "b/people".into()]).is_err());
        assert!(Config::of_folders(&["/".into()]).is_err());
    }
}
