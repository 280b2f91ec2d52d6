//! Homes on a disk that loses power or refuses calls, at each operation in turn.

use super::{Admit, FilterChange, FilterHome, MakeError, NewFilter, filter_home::FILTERS_MAX};
use crate::data::filter::FilterKey;
use hashfold::{
    Env, Error,
    filter::FilterOptions,
    io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
    work::{ManualClock, MemoryBudget},
};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    time::Duration,
};

const MEMORY_BYTES: usize = 16 << 20;
const FOLDER: &str = "made";

/// Shows a filter at once.
const ADMIT: Admit<'_> = &|show| {
    show();
    Ok(true)
};

/// A home, and what it stands on.
struct Scene {
    disk: FaultyDisk,
    clock: ManualClock,
    memory: MemoryBudget,
}

impl Scene {
    fn new(content: &MemoryDisk, plan: impl Into<FaultPlan>) -> Scene {
        let disk = FaultyDisk::over(content, plan.into());
        Scene { disk, clock: ManualClock::new(1), memory: MemoryBudget::unlimited() }
    }

    fn open(&self) -> Result<Arc<FilterHome>, Error> {
        let (disk, clock) = (Arc::new(self.disk.clone()), Arc::new(self.clock.clone()));
        let env = Env { disk, clock, ..Env::simulated(1) };
        FilterHome::open(&env, Path::new(FOLDER), MEMORY_BYTES, &self.memory).map(Arc::new)
    }

    /// Returns the folders of the home.
    fn folders(&self) -> Vec<String> {
        let mut names = self.disk.list(Path::new(FOLDER)).unwrap();
        names.retain(|name| !name.starts_with("filters.names"));
        names
    }
}

/// Makes a filter that has its first name.
fn make(home: &Arc<FilterHome>, key: &str) -> Result<Arc<FilterKey>, MakeError> {
    let filter = home.make(key.as_bytes(), FilterOptions::exact(), ADMIT)?.keep()?;
    let filled = filter.change(|filter| filter.insert(key)).and_then(|()| filter.sync());
    filled.map_err(MakeError::Failed)?;
    Ok(filter)
}

/// The filters of a home by their keys: the first name of each, and when it expires.
type Shown = BTreeMap<String, (String, Option<u64>)>;

fn show(home: &FilterHome) -> Shown {
    let first_name = |filter: &FilterKey| {
        let found = filter.contains(&["a", "b", "c"]).unwrap();
        let names = ["a", "b", "c"].into_iter().zip(found).filter(|(_, is_it)| *is_it);
        names.map(|(name, _)| name).collect::<String>()
    };
    let shown =
        |filter: Arc<FilterKey>| (filter.name(), (first_name(&filter), filter.expires_at()));
    home.filters().into_iter().map(shown).collect()
}

fn shown(filters: &[(&str, &str, Option<u64>)]) -> Shown {
    let one = |(key, first, expiry): &(&str, &str, Option<u64>)| {
        ((*key).to_owned(), ((*first).to_owned(), *expiry))
    };
    filters.iter().map(one).collect()
}

fn remove(key: &str) -> FilterChange {
    FilterChange::Remove(key.into())
}

fn rename(from: &str, to: &str) -> FilterChange {
    FilterChange::Rename { from: from.into(), to: to.into() }
}

fn expire(key: &str, at: u64) -> FilterChange {
    FilterChange::Expire { key: key.into(), at: Some(at) }
}

/// Returns a disk with the filters `a` and `b`, the second in a folder of another name.
fn with_two() -> MemoryDisk {
    let scene = Scene::new(&MemoryDisk::default(), FaultPlan::default());
    let home = scene.open().unwrap();
    make(&home, "a").unwrap();
    let other = home.make(b"x", FilterOptions::exact(), ADMIT).unwrap().keep().unwrap();
    other.change(|filter| filter.insert("b")).unwrap();
    home.apply(&[rename("x", "b")]).unwrap();
    drop((home, other));
    scene.disk.snapshot()
}

/// Cuts the power at each operation of `script` in turn. After each, the home opens, has one of the states that are
/// allowed and no other folders, and can be used.
#[track_caller]
fn check_crashes(script: &dyn Fn(&Arc<FilterHome>, &ManualClock), allowed: &[Shown]) {
    let start = with_two();
    for operation in 0.. {
        let scene = Scene::new(&start, Fault::PowerCut { operation });
        if let Ok(home) = scene.open() {
            script(&home, &scene.clock);
        }
        for seed in 0..4 {
            let left = scene.disk.after_power_cut(seed);
            let after = Scene::new(&left, FaultPlan::default());
            after.clock.advance(Duration::from_millis(1));
            let home = after.open().unwrap();
            let state = show(&home);
            assert!(allowed.contains(&state), "operation {operation}, seed {seed}: {state:?}");
            assert_eq!(after.folders().len(), state.len(), "operation {operation}, seed {seed}");
            for key in ["a", "b", "c"].into_iter().filter(|key| !state.contains_key(*key)) {
                make(&home, key).unwrap();
            }
            drop(home);
            assert_eq!(show(&after.open().unwrap()).len(), 3);
        }
        if scene.disk.operations() <= operation {
            return;
        }
    }
}

