//! RocksDB: the night's changes are ingested into the live database as one sorted file; the night
//! before is kept as a checkpoint.

use super::{
    Current, Options, Peer, Reader, Reads, Store,
    book::{Night, Order},
};
use crate::{
    Result,
    data::{Data, KEY_SIZE, Key},
    librocksdb::*,
};
use std::{
    fs,
    path::{Path, PathBuf},
    ptr, slice,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(RocksDb(Compaction::Auto)), Box::new(RocksDb(Compaction::Full))]
}

struct RocksDb(Compaction);

/// The compaction after an ingest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compaction {
    /// Only the compactions that the library starts.
    Auto,
    /// A merge of all levels into one.
    Full,
}

impl Peer for RocksDb {
    fn name(&self) -> String {
        match self.0 {
            Compaction::Auto => "RocksDB ingest".to_owned(),
            Compaction::Full => "RocksDB compacted".to_owned(),
        }
    }

    fn note(&self) -> String {
        let how = match self.0 {
            Compaction::Auto => "compacted when the library thinks fit",
            Compaction::Full => "compacted in full after each night",
        };
        format!(
            "one sorted SST file ingested; {how}; a checkpoint before each night to go back to; no \
             compression, 4 KiB blocks, Bloom filters of 10 bits"
        )
    }

    fn create(&self, data: &Data, options: &Options, folder: &Path) -> Result<Box<dyn Store>> {
        let settings = Arc::new(Settings::new(options));
        let mut keys: Vec<(Key, u64)> = (0..data.count).map(|i| (data.key(i), i)).collect();
        keys.sort_unstable();
        let database = Database::open(settings.clone(), &folder.join("0"))?;
        let file = folder.join("first.sst");
        let mut value = Vec::new();
        write_sst(settings.options, &file, &mut |put| {
            keys.iter().try_for_each(|(key, i)| {
                data.fill_value(*i, &mut value);
                put(key, Some(&value))
            })
        })?;
        database.ingest(&file)?;
        Ok(Box::new(Open {
            current: Current::new(database),
            folder: folder.to_owned(),
            settings,
            compaction: self.0,
            numbers: Mutex::default(),
        }))
    }
}

struct Open {
    current: Current<Database>,
    folder: PathBuf,
    settings: Arc<Settings>,
    compaction: Compaction,
    numbers: Mutex<Numbers>,
}

/// Numbers of the existing folders.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    live: u64,
    checkpoint: Option<u64>,
}

impl Open {
    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn numbers(&self) -> Numbers {
        *self.numbers.lock().expect("nothing panics under this lock")
    }

    fn set_numbers(&self, numbers: Numbers) {
        *self.numbers.lock().expect("nothing panics under this lock") = numbers;
    }
}

/// The table file of a night.
const CHANGES: &str = "changes.sst";

impl Store for Open {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.current))
    }

    fn prepare(&self, data: &Data, night: &Night) -> Result<()> {
        let checkpoint = u64::from(night.number);
        self.current.get().make_checkpoint(&self.path(checkpoint))?;
        self.set_numbers(Numbers { checkpoint: Some(checkpoint), ..self.numbers() });
        let file = self.folder.join(CHANGES);
        write_sst(self.settings.options, &file, &mut |put| night.for_each(data, Order::Keys, put))
    }

    fn switch(&self) -> Result<()> {
        self.current.get().ingest(&self.folder.join(CHANGES))
    }

    fn settle(&self) -> Result<()> {
        self.current.drop_old();
        let database = self.current.get();
        if self.compaction == Compaction::Full {
            database.compact();
        }
        database.wait_for_compaction()?;
        let Numbers { live, checkpoint } = self.numbers();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if number.is_some_and(|number| number != live && Some(number) != checkpoint) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn roll_back(&self) -> Result<()> {
        let checkpoint = self.numbers().checkpoint.ok_or("there is no checkpoint")?;
        self.current.replace(Database::open(self.settings.clone(), &self.path(checkpoint))?);
        self.set_numbers(Numbers { live: checkpoint, checkpoint: None });
        Ok(())
    }
}

/// Options of files and databases.
struct Settings {
    options: Handle,
    table: Handle,
    cache: Handle,
}

// SAFETY: the options are not changed after they are shared, and a cache has locks.
unsafe impl Send for Settings {}
// SAFETY: as above.
unsafe impl Sync for Settings {}

