//! SAL-hashing, simulated: sets, log regions, merges and virtual splits.

use super::{
    buffer::{Buffer, Page, Policy},
    device::{Counts, NVME, Request},
    groups::{Groups, SET_GROUPS_MAX, address, bucket_page, head_page, page_group},
    index::Index,
    rivals::records_max,
    theory::{
        BUCKET_RECORDS, LOG_PAGE_RECORDS, LOG_RECORD_SIZE, PAGE_SIZE, REGION_PAGES_MAX,
        WRITE_COST_LIMIT, Writes, merged_by, unstable_lookups,
    },
};
use crate::dice::Dice;

/// Pages of virtual splits, and of log regions, have numbers from here on.
const VIRTUAL: Page = 1 << 40;
const LOG: Page = 1 << 41;
/// False-positive rate of a Bloom filter in a log-head, which the paper does not give: 16 filters fit a
/// page at this rate.
const PAGE_FALSE_POSITIVES: f64 = 0.01;
/// False-positive rate of a Bloom filter in memory, of 12 bits per key.
const MEMORY_FALSE_POSITIVES: f64 = 0.0031;
/// Largest part of the memory that is the log buffer.
const LOG_BUFFER_PART: f64 = 0.15;
/// Part of the memory that is the log buffer at first: 4 MB of 64 MB.
const LOG_BUFFER_START: f64 = 1.0 / 16.0;
/// Part of the limit on the cost of writes that flushes may take.
const FLUSH_PART: f64 = 0.5;
const LOOKUPS_MAX: u32 = 255;
const PACKETS_MAX: usize = 64;
/// Size of the header of a list in an appended segment.
const HEADER_BYTES: u64 = 32;

/// Where log records and filters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As in the paper: a log-head page and log pages for each set, written in place.
    Paper,
    /// As in Hashfold: filters in memory, lists of many sets appended together.
    Packed,
}

/// The sizes of a simulated index.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Buckets in a group.
    pub group: u64,
    /// Memory of page buffer and log buffer, in pages.
    pub memory: usize,
}

/// The log region of a set.
#[derive(Clone, Debug, Default)]
struct Region {
    /// Log pages and their numbers of records, oldest first.
    pages: Vec<(Page, u32)>,
    /// New keys among the records.
    fresh: u32,
    /// A merge is due when its probability by the number of lookups so far exceeds this number.
    threshold: f64,
}

impl Region {
    fn records(&self) -> u32 {
        self.pages.iter().map(|(_, records)| records).sum()
    }
}

/// A set: the list of its changes in the log buffer, and its log region.
#[derive(Clone, Debug, Default)]
struct Set {
    list: u32,
    /// New keys in the list.
    fresh: u32,
    lookups: u32,
    region: Option<Region>,
}

/// How the simulated index behaved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    pub merges: u64,
    /// Merges that the online rule decided.
    pub drawn_merges: u64,
    pub flushes: u64,
    /// Halves of a virtual split that overflowed.
    pub double_overflows: u64,
}

#[derive(Clone, Debug)]
pub struct Sal {
    layout: Layout,
    sizes: Sizes,
    buffer: Buffer,
    dice: Dice,
    groups: Groups,
    sets: Vec<Set>,
    /// Records in the page of each bucket, and in the page of its virtual split.
    buckets: Vec<u32>,
    virtuals: Vec<Option<u32>>,
    records: u64,
    logged: u64,
    log_pages: f64,
    /// Mean cost of flushes, in page writes per change.
    flush_cost: f64,
    /// Flushes and merges since the last one that was too expensive.
    calm: usize,
    /// The set of each log page, in the order of their numbers; the first has number `LOG + 1`.
    log_sets: Vec<u64>,
    has_page_buffer: bool,
    hand: usize,
    /// Requests that do not go through the buffer.
    direct: Counts,
    pub events: Events,
}

impl Sal {
    pub fn new(layout: Layout, sizes: Sizes, mut buffer: Buffer, dice: Dice) -> Sal {
        let part = match layout {
            Layout::Paper => LOG_BUFFER_START,
            // No flush is expensive enough to make this log buffer grow.
            Layout::Packed => LOG_BUFFER_PART,
        };
        let log_pages = (sizes.memory as f64 * part).max(1.0);
        buffer.resize(sizes.memory - log_pages as usize);
        let buckets = 2 * sizes.group as usize;
        Sal {
            layout,
            sizes,
            buffer,
            dice,
            groups: Groups::new(),
            sets: vec![Set::default(); 2],
            buckets: vec![0; buckets],
            virtuals: vec![None; buckets],
            records: 0,
            logged: 0,
            log_pages,
            flush_cost: 0.0,
            calm: 0,
            log_sets: Vec::new(),
            has_page_buffer: true,
            hand: 0,
            direct: Counts::default(),
            events: Events::default(),
        }
    }

