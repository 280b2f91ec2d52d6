//! The page buffer and its replacement policies.

use super::device::{Counts, NVME, Request};
use std::collections::{BTreeMap, HashMap};

/// Number of a page on the device.
pub type Page = u64;

/// Pages that CFDC writes as one cluster are in one aligned range of this size.
const CLUSTER_PAGES: u64 = 64;
/// Part of a buffer that is CFDC's priority region.
const PRIORITY_PART: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used.
    Lru,
    /// Clean first, then clustered dirty pages (Ou, Härder and Jin, 2009).
    Cfdc,
    /// Separate pools of clean and dirty pages, whose sizes adapt to their hits (2014).
    Fd,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    stamp: u64,
    is_dirty: bool,
}

/// Pages in order of their last use.
#[derive(Clone, Debug, Default)]
struct Queue(BTreeMap<u64, Page>);

impl Queue {
    fn oldest(&self) -> Option<Page> {
        self.0.first_key_value().map(|(_, &page)| page)
    }
}

/// A write-back buffer of pages that counts requests to the device.
#[derive(Clone, Debug)]
pub struct Buffer {
    policy: Policy,
    capacity: usize,
    frames: HashMap<Page, Frame>,
    /// Clean and dirty pages; for LRU, all pages are in the first queue.
    queues: [Queue; 2],
    /// Pages evicted from each pool of an FD-buffer, with their stamps.
    ghosts: [(HashMap<Page, u64>, Queue); 2],
    /// Pages that the clean pool of an FD-buffer should have.
    clean_target: f64,
    now: u64,
    pub counts: Counts,
    /// The requests since the last call of [`Buffer::take_requests`], if they are recorded.
    requests: Option<Vec<Request>>,
}

impl Buffer {
    pub fn new(policy: Policy, capacity: usize) -> Buffer {
        Buffer {
            policy,
            capacity: capacity.max(2),
            frames: HashMap::new(),
            queues: Default::default(),
            ghosts: Default::default(),
            clean_target: capacity as f64 / 2.0,
            now: 0,
            counts: Counts::default(),
            requests: None,
        }
    }

    /// Starts to record requests.
    pub fn record(&mut self) {
        self.requests = Some(Vec::new());
    }

    /// Records a request, if requests are recorded.
    pub fn note(&mut self, request: Request) {
        if let Some(requests) = &mut self.requests {
            requests.push(request);
        }
    }

    /// Returns the recorded requests in their order, and forgets them.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.requests.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Reads a page, from the device if the buffer does not have it.
    pub fn fetch(&mut self, page: Page) {
        self.touch(page, false, Some(Request::SearchPage(page)));
    }

    /// Reads a page for a merge.
    pub fn fetch_for_merge(&mut self, page: Page) {
        self.touch(page, false, Some(Request::ReadPage(page)));
    }

    /// Reads a page and changes it.
    pub fn modify(&mut self, page: Page) {
        self.touch(page, true, Some(Request::ReadPage(page)));
    }

    /// Writes a page whose old content does not matter.
    pub fn create(&mut self, page: Page) {
        self.touch(page, true, None);
    }

    /// Drops a page that is no longer used.
    pub fn forget(&mut self, page: Page) {
        if let Some(frame) = self.frames.remove(&page) {
            self.queue(frame.is_dirty).0.remove(&frame.stamp);
        }
    }

    pub fn resize(&mut self, capacity: usize) {
        self.capacity = capacity.max(2);
        self.clean_target = self.clean_target.min(self.capacity as f64);
        self.shrink();
    }

