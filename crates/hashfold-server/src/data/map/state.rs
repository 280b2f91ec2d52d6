//! The values that commands see and change, before they are written.

use super::{
    core::{Core, read_failed, write_failed},
    executor::Outcome,
    expiries::Expiries,
    watch::{Watch, Watches},
};
use crate::data::home::check_no_filter;
use hashfold::{
    ErrorKind,
    map::{Expiring, KEY_BYTES_MAX, Map, VALUE_BYTES_MAX, Write},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError},
};

/// Number of keys that are read together.
const KEYS_AT_ONCE: usize = 64;

/// Values that are kept for the commands after them, and changes that are not written yet, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Maximum number of bytes of the keys and values that a unit changes: one value of the maximum size, and small
/// ones.
const UNIT_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);

/// Maximum size of the changes of several units that are written together, in bytes: those that the log takes in
/// one piece.
const JOINT_BYTES_MAX: usize = 512 << 10;

/// The reply to a command or a transaction whose changes take too much memory.
const TOO_MUCH: &str =
    "ERR the changes of one command or transaction have at most 65 MiB of keys and values";
const _: () = assert!(UNIT_BYTES_MAX == 65 << 20);

/// The reply to commands that make a value too long.
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The state of a map while a batch of commands runs.
#[derive(Debug)]
pub(crate) struct State {
    core: Arc<Core>,
    now_ms: u64,
    values: HashMap<Vec<u8>, Slot>,
    /// Bytes of these keys and values.
    bytes: usize,
    /// Whether the map will be cleared before changes are written: keys without a slot are absent.
    is_cleared: bool,
    /// Keys whose values are to be written, in the order of their first changes.
    changed: Vec<Vec<u8>>,
    /// Bytes of the record of these changes.
    changed_bytes: usize,
    /// Whether a unit among these has changed several keys, which become visible together.
    is_joint: bool,
    /// Number of the last unit, and of the first one whose changes are not written.
    unit: u64,
    first: u64,
    /// The sequence number after the last change.
    seq: u64,
    outcome: Outcome,
    expiries: Expiries,
}

/// A value that was read, or changed.
#[derive(Debug)]
struct Slot {
    value: Option<Expiring>,
    is_changed: bool,
}

/// A command or a transaction: all of its changes or none.
#[derive(Debug)]
pub(crate) struct Unit<'s> {
    state: &'s mut State,
    changes: BTreeMap<Vec<u8>, Option<Expiring>>,
    /// Bytes of these keys and values.
    bytes: usize,
    is_cleared: bool,
    /// Whether the changes took too much memory: they are forgotten, and the unit fails.
    is_too_large: bool,
    /// Whether the current command sees the filters beside the map, so that its strings take their places.
    sees_filters: bool,
    /// Keys whose watches are told of a change at the end, also if they are absent before and after it.
    noted: Vec<Vec<u8>>,
    /// What was before the changes of the current attempt, the last one at the end; `None` outside of attempts.
    before: Option<Vec<Before>>,
}

/// What a unit was before a change.
#[derive(Debug)]
enum Before {
    /// The change of a key, if there was one.
    Key(Vec<u8>, Option<Option<Expiring>>),
    /// All changes, before the deletion of all keys, and whether there was one before.
    All(BTreeMap<Vec<u8>, Option<Expiring>>, bool),
}

/// The keys that a unit has changed so far, and whether each is there now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Whether all other keys are gone.
    pub(crate) is_cleared: bool,
    pub(crate) keys: BTreeMap<Vec<u8>, bool>,
}

