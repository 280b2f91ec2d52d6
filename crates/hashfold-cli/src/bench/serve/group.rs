//! A group of servers that follow the versions of one store, in a folder as their remote.

use super::{
    Scene,
    client::{Client, Reply},
    process::Process,
};
use crate::{
    bench::{
        ensure,
        pairs::{KEY_SIZE, Pairs, Row},
    },
    failure::Result,
};
use hashfold::{
    Env, Seed, Store, StoreOptions,
    store::{UpdateMode, VersionInfo},
    work::{Clock as _, SystemClock, Watch},
};
use hashfold_deploy::{
    Controller, FetchOptions, GroupPointer, PublishOptions, Remote, fetch, push,
};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Name of the store.
pub(super) const STORE: &str = "people";
/// Time until servers must have done what they are asked for.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Time from the change of the pointer to its activation.
pub(super) const LEAD: Duration = Duration::from_secs(1);

/// A store, and the remote that its versions are pushed to.
pub(super) struct Group {
    env: Env,
    folder: PathBuf,
    store: PathBuf,
    pub(super) remote: Remote,
    pub(super) pairs: Pairs,
}

impl Group {
    pub(super) fn create(scene: &Scene<'_>, pairs: Pairs) -> Result<Group> {
        let folder = scene.folder.join("group");
        let remote = Remote::open(&scene.env(), &folder.join("remote").display().to_string())?;
        Ok(Group { env: scene.env(), store: folder.join("store"), folder, remote, pairs })
    }

    /// Makes a version in which the pairs with these numbers have values of this generation, and pushes it.
    pub(super) fn push(
        &self,
        numbers: impl Iterator<Item = u64>,
        generation: u64,
        mode: UpdateMode,
    ) -> Result<VersionInfo> {
        let options = StoreOptions::new().env(self.env.clone()).seed(Seed(self.pairs.seed)).id(1);
        let mut update = Store::open_or_create_with(&self.store, options)?.update()?.mode(mode);
        let (noise, mut pair) = (self.pairs.noise(), vec![0; self.pairs.size()]);
        for number in numbers {
            self.pairs.fill(Row { number, generation }, &noise, &mut pair);
            let (key, value) = pair.split_at(KEY_SIZE);
            update.put(key, value)?;
        }
        update.publish()?;
        Ok(push(&self.env, &self.store, None, &self.remote, STORE, &Watch::default())?.info)
    }

    /// Fetches a version into a folder; returns the bytes that were fetched.
    pub(super) fn fetch(&self, number: u64, folder: &Path) -> Result<u64> {
        let options = FetchOptions::default();
        let watch = Watch::default();
        Ok(fetch(&self.env, &self.remote, STORE, number, folder, &options, &watch)?.bytes)
    }

    /// Returns the folder of the remote.
    pub(super) fn url(&self) -> PathBuf {
        self.folder.join("remote")
    }

    /// Returns a folder in the group's.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a server that follows the group.
    pub(super) fn server(&self, node: &str) -> Result<Process> {
        let (remote, path) = (self.url(), self.place(node));
        let config = format!(
            "threads = 1\nnode = \"{node}\"\n[deploy]\nremote = {remote:?}\n\
             [data.{STORE}]\npath = {path:?}\n"
        );
        Process::start(&self.folder, node, &config)
    }

    /// Publishes a version when this number of servers has it ready.
    pub(super) fn publish(&self, number: u64, nodes: usize) -> Result<GroupPointer> {
        let controller = Controller::new(&self.env, &self.remote, "main", "hashfold bench")?;
        let options = PublishOptions {
            min_ready: Some(nodes),
            wait: WAIT_MAX,
            lead: LEAD,
            ..PublishOptions::default()
        };
        Ok(controller.publish(&[(STORE.to_owned(), number)], &options, &Watch::default())?)
    }

    /// Waits until a server answers with values of a generation.
    pub(super) fn wait_for(&self, server: &Process, generation: u64) -> Result<()> {
        let mut client = Client::connect(server.address)?;
        let start = Instant::now();
        loop {
            // LOADING is an error reply, until the server has a version.
            if let Ok(Reply::Text(Some(value))) = client.call(&[b"GET", &self.pairs.key(0)])
                && Row::of(&value).is_some_and(|row| row.generation == generation)
            {
                return Ok(());
            }
            ensure(start.elapsed() < WAIT_MAX, || "a server does not get a version".into())?;
            SystemClock.sleep(Duration::from_millis(10));
        }
    }
}
