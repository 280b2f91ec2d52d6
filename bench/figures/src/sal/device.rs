//! Counts of I/O, and what they cost.

/// Number of pages of a coarse request in the cost tables.
const COARSE_PAGES: f64 = 16.0;
const PAGE_BYTES: f64 = 4096.0;

/// Requests to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of one page.
    pub reads: u64,
    /// Writes of one page.
    pub writes: u64,
    /// Reads of a whole group.
    pub coarse_reads: u64,
    /// Writes of a whole group.
    pub coarse_writes: u64,
    /// Bytes appended in order, by requests of 64 KiB.
    pub appended_bytes: u64,
}

impl Counts {
    pub fn minus(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            coarse_reads: self.coarse_reads - before.coarse_reads,
            coarse_writes: self.coarse_writes - before.coarse_writes,
            appended_bytes: self.appended_bytes - before.appended_bytes,
        }
    }

    /// Returns the pages appended in order.
    pub fn appended_pages(&self) -> f64 {
        self.appended_bytes as f64 / PAGE_BYTES
    }
}

/// A request to the device. Pages and groups are given by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads a page for a search.
    SearchPage(u64),
    /// Reads a page for a change or a merge.
    ReadPage(u64),
    WritePage(u64),
    ReadGroup(u64),
    WriteGroup(u64),
}

/// The time of requests, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub read: f64,
    pub write: f64,
    /// A request of 16 pages.
    pub coarse_read: f64,
    pub coarse_write: f64,
}

pub const NVME: Device = Device { read: 68.0, write: 54.0, coarse_read: 85.0, coarse_write: 75.0 };
pub const SATA: Device =
    Device { read: 150.0, write: 250.0, coarse_read: 400.0, coarse_write: 800.0 };

impl Device {
    /// Returns the time of a read of this number of pages: linear between the two known sizes.
    pub fn read_pages(&self, pages: u64) -> f64 {
        between(self.read, self.coarse_read, pages)
    }

    pub fn write_pages(&self, pages: u64) -> f64 {
        between(self.write, self.coarse_write, pages)
    }

    /// Returns the time of all requests; coarse ones have this number of pages.
    pub fn microseconds(&self, counts: &Counts, pages: u64) -> f64 {
        counts.reads as f64 * self.read
            + counts.writes as f64 * self.write
            + counts.coarse_reads as f64 * self.read_pages(pages)
            + counts.coarse_writes as f64 * self.write_pages(pages)
            + counts.appended_pages() / COARSE_PAGES * self.coarse_write
    }
}

fn between(one: f64, coarse: f64, pages: u64) -> f64 {
    one + (coarse - one) * (pages as f64 - 1.0) / (COARSE_PAGES - 1.0)
}