impl State {
    pub(super) fn new(core: Arc<Core>) -> State {
        let seq = core.map.seq();
        let expiries = Expiries::new(core.settings.expiry_bytes());
        State {
            core,
            now_ms: 0,
            values: HashMap::new(),
            bytes: 0,
            is_cleared: false,
            changed: Vec::new(),
            changed_bytes: 0,
            is_joint: false,
            unit: 0,
            first: 1,
            seq,
            outcome: Outcome::default(),
            expiries,
        }
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Takes keys that may have expired, to be deleted.
    pub(super) fn take_expired(&mut self) -> Vec<Box<[u8]>> {
        self.expiries.take(self.core.now_ms())
    }

    /// Whether keys are known that will expire.
    pub(super) fn knows_expiries(&self) -> bool {
        !self.expiries.is_empty()
    }

    /// Notes when the new value of a key expires, in place of the one before.
    fn note_expiry(&mut self, key: &[u8], value: Option<&Expiring>) {
        let expiry_of = |value: Option<&Expiring>| value.and_then(|value| value.expires_at);
        let before = self.values.get(key).and_then(|slot| slot.value.as_ref());
        if let Some(at) = expiry_of(before) {
            self.expiries.remove(at, key);
        }
        if let Some(at) = expiry_of(value) {
            self.expiries.add(at, key);
        }
    }

    /// Whether a key was read and is absent, or has expired.
    fn is_absent(&self, key: &[u8]) -> bool {
        let slot = self.values.get(key);
        slot.is_some_and(|slot| slot.value.as_ref().is_none_or(|value| !self.is_live(value)))
    }

    fn is_live(&self, value: &Expiring) -> bool {
        value.expires_at.is_none_or(|at| at > self.now_ms)
    }

    /// Begins a batch. No filter becomes visible before its end, unless it is paused.
    pub(super) fn begin(&mut self) {
        self.core.batches.begin();
        self.now_ms = self.core.now_ms();
    }

    /// Ends a batch: writes what is not written, and keeps no values. Returns which units have failed, and the
    /// sequence number after all changes.
    pub(super) fn end(&mut self) -> (Outcome, u64) {
        self.write();
        self.forget();
        self.core.batches.end();
        (std::mem::take(&mut self.outcome), self.seq)
    }

    /// Whether all changes before a sequence number are durable.
    pub(super) fn is_durable(&self, seq: u64) -> bool {
        self.core.map.durable_seq() >= seq
    }

    /// Begins a unit, after those that have ended.
    pub(crate) fn unit(&mut self) -> Unit<'_> {
        self.unit += 1;
        let changes = BTreeMap::new();
        let (is_cleared, is_too_large) = (false, false);
        let noted = Vec::new();
        Unit {
            state: self,
            changes,
            bytes: 0,
            is_cleared,
            is_too_large,
            sees_filters: false,
            noted,
            before: None,
        }
    }

    /// Reads the values of keys together, as long as there is room for them. What is not read here is read
    /// when it is needed, with its own error.
    pub(super) fn load(&mut self, keys: &[impl AsRef<[u8]>]) {
        if self.is_cleared {
            return;
        }
        let mut absent: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        absent.retain(|key| !self.values.contains_key(*key));
        absent.sort_unstable();
        absent.dedup();
        for keys in absent.chunks(KEYS_AT_ONCE) {
            if self.bytes > KEPT_BYTES_MAX {
                return;
            }
            let core = self.core.clone();
            let _ = core.map.visit_many(keys, &mut |i, value| {
                self.keep(keys[i].to_vec(), Slot { value, is_changed: false });
                match self.bytes > KEPT_BYTES_MAX {
                    true => Err(ErrorKind::Stopped.into()),
                    false => Ok(()),
                }
            });
        }
    }

    fn keep(&mut self, key: Vec<u8>, slot: Slot) {
        self.bytes += slot.bytes(&key);
        if let Some(before) = self.values.get(&key) {
            self.bytes -= before.bytes(&key);
        }
        self.values.insert(key, slot);
    }

    /// Reads a value, unless it is known.
    fn ensure(&mut self, key: &[u8]) -> Result<(), String> {
        if self.is_cleared || self.values.contains_key(key) {
            return Ok(());
        }
        self.make_room(0);
        let value = self.core.map.get_expiring(key).map_err(|error| read_failed(&error))?;
        self.keep(key.to_vec(), Slot { value, is_changed: false });
        Ok(())
    }

