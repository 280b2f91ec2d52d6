//! LMDB: each night writes a new file beside the current one; a symbolic link to its folder is
//! replaced by a rename.

use super::{
    Current, Options, Peer, Reader, Store,
    book::{Night, Order},
};
use crate::{
    Result,
    data::{Data, Key},
};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls, types::Bytes};
use std::{
    fs::{self, File},
    iter::Peekable,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

pub(super) struct Lmdb;

/// Maximum ratio of an entry's size to its payload; a page holds three entries of 1 KiB.
const GROWTH_MAX: u64 = 2;
/// Minimum size of the map, more than an empty tree needs.
const MAP_SIZE_MIN: u64 = 1 << 28;
/// Size of a page of the tree and of the map, in bytes.
const PAGE_SIZE: u64 = 4096;
/// Number of entries per transaction: a longer transaction keeps too many pages in its list.
const ENTRIES_PER_TRANSACTION: u64 = 1 << 18;
/// The link to the current folder.
const CURRENT: &str = "current";

type Tree = Database<Bytes, Bytes>;

impl Peer for Lmdb {
    fn name(&self) -> String {
        "LMDB copy and rename".to_owned()
    }

    fn note(&self) -> String {
        "a new file, appended to in the order of keys, MDB_WRITEMAP, one sync; a link to its folder \
         renamed; readers open it anew; nothing is checksummed"
            .to_owned()
    }

    fn create(&self, data: &Data, _: &Options, folder: &Path) -> Result<Box<dyn Store>> {
        let mut keys: Vec<(Key, u64)> = (0..data.count).map(|i| (data.key(i), i)).collect();
        keys.sort_unstable();
        let first = folder.join("0");
        let mut value = Vec::new();
        write_tree(&first, data, &mut |put| {
            keys.iter().try_for_each(|(key, i)| {
                data.fill_value(*i, &mut value);
                put(key, &value)
            })
        })?;
        show(folder, 0)?;
        let numbers = Mutex::new(Numbers { now: 0, before: None });
        let folder = folder.to_owned();
        Ok(Box::new(Open { current: Current::new(Opened::open(&first)?), folder, numbers }))
    }
}

fn open_env(folder: &Path, flags: EnvFlags, map_size: Option<u64>) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    if let Some(size) = map_size {
        options.map_size(size.next_multiple_of(PAGE_SIZE) as usize);
    }
    // SAFETY: no other process opens or changes the files of this folder. `NO_SYNC` could lose them
    // in a crash of the system before they are synced, when no link points to them yet.
    Ok(unsafe { options.flags(flags).open(folder)? })
}

/// A callback that takes a key and its value.
type Put<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Writes a new file of the pairs from `feed`, in key order.
fn write_tree(
    folder: &Path,
    data: &Data,
    feed: &mut dyn FnMut(&mut Put<'_>) -> Result<()>,
) -> Result<()> {
    fs::create_dir_all(folder)?;
    let flags = EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC;
    let env = open_env(folder, flags, Some(MAP_SIZE_MIN + data.payload() * GROWTH_MAX))?;
    let mut first = env.write_txn()?;
    let tree: Tree = env.create_database(&mut first, None)?;
    let mut open = Some(first);
    let mut count = 0;
    feed(&mut |key, value| {
        let transaction = open.as_mut().expect("one is always open");
        tree.put_with_flags(transaction, PutFlags::APPEND, key, value)?;
        count += 1;
        if count % ENTRIES_PER_TRANSACTION == 0 {
            // LMDB allows one writer at a time, so this transaction ends before the next begins.
            open.take().expect("one is always open").commit()?;
            open = Some(env.write_txn()?);
        }
        Ok(())
    })?;
    open.expect("one is always open").commit()?;
    env.force_sync()?;
    env.prepare_for_closing().wait();
    Ok(File::open(folder)?.sync_all()?)
}

/// Puts the entries of the tree that are not in the changes, and all changes with a value.
fn merge(opened: &Opened, changes: &[(Key, Option<Vec<u8>>)], put: &mut Put<'_>) -> Result<()> {
    let transaction = opened.env().read_txn()?;
    let mut changes: Peekable<_> = changes.iter().peekable();
    for entry in opened.tree.iter(&transaction)? {
        let (key, value) = entry?;
        while let Some((changed, value)) = changes.next_if(|(changed, _)| changed.as_slice() < key)
        {
            value.iter().try_for_each(|value| put(changed, value))?;
        }
        match changes.next_if(|(changed, _)| changed.as_slice() == key) {
            Some((_, Some(value))) => put(key, value)?,
            Some((_, None)) => {}
            None => put(key, value)?,
        }
    }
    for (key, value) in changes {
        value.iter().try_for_each(|value| put(key, value))?;
    }
    Ok(())
}

/// Replaces the link by a link to the folder with this number.
fn show(folder: &Path, number: u64) -> Result<()> {
    let new = folder.join("current.new");
    symlink(number.to_string(), &new)?;
    fs::rename(&new, folder.join(CURRENT))?;
    Ok(File::open(folder)?.sync_all()?)
}

struct Open {
    current: Current<Opened>,
    folder: PathBuf,
    numbers: Mutex<Numbers>,
}

/// The numbers of the existing folders.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    now: u64,
    before: Option<u64>,
}

