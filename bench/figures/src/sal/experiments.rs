//! The experiments of section 4: one round of each, and the paper's statements beside the results.

use super::{
    buffer::{Buffer, Policy},
    engine::{Layout, Sal, Sizes},
    index::Index,
    rivals::Linear,
    splits::split_cycle,
    theory::{self, Writes},
    traces::{Cost, GROUP, Kind, Locality, World},
};

/// Sizes of Trace A in millions of records.
const MILLIONS: [u64; 5] = [10, 20, 40, 80, 160];
const SEARCH_PARTS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Percentages of requests to the hot buckets, of Trace C; 50 is uniform.
const SHARES: [u64; 5] = [50, 60, 70, 80, 90];
/// Buckets at the start of the split cycle of Traces F and G.
const CYCLE: u64 = 1 << 18;
/// Buffer of Trace F as a part of the index.
const CYCLE_BUFFER: f64 = 0.04;
const GROUPS: [u64; 6] = [4, 8, 16, 32, 64, 128];

/// A number of one round.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the file of results.
    pub file: &'static str,
    pub series: String,
    /// Position on the horizontal axis.
    pub x: f64,
    pub columns: Vec<(&'static str, f64)>,
}

/// The results of one round, in an order that is the same in all rounds.
#[derive(Debug, Default)]
pub struct Round(pub Vec<Cell>);

