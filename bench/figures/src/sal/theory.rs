//! The formulas of the paper: overflow probabilities, the online merge rule, and the cost of writes.

/// Size of a page in bytes.
pub const PAGE_SIZE: f64 = 4096.0;
/// Number of records of 16 bytes in a bucket page.
pub const BUCKET_RECORDS: u32 = 256;
/// Size of a record in the log, in bytes; 204 fit a page.
pub const LOG_RECORD_SIZE: f64 = 20.0;
pub const LOG_PAGE_RECORDS: u32 = 204;
/// Largest number of pages in a log region; the paper does not give it.
pub const REGION_PAGES_MAX: usize = 16;
/// Largest mean number of records per bucket, as a fraction of a page.
pub const LOAD: f64 = 0.75;
/// Limit on the cost of writes per change, in page writes.
pub const WRITE_COST_LIMIT: f64 = 0.5;
/// Largest number of virtual splits per bucket: the maximum of `splits_per_bucket`.
pub const SPLITS_PER_BUCKET_MAX: f64 = 0.345;

/// Returns the probability that a Poisson variable with this mean is above `max`: formula 4.
pub fn overflow_probability(mean: f64, max: u32) -> f64 {
    let mut log_term = -mean;
    let mut sum = log_term.exp();
    for i in 1..=max {
        log_term += (mean / f64::from(i)).ln();
        sum += log_term.exp();
    }
    (1.0 - sum).max(0.0)
}

/// Returns the mean number of records in a bucket that is not split, for a split factor.
fn unsplit_mean(split_factor: f64) -> f64 {
    (1.0 + split_factor) * LOAD * f64::from(BUCKET_RECORDS)
}

/// Returns the fraction of unsplit buckets that overflow: Figure 2.
pub fn unsplit_overflow(split_factor: f64) -> f64 {
    overflow_probability(unsplit_mean(split_factor), BUCKET_RECORDS)
}

/// Returns the fraction of records in buckets that overflow: Figure 3.
pub fn records_in_overflow(split_factor: f64) -> f64 {
    (1.0 - split_factor) * unsplit_overflow(split_factor)
}

/// Returns the number of virtual splits per bucket.
pub fn splits_per_bucket(split_factor: f64) -> f64 {
    (1.0 - split_factor) / (1.0 + split_factor) * unsplit_overflow(split_factor)
}

/// Returns the probability that lookup `i` of `1..=p` merges: formula 3.
pub fn merge_probability(i: u32, p: u32) -> f64 {
    if !(1..=p).contains(&i) {
        return 0.0;
    }
    let growth = 1.0 + 1.0 / f64::from(p);
    growth.powi(i as i32 - 1) / (f64::from(p) * (growth.powi(p as i32) - 1.0))
}

/// Returns the probability that one of the first `i` lookups merges: the sum of formula 3.
pub fn merged_by(i: u32, p: u32) -> f64 {
    if i >= p {
        return 1.0;
    }
    let log_growth = (1.0 / f64::from(p)).ln_1p();
    (log_growth * f64::from(i)).exp_m1() / (log_growth * f64::from(p)).exp_m1()
}

/// Returns the number of lookups from which a merge is more probable than 80 %.
pub fn unstable_lookups(p: u32) -> u32 {
    (1..=p).find(|&i| merged_by(i, p) > 0.8).unwrap_or(p)
}

/// Returns the cost of the merge rule divided by that of the best choice in hindsight, for the worst
/// number of searches. The search that merges pays its own penalty too, as in formula 3.
pub fn competitive_ratio(p: u32) -> f64 {
    let cost = |searches: u32| {
        let merged: f64 = (1..=searches).map(|i| merge_probability(i, p) * f64::from(i + p)).sum();
        merged + (1.0 - merged_by(searches, p)) * f64::from(searches)
    };
    let ratio = |searches: u32| cost(searches) / f64::from(searches.min(p));
    (1..=p + 1).map(ratio).fold(0.0, f64::max)
}

/// What the cost of writes depends on.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    /// Records in the index.
    pub records: f64,
    /// Buckets in a group.
    pub group: f64,
    /// Ratio of the cost of a page write to that of a page in a coarse write.
    pub coarse_gain: f64,
}

impl Writes {
    /// Returns the number of groups.
    pub fn groups(&self) -> f64 {
        self.records / (f64::from(BUCKET_RECORDS) * LOAD * self.group)
    }

    /// Returns the mean number of records in a list of a log buffer of this size.
    pub fn list_records(&self, buffer_bytes: f64) -> f64 {
        (buffer_bytes - 2.0 * self.groups()) / (LOG_RECORD_SIZE * self.groups())
    }

    /// Returns the page writes per change, with this number of log records per merge: formula 7.
    pub fn per_change(&self, buffer_bytes: f64, merged_records: f64) -> f64 {
        let flush = 2.0 / self.list_records(buffer_bytes);
        flush + self.per_merge() / merged_records
    }

    /// Returns the page writes of a merge.
    fn per_merge(&self) -> f64 {
        self.group / self.coarse_gain + SPLITS_PER_BUCKET_MAX * self.group
    }

    /// Returns the log buffer size in bytes that keeps the worst cost at its limit: formula 8.
    pub fn buffer_bytes(&self) -> f64 {
        let worst = 2.0 + self.per_merge();
        self.groups() * (2.0 + LOG_RECORD_SIZE * worst / WRITE_COST_LIMIT)
    }
}