    /// Forgets values that were only read, if they leave no room for this number of bytes. Returns whether there
    /// is room.
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes > KEPT_BYTES_MAX {
            self.values.retain(|_, slot| slot.is_changed);
            self.bytes = self.values.iter().map(|(key, slot)| slot.bytes(key)).sum();
        }
        self.bytes + bytes <= KEPT_BYTES_MAX
    }

    fn forget(&mut self) {
        self.values.clear();
        self.bytes = 0;
        self.changed.clear();
        (self.changed_bytes, self.is_joint, self.is_cleared) = (0, false, false);
    }

    /// Writes all changes of the units that have ended. If that fails, they have all failed, and the map is as
    /// it was before them.
    fn write(&mut self) {
        if self.changed.is_empty() && !self.is_cleared {
            return;
        }
        match self.try_to_write() {
            Ok(seq) => {
                self.seq = seq;
                for key in self.changed.drain(..) {
                    if let Some(slot) = self.values.get_mut(&key) {
                        slot.is_changed = false;
                    }
                }
                (self.changed_bytes, self.is_joint, self.is_cleared) = (0, false, false);
            }
            Err(error) => {
                let units = self.first..=self.unit;
                self.outcome.failures.push((units, write_failed(&error)));
                self.forget();
            }
        }
        self.first = self.unit + 1;
    }

    /// Writes the changes of the units before the current one. Returns whether that succeeded: if not, the current
    /// one has failed, too, since it may have seen these changes.
    fn write_before(&mut self) -> bool {
        let failures = self.outcome.failures.len();
        self.write();
        let is_written = self.outcome.failures.len() == failures;
        if is_written {
            self.first = self.unit;
        }
        is_written
    }

    fn try_to_write(&self) -> hashfold::Result<u64> {
        let map: &Map = &self.core.map;
        let value = |key| self.values.get(key).and_then(|slot: &Slot| slot.value.as_ref());
        let writes: Vec<Write<'_>> =
            self.changed.iter().map(|key| change(key, value(key))).collect();
        let prepared = match self.is_cleared {
            true => map.prepare_cleared(&writes),
            false => map.prepare(&writes),
        };
        let prepared = prepared?;
        // Lookups go on while large values are written, and beside changes of single keys.
        let is_joint = self.is_joint || self.is_cleared;
        let gate = &self.core.gate;
        let _gate = is_joint.then(|| gate.write().unwrap_or_else(PoisonError::into_inner));
        prepared.apply()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // After a panic, filters do not wait for the end of the batch.
        self.core.batches.end();
    }
}

impl Slot {
    fn bytes(&self, key: &[u8]) -> usize {
        bytes_of(key, self.value.as_ref())
    }
}

fn bytes_of(key: &[u8], value: Option<&Expiring>) -> usize {
    key.len() + value.map_or(0, |value| value.value.len())
}

/// Returns the change that writes a value, or deletes a key.
fn change<'a>(key: &'a [u8], value: Option<&'a Expiring>) -> Write<'a> {
    match value {
        None => Write::delete(key),
        Some(Expiring { value, expires_at }) => {
            Write { expires_at: *expires_at, ..Write::put(key, value) }
        }
    }
}

