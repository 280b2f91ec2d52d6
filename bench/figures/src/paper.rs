//! The values that the paper on entropy-coded tries and the posts on Voldemort and on the Summarizer state, in text
//! and tables.

/// The best build of a scheme: Tables 3 and 5.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    pub scheme: &'static str,
    pub cores: usize,
    pub items_per_s: f64,
    pub memory_mib: f64,
}

const fn best(scheme: &'static str, cores: usize, kilo_items_per_s: u32, memory_mib: u32) -> Best {
    let items_per_s = kilo_items_per_s as f64 * 1e3;
    Best { scheme, cores, items_per_s, memory_mib: memory_mib as f64 }
}

/// 16 M items: URLs of 111 bytes on average with values of 1000 bytes.
pub const TABLE_3: [Best; 6] = [
    best("ECT Sort", 4, 151, 1024),
    best("ECT Sort", 1, 138, 512),
    best("EPH Sort", 4, 141, 512),
    best("EPH Sort", 1, 122, 512),
    best("EPH Part", 4, 119, 192),
    best("EPH Part", 1, 114, 192),
];

/// Number of items of Table 3.
pub const TABLE_3_ITEMS: f64 = 16e6;

/// 1 G items: keys of 64 bytes, hashed to 12, with values of 4 bytes.
pub const TABLE_5: [Best; 6] = [
    best("ECT Sort", 4, 591, 1024),
    best("ECT Sort", 1, 455, 512),
    best("EPH Sort", 4, 385, 1024),
    best("EPH Sort", 1, 322, 384),
    best("EPH Part", 4, 371, 2048),
    best("EPH Part", 1, 369, 2048),
];

/// Number of items of Table 5.
pub const TABLE_5_ITEMS: f64 = 1e9;

/// A row of Table 1.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub scheme: &'static str,
    pub bits_per_key: f64,
    pub lookup_us: f64,
    pub note: &'static str,
}

pub const TABLE_1: [Summary; 3] = [
    Summary { scheme: "EPH", bits_per_key: 3.8, lookup_us: 0.6, note: "minimal perfect hashing" },
    Summary {
        scheme: "MMPH",
        bits_per_key: 4.4,
        lookup_us: 7.0,
        note: "hollow tries: at least 4.4 bits; time as in the paper on MMPH",
    },
    ECT,
];

/// ECT with g = 256 and hmax = 64, in Table 1 and section 4.5.
pub const ECT: Summary =
    Summary { scheme: "ECT", bits_per_key: 2.5, lookup_us: 7.0, note: "g = 256, hmax = 64" };

/// A row of Table 4: 8 M random lookups in 16 M items, by 16 threads.
#[derive(Clone, Copy, Debug)]
pub struct Lookups {
    pub scheme: &'static str,
    pub queries_per_s: f64,
    pub cpu_s: f64,
}

pub const TABLE_4: [Lookups; 2] = [
    Lookups { scheme: "EPH", queries_per_s: 69.16e3, cpu_s: 139.76 },
    Lookups { scheme: "ECT", queries_per_s: 64.02e3, cpu_s: 217.75 },
];

/// Number of queries of Table 4.
pub const TABLE_4_QUERIES: f64 = 8e6;

/// Section 2.4: the size of a large trie approaches this number of bits per key.
pub const TRIE_BITS_APPROACH: f64 = 2.5;

/// Section 2.6: sparse tries of 256 keys take fewer bits per key than this with eight items per
/// block.
pub const SPARSE_BITS_BELOW: f64 = 1.0;
pub const SPARSE_BLOCK: usize = 8;

/// The machine of section 4.1, for notes.
pub const MACHINE: &str = "Intel Core i7 860 (4 cores, 2.80 GHz), 4 GiB DRAM, RAID-0 of three \
    Intel SSD 510 (each up to 265 MB/s read and 200 MB/s write)";

/// Section 4.4: with five updates, updating is faster than rebuilding by more than this fraction.
pub const FIGURE_9_GAIN: f64 = 0.2;
/// Number of items in each batch, the first one included.
pub const FIGURE_9_BATCH: u64 = 4_000_000;
/// Number of batches after the first one.
pub const FIGURE_9_UPDATES: u64 = 5;

/// A million requests of a recorded stream to one node with 100 GB of data, from the post.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    pub system: &'static str,
    pub per_s: f64,
    pub median_ms: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
}

pub const REQUESTS: [Requests; 2] = [
    Requests { system: "MySQL", per_s: 727.0, median_ms: 0.23, mean_ms: 13.7, p99_ms: 127.2 },
    Requests { system: "Voldemort", per_s: 1291.0, median_ms: 0.05, mean_ms: 7.7, p99_ms: 100.7 },
];

