//! Opening what a configuration names: data sets, and users that see them.

use crate::{
    cluster::Cluster,
    command::CommandSet,
    config::{Config, DataConfig, UserConfig},
    data::{DataSet, FilterHome, FilterKey, MapSettings, MemorySettings, ServedMemory, Space},
    error::{StartError, wrong},
    user::{DEFAULT, Password, User},
};
use hashfold::{
    Env, Error, ErrorClass, ReadOptions,
    folder::Contents,
    io::Access,
    manifest::Kind,
    work::{MemoryBudget, Reserved},
};
use hashfold_deploy::mend_pointer;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Component, Path, PathBuf},
    sync::Arc,
};
use tracing::warn;

/// The data sets of a configuration.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) data: BTreeMap<String, Arc<DataSet>>,
    pub(crate) filters: BTreeMap<String, Arc<FilterKey>>,
    pub(crate) home: Option<Arc<FilterHome>>,
    /// The entries of the configuration that they were opened with.
    entries: BTreeMap<String, DataConfig>,
}

/// Returns the folders that data sets in memory are saved to, with the names of the data sets. Two paths of one folder,
/// also through symbolic links, become equal.
fn saved_folders<'a>(
    data: &'a BTreeMap<String, DataConfig>,
    env: &Env,
) -> Result<Vec<(PathBuf, &'a String)>, StartError> {
    let entries = data.iter().filter(|(_, entry)| entry.is_saved());
    let folders = entries.map(|(name, entry)| {
        let path = env.disk.absolute(&entry.path)?;
        let mut folder = PathBuf::new();
        for part in path.components() {
            match part {
                // Links are resolved in what exists, and the rest has none.
                Component::ParentDir => {
                    folder.pop();
                }
                part => folder.push(part),
            }
        }
        Ok((folder, name))
    });
    folders.collect::<Result<_, Error>>().map_err(StartError::Data)
}

/// Refuses data sets in memory that are saved to one folder: each would be saved without the changes of the others.
pub(crate) fn check_own_folders(config: &Config, env: &Env) -> Result<(), StartError> {
    let mut names: BTreeMap<PathBuf, &String> = BTreeMap::new();
    for (folder, name) in saved_folders(&config.data, env)? {
        if let Some(other) = names.insert(folder, name) {
            return Err(wrong(format!(
                "data set \"{name}\": the data set in memory \"{other}\" is saved to {}, too; give each a \
                 `path` of its own",
                config.data[name].path.display()
            )));
        }
    }
    Ok(())
}

/// Opens what the data sets in memory are loaded from, and loads nothing. Returns the memory that they would take.
pub(crate) fn check_in_memory(
    config: &Config,
    (env, cluster, memory): (&Env, &Cluster, &MemoryBudget),
) -> Result<Vec<Reserved>, StartError> {
    let entries = config.data.iter().filter(|(_, entry)| entry.is_in_memory());
    let checked = entries.map(|(name, entry)| {
        check_no_cluster(name, cluster)?;
        let settings = memory_settings(config, entry);
        ServedMemory::check(&settings, (env, memory)).map_err(StartError::Data)
    });
    checked.collect()
}

/// Refuses a data set in memory in a cluster.
fn check_no_cluster(name: &str, cluster: &Cluster) -> Result<(), StartError> {
    match cluster.is_on() {
        true => {
            Err(wrong(format!("data set \"{name}\": data in memory are not served in a cluster")))
        }
        false => Ok(()),
    }
}

/// What a server serves, and to whom: replaced as a whole when the configuration is read again.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) opened: Opened,
    pub(crate) users: HashMap<String, Arc<User>>,
}

