//! The configuration of a server: what it listens on, what it serves, and to whom.

use hashfold::io::Access;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Memory of a filter that clients make, in bytes, unless the configuration says otherwise.
const FILTER_MEMORY_BYTES: usize = 16 << 20;

/// The configuration of a server. `hashfold serve --config FILE` reads one; [`Config::of_folders`] makes
/// one of folders.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses for Redis clients.
    pub listen: Vec<SocketAddr>,
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
            http_listen: Vec::new(),
            cluster: ClusterConfig::Off,
            memory_bytes: 0,
            threads: cores.saturating_sub(1).max(1),
            clients_max: 10_000,
            data: BTreeMap::new(),
            filters: None,
            filter_memory_bytes: FILTER_MEMORY_BYTES,
            users: BTreeMap::new(),
        }
    }
}

/// The file, as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    listen: Option<Vec<SocketAddr>>,
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
        let cluster = match (file.cluster.as_deref(), file.node) {
            (None | Some("off"), None) => ClusterConfig::Off,
            (Some("emulated"), None) => ClusterConfig::Emulated,
            (Some(path), Some(node)) if path != "off" && path != "emulated" => {
                ClusterConfig::Topology(folder.join(path), node)
            }
            (Some(path), None) => {
                let message =
                    format!("cluster \"{path}\": `node` must name this server in the topology");
                return Err(wrong(message));
            }
            (_, Some(_)) => {
                return Err(wrong("`node` is for a cluster with a topology file".into()));
            }
        };
        let (filters, filter_memory) = match file.filters {
            None => (None, None),
            Some(entry) => (Some(folder.join(entry.path)), entry.memory),
        };
        let config = Config {
            listen: file.listen.unwrap_or(default.listen),
            http_listen: file.http_listen.unwrap_or_default(),
            cluster,
            memory_bytes: file.memory.map_or(0, |size| size.0),
            threads: file.threads.unwrap_or(default.threads),
            clients_max: file.clients.unwrap_or(default.clients_max),
            data: data.collect(),
            filters,
            filter_memory_bytes: filter_memory.map_or(FILTER_MEMORY_BYTES, |size| size.0 as usize),
            users: users.collect(),
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
        if self.threads == 0 || self.threads > 1024 {
            return Err(format!("threads: expected 1 to 1024, got {}", self.threads));
        }
        let is_open =
            self.users.is_empty() || self.users.values().any(|user| user.password.is_none());
        match self.listen.iter().find(|address| !address.ip().is_loopback()) {
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
