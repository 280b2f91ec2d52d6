//! The configuration file, in TOML.

use super::{
    AdminConfig, CLIENT_MEMORY_PART, ClusterConfig, Config, ConfigError, DataConfig, DeployConfig,
    FILTER_MEMORY_BYTES, MapDurability, Role, TlsConfig, TokenConfig, UserConfig,
};
use hashfold::io::Access;
use hashfold_deploy::{GROUP_DEFAULT, check_name};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// Limit of transfers, in bytes per second, unless the file says otherwise.
const RATE_BYTES_PER_S: u64 = 100 << 20;

/// Time for which a server that others can stand in for goes on answering before it stops, in seconds, unless the file
/// says otherwise.
const DRAIN_S: u64 = 5;

/// The file, as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    listen: Option<Vec<SocketAddr>>,
    tls_listen: Option<Vec<SocketAddr>>,
    tls: Option<TlsEntry>,
    http_listen: Option<Vec<SocketAddr>>,
    https_listen: Option<Vec<SocketAddr>>,
    cluster: Option<String>,
    node: Option<String>,
    topology_copy: Option<PathBuf>,
    memory: Option<Size>,
    client_memory: Option<Size>,
    threads: Option<usize>,
    clients: Option<usize>,
    drain_seconds: Option<u64>,
    filters: Option<FiltersEntry>,
    #[serde(default)]
    data: BTreeMap<String, DataEntry>,
    #[serde(default)]
    user: BTreeMap<String, UserEntry>,
    deploy: Option<DeployEntry>,
    admin: Option<AdminEntry>,
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
    zone: Option<String>,
    rate: Option<Size>,
    trusted_keys: Option<Vec<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AdminEntry {
    audit: Option<PathBuf>,
    public_url: Option<String>,
    #[serde(default)]
    token: BTreeMap<String, TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TokenEntry {
    sha256: String,
    role: Role,
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
    kind: Option<KindName>,
    path: Option<PathBuf>,
    load: Option<PathBuf>,
    access: Option<AccessName>,
    write: Option<bool>,
    durability: Option<MapDurability>,
    memory: Option<Size>,
    devices: Option<Vec<PathBuf>>,
    mirrors: Option<Size>,
}

/// The kind of a data set that is in no folder.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Memory,
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

impl Config {
    /// Reads a configuration from TOML. Paths are relative to `folder`.
    ///
    /// # Errors
    /// The line that is not understood, or the name that has no meaning.
    pub fn parse(text: &str, place: &str, folder: &Path) -> Result<Config, ConfigError> {
        let wrong = |message: String| ConfigError { place: place.into(), message };
        let file: File = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let config = file.config(folder).map_err(wrong)?;
        config.check().map_err(wrong)?;
        Ok(config)
    }
}

impl File {
    fn config(self, folder: &Path) -> Result<Config, String> {
        let default = Config::default();
        let cluster = self.cluster(folder)?;
        let deploy = match (self.deploy, self.node) {
            (None, _) => None,
            (Some(_), None) => return Err("deploy: `node` must name this server".into()),
            (Some(entry), Some(node)) => Some(entry.config(folder, node)?),
        };
        let (filters, filter_memory) = match self.filters {
            None => (None, None),
            Some(entry) => (Some(folder.join(entry.path)), entry.memory),
        };
        // Without a cluster and without anybody who asks `/readyz`, nobody would go elsewhere.
        let is_alone = matches!(cluster, ClusterConfig::Off | ClusterConfig::Emulated);
        let has_http = self.http_listen.is_some() || self.https_listen.is_some();
        let drain_s = if is_alone && !has_http { 0 } else { DRAIN_S };
        let data = self.data.into_iter().map(|(name, entry)| match entry.config(folder) {
            Ok(data) => Ok((name, data)),
            Err(message) => Err(format!("data set \"{name}\": {message}")),
        });
        let data = data.collect::<Result<_, String>>()?;
        let users = self.user.into_iter().map(|(name, entry)| {
            let user = entry.config(&name);
            (name, user)
        });
        Ok(Config {
            listen: self.listen.unwrap_or(default.listen),
            tls_listen: self.tls_listen.unwrap_or_default(),
            tls: self.tls.map(|entry| entry.config(folder)),
            http_listen: self.http_listen.unwrap_or_default(),
            https_listen: self.https_listen.unwrap_or_default(),
            cluster,
            memory_bytes: self.memory.map_or(0, |size| size.0),
            client_memory_bytes: match (self.client_memory, self.memory) {
                (Some(size), _) => size.0,
                (None, Some(size)) => size.0 / CLIENT_MEMORY_PART,
                (None, None) => default.client_memory_bytes,
            },
            threads: self.threads.unwrap_or(default.threads),
            clients_max: self.clients.unwrap_or(default.clients_max),
            drain: Duration::from_secs(self.drain_seconds.unwrap_or(drain_s)),
            data,
            filters,
            filter_memory_bytes: filter_memory.map_or(FILTER_MEMORY_BYTES, |size| size.0 as usize),
            users: users.collect(),
            deploy,
            admin: self.admin.map(|entry| entry.config(folder)).unwrap_or_default(),
        })
    }

    fn cluster(&self, folder: &Path) -> Result<ClusterConfig, String> {
        let is_topology = |name: &str| name != "off" && name != "emulated";
        let is_url = |name: &str| name.contains("://");
        if self.topology_copy.is_some() && !self.cluster.as_deref().is_some_and(is_url) {
            return Err("`topology-copy` is for a cluster with the topology of a remote".into());
        }
        match (self.cluster.as_deref(), &self.node) {
            (Some(url), Some(node)) if is_url(url) => {
                check_name("node", node).map_err(|error| error.to_string())?;
                let copy = self.topology_copy.clone();
                let copy = folder.join(copy.unwrap_or(format!("{node}.topology.json").into()));
                Ok(ClusterConfig::Remote { url: url.to_owned(), node: node.clone(), copy })
            }
            (Some(path), Some(node)) if is_topology(path) => {
                Ok(ClusterConfig::Topology(folder.join(path), node.clone()))
            }
            (Some(path), None) if is_topology(path) => {
                Err(format!("cluster \"{path}\": `node` must name this server in the topology"))
            }
            (_, Some(_)) if self.deploy.is_none() => {
                Err("`node` is for a cluster with a topology, and for `deploy`".into())
            }
            (Some("emulated"), _) => Ok(ClusterConfig::Emulated),
            _ => Ok(ClusterConfig::Off),
        }
    }
}

impl TlsEntry {
    fn config(self, folder: &Path) -> TlsConfig {
        TlsConfig {
            certificate: folder.join(self.certificate),
            key: folder.join(self.key),
            client_ca: self.client_ca.map(|path| folder.join(path)),
        }
    }
}

impl DataEntry {
    fn config(self, folder: &Path) -> Result<DataConfig, String> {
        match (self.kind, &self.path) {
            (Some(KindName::Memory), _) => self.in_memory(folder),
            (None, None) => {
                Err("expected the `path` of its folder, or `kind = \"memory\"`, got neither".into())
            }
            (None, Some(_)) if self.load.is_some() => {
                Err("`load` is for a data set of `kind = \"memory\"`".into())
            }
            (None, Some(path)) => Ok(self.in_folder(folder, path)),
        }
    }

    /// Returns the entry of a data set in memory.
    fn in_memory(&self, folder: &Path) -> Result<DataConfig, String> {
        if self.access.is_some() || self.durability.is_some() {
            return Err("`access` and `durability` are not for a data set in memory".into());
        }
        if self.devices.is_some() || self.mirrors.is_some() {
            return Err("`devices` and `mirrors` are for maps".into());
        }
        let memory = self.memory.ok_or(
            "expected `memory`, such as \"1GiB\": the limit of its keys, values and index, got none",
        )?;
        let path = self.path.as_ref().map(|path| folder.join(path));
        let default = DataConfig::in_memory(memory.0 as usize);
        Ok(DataConfig {
            path: path.unwrap_or_default(),
            load: self.load.as_ref().map(|path| folder.join(path)),
            is_writable: self.write.unwrap_or(default.is_writable),
            ..default
        })
    }

    /// Returns the entry of a data set in a folder.
    fn in_folder(&self, folder: &Path, path: &Path) -> DataConfig {
        let access = match self.access.unwrap_or(AccessName::Auto) {
            AccessName::Auto => None,
            AccessName::Mapped => Some(Access::Mapped),
            AccessName::Cached => Some(Access::Cached),
            AccessName::Direct => Some(Access::Direct),
        };
        let default = DataConfig::of_folder(folder.join(path));
        let devices = self.devices.iter().flatten().map(|device| folder.join(device));
        DataConfig {
            access,
            is_writable: self.write.unwrap_or(default.is_writable),
            durability: self.durability.unwrap_or(default.durability),
            memory_bytes: self.memory.map_or(default.memory_bytes, |size| size.0 as usize),
            devices: devices.collect(),
            mirror_bytes: self.mirrors.map_or(0, |size| size.0),
            ..default
        }
    }
}

impl UserEntry {
    /// Returns the user. By default it sees the data set of its own name, unless it has several.
    fn config(self, name: &str) -> UserConfig {
        let own = self.spaces.is_none().then(|| name.to_owned());
        UserConfig {
            password: self.password,
            space: self.space.or(own),
            spaces: self.spaces.unwrap_or_default(),
            filters: self.filters.unwrap_or_default(),
            commands: self.commands.unwrap_or(UserConfig::default().commands),
            keys: self.keys.unwrap_or_default(),
            makes_filters: self.makes_filters.unwrap_or(false),
        }
    }
}

impl AdminEntry {
    fn config(self, folder: &Path) -> AdminConfig {
        let tokens = self
            .token
            .into_iter()
            .map(|(name, TokenEntry { sha256, role })| (name, TokenConfig { sha256, role }));
        AdminConfig {
            audit: self.audit.map(|path| folder.join(path)),
            tokens: tokens.collect(),
            public_url: self.public_url.map(|url| url.trim_end_matches('/').to_owned()),
        }
    }
}

impl DeployEntry {
    /// Returns the configuration. A remote without a scheme is a folder, relative to `folder`.
    fn config(self, folder: &Path, node: String) -> Result<DeployConfig, String> {
        if self.trusted_keys.as_ref().is_some_and(Vec::is_empty) {
            return Err(
                "trusted-keys: expected at least one file of a public key, got none; without \
                        `trusted-keys`, signatures are not checked"
                    .into(),
            );
        }
        let trusted_keys = self.trusted_keys.unwrap_or_default();
        let is_url = self.remote.contains("://");
        let path = || folder.join(&self.remote).display().to_string();
        Ok(DeployConfig {
            remote: if is_url { self.remote.clone() } else { path() },
            group: self.group.unwrap_or_else(|| GROUP_DEFAULT.to_owned()),
            node,
            zone: self.zone,
            rate_bytes_per_s: self.rate.map_or(RATE_BYTES_PER_S, |size| size.0),
            trusted_keys: trusted_keys.iter().map(|path| folder.join(path)).collect(),
        })
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
        assert_eq!((config.memory_bytes, config.client_memory_bytes), (8 << 30, 1 << 30));
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
            ("node = 'a1'", "for a cluster with a topology, and for `deploy`"),
            ("cluster = 's3://b/p'", "`node` must name"),
            ("topology-copy = 't.json'", "for a cluster with the topology of a remote"),
            (
                "cluster = 's3://b/p'\nnode = '../a'",
                "node is \"../a\", expected at most 64 letters",
            ),
            ("[deploy]\nremote = 'r'", "`node` must name this server"),
            ("node = 'a'\n[deploy]\nremote = 'r'\nrate = 7", "expected at least 1048576 bytes"),
            ("node = 'a'\n[deploy]\nremote = 'r'\ntrusted-keys = []", "expected at least one file"),
            ("tls-listen = ['127.0.0.1:1']", "expected a section `tls`"),
            ("https-listen = ['127.0.0.1:1']", "https-listen: expected a section `tls`"),
            ("http-listen = ['0.0.0.0:1']", "expected an address of loopback"),
            (
                "https-listen = ['0.0.0.0:1']\ntls = {certificate='c',key='k'}",
                "expected a token in the section `admin`",
            ),
            ("[admin]\npublic-url = 'ops.example.org'", "expected https:// and a host"),
            ("[admin]\npublic-url = 'https://ops.example.org/x'", "without a path"),
            (
                "listen = []\ntls-listen = ['0.0.0.0:1']\ntls = {certificate='c',key='k'}",
                "a password",
            ),
            ("threads = 0", "expected 1 to 1024"),
            ("[admin.token.eve]\nsha256 = 'ab'\nrole = 'viewer'", "64 lower-case hexadecimal"),
            ("[admin.token.eve]\nsha256 = 'ab'\nrole = 'boss'", "unknown variant `boss`"),
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
        let text = "node = 'a1'\n[deploy]\nremote = 'remote'\nrate = '2MiB'\nzone = 'east'\n\
                    trusted-keys = ['old.pub', '/keys/new.pub']\n";
        let config = parse(text).unwrap();
        let expected = DeployConfig {
            remote: "/etc/remote".into(),
            group: "main".into(),
            node: "a1".into(),
            zone: Some("east".into()),
            rate_bytes_per_s: 2 << 20,
            trusted_keys: vec!["/etc/old.pub".into(), "/keys/new.pub".into()],
        };
        assert_eq!(config.deploy, Some(expected));
        let in_cluster = "cluster = 't.json'\nnode = 'a1'\n[deploy]\nremote = 's3://b/p'\n";
        let config = parse(in_cluster).unwrap();
        assert_eq!(config.cluster, ClusterConfig::Topology("/etc/t.json".into(), "a1".into()));
        assert_eq!(config.deploy.unwrap().remote, "s3://b/p");
        let expected = ClusterConfig::Remote {
            url: "s3://b/p".into(),
            node: "a1".into(),
            copy: "/etc/a1.topology.json".into(),
        };
        let text = "cluster = 's3://b/p'\nnode = 'a1'\n";
        assert_eq!(parse(text).unwrap().cluster, expected);
        let elsewhere = parse(&format!("{text}topology-copy = '/var/t.json'\n")).unwrap().cluster;
        assert!(matches!(elsewhere, ClusterConfig::Remote { copy, .. } if copy == *"/var/t.json"));
        let emulated = "cluster = 'emulated'\nnode = 'a1'\n[deploy]\nremote = 'r'\n";
        assert_eq!(parse(emulated).unwrap().cluster, ClusterConfig::Emulated);
    }

    #[test]
    fn maps_are_durable_as_their_entries_say() {
        let durability = |entry: &str| {
            let text = format!("[data.s]\npath = 's'\n{entry}");
            parse(&text).map(|config| (config.data["s"].durability, config.data["s"].memory_bytes))
        };
        assert_eq!(durability(""), Ok((MapDurability::Group, 64 << 20)));
        let text = "durability = 'everysec'\nmemory = '1GiB'";
        assert_eq!(durability(text), Ok((MapDurability::EverySecond, 1 << 30)));
        for (name, expected) in [
            ("always", MapDurability::Always),
            ("group", MapDurability::Group),
            ("no", MapDurability::No),
        ] {
            let entry = format!("durability = '{name}'");
            assert_eq!(durability(&entry), Ok((expected, 64 << 20)));
            assert_eq!(expected.name(), name);
        }
        assert!(durability("durability = 'soon'").unwrap_err().contains("unknown variant"));
    }

    #[test]
    fn maps_may_have_moved_devices_and_copies_on_a_second_one() {
        let entry = |lines: &str| {
            let text = format!("[data.s]\n{lines}");
            parse(&text).map(|config| config.data["s"].clone())
        };
        let expected = DataConfig {
            devices: vec!["/mnt/b/s".into(), "/etc/c".into()],
            mirror_bytes: 64 << 20,
            ..DataConfig::of_folder("/etc/s".into())
        };
        let lines = "path = 's'\ndevices = ['/mnt/b/s', 'c']\nmirrors = '64MiB'";
        assert_eq!(entry(lines), Ok(expected));
        for lines in ["devices = ['b']", "mirrors = '1MiB'"] {
            let error = entry(&format!("kind = 'memory'\nmemory = '1GiB'\n{lines}")).unwrap_err();
            assert!(error.contains("`devices` and `mirrors` are for maps"), "{error}");
        }
    }

    #[test]
    fn a_data_set_in_memory_has_a_limit_and_perhaps_a_store() {
        let entry = |lines: &str| {
            let text = format!("[data.clicks]\nkind = 'memory'\n{lines}");
            parse(&text).map(|config| config.data["clicks"].clone())
        };
        assert_eq!(entry("memory = '1GiB'"), Ok(DataConfig::in_memory(1 << 30)));
        let saved = entry("memory = '8MiB'\npath = 'clicks'\nload = '/base'\nwrite = false");
        let expected = DataConfig {
            path: "/etc/clicks".into(),
            load: Some("/base".into()),
            is_writable: false,
            ..DataConfig::in_memory(8 << 20)
        };
        assert_eq!(saved, Ok(expected));
        assert!(entry("memory = '8MiB'").unwrap().is_in_memory());
        for (lines, expected) in [
            ("", "data set \"clicks\": expected `memory`"),
            ("memory = '7MiB'", "expected at least 8388608 bytes"),
            ("memory = '1GiB'\ndurability = 'group'", "are not for a data set in memory"),
            ("memory = '1GiB'\naccess = 'direct'", "are not for a data set in memory"),
        ] {
            let error = entry(lines).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for (text, expected) in [
            ("[data.a]\nkind = 'disk'", "unknown variant `disk`"),
            ("[data.a]\nmemory = '1GiB'", "data set \"a\": expected the `path` of its folder"),
            ("[data.a]\npath = 'a'\nload = 'b'", "`load` is for a data set of `kind = \"memory\"`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn operators_have_tokens() {
        let hash = "0123456789abcdef".repeat(4);
        let text = format!(
            "[admin]\naudit = 'audit.jsonl'\npublic-url = 'https://ops.example.org:8443/'\n\
             [admin.token.eve]\nsha256 = '{hash}'\nrole = 'operator'\n"
        );
        let AdminConfig { audit, tokens, public_url } = parse(&text).unwrap().admin;
        assert_eq!(public_url.as_deref(), Some("https://ops.example.org:8443"));
        assert_eq!(audit.as_deref(), Some(Path::new("/etc/audit.jsonl")));
        assert_eq!(tokens["eve"], TokenConfig { sha256: hash, role: Role::Operator });
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