impl Settings {
    fn new(options: &Options) -> Settings {
        const BLOOM_BITS: f64 = 10.0;
        /// Size of the block cache, in bytes: enough for the hot blocks; the page cache has the
        /// rest.
        const CACHE_BYTES: usize = 256 << 20;
        // SAFETY: the handles are fresh; the table's options own the filter policy.
        unsafe {
            let cache = rocksdb_cache_create_lru(CACHE_BYTES);
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_size(table, 4096);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 0);
            rocksdb_block_based_options_set_format_version(table, 5);
            let policy = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS);
            rocksdb_block_based_options_set_filter_policy(table, policy);
            let all = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(all, 1);
            rocksdb_options_set_compression(all, 0);
            rocksdb_options_set_use_direct_reads(all, u8::from(options.reads == Reads::Direct));
            rocksdb_options_set_max_open_files(all, -1);
            rocksdb_options_set_max_background_jobs(all, options.threads as i32);
            rocksdb_options_set_block_based_table_factory(all, table);
            Settings { options: all, table, cache }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more: databases have shares of this.
        unsafe {
            rocksdb_options_destroy(self.options);
            rocksdb_block_based_options_destroy(self.table);
            rocksdb_cache_destroy(self.cache);
        }
    }
}

struct Database {
    database: Handle,
    read: Handle,
    _settings: Arc<Settings>,
}

// SAFETY: several threads may call the library.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    fn open(settings: Arc<Settings>, folder: &Path) -> Result<Database> {
        let folder = c_path(folder)?;
        let mut database = ptr::null_mut();
        // SAFETY: the string outlives the call.
        call(|error| unsafe {
            database = rocksdb_open(settings.options, folder.as_ptr(), error);
        })?;
        // SAFETY: the call has no arguments.
        let read = unsafe { rocksdb_readoptions_create() };
        Ok(Database { database, read, _settings: settings })
    }

    /// Moves a table file into the database.
    fn ingest(&self, file: &Path) -> Result<()> {
        let path = c_path(file)?;
        let pointer = path.as_ptr();
        // SAFETY: the string outlives the call, and the database is open.
        unsafe {
            let how = rocksdb_ingestexternalfileoptions_create();
            rocksdb_ingestexternalfileoptions_set_move_files(how, 1);
            let result = call(|error| {
                rocksdb_ingest_external_file(self.database, &raw const pointer, 1, how, error);
            });
            rocksdb_ingestexternalfileoptions_destroy(how);
            result?;
        }
        // The file has been linked.
        if file.exists() {
            fs::remove_file(file)?;
        }
        Ok(())
    }

    fn make_checkpoint(&self, folder: &Path) -> Result<()> {
        let folder = c_path(folder)?;
        let mut checkpoint = ptr::null_mut();
        // SAFETY: the database is open, and the string outlives the calls.
        unsafe {
            call(|error| checkpoint = rocksdb_checkpoint_object_create(self.database, error))?;
            let made =
                call(|error| rocksdb_checkpoint_create(checkpoint, folder.as_ptr(), 0, error));
            rocksdb_checkpoint_object_destroy(checkpoint);
            made
        }
    }

    fn compact(&self) {
        // SAFETY: the database is open; null means the first key, or the last.
        unsafe { rocksdb_compact_range(self.database, ptr::null(), 0, ptr::null(), 0) }
    }

    fn wait_for_compaction(&self) -> Result<()> {
        /// Pause between two polls: the library schedules pending work at once, but starts it only
        /// when a thread is free.
        const PAUSE: Duration = Duration::from_millis(1);
        let names = [c"rocksdb.compaction-pending", c"rocksdb.num-running-compactions"];
        loop {
            let mut busy = 0;
            for name in names {
                let mut number = 0;
                // SAFETY: the database is open, and `number` can hold the number.
                let status =
                    unsafe { rocksdb_property_int(self.database, name.as_ptr(), &raw mut number) };
                if status != 0 {
                    return Err("RocksDB hides its compactions".into());
                }
                busy += number;
            }
            if busy == 0 {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the handles are not in use any more: readers have shares of this.
        unsafe {
            rocksdb_readoptions_destroy(self.read);
            rocksdb_close(self.database);
        }
    }
}

impl Reader for &Current<Database> {
    fn get(&mut self, key: &Key, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let database = Current::get(self);
        let mut slice = ptr::null_mut();
        call(|error| {
            // SAFETY: the database is open, and the key outlives the call.
            slice = unsafe {
                let key = key.as_ptr().cast();
                rocksdb_get_pinned(database.database, database.read, key, KEY_SIZE, error)
            };
        })?;
        if slice.is_null() {
            visit(None);
            return Ok(());
        }
        let mut len = 0;
        // SAFETY: the slice came from a get, and is freed after the visit.
        unsafe {
            let value = rocksdb_pinnableslice_value(slice, &raw mut len);
            visit(Some(slice::from_raw_parts(value.cast::<u8>(), len)));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(())
    }
}
