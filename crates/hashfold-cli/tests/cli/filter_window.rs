//! `hashfold filter create --window`: keys are forgotten by the clock (issue 12, point B11).

use crate::{
    filter::{json, refused},
    filter_checkpoints::wait_for,
    support::Work,
};

#[test]
fn a_nightly_job_that_runs_twice_forgets_nothing() {
    let work = Work::new();
    let created = work.ok("filter create f --exact --window 7d");
    let kind = "set, exact, keeps keys for 7d in epochs of 1d";
    assert_eq!(created.text(), format!("created f: {kind}\n"));
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert_eq!(work.feed("filter add f", key.as_bytes()).code, 0);
        assert!(work.ok("filter advance f").text().contains("; 0 epochs dropped, "));
    }
    assert_eq!(work.run("filter contains f a b c d e f g h i j").code, 0);
    let stat = work.ok("filter stat f").text().to_string();
    assert!(stat.starts_with(&format!("filter           {kind}\n")), "{stat}");
    let epochs = stat.lines().find(|line| line.starts_with("epochs ")).unwrap();
    assert!(epochs.contains("; the oldest began ") && epochs.ends_with(" ago"), "{epochs}");
    let stat = json(&work.ok("filter stat f --json"));
    assert_eq!((&stat["window_s"], &stat["epoch_s"]), (&604_800.into(), &86_400.into()));
}

#[test]
fn keys_are_forgotten_by_the_clock_without_any_command() {
    let work = Work::new();
    let add = "filter add f --unique --exact --window 1s --epochs 1";
    assert_eq!(work.feed(add, b"a\n").text(), "a\n");
    wait_for(|| work.run("filter contains f a").code == 1);
    let again = work.feed("filter add f --unique", b"a\na\n");
    assert_eq!((again.code, again.text()), (0, "a\n"));
    // What is too old is dropped from the device, too.
    wait_for(|| work.run("filter contains f a").code == 1);
    work.ok("filter advance f");
    let stat = json(&work.ok("filter stat f --json"));
    assert_eq!(stat["fingerprints"], 0);
}

#[test]
fn a_window_by_time_has_its_own_options() {
    let work = Work::new();
    work.ok("filter create f --exact --window 24h --epochs 24");
    let message = "f: forgets by the clock, because it was made with --window; leave --keep out";
    refused(&work, "filter advance f --keep 3", 2, message);
    let message = "f: was not made with this --window: it is a set, exact, keeps keys for 1d in \
                   epochs of 1h; leave --window out, or name another folder";
    refused(&work, "filter add f --window 7d", 2, message);
    assert_eq!(work.feed("filter add f --window 1d --epochs 24", b"a").code, 0);
    for options in ["--epochs 3", "--window 7", "--window 0s", "--window 7d --epochs 0"] {
        let outcome = work.run(&format!("filter create g --exact {options}"));
        assert_eq!(outcome.code, 2, "{options}: {outcome:?}");
    }
    assert!(!work.path("g").exists());
}
