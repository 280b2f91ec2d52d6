//! Opening what a configuration names: data sets, and users that see them.

use crate::{
    cluster::Cluster,
    command::CommandSet,
    config::{Config, UserConfig},
    data::{DataSet, FilterHome, FilterKey, Space},
    error::{StartError, wrong},
    user::{DEFAULT, Password, User},
};
use hashfold::{Env, Error, ErrorClass, ReadOptions, folder::Contents, manifest::Kind};
use std::{collections::HashMap, sync::Arc};

/// The data sets of a configuration.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) data: HashMap<String, Arc<DataSet>>,
    pub(crate) filters: HashMap<String, Arc<FilterKey>>,
    pub(crate) home: Option<Arc<FilterHome>>,
}

impl Opened {
    /// Opens them.
    pub(crate) fn open(
        config: &Config,
        env: &Env,
        cluster: &Cluster,
    ) -> Result<Opened, StartError> {
        let open_home =
            |folder| FilterHome::open(env, folder, config.filter_memory_bytes).map(Arc::new);
        let home =
            config.filters.as_deref().map(open_home).transpose().map_err(StartError::Data)?;
        if cluster.is_on() && home.is_some() {
            return Err(wrong("filters are not served in a cluster"));
        }
        let mut opened = Opened { data: HashMap::new(), filters: HashMap::new(), home };
        for (name, entry) in &config.data {
            let kind =
                Contents::of(env.disk.as_ref(), &entry.path).map_err(StartError::Data)?.kind();
            if kind == Some(Kind::Filter) {
                if cluster.is_on() {
                    return Err(wrong(format!(
                        "filter \"{name}\": filters are not served in a cluster"
                    )));
                }
                let filter = open_filter(name.as_bytes(), &entry.path, entry.is_writable)
                    .map_err(StartError::Data)?;
                opened.filters.insert(name.clone(), Arc::new(filter));
                continue;
            }
            let mut options = ReadOptions::new().env(env.clone());
            if let Some(access) = entry.access {
                options = options.data(access);
            }
            let is_of_group = config.deploy.is_some() && kind != Some(Kind::Table);
            if (is_of_group || kind == Some(Kind::Store)) && cluster.is_on() {
                options = options.slots(cluster.own_slots());
            }
            let data = match kind {
                _ if is_of_group => DataSet::open_of_group(name, &entry.path, options),
                // A folder without a data set gets the error of opening a table.
                kind => DataSet::open(name, &entry.path, kind.unwrap_or(Kind::Table), options),
            };
            let data = data.map_err(StartError::Data)?;
            opened.data.insert(name.clone(), Arc::new(data));
        }
        Ok(opened)
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
        let all = named.chain([(DEFAULT.to_owned(), default)]);
        all.map(|(name, user)| Ok((name.clone(), Arc::new(self.user(&name, &user)?)))).collect()
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
        })
    }
}

/// Opens a filter: for writing if it may be and no other process writes to it, else for reading.
fn open_filter(
    key: &[u8],
    folder: &std::path::Path,
    is_writable: bool,
) -> Result<FilterKey, Error> {
    if is_writable {
        match FilterKey::open_to_write(key, folder) {
            Err(error) if error.class() == ErrorClass::Busy => {}
            opened => return opened,
        }
    }
    FilterKey::open(key, folder)
}