const BOTH: [(&str, &str, Option<u64>); 2] = [("a", "a", None), ("b", "b", None)];

#[test]
fn filters_are_removed_together_whenever_the_power_fails() {
    let script = |home: &Arc<FilterHome>, _: &ManualClock| {
        let _ = home.apply(&[remove("a"), remove("b")]);
        home.sweep();
    };
    check_crashes(&script, &[shown(&BOTH), shown(&[])]);
}

#[test]
fn a_filter_that_is_removed_and_made_again_is_never_a_mixture() {
    let script = |home: &Arc<FilterHome>, _: &ManualClock| {
        if home.apply(&[remove("a")]).is_ok() {
            let made = home.make(b"a", FilterOptions::exact(), ADMIT);
            home.sweep();
            drop(made.map(NewFilter::keep));
        }
    };
    let (gone, empty) = (shown(&BOTH[1..]), [("a", "", None), BOTH[1]]);
    check_crashes(&script, &[shown(&BOTH), gone, shown(&empty)]);
}

/// Whatever becomes of the string meanwhile: the filter is not there after a crash until it is kept.
#[test]
fn a_filter_that_is_refused_or_given_up_is_gone_whenever_the_power_fails() {
    let refused: Admit<'_> = &|_| Ok(false);
    for admit in [refused, ADMIT] {
        let script = |home: &Arc<FilterHome>, _: &ManualClock| {
            drop(home.make(b"c", FilterOptions::exact(), admit));
            assert!(home.filter(b"c").is_none());
            home.sweep();
        };
        check_crashes(&script, &[shown(&BOTH)]);
    }
}

#[test]
fn a_filter_is_there_from_the_moment_at_which_it_is_kept() {
    let script = |home: &Arc<FilterHome>, _: &ManualClock| {
        drop(home.make(b"c", FilterOptions::exact(), ADMIT).map(NewFilter::keep));
    };
    let with_new = shown(&[BOTH[0], BOTH[1], ("c", "", None)]);
    check_crashes(&script, &[shown(&BOTH), with_new.clone()]);
    let scene = Scene::new(&with_two(), FaultPlan::default());
    let home = scene.open().unwrap();
    home.make(b"c", FilterOptions::exact(), ADMIT).unwrap().keep().unwrap();
    let after = Scene::new(&scene.disk.after_power_cut(1), FaultPlan::default());
    assert_eq!(show(&after.open().unwrap()), with_new);
}

/// Renaming and expiring say what a new filter is, before who has made it does.
#[test]
fn a_new_filter_that_others_change_is_what_they_have_made_of_it() {
    let scene = Scene::new(&MemoryDisk::default(), FaultPlan::default());
    let home = scene.open().unwrap();
    for (change, left) in [
        (rename("a", "b"), shown(&[("b", "", None)])),
        (expire("a", 100), shown(&[("a", "", Some(100))])),
        (remove("a"), shown(&[])),
    ] {
        let new = home.make(b"a", FilterOptions::exact(), ADMIT).unwrap();
        home.apply(&[change]).unwrap();
        new.keep().unwrap();
        assert_eq!(show(&home), left);
        let after = Scene::new(&scene.disk.after_power_cut(1), FaultPlan::default());
        assert_eq!(show(&after.open().unwrap()), left);
        home.apply(&[remove("a"), remove("b")]).unwrap();
    }
}

#[test]
fn a_filter_is_renamed_over_another_one_whenever_the_power_fails() {
    let script = |home: &Arc<FilterHome>, _: &ManualClock| {
        let _ = home.apply(&[rename("a", "b")]);
        home.sweep();
    };
    check_crashes(&script, &[shown(&BOTH), shown(&[("b", "a", None)])]);
}

#[test]
fn a_filter_that_expires_is_whole_or_gone_whenever_the_power_fails() {
    let script = |home: &Arc<FilterHome>, clock: &ManualClock| {
        let _ = home.apply(&[expire("a", 100)]);
        clock.advance(Duration::from_millis(100));
        assert!(home.filter(b"a").is_none_or(|filter| filter.expires_at().is_none()));
        home.sweep();
    };
    // The clock of the next start goes back; a filter whose removal had begun does not come back.
    let expiring = [("a", "a", Some(100)), BOTH[1]];
    check_crashes(&script, &[shown(&BOTH), shown(&expiring), shown(&BOTH[1..])]);
}