impl Opened {
    /// Opens them, within a budget of memory. Those that are served already, and whose entries have not
    /// changed, are shared with `before`.
    pub(crate) fn open(
        config: &Config,
        env: &Env,
        cluster: &Cluster,
        memory: &MemoryBudget,
        before: Option<&Opened>,
    ) -> Result<Opened, StartError> {
        let home = match before {
            Some(before) => before.home.clone(),
            None => open_home(config, env, memory)?,
        };
        if cluster.is_on() && home.is_some() {
            return Err(wrong("filters are not served in a cluster"));
        }
        let (data, filters, entries) = Default::default();
        let mut opened = Opened { data, filters, home, entries };
        for (name, entry) in &config.data {
            match before.filter(|before| before.has(name, entry)) {
                Some(before) => opened.share(name, before),
                None => opened.add(name, entry, (config, env, cluster, memory), before)?,
            }
            opened.entries.insert(name.clone(), entry.clone());
        }
        Ok(opened)
    }

    /// Whether a data set is open as an entry says.
    fn has(&self, name: &str, entry: &DataConfig) -> bool {
        self.entries.get(name).is_some_and(|own| match self.filters.contains_key(name) {
            // Filters are read in one way only.
            true => (&own.path, own.is_writable) == (&entry.path, entry.is_writable),
            false => own == entry,
        })
    }

    /// Takes a data set over.
    fn share(&mut self, name: &str, before: &Opened) {
        let (data, filter) = (before.data.get(name), before.filters.get(name));
        self.data.extend(data.map(|data| (name.to_owned(), data.clone())));
        self.filters.extend(filter.map(|filter| (name.to_owned(), filter.clone())));
    }

    /// Opens a data set.
    fn add(
        &mut self,
        name: &str,
        entry: &DataConfig,
        (config, env, cluster, memory): (&Config, &Env, &Cluster, &MemoryBudget),
        before: Option<&Opened>,
    ) -> Result<(), StartError> {
        if entry.is_in_memory() {
            check_no_cluster(name, cluster)?;
            before.map_or(Ok(()), |before| before.check_not_in_memory((name, entry), env))?;
            let data = DataSet::open_memory(name, memory_settings(config, entry), (env, memory));
            self.data.insert(name.to_owned(), Arc::new(data.map_err(StartError::Data)?));
            return Ok(());
        }
        let kind = Contents::of(env.disk.as_ref(), &entry.path).map_err(StartError::Data)?.kind();
        if kind == Some(Kind::Filter) {
            if cluster.is_on() {
                return Err(wrong(format!(
                    "filter \"{name}\": filters are not served in a cluster"
                )));
            }
            before.map_or(Ok(()), |before| before.check_free(name, entry))?;
            let filter = open_filter(name.as_bytes(), &entry.path, entry.is_writable, memory)
                .map_err(StartError::Data)?;
            self.filters.insert(name.to_owned(), Arc::new(filter));
            return Ok(());
        }
        if kind == Some(Kind::Map) {
            if cluster.is_on() {
                return Err(wrong(format!("map \"{name}\": maps are not served in a cluster")));
            }
            let settings = MapSettings {
                durability: entry.durability,
                memory_bytes: entry.memory_bytes,
                is_writable: entry.is_writable,
                // A file that changes is not mapped.
                access: entry
                    .access
                    .filter(|access| *access == Access::Direct)
                    .unwrap_or(Access::Cached),
                devices: entry.devices.clone(),
                mirror_bytes: entry.mirror_bytes,
            };
            let data = DataSet::open_map(name, &entry.path, settings, (env, memory));
            self.data.insert(name.to_owned(), Arc::new(data.map_err(StartError::Data)?));
            return Ok(());
        }
        let mut options = ReadOptions::new().env(env.clone()).memory(memory.clone());
        if let Some(access) = entry.access {
            options = options.data(access);
        }
        let is_of_group = config.deploy.is_some() && kind != Some(Kind::Table);
        if (is_of_group || kind == Some(Kind::Store)) && cluster.is_on() {
            options = options.chosen_slots(cluster.slots().clone());
        }
        let data = match kind {
            _ if is_of_group => DataSet::open_of_group(name, &entry.path, options),
            // A folder without a data set gets the error of opening a table.
            kind => DataSet::open(name, &entry.path, kind.unwrap_or(Kind::Table), options),
        };
        let data = data.map_err(StartError::Data)?;
        self.data.insert(name.to_owned(), Arc::new(data));
        Ok(())
    }

