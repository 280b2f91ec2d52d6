//! The configuration of a server: what it listens on, what it serves, and to whom.

use hashfold::io::Access;
use hashfold_deploy::GROUP_DEFAULT;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Memory of a filter that clients make, in bytes, unless the configuration says otherwise.
const FILTER_MEMORY_BYTES: usize = 16 << 20;

/// Least limit of transfers, in bytes per second: slow replies do not lower it further.
pub(crate) const RATE_MIN: u64 = 1 << 20;

/// Limit of transfers, in bytes per second, unless the configuration says otherwise.
const RATE_BYTES_PER_S: u64 = 100 << 20;

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
    /// Addresses for `/healthz`, `/readyz` and `/metrics`.
    pub http_listen: Vec<SocketAddr>,
    /// The cluster that the server is a part of.
    pub cluster: ClusterConfig,
    /// Memory of the whole process that `INFO` shows as the limit, in bytes; 0 for none.
    pub memory_bytes: u64,
    /// Number of network threads.
    pub threads: usize,
    /// Maximum number of connections.
    pub clients_max: usize,
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
    /// Limit of transfers in bytes per second, at least 1 MiB. Transfers are slower than that while
    /// replies are slow.
    pub rate_bytes_per_s: u64,
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
}

/// A data set to serve.
#[derive(Clone, Debug)]
pub struct DataConfig {
    /// Folder of the data set.
    pub path: PathBuf,
    /// How blocks are read; `None` decides by the memory that is free.
    pub access: Option<Access>,
    /// Whether a filter is opened for writing.
    pub is_writable: bool,
}

/// A user.
#[derive(Clone, Debug)]
pub struct UserConfig {
    /// The Argon2 hash of the password, in the PHC format; without one, everybody who can connect may be
    /// this user.
    pub password: Option<String>,
    /// The table or store that the user sees.
    pub space: Option<String>,
    /// Further tables and stores: the key `name:{key}` is looked up in the one with this name.
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
            cluster: ClusterConfig::Off,
            memory_bytes: 0,
            threads: cores.saturating_sub(1).max(1),
            clients_max: 10_000,
            data: BTreeMap::new(),
            filters: None,
            filter_memory_bytes: FILTER_MEMORY_BYTES,
            users: BTreeMap::new(),
            deploy: None,
        }
    }
}

/// The file, as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    listen: Option<Vec<SocketAddr>>,
    tls_listen: Option<Vec<SocketAddr>>,
    tls: Option<TlsEntry>,
    http_listen: Option<Vec<SocketAddr>>,
    cluster: Option<String>,
    node: Option<String>,
    memory: Option<Size>,
    threads: Option<usize>,
    clients: Option<usize>,
    filters: Option<FiltersEntry>,
    #[serde(default)]
    data: BTreeMap<String, DataEntry>,
    #[serde(default)]
    user: BTreeMap<String, UserEntry>,
    deploy: Option<DeployEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TlsEntry {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DeployEntry {
    remote: String,
    group: Option<String>,
    rate: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FiltersEntry {
    path: PathBuf,
    memory: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DataEntry {
    path: PathBuf,
    access: Option<AccessName>,
    write: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AccessName {
    Auto,
    Mapped,
    Cached,
    Direct,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct UserEntry {
    password: Option<String>,
    space: Option<String>,
    spaces: Option<Vec<String>>,
    filters: Option<Vec<String>>,
    commands: Option<Vec<String>>,
    keys: Option<Vec<String>>,
    makes_filters: Option<bool>,
}

impl DeployEntry {
    /// Returns the configuration. A remote without a scheme is a folder, relative to `folder`.
    fn config(self, folder: &Path, node: String) -> DeployConfig {
        let is_url = self.remote.contains("://");
        let path = || folder.join(&self.remote).display().to_string();
        DeployConfig {
            remote: if is_url { self.remote.clone() } else { path() },
            group: self.group.unwrap_or_else(|| GROUP_DEFAULT.to_owned()),
            node,
            rate_bytes_per_s: self.rate.map_or(RATE_BYTES_PER_S, |size| size.0),
        }
    }
}

/// A number of bytes: a number, or text such as `8GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Size(bytes)),
            Written::Text(text) => parse_size(&text).map(Size).ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "expected a size such as \"8GiB\", got \"{text}\""
                ))
            }),
        }
    }
}

