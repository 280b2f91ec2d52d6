//! `--memory` of the filter verbs: the peak RSS of each command.

use crate::{filter::lines, support::Work};

/// The memory budget of every command below, in bytes.
const BUDGET: u64 = 64 << 20;
/// Maximum peak RSS of a command. For any filter, the limit is the budget plus 10 % and 30 MiB for
/// the program; the filters here are so small that the budget itself suffices.
const PEAK_MAX: u64 = BUDGET;

/// Runs a command on these lines. Checks its exit code and its memory.
#[track_caller]
fn check(work: &Work, line: &str, input: &[u8], code: i32) {
    let (outcome, memory) = work.measured(&format!("{line} --memory 64MiB"), input);
    let highest = memory.peak_bytes;
    assert_eq!(outcome.code, code, "{line}: {}", outcome.stderr);
    assert!(highest <= PEAK_MAX, "{line}: {} MiB of {} MiB", highest >> 20, PEAK_MAX >> 20);
}

/// Issue 10: each run kept buffers of lookups, and lookups stored a note per key and run.
/// `contains` took 70 MiB here and 280 MiB with 300 million keys. `add --unique` took more with
/// each batch: 274 MiB after 120 million keys.
#[test]
fn filters_keep_to_their_memory() {
    let work = Work::new();
    work.ok("filter create f --exact --seed 7");
    work.ok("filter create g --exact --seed 7");
    check(&work, "filter add f --unique", &lines(0..500_000), 0);
    check(&work, "filter add f", &lines(500_000..3_000_000), 0);
    check(&work, "filter add g", &lines(2_500_000..3_500_000), 0);
    check(&work, "filter add f --unique", &lines(2_900_000..3_200_000), 0);
    let every_third = lines((0..4_500_000).step_by(3));
    check(&work, "filter contains f --keys -", &every_third, 1);
    check(&work, "filter remove f", &every_third, 0);
    check(&work, "filter merge f g", b"", 0);
    check(&work, "filter contains f --keys - --counts", &every_third, 1);
    let stat: serde_json::Value =
        serde_json::from_str(work.ok("filter stat f --json").text()).unwrap();
    let in_f = (0..3_200_000).filter(|i| i % 3 != 0 || *i >= 2_500_000);
    let expected = in_f.chain(3_200_000..3_500_000).count();
    assert_eq!(stat["keys_max"], expected);
}