impl Open {
    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn numbers(&self) -> Numbers {
        *self.numbers.lock().expect("nothing panics under this lock")
    }

    fn go_to(&self, numbers: Numbers) -> Result<()> {
        show(&self.folder, numbers.now)?;
        self.current.replace(Opened::open(&self.folder.join(CURRENT))?);
        *self.numbers.lock().expect("nothing panics under this lock") = numbers;
        Ok(())
    }
}

impl Store for Open {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(OpenReader { current: &self.current, held: None }))
    }

    fn prepare(&self, data: &Data, night: &Night) -> Result<()> {
        let mut changes: Vec<(Key, Option<Vec<u8>>)> = Vec::with_capacity(night.changes.len());
        night.for_each(data, Order::Keys, &mut |key, value| {
            changes.push((key.try_into()?, value.map(<[u8]>::to_vec)));
            Ok(())
        })?;
        let opened = self.current.get();
        let new = self.path(u64::from(night.number));
        write_tree(&new, data, &mut |put| merge(&opened, &changes, put))
    }

    fn switch(&self) -> Result<()> {
        let now = self.numbers().now;
        let new = fs::read_dir(&self.folder)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
        let newest = new.max().ok_or("no folder is there")?;
        self.go_to(Numbers { now: newest, before: Some(now) })
    }

    fn settle(&self) -> Result<()> {
        self.current.drop_old();
        let Numbers { now, before } = self.numbers();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if number.is_some_and(|number| number != now && Some(number) != before) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn roll_back(&self) -> Result<()> {
        let before = self.numbers().before.ok_or("there is no night before")?;
        self.go_to(Numbers { now: before, before: None })
    }
}

/// A file and its map.
struct Opened {
    /// `None` only during the drop.
    env: Option<Env<WithoutTls>>,
    tree: Tree,
}

impl Opened {
    fn open(folder: &Path) -> Result<Opened> {
        let env = open_env(folder, EnvFlags::READ_ONLY | EnvFlags::NO_READ_AHEAD, None)?;
        let transaction = env.read_txn()?;
        let tree = env.open_database(&transaction, None)?.ok_or("the tree is missing")?;
        drop(transaction);
        Ok(Opened { env: Some(env), tree })
    }

    fn env(&self) -> &Env<WithoutTls> {
        self.env.as_ref().expect("it is open")
    }
}

impl Drop for Opened {
    /// An environment can be opened again only after it is closed.
    fn drop(&mut self) {
        if let Some(env) = self.env.take() {
            env.prepare_for_closing().wait();
        }
    }
}

struct OpenReader<'a> {
    current: &'a Current<Opened>,
    /// The transaction, which must end before its file is released.
    held: Option<(RoTxn<'static, WithoutTls>, Arc<Opened>)>,
}

impl Reader for OpenReader<'_> {
    fn get(&mut self, key: &Key, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let now = self.current.get();
        if !self.held.as_ref().is_some_and(|(_, held)| Arc::ptr_eq(held, &now)) {
            self.held = None;
            self.held = Some((now.env().clone().static_read_txn()?, now));
        }
        let (transaction, opened) = self.held.as_ref().expect("it was just made");
        visit(opened.tree.get(transaction, key)?);
        Ok(())
    }
}
