//! Many crash states: what power cuts at every operation of many short scripts may leave on the disk,
//! also power cuts while a map recovers from one, or after that. Each state is recovered once. The map
//! on it has all acknowledged changes, whole records of the others, and no damage.

use super::{
    crash::{Plan, Script, Session, Size, options, script},
    tests::{SEED, check_ranges, folder},
    *,
};
use crate::{
    io::{Access, Disk, Fault, MemoryDisk},
    key::{KeyHash, Seed},
    work::{Clock as _, Random as _, SeededRandom, Watch},
};
use std::{
    collections::{BTreeMap, HashMap},
    env::var,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread::scope,
};

const SIZE: Size = Size { acts: 30, keys: 60 };
/// Maximum number of states that are drawn at one power cut.
const DRAWS_MAX: u64 = 48;
/// Number of states in a row that are known already, after which no more are drawn.
const REPEATS_MAX: u64 = 6;
/// The second power cut is at one of this number of first operations. Recovery has a few.
const SECOND_MAX: u64 = 24;
/// Number of distinct states that a script has at least, on average.
const STATES_MIN: u64 = 300;
/// Number of scripts for one value of `HASHFOLD_TEST_SEED`.
const SCRIPTS_MAX: u64 = 100_000;

/// The origin of a state.
#[derive(Clone, Copy)]
struct Moment {
    script: u64,
    operation: u64,
    /// The operation of the second power cut.
    second: Option<u64>,
    /// `None` if the process was killed.
    draw: Option<u64>,
}

/// The states of a script.
struct States<'a> {
    script: &'a Script,
    /// The id of its map. No other script has it, so no two scripts have a state in common.
    id: u64,
    /// The entries after each record, in the order of hashes.
    models: BTreeMap<u64, Vec<(Vec<u8>, Expiring)>>,
    /// For the hash of each state, the number of changes that were recovered; `None` if there was no
    /// map yet.
    recovered: HashMap<u128, Option<u64>>,
    /// Number of states with a map that only two power cuts have left.
    second: u64,
    /// Room for the bytes of a file.
    bytes: Vec<u8>,
}

impl<'a> States<'a> {
    fn new(script: &'a Script) -> States<'a> {
        let model = |seq: &u64| {
            let mut entries: Vec<_> = script.model(*seq).into_entries().collect();
            entries.sort_by_key(|(key, _)| KeyHash::of(key, SEED));
            (*seq, entries)
        };
        let models = script.ends.iter().map(model).collect();
        let id = SeededRandom::new(script.seed).next_u64();
        States { script, id, models, recovered: HashMap::new(), second: 0, bytes: Vec::new() }
    }

    /// Cuts the power at every operation.
    fn check_all(&mut self) {
        let mut whole = Session::new(self.script, Vec::new());
        whole.go_on().unwrap();
        for operation in 0..whole.faulty.operations() {
            let mut session = Session::new(self.script, vec![Fault::PowerCut { operation }]);
            let _ = session.go_on();
            drop(session.map.take());
            let script = self.script.seed;
            let moment = Moment { script, operation, second: None, draw: None };
            self.check_cut(&session, moment);
            self.cut_again(&session, Moment { draw: Some(0), ..moment });
        }
    }

    /// Checks what a power cut may have left. Returns the number of new states with a map.
    fn check_cut(&mut self, session: &Session<'_>, moment: Moment) -> u64 {
        let (seq, is_new) = self.check(&session.faulty.snapshot(), session, moment);
        let (mut new, mut repeats) = (u64::from(is_new && seq.is_some()), 0);
        for draw in 0..DRAWS_MAX {
            let moment = Moment { draw: Some(draw), ..moment };
            let left = self.script.after_power_cut(&session.faulty, moment.seed());
            let (seq, is_new) = self.check(&left, session, moment);
            new += u64::from(is_new && seq.is_some());
            repeats = if is_new { 0 } else { repeats + 1 };
            if repeats == REPEATS_MAX {
                break;
            }
        }
        new
    }

    /// Goes on with a state that a power cut has left, and cuts the power again.
    fn cut_again(&mut self, first: &Session<'_>, moment: Moment) {
        let left = self.script.after_power_cut(&first.faulty, moment.seed());
        let (seq, _) = self.check(&left, first, moment);
        let operation = moment.operation % SECOND_MAX;
        let mut session = Session::over(self.script, &left, vec![Fault::PowerCut { operation }]);
        session.clock.advance(first.clock.now());
        // What was found once is durable.
        (session.durable, session.is_made) = (seq.unwrap_or(0), seq.is_some());
        let _ = session.go_on();
        drop(session.map.take());
        self.second += self.check_cut(&session, Moment { second: Some(operation), ..moment });
    }

    /// Checks a state. Returns the number of changes in it, and whether the state is new.
    fn check(
        &mut self,
        left: &MemoryDisk,
        session: &Session<'_>,
        moment: Moment,
    ) -> (Option<u64>, bool) {
        let hash = self.hash(left);
        let known = self.recovered.get(&hash).copied();
        let seq = known.unwrap_or_else(|| self.recover(left, session, moment));
        self.recovered.insert(hash, seq);
        match seq {
            Some(seq) => assert!(seq >= session.durable, "{moment}: {seq} changes are left"),
            None => assert!(!session.is_made, "{moment}: there is no map"),
        }
        (seq, known.is_none())
    }

    /// Returns the hash of all names and bytes.
    fn hash(&mut self, left: &MemoryDisk) -> u128 {
        let mut hashes = Vec::new();
        for path in paths(left) {
            let file = left.open(&path, Access::Cached).unwrap();
            let size = file.size().unwrap() as usize;
            if self.bytes.len() < size {
                self.bytes = vec![0; size];
            }
            let bytes = &mut self.bytes[..size];
            file.read_at(0, bytes).unwrap();
            for part in [path.as_os_str().as_encoded_bytes(), bytes] {
                hashes.extend(KeyHash::of(part, Seed(0)).bits().to_le_bytes());
            }
        }
        KeyHash::of(&hashes, Seed(0)).bits()
    }

    /// Opens the map in a state, and checks all of it. Returns the number of changes in it.
    fn recover(&self, left: &MemoryDisk, session: &Session<'_>, moment: Moment) -> Option<u64> {
        let disk: Arc<dyn Disk> = Arc::new(left.clone());
        let map = match Map::open_with(folder(), options(&disk, &session.clock)) {
            Err(error) if error.is_absent() => return None,
            opened => opened.unwrap_or_else(|error| panic!("{moment}: {error}")),
        };
        assert_eq!(map.core().identity.id, self.id, "{moment}");
        let (seq, now) = (map.seq(), session.now());
        let model = self.models.get(&seq);
        let model = model.unwrap_or_else(|| panic!("{moment}: a part of a record: {seq}"));
        let live = model.iter().filter(|(_, entry)| entry.expires_at.is_none_or(|end| now < end));
        let found = map.entries_from(KeyHash::from_bits(0), usize::MAX).unwrap();
        assert!(found.iter().eq(live), "{moment}: other entries than after {seq} changes");
        let report = map.verify(&Watch::default()).unwrap();
        assert!(report.is_sound(), "{moment}: {}", report.damage[0]);
        check_ranges(&map, moment);
        Some(seq)
    }
}

/// Returns the paths of all files.
fn paths(disk: &MemoryDisk) -> Vec<PathBuf> {
    let folders = disk.list(Path::new("")).unwrap();
    let in_folder = |folder: &String| {
        let folder = Path::new(folder);
        disk.list(folder).unwrap().into_iter().map(|name| folder.join(name)).collect::<Vec<_>>()
    };
    folders.iter().flat_map(in_folder).collect()
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { script, operation, second, draw } = self;
        write!(f, "script {script}, power cut at {operation}, second {second:?}, draw {draw:?}")
    }
}