impl Round {
    fn add(&mut self, file: &'static str, series: &str, x: f64, columns: Vec<(&'static str, f64)>) {
        self.0.push(Cell { file, series: series.to_owned(), x, columns });
    }

    /// Returns a column of a series, by x.
    pub fn column(&self, file: &str, series: &str, column: &str) -> Vec<f64> {
        let cells = self.0.iter().filter(|cell| cell.file == file && cell.series == series);
        cells
            .filter_map(|cell| cell.columns.iter().find(|(name, _)| *name == column))
            .map(|(_, number)| *number)
            .collect()
    }

    /// Returns the mean over x of the change of the first series against the second, in percent.
    fn change(&self, file: &str, series: [&str; 2], column: &str) -> f64 {
        let [ours, theirs] = series.map(|series| self.column(file, series, column));
        (mean(&ours) / mean(&theirs) - 1.0) * 100.0
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Runs all experiments once.
pub fn round(world: &World) -> Round {
    let mut round = Round::default();
    for kind in Kind::ALL {
        grow(world, kind, &mut round);
    }
    overflow(world, &mut round);
    split_memory(world, &mut round);
    overflow_curves(&mut round);
    write_costs(&mut round);
    group_sizes(world, &mut round);
    policies(world, &mut round);
    round
}

/// Traces A to E for one index.
fn grow(world: &World, kind: Kind, round: &mut Round) {
    let mut index = world.index(kind, GROUP);
    let mut keys = 0;
    for millions in MILLIONS {
        let end = world.scaled(millions * 1_000_000);
        world.insert(&mut *index, keys, end);
        keys = end;
        let cost = Cost::of(&index.counts(), keys, GROUP);
        round.add("sal-fig6", kind.name(), millions as f64, cost.columns());
        let requests = world.requests(keys, Locality::Uniform);
        let cost = requests.run(&mut *index.fork(), world.operations(), 1.0);
        round.add("sal-fig8a", kind.name(), millions as f64, cost.columns());
        if millions == 80 {
            local_searches(world, kind, &*index, keys, round);
            for (file, locality) in [
                ("sal-fig9", Locality::Uniform),
                ("sal-fig10", Locality::HotBuckets(80)),
                ("sal-hot-sets", Locality::HotGroups(80)),
            ] {
                mixed(world, (file, kind.name()), &*index, (keys, locality), round);
            }
        }
    }
}

/// Trace C.
fn local_searches(world: &World, kind: Kind, index: &dyn Index, keys: u64, round: &mut Round) {
    for share in SHARES {
        let locality = if share == 50 { Locality::Uniform } else { Locality::HotBuckets(share) };
        let requests = world.requests(keys, locality);
        let cost = requests.run(&mut *index.fork(), world.operations(), 1.0);
        round.add("sal-fig8b", kind.name(), share as f64, cost.columns());
    }
}

/// Traces D and E.
fn mixed(
    world: &World,
    (file, series): (&'static str, &str),
    index: &dyn Index,
    (keys, locality): (u64, Locality),
    round: &mut Round,
) {
    for part in SEARCH_PARTS {
        let requests = world.requests(keys, locality);
        let cost = requests.run(&mut *index.fork(), world.operations(), part);
        round.add(file, series, part, cost.columns());
    }
}

/// Trace F: searches at eleven split factors, all log regions merged.
fn overflow(world: &World, round: &mut Round) {
    let buckets = world.scaled(CYCLE);
    let memory = |buckets: f64| (buckets * CYCLE_BUFFER).max(16.0) as usize;
    let mut linear = Linear::new(Buffer::new(Policy::Lru, 16), world.dice(200));
    let sizes = Sizes { group: GROUP, memory: memory(buckets as f64) };
    let buffer = Buffer::new(Policy::Lru, sizes.memory);
    let mut sal = Sal::new(Layout::Paper, sizes, buffer, world.dice(201));
    let mut keys = 0;
    for step in 0..=10 {
        let split_factor = f64::from(step) / 10.0;
        let count = buckets as f64 * (1.0 + split_factor);
        let end = (count * 192.0) as u64;
        world.insert(&mut linear, keys, end);
        world.insert(&mut sal, keys, end);
        keys = end;
        linear.set_memory(memory(count));
        sal.set_memory(memory(count));
        sal.settle();
        let requests = world.requests(keys, Locality::Uniform);
        let both: [(&str, &dyn Index); 2] = [("linear hashing", &linear), ("SAL", &sal)];
        for (name, index) in both {
            let found = requests.run(&mut *index.fork(), world.operations(), 1.0);
            let series = format!("{name}, present keys");
            round.add("sal-fig13", &series, split_factor, vec![("reads", found.reads)]);
            let missed = requests.run_misses(&mut *index.fork(), world.operations());
            let series = format!("{name}, absent keys");
            round.add("sal-fig13", &series, split_factor, vec![("reads", missed.reads)]);
        }
    }
}

/// Trace G, with as many buckets as in the paper: only their numbers of records are needed. Tests scale it.
fn split_memory(world: &World, round: &mut Round) {
    let buckets = if world.scale > 256 { 1 << 12 } else { CYCLE };
    for memory in split_cycle(buckets as usize, 50, &world.dice(300)) {
        let scaled = (CYCLE / buckets) as f64 / 1024.0;
        let kib = |bytes: usize| vec![("kib", bytes as f64 * scaled)];
        round.add("sal-fig14", "memory pages", memory.split_factor, kib(memory.page_bytes));
        round.add("sal-fig14", "addresses alone", memory.split_factor, kib(memory.address_bytes));
    }
}

/// Figures 2 and 3, and the virtual splits per bucket: computed.
fn overflow_curves(round: &mut Round) {
    type Curve = fn(f64) -> f64;
    let curves: [(&str, Curve); 3] = [
        ("unsplit buckets that overflow", theory::unsplit_overflow),
        ("records in buckets that overflow", theory::records_in_overflow),
        ("virtual splits by all buckets", theory::splits_per_bucket),
    ];
    for (series, curve) in curves {
        for split_factor in (0..=50).map(|i| f64::from(i) / 50.0) {
            round.add("sal-fig3", series, split_factor, vec![("part", curve(split_factor))]);
        }
    }
}

/// Figure 15: computed, for 80 million records.
fn write_costs(round: &mut Round) {
    let merged = f64::from(theory::LOG_PAGE_RECORDS) * theory::REGION_PAGES_MAX as f64;
    for group in (2..=9).map(|log| f64::from(1 << log)) {
        let writes = Writes { records: 80e6, group, coarse_gain: 8.0 };
        let cost = writes.per_change(f64::from(4 << 20), merged);
        round.add("sal-fig15", "page writes per change", group, vec![("page_writes", cost)]);
    }
}

/// Trace H.
fn group_sizes(world: &World, round: &mut Round) {
    let keys = world.scaled(80_000_000);
    for kind in [Kind::Sal, Kind::SalPacked] {
        for group in GROUPS {
            let mut index = world.index(kind, group);
            world.insert(&mut *index, 0, keys);
            let before = index.counts();
            let requests = world.requests(keys, Locality::Uniform);
            requests.run(&mut *index, world.operations(), 0.5);
            let counts = index.counts().minus(&before);
            let cost = Cost::of(&counts, world.operations(), group);
            round.add("sal-fig16", kind.name(), group as f64, cost.columns());
        }
    }
}

/// Figures 17 and 18: Trace E by buffer policy, on indexes built with LRU.
fn policies(world: &World, round: &mut Round) {
    let keys = world.scaled(80_000_000);
    let sizes = Sizes { group: GROUP, memory: world.memory() };
    let buffer = || Buffer::new(Policy::Lru, sizes.memory);
    let mut linear = Linear::new(buffer(), world.dice(400));
    let mut sal = Sal::new(Layout::Paper, sizes, buffer(), world.dice(401));
    world.insert(&mut linear, 0, keys);
    world.insert(&mut sal, 0, keys);
    let locality = Locality::HotBuckets(80);
    for (policy, name) in [(Policy::Lru, "LRU"), (Policy::Cfdc, "CFDC"), (Policy::Fd, "FD-buffer")]
    {
        let (mut linear, mut sal) = (linear.clone(), sal.clone());
        linear.set_policy(policy);
        sal.set_policy(policy);
        let both: [(&str, &dyn Index); 2] = [("linear", &linear), ("SAL", &sal)];
        for (index_name, index) in both {
            let series = format!("{index_name}, {name}");
            mixed(world, ("sal-fig17", &series), index, (keys, locality), round);
        }
    }
}

/// A statement of the paper, and the same number from one round.
#[derive(Clone, Debug)]
pub struct Claim {
    pub what: String,
    /// Least and largest value in the paper, on any drive.
    pub paper: (f64, f64),
    /// The paper's layout and filters in memory, by the two cost tables.
    pub ours: Vec<(&'static str, f64)>,
}

/// Returns the paper's statements in order, with the results of one round.
pub fn claims(round: &Round) -> Vec<Claim> {
    let mut claims = Vec::new();
    let names = |kinds: [Kind; 2]| kinds.map(Kind::name);
    let mut plain = |what: &str, paper, number: f64| {
        claims.push(Claim { what: what.to_owned(), paper, ours: vec![("ours", number)] });
    };
    let against = |file: &str, kinds, column: &str| round.change(file, names(kinds), column);
    let lazy = |rival| against("sal-fig6", [Kind::LazySplit, rival], "reads");
    plain("A: reads of lazy-split against linear, %", (9.0, 20.0), lazy(Kind::Linear));
    plain("A: reads of lazy-split against extendible, %", (36.0, 54.0), lazy(Kind::Extendible));
    let writes = against("sal-fig6", [Kind::LazySplit, Kind::Linear], "writes");
    plain("A: writes of lazy-split against linear, %", (-4.0, -4.0), writes);
    let reads = against("sal-fig6", [Kind::BwTree, Kind::Sal], "reads");
    plain("A: reads of the Bw-like tree against SAL, %", (100.0, 100.0), reads);
    let reads = against("sal-fig8a", [Kind::BwTree, Kind::Sal], "reads");
    plain("B: reads of the Bw-like tree against SAL, %", (25.0, 86.0), reads);
    let optimum = round.column("sal-fig14", "addresses alone", "kib");
    let largest = optimum.into_iter().fold(0.0, f64::max);
    plain("G: largest memory of addresses alone, KiB", (512.0, 512.0), largest);
    plain(
        "merge rule: cost by the best in hindsight, p = 100",
        (1.58, 1.58),
        theory::competitive_ratio(100),
    );
    for (policy, paper) in [("CFDC", (-92.0, -35.0)), ("FD-buffer", (-91.0, -36.0))] {
        let series = ["SAL", "linear"].map(|index| format!("{index}, {policy}"));
        let number = round.change("sal-fig17", [&series[0], &series[1]], "nvme_us");
        plain(&format!("E: time of SAL against linear, both with {policy}, %"), paper, number);
    }
    let a = [(Kind::BwTree, (-23.0, -23.0))];
    let d = [
        (Kind::Linear, (-60.0, -52.0)),
        (Kind::LazySplit, (-69.0, -63.0)),
        (Kind::Extendible, (-57.0, -49.0)),
        (Kind::BwTree, (-36.0, -16.0)),
    ];
    let e = [
        (Kind::Linear, (-60.0, -53.0)),
        (Kind::LazySplit, (-69.0, -64.0)),
        (Kind::Extendible, (-59.0, -52.0)),
        (Kind::BwTree, (-25.0, -9.0)),
    ];
    let times = [("A", "sal-fig6", &a[..]), ("D", "sal-fig9", &d[..]), ("E", "sal-fig10", &e[..])];
    for (trace, file, rivals) in times {
        for &(rival, paper) in rivals {
            let what = format!("{trace}: time of SAL against {}, %", rival.name());
            claims.push(Claim { what, paper, ours: changes(round, file, rival) });
        }
    }
    claims
}

/// Returns the changes of the time of both layouts against a rival, by both cost tables.
fn changes(round: &Round, file: &str, rival: Kind) -> Vec<(&'static str, f64)> {
    let of = |kind: Kind, column| round.change(file, [kind.name(), rival.name()], column);
    vec![
        ("paper_layout_nvme", of(Kind::Sal, "nvme_us")),
        ("paper_layout_sata", of(Kind::Sal, "sata_us")),
        ("filters_in_ram_nvme", of(Kind::SalPacked, "nvme_us")),
        ("filters_in_ram_sata", of(Kind::SalPacked, "sata_us")),
    ]
}