    /// Refuses another entry of a data set in memory, and one that is saved to the folder of another data set: each
    /// would begin without the changes that are not saved.
    fn check_not_in_memory(
        &self,
        (name, entry): (&str, &DataConfig),
        env: &Env,
    ) -> Result<(), StartError> {
        if self.entries.get(name).is_some_and(DataConfig::is_in_memory) {
            return Err(wrong(format!(
                "data set \"{name}\": the entry of a data set in memory changes only when the server is started \
                 again, or when the data set is removed, and added after another reload"
            )));
        }
        let own = BTreeMap::from([(name.to_owned(), entry.clone())]);
        let (own, others) = (saved_folders(&own, env)?, saved_folders(&self.entries, env)?);
        match others.iter().find(|(folder, _)| own.iter().any(|(own, _)| own == folder)) {
            Some((_, other)) => Err(wrong(format!(
                "data set \"{name}\": the data set in memory \"{other}\" is saved to {} until the reload ends; \
                 remove it first, and add this one after another reload",
                entry.path.display()
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a folder that is open for writing under another name: it would be opened for reading only.
    fn check_free(&self, name: &str, entry: &DataConfig) -> Result<(), StartError> {
        let is_open = |(other, filter): &(&String, &Arc<FilterKey>)| {
            filter.is_writable() && self.entries[*other].path == entry.path
        };
        match self.filters.iter().find(is_open) {
            Some((other, _)) if other != name && entry.is_writable => Err(wrong(format!(
                "filter \"{name}\": its folder is served as \"{other}\"; remove that first, reload, and add \
                 \"{name}\" then"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the data sets and the filters of `other` that are not among these.
    pub(crate) fn lacks(&self, other: &Opened) -> (Vec<Arc<DataSet>>, Vec<Arc<FilterKey>>) {
        let has = |data: &Arc<DataSet>| self.data.values().any(|own| Arc::ptr_eq(own, data));
        let has_filter =
            |filter: &Arc<FilterKey>| self.filters.values().any(|own| Arc::ptr_eq(own, filter));
        (
            other.data.values().filter(|data| !has(data)).cloned().collect(),
            other.filters.values().filter(|filter| !has_filter(filter)).cloned().collect(),
        )
    }

    /// Makes the users of a configuration.
    pub(crate) fn users(&self, config: &Config) -> Result<HashMap<String, Arc<User>>, StartError> {
        if !config.users.is_empty() {
            let user = |(name, user): (&String, &UserConfig)| {
                Ok((name.clone(), Arc::new(self.user(name, user)?)))
            };
            return config.users.iter().map(user).collect();
        }
        let filters: Vec<String> = self.filters.keys().cloned().collect();
        let only = if self.data.len() == 1 { self.data.keys().next().cloned() } else { None };
        let default = UserConfig { space: only, filters, ..UserConfig::default() };
        let named = self.data.keys().map(|name| {
            (name.clone(), UserConfig { space: Some(name.clone()), ..UserConfig::default() })
        });
        let mut users = HashMap::new();
        for (name, user) in named {
            users.insert(name.clone(), Arc::new(self.user(&name, &user)?));
        }
        let default = User { choice: self.choice(), ..self.user(DEFAULT, &default)? };
        users.insert(DEFAULT.to_owned(), Arc::new(default));
        Ok(users)
    }

    /// Lets the filters that clients make share their keys with the data of all users who see them.
    pub(crate) fn share_keys(&self, users: &HashMap<String, Arc<User>>) {
        let Some(home) = &self.home else { return };
        let spaces = users.values().map(|user| &user.space);
        let sharing = spaces.filter(|space| space.home().is_some());
        let mut data: Vec<_> = sharing.filter_map(|space| space.data().cloned()).collect();
        data.sort_by_key(|data| Arc::as_ptr(data).addr());
        data.dedup_by(|a, b| Arc::ptr_eq(a, b));
        home.share_keys(&data);
    }

    /// Returns the reply to a lookup by somebody who has not chosen a data set; `None` if there is no choice.
    fn choice(&self) -> Option<String> {
        const SHOWN: usize = 5;
        let shown: Vec<&str> = self.data.keys().take(SHOWN).map(String::as_str).collect();
        let more = if self.data.len() > SHOWN { ", …" } else { "" };
        (self.data.len() > 1).then(|| {
            format!("NOAUTH choose a data set with AUTH NAME \"\": {}{more}", shown.join(", "))
        })
    }

    fn user(&self, name: &str, user: &UserConfig) -> Result<User, StartError> {
        let about = |message: String| wrong(format!("user \"{name}\": {message}"));
        let commands = CommandSet::of(user.commands.iter().map(String::as_str)).map_err(about)?;
        let password = match &user.password {
            None => Password::None,
            Some(hash) => Password::of_hash(hash).map_err(about)?,
        };
        let home = self.home.clone().filter(|_| user.makes_filters);
        let own = user.space.as_deref().unwrap_or(name);
        let named = user.filters.iter().map(String::as_str).chain([own]);
        let filters = named.filter_map(|name| self.filters.get(name)).cloned();
        let space = Space::new(self.data.get(own).cloned(), filters, home);
        let spaces = user.spaces.iter().map(|name| {
            (name.clone(), Arc::new(Space::new(self.data.get(name).cloned(), [], None)))
        });
        Ok(User {
            name: name.into(),
            password,
            space: Arc::new(space),
            spaces: spaces.collect(),
            commands,
            keys: user.keys.clone(),
            choice: None,
        })
    }
}

/// Returns how a data set in memory is served, by its entry.
fn memory_settings(config: &Config, entry: &DataConfig) -> MemorySettings {
    MemorySettings {
        path: entry.is_saved().then(|| entry.path.clone()),
        load: entry.load.clone(),
        memory_bytes: entry.memory_bytes,
        is_writable: entry.is_writable,
        threads: config.threads,
    }
}

/// Mends the file `CURRENT` of each store of a group: it says what can be served before the group can be seen.
pub(crate) fn mend(config: &Config, env: &Env) {
    let is_of_group = config.deploy.is_some();
    let in_folders = config.data.iter().filter(|(_, entry)| !entry.is_in_memory());
    for (name, entry) in in_folders.filter(|_| is_of_group) {
        let contents = Contents::of(env.disk.as_ref(), &entry.path);
        if contents.is_ok_and(|contents| contents.kind() == Some(Kind::Store)) {
            match mend_pointer(env, &entry.path) {
                Ok(None) => {}
                Ok(Some(damage)) => warn!(store = name, %damage, "the local copy was mended"),
                // Opening the store meets the damage, too.
                Err(error) => warn!(store = name, %error, "the local copy cannot be mended"),
            }
        }
    }
}

/// Opens the filters that clients have made.
fn open_home(
    config: &Config,
    env: &Env,
    memory: &MemoryBudget,
) -> Result<Option<Arc<FilterHome>>, StartError> {
    let each = config.filter_memory_bytes;
    let open = |folder| FilterHome::open(env, folder, each, memory).map(Arc::new);
    config.filters.as_deref().map(open).transpose().map_err(StartError::Data)
}

/// Opens a filter: for writing if it may be and no other process writes to it, else for reading.
fn open_filter(
    key: &[u8],
    folder: &Path,
    is_writable: bool,
    memory: &MemoryBudget,
) -> Result<FilterKey, Error> {
    if is_writable {
        match FilterKey::open_to_write(key, folder, memory) {
            Err(error) if error.class() == ErrorClass::Busy => {}
            opened => return opened,
        }
    }
    FilterKey::open(key, folder, memory)
}