/// After each call that is refused, the home is as it was or as it should be, says which, and stays so.
#[test]
fn changes_that_fail_change_nothing_and_the_next_sweep_makes_that_sure() {
    let start = with_two();
    let (before, after) = (shown(&BOTH), shown(&[("b", "a", None)]));
    for operation in 0.. {
        let scene = Scene::new(&start, Fault::Failure { operation });
        let Ok(home) = scene.open() else { continue };
        let applied = home.apply(&[rename("a", "b")]);
        let expected = if applied.is_ok() { &after } else { &before };
        assert_eq!(&show(&home), expected, "operation {operation}");
        scene.disk.heal();
        home.sweep();
        assert_eq!(&show(&home), expected, "operation {operation}");
        assert_eq!(scene.folders().len(), expected.len());
        drop(home);
        assert_eq!(&show(&scene.open().unwrap()), expected, "operation {operation}");
        if scene.disk.operations() <= operation {
            return;
        }
    }
}

#[test]
fn names_are_free_at_once_and_folders_after_a_sweep() {
    let scene = Scene::new(&MemoryDisk::default(), FaultPlan::default());
    let home = scene.open().unwrap();
    make(&home, "a").unwrap();
    assert!(matches!(make(&home, "a"), Err(MakeError::Exists)));
    home.apply(&[remove("a"), remove("nope")]).unwrap();
    assert_eq!(scene.memory.reserved(), 0);
    make(&home, "a").unwrap();
    assert_eq!(scene.memory.reserved(), MEMORY_BYTES as u64);
    assert_eq!(scene.folders(), ["a", "a.1"]);
    home.sweep();
    assert_eq!(scene.folders(), ["a.1"]);
    home.apply(&[rename("a", "b")]).unwrap();
    make(&home, "a").unwrap();
    home.apply(&[rename("a", "c")]).unwrap();
    make(&home, "a").unwrap();
    assert_eq!(scene.folders(), ["a", "a.1", "a.2"]);
    let all = show(&home);
    assert_eq!(all, shown(&[("a", "a", None), ("b", "a", None), ("c", "a", None)]));
    drop(home);
    let home = scene.open().unwrap();
    assert_eq!(show(&home), all);
    assert_eq!(scene.memory.reserved(), 3 * MEMORY_BYTES as u64);
    home.apply(&[rename("b", "a"), remove("c")]).unwrap();
    home.sweep();
    assert_eq!(scene.folders(), ["a.1"]);
    assert_eq!(show(&home), shown(&[("a", "a", None)]));
}

#[test]
fn a_filter_that_has_expired_gives_its_name_and_its_place_back() {
    let scene = Scene::new(&MemoryDisk::default(), FaultPlan::default());
    let home = scene.open().unwrap();
    make(&home, "a").unwrap();
    home.apply(&[expire("a", 50)]).unwrap();
    home.apply(&[rename("a", "b")]).unwrap();
    drop(home);
    let home = scene.open().unwrap();
    assert_eq!(show(&home), shown(&[("b", "a", Some(50))]));
    scene.clock.advance(Duration::from_millis(49));
    assert!(home.filter(b"b").is_some());
    scene.clock.advance(Duration::from_millis(1));
    assert!(home.filter(b"b").is_none() && home.filters().is_empty());
    make(&home, "b").unwrap();
    assert_eq!(scene.memory.reserved(), MEMORY_BYTES as u64);
    home.sweep();
    assert_eq!(scene.folders(), ["b"]);
    home.apply(&[expire("b", 60)]).unwrap();
    drop(home);
    scene.clock.advance(Duration::from_millis(10));
    let home = scene.open().unwrap();
    assert!(home.filters().is_empty() && scene.folders().is_empty());
}

#[test]
fn a_key_whose_admission_panics_can_be_made_again() {
    let scene = Scene::new(&MemoryDisk::default(), FaultPlan::default());
    let home = scene.open().unwrap();
    let panics: Admit<'_> = &|_| panic!("expected");
    let made = catch_unwind(AssertUnwindSafe(|| {
        drop(home.make(b"a", FilterOptions::exact(), panics));
    }));
    assert!(made.is_err());
    make(&home, "a").unwrap();
    assert_eq!(show(&home), shown(&[("a", "a", None)]));
}

#[test]
fn a_filter_that_has_just_become_visible_counts_once() {
    let scene = Scene::new(&MemoryDisk::default(), FaultPlan::default());
    let home = scene.open().unwrap();
    let others = FILTERS_MAX - 2;
    (0..others).for_each(|i| _ = make(&home, &i.to_string()).unwrap());
    let admit: Admit<'_> = &|show| {
        show();
        make(&home, "last").unwrap();
        Ok(true)
    };
    let _made = home.make(b"a", FilterOptions::exact(), admit).unwrap();
    assert_eq!(home.filters().len(), FILTERS_MAX);
    assert!(matches!(make(&home, "more"), Err(MakeError::TooMany(FILTERS_MAX))));
}