/// Parses a size such as `8GiB`, `64 MiB` or `4096`.
fn parse_size(text: &str) -> Option<u64> {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0), ("", 0)];
    let (number, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number.trim(), shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Config {
    /// Reads a configuration from TOML. Paths are relative to `folder`.
    ///
    /// # Errors
    /// The line that is not understood, or the name that has no meaning.
    pub fn parse(text: &str, place: &str, folder: &Path) -> Result<Config, ConfigError> {
        let wrong = |message: String| ConfigError { place: place.into(), message };
        let file: File = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let default = Config::default();
        let data = file.data.into_iter().map(|(name, entry)| {
            let access = match entry.access.unwrap_or(AccessName::Auto) {
                AccessName::Auto => None,
                AccessName::Mapped => Some(Access::Mapped),
                AccessName::Cached => Some(Access::Cached),
                AccessName::Direct => Some(Access::Direct),
            };
            let path = folder.join(entry.path);
            (name, DataConfig { path, access, is_writable: entry.write.unwrap_or(true) })
        });
        let users = file.user.into_iter().map(|(name, entry)| {
            let default = UserConfig::default();
            let space = entry.space.or_else(|| Some(name.clone()));
            let user = UserConfig {
                password: entry.password,
                space,
                spaces: entry.spaces.unwrap_or_default(),
                filters: entry.filters.unwrap_or_default(),
                commands: entry.commands.unwrap_or(default.commands),
                keys: entry.keys.unwrap_or_default(),
                makes_filters: entry.makes_filters.unwrap_or(false),
            };
            (name, user)
        });
        let deploy = match file.deploy {
            None => None,
            Some(entry) => {
                let node = file.node.clone().ok_or("deploy: `node` must name this server");
                Some(entry.config(folder, node.map_err(|message| wrong(message.into()))?))
            }
        };
        let is_topology = |name: &str| name != "off" && name != "emulated";
        let cluster = match (file.cluster.as_deref(), file.node) {
            (Some(path), Some(node)) if is_topology(path) => {
                ClusterConfig::Topology(folder.join(path), node)
            }
            (Some(path), None) if is_topology(path) => {
                let message =
                    format!("cluster \"{path}\": `node` must name this server in the topology");
                return Err(wrong(message));
            }
            (_, Some(_)) if deploy.is_none() => {
                let message = "`node` is for a cluster with a topology file, and for `deploy`";
                return Err(wrong(message.into()));
            }
            (Some("emulated"), _) => ClusterConfig::Emulated,
            _ => ClusterConfig::Off,
        };
        let (filters, filter_memory) = match file.filters {
            None => (None, None),
            Some(entry) => (Some(folder.join(entry.path)), entry.memory),
        };
        let tls = file.tls.map(|entry| TlsConfig {
            certificate: folder.join(entry.certificate),
            key: folder.join(entry.key),
            client_ca: entry.client_ca.map(|path| folder.join(path)),
        });
        let config = Config {
            listen: file.listen.unwrap_or(default.listen),
            tls_listen: file.tls_listen.unwrap_or_default(),
            tls,
            http_listen: file.http_listen.unwrap_or_default(),
            cluster,
            memory_bytes: file.memory.map_or(0, |size| size.0),
            threads: file.threads.unwrap_or(default.threads),
            clients_max: file.clients.unwrap_or(default.clients_max),
            data: data.collect(),
            filters,
            filter_memory_bytes: filter_memory.map_or(FILTER_MEMORY_BYTES, |size| size.0 as usize),
            users: users.collect(),
            deploy,
        };
        config.check().map_err(wrong)?;
        Ok(config)
    }

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
            let data = DataConfig { path: folder.clone(), access: None, is_writable: true };
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
        if self.threads == 0 || self.threads > 1024 {
            return Err(format!("threads: expected 1 to 1024, got {}", self.threads));
        }
        if self.tls.is_none() && !self.tls_listen.is_empty() {
            return Err("tls-listen: expected a section `tls` with certificate and key".into());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, "f", Path::new("/etc")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_what_is_served_and_to_whom() {
        let config = parse(
            "listen = ['127.0.0.1:7000']\nmemory = '8GiB'\nfilters.path = 'filters'\n\
             [data.people]\npath = 'people'\naccess = 'direct'\n\
             [user.people]\nkeys = ['s:*']\ncommands = ['+@read']\n",
        )
        .unwrap();
        assert_eq!(config.memory_bytes, 8 << 30);
        assert_eq!(config.data["people"].path, Path::new("/etc/people"));
        assert_eq!(config.data["people"].access, Some(Access::Direct));
        assert_eq!(config.users["people"].space.as_deref(), Some("people"));
        assert_eq!(config.filters.as_deref(), Some(Path::new("/etc/filters")));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            ("listn = []", "line 1"),
            ("\nmemory = 'much'", "expected a size"),
            ("[user.app]\nspace = 'nope'", "there is no data set \"nope\""),
            ("cluster = 't.json'", "`node` must name"),
            ("node = 'a1'", "for a cluster with a topology file, and for `deploy`"),
            ("[deploy]\nremote = 'r'", "`node` must name this server"),
            ("node = 'a'\n[deploy]\nremote = 'r'\nrate = 7", "expected at least 1048576 bytes"),
            ("tls-listen = ['127.0.0.1:1']", "expected a section `tls`"),
            (
                "listen = []\ntls-listen = ['0.0.0.0:1']\ntls = {certificate='c',key='k'}",
                "a password",
            ),
            ("threads = 0", "expected 1 to 1024"),
            ("listen = ['0.0.0.0:1']", "expected a password"),
            ("listen = ['0.0.0.0:1']\n[data.a]\npath='a'\n[user.a]\n", "expected a password"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("f: ") && error.contains(expected), "{error}");
        }
        let open = "listen = ['0.0.0.0:1']\n[data.a]\npath='a'\n[user.a]\npassword='$argon2id$x'\n";
        assert!(parse(open).is_ok());
    }

    #[test]
    fn a_server_has_a_name_in_its_group() {
        let config = parse("node = 'a1'\n[deploy]\nremote = 'remote'\nrate = '2MiB'\n").unwrap();
        let expected = DeployConfig {
            remote: "/etc/remote".into(),
            group: "main".into(),
            node: "a1".into(),
            rate_bytes_per_s: 2 << 20,
        };
        assert_eq!(config.deploy, Some(expected));
        let in_cluster = "cluster = 't.json'\nnode = 'a1'\n[deploy]\nremote = 's3://b/p'\n";
        let config = parse(in_cluster).unwrap();
        assert_eq!(config.cluster, ClusterConfig::Topology("/etc/t.json".into(), "a1".into()));
        assert_eq!(config.deploy.unwrap().remote, "s3://b/p");
        let emulated = "cluster = 'emulated'\nnode = 'a1'\n[deploy]\nremote = 'r'\n";
        assert_eq!(parse(emulated).unwrap().cluster, ClusterConfig::Emulated);
    }

    #[test]
    fn folders_are_served_under_their_names() {
        let config = Config::of_folders(&["a/people".into(), "b/seen".into()]).unwrap();
        assert_eq!(config.data.keys().collect::<Vec<_>>(), ["people", "seen"]);
        assert!(Config::of_folders(&["a/people".into(), "b/people".into()]).is_err());
        assert!(Config::of_folders(&["/".into()]).is_err());
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("8GiB", Some(8 << 30)),
            ("64 MiB", Some(64 << 20)),
            ("7", Some(7)),
            ("x", None),
            ("99999999TiB", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }
}