impl Moment {
    /// Returns the seed that decides what is left.
    fn seed(&self) -> u64 {
        self.operation * DRAWS_MAX + self.draw.unwrap_or(0)
    }
}

/// Returns a script with many unsynced writes, of which some are durable at once in some scripts.
fn short(seed: u64) -> Script {
    let plan = if seed.is_multiple_of(2) { Plan::Grow } else { Plan::Shrink };
    let mut script = script(seed, SIZE, plan);
    if seed.is_multiple_of(3) {
        script.durability = Durability::Immediate;
    }
    // A fifth of the maps are on two devices or three.
    script.devices = match seed % 10 {
        3 => 2,
        8 => 3,
        _ => 1,
    };
    script
}

/// Checks at least this number of distinct states, of scripts that are others for another value of the
/// environment variable `HASHFOLD_TEST_SEED`.
fn check_states(wanted: u64, threads: usize) {
    let seed = var("HASHFOLD_TEST_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let first = seed.unwrap_or(0) % SCRIPTS_MAX * SCRIPTS_MAX / 4 + 1;
    let (scripts, states, second) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let check = || {
        while states.load(SeqCst) < wanted {
            let script = short(first + scripts.fetch_add(1, SeqCst));
            let mut found = States::new(&script);
            found.check_all();
            states.fetch_add(found.recovered.values().flatten().count() as u64, SeqCst);
            second.fetch_add(found.second, SeqCst);
        }
    };
    scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(check))));
    let [scripts, states, second] = [scripts, states, second].map(AtomicU64::into_inner);
    println!("{states} states of {scripts} scripts, {second} after two power cuts");
    assert!(states >= wanted && scripts <= wanted / STATES_MIN + threads as u64);
    assert!(second > wanted / 5, "{second}");
}

#[test]
fn a_hundred_thousand_crash_states_lose_nothing_that_was_acknowledged() {
    check_states(100_000, 1);
}

#[test]
#[ignore = "takes an hour"]
fn ten_million_crash_states_lose_nothing_that_was_acknowledged() {
    let count = var("HASHFOLD_CRASH_STATES").ok().map(|count| count.parse().unwrap());
    check_states(count.unwrap_or(10_000_000), 2);
}