impl Unit<'_> {
    /// Begins the next command, which sees the filters beside the map or does not.
    pub(crate) fn set_sees_filters(&mut self, sees_filters: bool) {
        self.sees_filters = sees_filters;
    }

    /// Returns the time of the batch, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.state.now_ms
    }

    /// Whether the unit is one of a map.
    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.state.core, core)
    }

    /// Reads the values of keys together: what is read one by one later takes longer.
    pub(crate) fn load(&mut self, keys: &[impl AsRef<[u8]>]) {
        self.state.load(keys);
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The reply: the value cannot be read.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&Expiring>, String> {
        if !self.is_cleared && !self.changes.contains_key(key) {
            self.state.ensure(key)?;
        }
        Ok(self.known(key))
    }

    /// Returns the value of a key that was read or changed before.
    fn known(&self, key: &[u8]) -> Option<&Expiring> {
        let found = match self.changes.get(key) {
            Some(changed) => changed.as_ref(),
            None if self.is_cleared => None,
            None => self.state.values.get(key).and_then(|slot| slot.value.as_ref()),
        };
        found.filter(|value| self.state.is_live(value))
    }

    /// Puts a value; one that has expired deletes the key.
    ///
    /// # Errors
    /// The reply: the key or the value is too long, or the key is a filter that the client does not see.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: Vec<u8>,
        expires_at: Option<u64>,
    ) -> Result<(), String> {
        self.check(key, &value)?;
        if !self.sees_filters {
            check_no_filter(self.state.core.filters.load().as_ref(), key)?;
        }
        let is_live = expires_at.is_none_or(|at| at > self.state.now_ms);
        self.set(key, is_live.then_some(Expiring { value, expires_at }));
        match self.is_too_large {
            true => Err(TOO_MUCH.into()),
            false => Ok(()),
        }
    }

    /// Adds a change, unless the unit is too large: that ends with an error whatever follows.
    fn set(&mut self, key: &[u8], value: Option<Expiring>) {
        if self.is_too_large {
            return;
        }
        let before = self.replace(key, Some(value));
        if let Some(all) = &mut self.before {
            all.push(Before::Key(key.to_vec(), before));
        }
        if self.bytes > UNIT_BYTES_MAX {
            (self.changes, self.bytes, self.is_too_large) = (BTreeMap::new(), 0, true);
            self.before = None;
        }
    }

    /// Refuses a key or a value that is too long.
    ///
    /// # Errors
    /// The reply.
    pub(crate) fn check(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("ERR a key of a map has at most {KEY_BYTES_MAX} bytes"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        Ok(())
    }

    /// Deletes a key.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.set(key, None);
    }

    /// Deletes a key whose value has expired; another one stays.
    pub(super) fn delete_expired(&mut self, key: &[u8]) {
        if self.get(key).is_ok_and(|value| value.is_none()) {
            self.delete(key);
        }
    }

    /// Pauses the batch before the unit changes anything: filters may become visible. The changes of the units before are
    /// written, for which clients have looked whether their keys are filters.
    ///
    /// # Errors
    /// The reply: these changes could not be written, and the unit has failed with them.
    pub(crate) fn pause(&mut self) -> Result<(), String> {
        if !self.state.write_before() {
            let failure = self.state.outcome.failure(self.state.unit);
            return Err(failure.unwrap_or_default().to_owned());
        }
        self.state.core.batches.end();
        Ok(())
    }

    /// Goes on with the batch.
    pub(crate) fn go_on(&self) {
        self.state.core.batches.begin();
    }

    /// Runs a part of the unit. If it fails, the changes that it has made are taken back.
    ///
    /// # Errors
    /// Those of `run`.
    pub(crate) fn attempt<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.before = Some(Vec::new());
        let result = run(self);
        let before = self.before.take().unwrap_or_default();
        if result.is_err() && !self.is_too_large {
            before.into_iter().rev().for_each(|before| self.take_back(before));
        }
        result
    }

    fn take_back(&mut self, before: Before) {
        match before {
            Before::Key(key, change) => _ = self.replace(&key, change),
            Before::All(changes, is_cleared) => {
                self.bytes = changes.iter().map(|(key, value)| bytes_of(key, value.as_ref())).sum();
                (self.changes, self.is_cleared) = (changes, is_cleared);
            }
        }
    }

    /// Replaces the change of a key. Returns the one before.
    fn replace(
        &mut self,
        key: &[u8],
        change: Option<Option<Expiring>>,
    ) -> Option<Option<Expiring>> {
        let bytes = |change: &Option<Option<Expiring>>| {
            change.as_ref().map_or(0, |value| bytes_of(key, value.as_ref()))
        };
        let added = bytes(&change);
        let before = match change {
            Some(value) => self.changes.insert(key.to_vec(), value),
            None => self.changes.remove(key),
        };
        self.bytes = self.bytes + added - bytes(&before);
        before
    }

    /// Refuses changes that could not be made durable.
    ///
    /// # Errors
    /// The reply, if there are changes, and the last ones could not be made durable.
    pub(crate) fn check_durable(&self) -> Result<(), String> {
        match self.state.core.sync_error() {
            Some(error) if !self.changes.is_empty() || self.is_cleared => {
                Err(format!("MISCONF changes cannot be made durable: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) -> Result<(), String> {
        for key in self.state.core.watches.keys() {
            if self.get(&key)?.is_some() {
                self.note_change(&key);
            }
        }
        let changes = std::mem::take(&mut self.changes);
        if let Some(before) = &mut self.before {
            before.push(Before::All(changes, self.is_cleared));
        }
        (self.bytes, self.is_cleared) = (0, true);
        Ok(())
    }

    /// Returns the changes so far, for a look at the whole map: those of the units before are written.
    pub(crate) fn changes(&mut self) -> Changes {
        self.state.write_before();
        let keys: Vec<Vec<u8>> = self.changes.keys().cloned().collect();
        let is_there = |key: &Vec<u8>| self.known(key).is_some();
        let keys = keys.into_iter().map(|key| (is_there(&key), key));
        Changes {
            is_cleared: self.is_cleared,
            keys: keys.map(|(is_there, key)| (key, is_there)).collect(),
        }
    }

    /// Watches a key from now on.
    ///
    /// # Errors
    /// The reply: its value cannot be read.
    pub(crate) fn watch(&mut self, key: &[u8]) -> Result<Watch, String> {
        let expires_at = self.get(key)?.and_then(|value| value.expires_at);
        Ok(self.watches().add(key, expires_at))
    }

    /// Makes the transactions null that watch a key, also if it is absent before and after this unit.
    pub(crate) fn note_change(&mut self, key: &[u8]) {
        self.noted.push(key.to_vec());
    }

    /// Whether changes are refused, since the last ones could not be made durable.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.state.core.sync_error().is_some()
    }

    fn watches(&self) -> &Watches {
        &self.state.core.watches
    }

    /// Ends the unit: its changes will be written. Returns its number.
    ///
    /// # Errors
    /// The reply: its changes are too large to be written at once, or cannot be made durable. None is made.
    pub(crate) fn end(self) -> Result<u64, String> {
        if self.is_too_large {
            return Err(TOO_MUCH.into());
        }
        if self.changes.is_empty() && !self.is_cleared {
            return Ok(self.state.unit);
        }
        if self.state.outcome.failure(self.state.unit).is_some() {
            return Ok(self.state.unit);
        }
        self.check_durable()?;
        let Unit { state, changes, bytes: kept, is_cleared, noted, .. } = self;
        let size = |(key, value): (&Vec<u8>, &Option<Expiring>)| change(key, value.as_ref()).size();
        let bytes: usize = changes.iter().map(size).sum();
        if bytes > Map::WRITE_BYTES_MAX {
            let max = Map::WRITE_BYTES_MAX >> 20;
            return Err(format!(
                "ERR the changes of one command or transaction have at most {max} MiB"
            ));
        }
        let is_full = state.changed_bytes + bytes > JOINT_BYTES_MAX || !state.make_room(kept);
        if (is_full || is_cleared) && !state.write_before() {
            return Ok(state.unit);
        }
        if is_cleared {
            state.forget();
            state.is_cleared = true;
        }
        noted.iter().for_each(|key| state.core.watches.note(key));
        state.is_joint |= changes.len() > 1;
        state.changed_bytes += bytes;
        for (key, value) in changes {
            // Nobody sees that a value goes which has expired.
            if value.is_some() || !state.is_absent(&key) {
                state.core.watches.note(&key);
            }
            state.note_expiry(&key, value.as_ref());
            if !state.values.get(&key).is_some_and(|slot| slot.is_changed) {
                state.changed.push(key.clone());
            }
            state.keep(key, Slot { value, is_changed: true });
        }
        Ok(state.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{batches::Batches, core::MapSettings},
        *,
    };
    use crate::config::MapDurability;
    use hashfold::{
        Env,
        io::{Access, Disk, MemoryDisk},
        map::{Durability, MapOptions},
    };
    use hashfold_rows::Form;
    use std::{
        sync::{Mutex, RwLock, atomic::AtomicU64, mpsc::channel},
        thread,
    };

    fn state() -> State {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let env = Env { disk, ..Env::simulated(1) };
        let options = MapOptions::new().env(env.clone()).durability(Durability::Buffered);
        let settings = MapSettings {
            durability: MapDurability::No,
            memory_bytes: 8 << 20,
            is_writable: true,
            access: Access::Cached,
            devices: Vec::new(),
            mirror_bytes: 0,
        };
        State::new(Arc::new(Core {
            map: Map::create("map", options).unwrap(),
            clock: env.clock,
            settings,
            form: Form::Plain,
            gate: RwLock::default(),
            batches: Batches::default(),
            watches: Watches::default(),
            filters: Default::default(),
            sync_error: Mutex::default(),
            now_ms: AtomicU64::new(0),
        }))
    }

    const SIZE: usize = 20 << 20;

    #[test]
    fn a_batch_keeps_few_large_values_that_are_not_written_and_none_after_its_end() {
        let mut state = state();
        state.begin();
        for i in 0..8_u8 {
            let mut unit = state.unit();
            unit.put(&[i], vec![i; SIZE], None).unwrap();
            unit.end().unwrap();
            assert!(state.bytes <= KEPT_BYTES_MAX + UNIT_BYTES_MAX, "{i}: {}", state.bytes);
        }
        let (outcome, _) = state.end();
        assert!((1..=8).all(|unit| outcome.failure(unit).is_none()));
        assert!(state.values.is_empty() && state.bytes == 0 && state.changed.is_empty());
        for i in 0..8_u8 {
            assert_eq!(state.core.map.get([i]).unwrap().unwrap(), vec![i; SIZE]);
        }
    }

    #[test]
    fn values_are_read_ahead_as_long_as_there_is_room() {
        let mut state = state();
        (0..8_u8).for_each(|i| _ = state.core.map.put([i], vec![i; SIZE]).unwrap());
        let keys: Vec<[u8; 1]> = (0..8).map(|i| [i]).collect();
        for _ in 0..2 {
            state.load(&keys);
            assert!(state.bytes <= KEPT_BYTES_MAX + SIZE + keys.len(), "{}", state.bytes);
        }
        let mut unit = state.unit();
        for i in 0..8_u8 {
            assert_eq!(unit.get(&[i]).unwrap().unwrap().value, vec![i; SIZE]);
        }
        assert!(state.bytes <= KEPT_BYTES_MAX + 2 * SIZE, "{}", state.bytes);
    }

    #[test]
    fn no_filter_becomes_visible_before_the_strings_of_a_batch() {
        let put = |state: &mut State, key: &[u8]| {
            let mut unit = state.unit();
            unit.put(key, b"1".to_vec(), None).unwrap();
            unit.end().unwrap();
        };
        thread::scope(|scope| {
            let (shown, is_shown) = channel();
            let mut state = state();
            // Says whether the key is a string at a moment at which it may become a filter.
            let show = |state: &State, key: &'static [u8]| {
                let (core, shown) = (state.core.clone(), shown.clone());
                scope.spawn(move || {
                    let _between = core.batches.between();
                    shown.send(core.map.contains(key).unwrap()).unwrap();
                });
                state.core.batches.wait_for_a_maker();
            };
            state.begin();
            put(&mut state, b"a");
            show(&state, b"a");
            assert!(is_shown.try_recv().is_err());
            state.end();
            assert!(is_shown.recv().unwrap());
            state.begin();
            put(&mut state, b"b");
            show(&state, b"b");
            let mut unit = state.unit();
            unit.pause().unwrap();
            assert!(is_shown.recv().unwrap());
            unit.go_on();
            unit.put(b"c", b"1".to_vec(), None).unwrap();
            unit.end().unwrap();
            show(&state, b"c");
            assert!(is_shown.try_recv().is_err());
            drop(state);
            assert!(!is_shown.recv().unwrap(), "the end of the thread leaves no batch");
        });
    }

    #[test]
    fn an_attempt_that_fails_leaves_the_unit_as_it_was() {
        let mut state = state();
        state.begin();
        let mut unit = state.unit();
        unit.put(b"a", b"1".to_vec(), None).unwrap();
        unit.attempt(|unit| unit.put(b"b", b"22".to_vec(), None)).unwrap();
        let failed: Result<(), String> = unit.attempt(|unit| {
            unit.delete(b"a");
            unit.put(b"c", b"333".to_vec(), None)?;
            unit.clear()?;
            unit.put(b"d", b"4444".to_vec(), None)?;
            unit.put(b"d", Vec::new(), None)?;
            Err("failed".into())
        });
        assert_eq!(failed, Err("failed".into()));
        assert_eq!((unit.changes.len(), unit.bytes, unit.is_cleared), (2, 5, false));
        assert_eq!(unit.get(b"a").unwrap().unwrap().value, b"1");
        unit.end().unwrap();
        state.end();
        assert_eq!(state.core.map.count().unwrap(), 2);
    }

    #[test]
    fn a_unit_whose_changes_take_too_much_memory_fails_as_a_whole() {
        let mut state = state();
        state.begin();
        let mut unit = state.unit();
        // A value that is replaced does not count.
        (0..5).for_each(|_| unit.put(b"a", vec![1; SIZE], None).unwrap());
        unit.put(b"b", vec![1; SIZE], None).unwrap();
        unit.put(b"c", vec![1; SIZE], None).unwrap();
        assert_eq!(unit.put(b"d", vec![1; SIZE], None), Err(TOO_MUCH.into()));
        assert_eq!((unit.changes.len(), unit.bytes), (0, 0));
        assert_eq!(unit.put(b"e", Vec::new(), None), Err(TOO_MUCH.into()));
        assert_eq!(unit.end(), Err(TOO_MUCH.into()));
        let mut unit = state.unit();
        unit.put(b"f", vec![1; VALUE_BYTES_MAX], None).unwrap();
        unit.end().unwrap();
        state.end();
        assert_eq!(state.core.map.count().unwrap(), 1);
    }
}