    /// Goes on with another policy, from the pages that the buffer has.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.queues = Default::default();
        for (page, frame) in self.frames.clone() {
            self.queue(frame.is_dirty).0.insert(frame.stamp, page);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    fn queue(&mut self, is_dirty: bool) -> &mut Queue {
        &mut self.queues[usize::from(is_dirty && self.policy != Policy::Lru)]
    }

    /// Uses a page. `request` reads it, if its old content is needed.
    fn touch(&mut self, page: Page, is_changed: bool, request: Option<Request>) {
        self.now += 1;
        let old = self.frames.remove(&page);
        match old {
            Some(frame) => {
                self.queue(frame.is_dirty).0.remove(&frame.stamp);
            }
            None => {
                if let Some(request) = request {
                    self.counts.reads += 1;
                    self.note(request);
                }
                self.adapt(page);
            }
        }
        let is_dirty = is_changed || old.is_some_and(|frame| frame.is_dirty);
        self.frames.insert(page, Frame { stamp: self.now, is_dirty });
        let stamp = self.now;
        self.queue(is_dirty).0.insert(stamp, page);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.frames.len() > self.capacity {
            let victim = match self.policy {
                Policy::Lru => self.queues[0].oldest(),
                Policy::Cfdc => self.cfdc_victim(),
                Policy::Fd => self.fd_victim(),
            };
            let victim = victim.expect("a full buffer has pages");
            let frame = self.frames[&victim];
            if frame.is_dirty {
                self.counts.writes += 1;
                self.note(Request::WritePage(victim));
            }
            self.forget(victim);
            if self.policy == Policy::Fd {
                self.remember(victim, frame.is_dirty);
            }
        }
    }

    /// Returns the oldest clean page of the priority region, or a page of its least dense cluster.
    fn cfdc_victim(&self) -> Option<Page> {
        let [clean, dirty] = &self.queues;
        let priority = ((self.frames.len() as f64 * PRIORITY_PART) as usize).max(1);
        // The priority region has the oldest pages of both queues.
        let mut ages: Vec<u64> = clean.0.keys().take(priority).copied().collect();
        ages.extend(dirty.0.keys().take(priority));
        ages.sort_unstable();
        let youngest = ages.get(priority - 1).or(ages.last()).copied()?;
        if let Some((_, &page)) = clean.0.range(..=youngest).next() {
            return Some(page);
        }
        let mut clusters: BTreeMap<u64, Vec<(Page, u64)>> = BTreeMap::new();
        for (&stamp, &page) in dirty.0.range(..=youngest) {
            clusters.entry(page / CLUSTER_PAGES).or_default().push((page, stamp));
        }
        let best = clusters.into_values().min_by(|a, b| {
            cluster_priority(a, self.now).total_cmp(&cluster_priority(b, self.now))
        })?;
        best.into_iter().min_by_key(|(_, stamp)| *stamp).map(|(page, _)| page)
    }

    fn fd_victim(&self) -> Option<Page> {
        let [clean, dirty] = &self.queues;
        let is_clean_large = clean.0.len() as f64 > self.clean_target;
        if is_clean_large || dirty.0.is_empty() { clean.oldest() } else { dirty.oldest() }
    }

    /// Moves the border of the pools toward the one that just missed a page which it had.
    fn adapt(&mut self, page: Page) {
        let gains = [NVME.read, -NVME.write];
        for ((ghosts, queue), gain) in self.ghosts.iter_mut().zip(gains) {
            if let Some(stamp) = ghosts.remove(&page) {
                queue.0.remove(&stamp);
                let target = self.clean_target + gain / NVME.read;
                self.clean_target = target.clamp(1.0, self.capacity as f64 - 1.0);
            }
        }
    }

    fn remember(&mut self, page: Page, is_dirty: bool) {
        // Several pages are evicted at one time when the buffer is made smaller.
        self.now += 1;
        let (ghosts, queue) = &mut self.ghosts[usize::from(is_dirty)];
        if let Some(old) = ghosts.insert(page, self.now) {
            queue.0.remove(&old);
        }
        queue.0.insert(self.now, page);
        if ghosts.len() > self.capacity / 2
            && let Some((_, oldest)) = queue.0.pop_first()
        {
            ghosts.remove(&oldest);
        }
    }
}

/// Returns CFDC's priority of a cluster: low if its pages are many, near each other, and old. A page
/// alone counts as far from any other.
fn cluster_priority(pages: &[(Page, u64)], now: u64) -> f64 {
    let mut numbers: Vec<Page> = pages.iter().map(|(page, _)| *page).collect();
    numbers.sort_unstable();
    let distance: u64 = numbers.windows(2).map(|pair| pair[1] - pair[0]).sum();
    let distance = if numbers.len() == 1 { CLUSTER_PAGES } else { distance };
    let newest = pages.iter().map(|(_, stamp)| *stamp).max().unwrap_or(0);
    distance as f64 / ((numbers.len() * numbers.len()) as f64 * (now - newest + 1) as f64)
}