/// A build of the post.
#[derive(Clone, Copy, Debug)]
pub struct StoreBuild {
    pub system: &'static str,
    pub input_gb: f64,
    pub minutes: f64,
    pub how: &'static str,
}

pub const STORE_BUILDS: [StoreBuild; 4] = [
    hadoop(100.0, 28.0, "400 mappers, 90 reducers"),
    hadoop(512.0, 136.0, "2313 mappers, 350 reducers"),
    hadoop(1024.0, 339.0, "4608 mappers, 700 reducers"),
    StoreBuild { system: "MySQL", input_gb: 100.0, minutes: 363.0, how: "1 machine, RAID 10" },
];

const fn hadoop(input_gb: f64, minutes: f64, how: &'static str) -> StoreBuild {
    StoreBuild { system: "Voldemort on Hadoop", input_gb, minutes, how }
}

/// The machines of the post, for notes.
pub const POST_MACHINE: &str = "EC2 extra large instances of 2009: 15 GB of RAM, 4 local disks in \
    RAID 10";

/// The machine of the paper on cascade filters, section 3, for notes.
pub const CASCADE_MACHINE: &str = "Intel Xeon E5530 (4 cores, 2.4 GHz) booted with 0.994 GB of RAM, \
    Intel X-25M 160 GB SATA SSD";

/// Number of keys inserted into its cascade filter: 8.59 billion. The next constant is the rate.
pub const CASCADE_KEYS: f64 = 8.59e9;
pub const CASCADE_INSERTIONS_PER_S: f64 = 670e3;
/// Insertions per second with a fourth bit per element, for tombstones.
pub const CASCADE_TOMBSTONES_PER_S: f64 = 630e3;

/// The paper's quotient filter compared with a Bloom filter, in memory, for the same number of
/// elements and the same false-positive rate.
#[derive(Clone, Copy, Debug)]
pub struct InRam {
    pub filter: &'static str,
    pub million_inserts_per_s: f64,
    pub million_lookups_per_s: f64,
    /// Section 2: size at load 3/4, divided by the size of a Bloom filter with ten hash functions.
    pub size_by_bloom: f64,
}

pub const IN_RAM: [InRam; 2] = [
    InRam {
        filter: "Bloom filter",
        million_inserts_per_s: 0.69,
        million_lookups_per_s: 1.9,
        size_by_bloom: 1.0,
    },
    InRam {
        filter: "quotient filter",
        million_inserts_per_s: 2.4,
        million_lookups_per_s: 2.0,
        size_by_bloom: 1.2,
    },
];

/// Lookups of absent keys on flash.
#[derive(Clone, Copy, Debug)]
pub struct FlashLookups {
    pub filter: &'static str,
    pub reads: f64,
    pub lookups_per_s: f64,
}

pub const FLASH_LOOKUPS: [FlashLookups; 2] = [
    FlashLookups { filter: "cascade filter", reads: 6.0, lookups_per_s: 530.0 },
    FlashLookups { filter: "Bloom filter", reads: 2.0, lookups_per_s: 1609.0 },
];

/// Random reads of 4 KiB per second of the paper's drive.
pub const DEVICE_READS_PER_S: f64 = 3218.0;

/// Messages parsed per second, as the post on the Summarizer states.
#[derive(Clone, Copy, Debug)]
pub struct Parsing {
    pub queue: &'static str,
    /// Network threads, which put messages into the queue.
    pub producers: f64,
    pub per_s: f64,
}

pub const PARSING: [Parsing; 2] = [
    // The largest rate, with any number of network threads.
    Parsing { queue: "no queue", producers: 4.0, per_s: 130e3 },
    // Four network threads of 60,000 messages each, with the best number of parsers.
    Parsing { queue: "a queue, four threads", producers: 4.0, per_s: 240e3 },
];

/// What a third consumer changes with an ArrayBlockingQueue: "a 50% drop in throughput".
pub const THIRD_CONSUMER_PERCENT: f64 = -50.0;

/// Events summarised per second, as the post states.
#[derive(Clone, Copy, Debug)]
pub struct Summarizing {
    pub system: &'static str,
    pub per_s: f64,
}

pub const SUMMARIZER: [Summarizing; 3] = [
    Summarizing { system: "goal, v1", per_s: 200e3 },
    Summarizing { system: "one lock, v1", per_s: 60e3 },
    Summarizing { system: "one lock, v2", per_s: 10e3 },
];

/// What the post measured, for notes.
pub const SUMMARIZER_NOTE: &str = "Java 6 and 7 with Netty; queues of 2048 messages between network threads and parsers, and \
    between parsers and summaries; v1: CSV, v2: nested JSON";
pub const SUMMARIZER_MACHINE: &str =
    "production servers with Nehalem processors, not described further";