    pub fn set_policy(&mut self, policy: Policy) {
        self.buffer.set_policy(policy);
    }

    pub fn set_memory(&mut self, pages: usize) {
        self.sizes.memory = pages;
        self.resize(self.log_pages);
    }

    /// Goes on without a page buffer: the memory beside the log buffer is not used.
    pub fn drop_page_buffer(&mut self) {
        self.has_page_buffer = false;
        self.resize(self.log_pages);
    }

    /// Starts to record requests to the device.
    ///
    /// # Panics
    /// If the layout is packed: its appended segments belong to no group.
    pub fn record(&mut self) {
        assert_eq!(self.layout, Layout::Paper);
        self.buffer.record();
    }

    /// Returns the recorded requests in their order, and forgets them.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.buffer.take_requests()
    }

    pub fn group_count(&self) -> u64 {
        self.groups.count()
    }

    /// Returns the group that a page belongs to, and whether the page is in its log region.
    pub fn owner(&self, page: Page) -> (u64, bool) {
        match page {
            LOG.. => (self.log_sets[(page - LOG - 1) as usize], true),
            VIRTUAL.. => ((page - VIRTUAL) / self.sizes.group, false),
            _ => page_group(page, self.sizes.group),
        }
    }

    /// Returns the records in buckets, in log regions and in the log buffer, new keys only.
    #[cfg(test)]
    pub fn all_records(&self) -> u64 {
        let pages: u32 = self.buckets.iter().sum();
        let virtuals: u32 = self.virtuals.iter().flatten().sum();
        let fresh = |set: &Set| set.fresh + set.region.as_ref().map_or(0, |region| region.fresh);
        u64::from(pages + virtuals + self.sets.iter().map(fresh).sum::<u32>())
    }

    /// Returns the number of groups of the largest set.
    #[cfg(test)]
    pub fn largest_set(&self) -> usize {
        let owners = (0..self.groups.count()).filter(|&group| self.groups.owner(group) == group);
        owners.map(|set| self.groups.members(set).count()).max().unwrap_or(0)
    }

    fn set_of(&self, hash: u64) -> (u64, u64) {
        let bucket = address(hash, self.buckets.len() as u64);
        (self.groups.owner(bucket / self.sizes.group), bucket)
    }

    fn slots(&self, group: u64) -> std::ops::Range<usize> {
        let first = (group * self.sizes.group) as usize;
        first..first + self.sizes.group as usize
    }

    /// Returns the number of pages of virtual splits of a group.
    fn virtual_count(&self, group: u64) -> usize {
        self.virtuals[self.slots(group)].iter().flatten().count()
    }

    fn writes(&self) -> Writes {
        let coarse = NVME.write_pages(self.sizes.group) / self.sizes.group as f64;
        Writes {
            records: self.records as f64,
            group: self.sizes.group as f64,
            coarse_gain: NVME.write / coarse,
        }
    }

    fn false_positives(&self) -> f64 {
        match self.layout {
            Layout::Paper => PAGE_FALSE_POSITIVES,
            Layout::Packed => MEMORY_FALSE_POSITIVES,
        }
    }

    fn log_bytes(&self) -> f64 {
        self.log_pages * PAGE_SIZE
    }

    fn log_capacity(&self) -> u64 {
        let bytes = self.log_bytes() - 2.0 * self.groups.count() as f64;
        (bytes / LOG_RECORD_SIZE).max(1.0) as u64
    }

    /// Returns how many lookups in a region cost as much as merging it, with this number of log pages.
    fn merge_cost(&self, set: u64, log_pages: usize) -> u32 {
        let members = self.groups.members(set).count() as f64;
        let virtuals = self.virtual_count(set) as f64;
        let written = if members > 1.0 { 0.0 } else { virtuals };
        let heads = if self.layout == Layout::Paper { 1.0 } else { 0.0 };
        let pages = log_pages as f64;
        let group = self.sizes.group;
        let time = (heads + pages + virtuals) * NVME.read
            + NVME.read_pages(group)
            + members * NVME.write_pages(group)
            + written * NVME.write;
        let lookup = (heads + pages * self.false_positives()) * NVME.read;
        (time / lookup).ceil().clamp(1.0, f64::from(LOOKUPS_MAX)) as u32
    }

    fn add_group(&mut self) {
        let set = self.groups.add();
        self.sets.push(Set::default());
        let count = self.buckets.len() + self.sizes.group as usize;
        self.buckets.resize(count, 0);
        self.virtuals.resize(count, None);
        if self.groups.members(set).count() >= SET_GROUPS_MAX {
            self.merge(set);
        }
    }

    fn log(&mut self, hash: u64, is_new: bool) {
        let (set, _) = self.set_of(hash);
        let list = &mut self.sets[set as usize];
        list.list += 1;
        list.fresh += u32::from(is_new);
        self.logged += 1;
        while self.logged >= self.log_capacity() {
            let victim = self.victim();
            self.flush(victim);
        }
    }

    /// Chooses the set whose list leaves the full log buffer.
    fn victim(&mut self) -> u64 {
        let lists = self.sets.iter().filter(|set| set.list > 0).count();
        let mean = (self.log_capacity() / lists.max(1) as u64) as u32;
        let largest = |sets: &[Set], is_wanted: &dyn Fn(&Set) -> bool| {
            let wanted = sets.iter().enumerate().filter(|(_, set)| is_wanted(set));
            wanted.max_by_key(|(_, set)| set.list).map(|(i, _)| i as u64)
        };
        let with_region = |set: &Set| set.list > mean && set.region.is_some();
        if let Some(set) = largest(&self.sets, &with_region) {
            return set;
        }
        let large = self.writes().list_records(self.writes().buffer_bytes());
        let limit = unstable_lookups(self.merge_cost(self.hand_set(), 1));
        // Counters of lookups fall by half in each pass.
        for _ in 0..8 * self.sets.len() {
            self.hand = (self.hand + 1) % self.sets.len();
            let set = &mut self.sets[self.hand];
            let is_full = f64::from(set.list) > large && set.list > 0;
            if is_full || (set.list > mean && set.lookups < limit) {
                return self.hand as u64;
            }
            if set.region.is_none() {
                set.lookups /= 2;
            }
        }
        largest(&self.sets, &|set| set.list > 0).expect("a full log buffer has lists")
    }

    /// Returns a set, whose merge costs stand for those of all.
    fn hand_set(&self) -> u64 {
        self.groups.owner(self.hand as u64)
    }

    fn flush(&mut self, set: u64) {
        self.events.flushes += 1;
        let records = self.sets[set as usize].list;
        let cost = if self.layout == Layout::Paper { 2.0 / f64::from(records) } else { 0.0 };
        self.flush_cost += (cost - self.flush_cost) / 32.0;
        let is_merged = match self.layout {
            Layout::Paper => !self.append_in_place(set),
            Layout::Packed => !self.append_packed(set),
        };
        if is_merged {
            self.merge(set);
            return;
        }
        let list = &mut self.sets[set as usize];
        self.logged -= u64::from(std::mem::take(&mut list.list));
        let fresh = std::mem::take(&mut list.fresh);
        list.region.as_mut().expect("records were appended").fresh += fresh;
        self.adapt_to_flush();
    }

    /// Takes the region of a set, or a new one, whose threshold is drawn. Returns whether it is new.
    fn take_region(&mut self, set: u64) -> (Region, bool) {
        match self.sets[set as usize].region.take() {
            Some(region) => (region, false),
            None => {
                self.sets[set as usize].lookups = 0;
                (Region { threshold: self.dice.unit(), ..Region::default() }, true)
            }
        }
    }

    /// Appends the list of a set to its log pages. Returns whether there is room.
    fn append_in_place(&mut self, set: u64) -> bool {
        let (mut region, is_new) = self.take_region(set);
        let mut records = self.sets[set as usize].list;
        let room = region.pages.last().map_or(0, |(_, records)| LOG_PAGE_RECORDS - records);
        let more = records.saturating_sub(room).div_ceil(LOG_PAGE_RECORDS);
        let has_room = region.pages.len() + more as usize <= REGION_PAGES_MAX;
        if has_room {
            if let Some((page, count)) = region.pages.last_mut().filter(|_| room > 0) {
                let part = records.min(room);
                *count += part;
                records -= part;
                self.buffer.modify(*page);
            }
            while records > 0 {
                let part = records.min(LOG_PAGE_RECORDS);
                let page = self.new_page(set);
                self.buffer.create(page);
                region.pages.push((page, part));
                records -= part;
            }
            let head = head_page(set, self.sizes.group);
            if is_new { self.buffer.create(head) } else { self.buffer.modify(head) }
        }
        self.sets[set as usize].region = (has_room || !is_new).then_some(region);
        has_room
    }

    /// Appends the list of a set to the open segment. Returns whether its region has room.
    fn append_packed(&mut self, set: u64) -> bool {
        let (mut region, is_new) = self.take_region(set);
        let mut records = self.sets[set as usize].list;
        let most = LOG_PAGE_RECORDS * REGION_PAGES_MAX as u32;
        let packets = region.pages.len() + records.div_ceil(LOG_PAGE_RECORDS) as usize;
        let has_room = region.records() + records <= most && packets <= PACKETS_MAX;
        while has_room && records > 0 {
            let part = records.min(LOG_PAGE_RECORDS);
            region.pages.push((self.new_page(set), part));
            self.direct.appended_bytes += u64::from(part) * LOG_RECORD_SIZE as u64 + HEADER_BYTES;
            records -= part;
        }
        self.sets[set as usize].region = (has_room || !is_new).then_some(region);
        has_room
    }

    fn new_page(&mut self, set: u64) -> Page {
        self.log_sets.push(set);
        LOG + self.log_sets.len() as u64
    }

    /// Merges the list and the region of a set into its buckets, and splits it.
    fn merge(&mut self, set: u64) {
        self.events.merges += 1;
        let Set { list, mut fresh, region, .. } = std::mem::take(&mut self.sets[set as usize]);
        self.logged -= u64::from(list);
        let mut merged = list;
        if let Some(region) = region {
            fresh += region.fresh;
            merged += region.records();
            for &(page, _) in &region.pages {
                self.buffer.fetch_for_merge(page);
                self.buffer.forget(page);
            }
            self.buffer.forget(head_page(set, self.sizes.group));
        }
        self.direct.coarse_reads += 1;
        self.buffer.note(Request::ReadGroup(set));
        let records = self.take_buckets(set, fresh);
        self.write_buckets(set, &records);
        self.groups.split(set);
        self.adapt_to_merge(f64::from(merged.max(1)));
    }

    /// Reads the records of a set. Returns their numbers by bucket of the group, with the new ones.
    fn take_buckets(&mut self, set: u64, fresh: u32) -> Vec<u32> {
        let slots = self.slots(set);
        let mut records = self.buckets[slots.clone()].to_vec();
        for (i, slot) in slots.enumerate() {
            if let Some(more) = self.virtuals[slot].take() {
                records[i] += more;
                self.buffer.fetch_for_merge(VIRTUAL + slot as u64);
                self.buffer.forget(VIRTUAL + slot as u64);
            }
        }
        for _ in 0..fresh {
            records[self.dice.below(self.sizes.group) as usize] += 1;
        }
        records
    }

    /// Distributes records to the groups of a set and writes each.
    fn write_buckets(&mut self, set: u64, records: &[u32]) {
        let depth = self.groups.depth(set);
        let members: Vec<u64> = self.groups.members(set).collect();
        for &member in &members {
            let slots = self.slots(member);
            self.buckets[slots].fill(0);
            self.direct.coarse_writes += 1;
            self.buffer.note(Request::WriteGroup(member));
        }
        for (i, &count) in records.iter().enumerate() {
            if members.len() == 1 {
                let slot = self.slots(set).start + i;
                self.buckets[slot] = count;
                continue;
            }
            for _ in 0..count {
                let group = address(set | self.dice.bits() << depth, self.groups.count());
                let slot = self.slots(group).start + i;
                self.buckets[slot] += 1;
            }
        }
        for member in members {
            for slot in self.slots(member) {
                self.split_virtually(slot);
            }
        }
    }

    /// Gives a bucket that overflows a second page.
    fn split_virtually(&mut self, slot: usize) {
        let records = self.buckets[slot];
        if records > BUCKET_RECORDS {
            let moved = self.dice.half(records);
            self.buckets[slot] -= moved;
            self.virtuals[slot] = Some(moved);
            self.direct.writes += 1;
            self.buffer.note(Request::WritePage(VIRTUAL + slot as u64));
            let halves = [moved, records - moved];
            let more = halves.iter().filter(|&&half| half > BUCKET_RECORDS).count();
            self.events.double_overflows += more as u64;
        }
    }

    /// Makes the log buffer larger if flushes are too expensive, and smaller after calm times.
    fn adapt_to_flush(&mut self) {
        if self.layout == Layout::Packed {
            return;
        }
        if self.flush_cost > FLUSH_PART * WRITE_COST_LIMIT {
            self.calm = 0;
            self.resize(self.log_pages + 1.0);
            return;
        }
        self.calm += 1;
        if self.calm > 2 * self.sets.len() && self.flush_cost < 0.9 * FLUSH_PART * WRITE_COST_LIMIT
        {
            self.calm = 0;
            self.resize(self.log_pages - 1.0);
        }
    }

    fn adapt_to_merge(&mut self, records: f64) {
        let writes = self.writes();
        if writes.per_change(self.log_bytes(), records) > WRITE_COST_LIMIT {
            self.calm = 0;
            let wanted = writes.buffer_bytes() / PAGE_SIZE - self.log_pages;
            if wanted > 0.0 {
                self.resize(self.log_pages + (wanted / 2.0).ceil());
            }
        }
    }

    fn resize(&mut self, log_pages: f64) {
        let memory = self.sizes.memory as f64;
        let least = (memory * LOG_BUFFER_START).max(1.0);
        let most = (memory * LOG_BUFFER_PART).max(least);
        self.log_pages = log_pages.clamp(least, most);
        let rest = self.sizes.memory - self.log_pages as usize;
        self.buffer.resize(if self.has_page_buffer { rest } else { 0 });
    }

    /// Looks up a key whose place among the records of its set is given; absent keys have none.
    fn look_up(&mut self, hash: u64, place: Option<u64>) {
        let (set, bucket) = self.set_of(hash);
        let list = u64::from(self.sets[set as usize].list);
        let Some(place) = place.map_or(Some(u64::MAX), |place| place.checked_sub(list)) else {
            return;
        };
        if let Some(region) = self.sets[set as usize].region.take() {
            let p = self.merge_cost(set, region.pages.len());
            let lookups = (self.sets[set as usize].lookups + 1).min(LOOKUPS_MAX);
            self.sets[set as usize].lookups = lookups;
            let is_due = merged_by(lookups, p) >= region.threshold;
            let is_found = !is_due && self.look_into(set, &region, place);
            self.sets[set as usize].region = Some(region);
            if is_due {
                self.events.drawn_merges += 1;
                self.merge(set);
            }
            if is_due || is_found {
                return;
            }
        } else {
            let lookups = &mut self.sets[set as usize].lookups;
            *lookups = (*lookups + 1).min(LOOKUPS_MAX);
        }
        self.read_bucket(set, bucket, hash);
    }

    /// Looks up a key in the pages of a region, newest first. Returns whether it is there.
    fn look_into(&mut self, set: u64, region: &Region, mut place: u64) -> bool {
        if self.layout == Layout::Paper {
            self.buffer.fetch(head_page(set, self.sizes.group));
        }
        for &(page, records) in region.pages.iter().rev() {
            if place < u64::from(records) {
                self.buffer.fetch(page);
                return true;
            }
            place -= u64::from(records);
            if self.dice.chance(self.false_positives()) {
                self.buffer.fetch(page);
            }
        }
        false
    }

    fn read_bucket(&mut self, set: u64, bucket: u64, hash: u64) {
        let slot = set * self.sizes.group + bucket % self.sizes.group;
        let bit = self.sizes.group.ilog2() + self.groups.depth(set);
        let is_virtual = self.virtuals[slot as usize].is_some() && hash >> bit & 1 == 1;
        let page = if is_virtual { VIRTUAL + slot } else { bucket_page(slot, self.sizes.group) };
        self.buffer.fetch(page);
    }

    /// Returns the number of records of a set.
    fn set_records(&self, set: u64) -> u64 {
        let slots = self.slots(set);
        let pages: u32 = self.buckets[slots.clone()].iter().sum();
        let virtuals: u32 = self.virtuals[slots].iter().flatten().sum();
        let Set { fresh, region, .. } = &self.sets[set as usize];
        u64::from(pages + virtuals + fresh + region.as_ref().map_or(0, |region| region.fresh))
    }
}

impl Index for Sal {
    fn insert(&mut self, hash: u64) {
        self.records += 1;
        if self.records as f64 > records_max(self.buckets.len() as u64) {
            self.add_group();
        }
        self.log(hash, true);
    }

    fn update(&mut self, hash: u64) {
        self.log(hash, false);
    }

    fn search(&mut self, hash: u64) {
        let (set, _) = self.set_of(hash);
        let place = self.dice.below(self.set_records(set).max(1));
        self.look_up(hash, Some(place));
    }

    fn miss(&mut self, hash: u64) {
        self.look_up(hash, None);
    }

    fn settle(&mut self) {
        for group in 0..self.groups.count() {
            if self.groups.owner(group) == group {
                self.merge(group);
            }
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = self.buffer.counts;
        counts.writes += self.direct.writes;
        counts.coarse_reads = self.direct.coarse_reads;
        counts.coarse_writes = self.direct.coarse_writes;
        counts.appended_bytes = self.direct.appended_bytes;
        counts
    }

    fn fork(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}
