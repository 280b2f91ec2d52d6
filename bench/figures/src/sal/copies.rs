//! Groups on several devices, with copies of those that are searched often: the paper's page replication, and
//! the mirrors of Hashfold's map.
//!
//! The paper gives no numbers for its replication. Ours: a group is copied if it was searched often in an epoch, and
//! at least twice as often as it was written, and if one of its devices was busier than the mean.

use super::{
    array::{Array, IN_FLIGHT, Kind, Size},
    traces::GROUP,
};
use crate::dice::Dice;
use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
};

/// Reads of all devices in an epoch, as in the map, for the paper's sizes.
pub const EPOCH_READS: u64 = 1 << 16;
/// Number of reads of a group in an epoch from which on it may be copied, as in the map.
const READS_MIN: u32 = 16;
/// The map copies a group that is read this many times as often as the average one.
const HOT_FACTOR: u64 = 4;
/// Part of the groups that may have a copy.
const COPIES_PART: u64 = 10;
/// A device is busy if it has served this many times the requests of the average one in an epoch.
const BUSY: f64 = 1.05;
/// Number of reads for each write of a group that is read-intensive.
const READS_PER_WRITE: u32 = 2;

/// Which groups have copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// No group: each is on one device.
    Striping,
    /// The paper's page replication: searches read the device that is idle first, writes go to all copies and
    /// return when the first one is written.
    Replication,
    /// The map's mirrors: one copy, which is dropped when the group is written anew. Searches read the device with
    /// fewer reads in flight.
    Mirrors,
}

impl Strategy {
    pub const ALL: [Strategy; 3] = [Strategy::Striping, Strategy::Replication, Strategy::Mirrors];

    pub fn name(self) -> &'static str {
        match self {
            Strategy::Striping => "no copies",
            Strategy::Replication => "the paper's page replication",
            Strategy::Mirrors => "this map's mirrors",
        }
    }
}

/// What a request to a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the page of a bucket, for a search.
    SearchBucket,
    /// Reads the log-head or a log page, for a search.
    SearchLog,
    /// Reads a page for a change or a merge.
    ReadPage,
    WritePage,
    /// Reads all buckets, for a merge.
    ReadGroup,
    WriteGroup,
}

/// The requests for a group in the last epoch that had any.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    epoch: u64,
    reads: u32,
    writes: u32,
}

impl Heat {
    /// Returns the heat in an epoch.
    fn at(self, epoch: u64) -> Heat {
        if self.epoch == epoch { self } else { Heat { epoch, reads: 0, writes: 0 } }
    }

    fn is_read_intensive(self) -> bool {
        self.reads > 0 && self.reads >= READS_PER_WRITE * self.writes
    }
}

/// The devices with copies of a group.
#[derive(Clone, Debug, Default)]
struct Copies {
    devices: Vec<usize>,
    /// Whether the copies have the log pages, too: the group was merged since the last copy was made.
    have_log: bool,
}

/// What copies cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Pages written to copies, and to make them.
    pub pages_written: u64,
    /// Requests to make copies, and to write to them.
    pub reads: u64,
    pub writes: u64,
    /// Largest number of copies at one time.
    pub copies_max: u64,
    /// Number of copies that were made.
    pub made: u64,
}

/// Groups striped over devices.
#[derive(Clone, Debug)]
pub struct Striped {
    strategy: Strategy,
    pub array: Array,
    /// The requests that each operation in flight has not sent yet.
    rest: Vec<VecDeque<(u64, Access)>>,
    /// The number of reads for searches and of writes, and the time that operations waited for them.
    searches: (u64, u64),
    writes: (u64, u64),
    dice: Dice,
    heat: Vec<Heat>,
    copies: HashMap<u64, Copies>,
    /// Number of copies of all groups.
    count: u64,
    epoch_reads: u64,
    epoch: u64,
    /// Reads of all devices so far.
    reads: u64,
    /// Requests of each device before this epoch.
    before: Vec<u64>,
    pub extra: Extra,
}

impl Striped {
    pub fn new(
        strategy: Strategy,
        devices: usize,
        groups: u64,
        epoch_reads: u64,
        dice: Dice,
    ) -> Striped {
        Striped {
            strategy,
            array: Array::new(devices),
            rest: vec![VecDeque::new(); IN_FLIGHT],
            searches: (0, 0),
            writes: (0, 0),
            dice,
            heat: vec![Heat::default(); groups as usize],
            copies: HashMap::new(),
            count: 0,
            epoch_reads: epoch_reads.max(1),
            epoch: 0,
            reads: 0,
            before: vec![0; devices],
            extra: Extra::default(),
        }
    }

    /// Begins an operation when another one has ended: its requests, in their order.
    pub fn serve(&mut self, operation: impl IntoIterator<Item = (u64, Access)>) {
        let mut requests: VecDeque<(u64, Access)> = operation.into_iter().collect();
        let Some((group, access)) = requests.pop_front() else { return };
        let number = loop {
            let number = self.array.next();
            if !self.go_on(number) {
                break number;
            }
        };
        self.rest[number] = requests;
        self.send(number, group, access);
    }

    /// Ends all operations.
    pub fn finish(&mut self) {
        let mut running = IN_FLIGHT;
        while running > 0 {
            let number = self.array.next();
            running -= usize::from(!self.go_on(number));
        }
    }

    /// Sends the next request of an operation. Returns whether there was one.
    fn go_on(&mut self, number: usize) -> bool {
        let next = self.rest[number].pop_front();
        next.inspect(|&(group, access)| self.send(number, group, access)).is_some()
    }

    /// Sends a request of an operation, which waits for it.
    fn send(&mut self, number: usize, group: u64, access: Access) {
        let end = match access {
            Access::SearchBucket | Access::SearchLog => self.search(group, access),
            Access::ReadPage => self.read(self.home(group), Size::Page),
            Access::ReadGroup => self.read(self.home(group), Size::Group(GROUP)),
            Access::WritePage => self.write(group, Size::Page),
            Access::WriteGroup => self.write(group, Size::Group(GROUP)),
        };
        self.array.wait(number, end);
        let waited = |(count, time): &mut (u64, u64)| {
            (*count, *time) = (*count + 1, *time + end - self.array.now());
        };
        match access {
            Access::SearchBucket | Access::SearchLog => waited(&mut self.searches),
            Access::WritePage | Access::WriteGroup => waited(&mut self.writes),
            Access::ReadPage | Access::ReadGroup => {}
        }
        let epoch = self.reads / self.epoch_reads;
        if epoch != self.epoch {
            if self.strategy == Strategy::Replication {
                self.balance();
            }
            self.epoch = epoch;
        }
    }

    /// Returns the mean time that a read for a search and a write take, in microseconds; 0 without any.
    pub fn mean_waits(&self) -> [f64; 2] {
        [self.searches, self.writes].map(|(count, time)| time as f64 / count.max(1) as f64 / 1e3)
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u64 {
        self.heat.len() as u64
    }

    fn home(&self, group: u64) -> usize {
        (group % self.array.devices() as u64) as usize
    }

    fn read(&mut self, device: usize, size: Size) -> u64 {
        self.reads += 1;
        self.array.send(device, Kind::Read, size)
    }

    fn touch(&mut self, group: u64) -> &mut Heat {
        let heat = &mut self.heat[group as usize];
        *heat = heat.at(self.epoch);
        heat
    }

    fn search(&mut self, group: u64, access: Access) -> u64 {
        let is_log = access == Access::SearchLog;
        // The map counts reads of blocks of groups only.
        if !is_log || self.strategy == Strategy::Replication {
            self.touch(group).reads += 1;
        }
        let device = self.choose(group, is_log);
        let end = self.read(device, Size::Page);
        if self.strategy == Strategy::Mirrors && !is_log {
            self.mirror_if_hot(group);
        }
        end
    }

    /// Returns the device that a page of a group is read from.
    fn choose(&mut self, group: u64, is_log: bool) -> usize {
        let mut best = self.home(group);
        let Some(copies) = self.copies.get(&group).filter(|copies| !is_log || copies.have_log)
        else {
            return best;
        };
        let load = |array: &mut Array, device| match self.strategy {
            Strategy::Mirrors => (array.reads_in_flight(device) as u64, array.reads(device)),
            _ => (array.busy_for(device), array.requests(device)),
        };
        for &device in &copies.devices {
            if load(&mut self.array, device) < load(&mut self.array, best) {
                best = device;
            }
        }
        best
    }

    fn write(&mut self, group: u64, size: Size) -> u64 {
        let home = self.home(group);
        let own = self.array.send(home, Kind::Write, size);
        match self.strategy {
            Strategy::Replication => own.min(self.write_copies(group, size)),
            Strategy::Mirrors if size != Size::Page => {
                // The new group has no copy, and no reads yet.
                self.drop_copies(group);
                self.heat[group as usize] = Heat::default();
                own
            }
            _ => own,
        }
    }

    /// Returns when the first copy is written.
    fn write_copies(&mut self, group: u64, size: Size) -> u64 {
        self.touch(group).writes += 1;
        let Some(copies) = self.copies.get_mut(&group) else { return u64::MAX };
        copies.have_log |= size != Size::Page;
        self.extra.writes += copies.devices.len() as u64;
        self.extra.pages_written += copies.devices.len() as u64 * size.pages();
        let ends = copies.devices.iter().map(|&device| self.array.send(device, Kind::Write, size));
        ends.min().unwrap_or(u64::MAX)
    }

    fn drop_copies(&mut self, group: u64) {
        let dropped = self.copies.remove(&group);
        self.count -= dropped.map_or(0, |copies| copies.devices.len() as u64);
    }

    /// Copies a group to a device, in the background.
    fn copy(&mut self, group: u64, device: usize) {
        let size = Size::Group(GROUP);
        self.array.send(self.home(group), Kind::Read, size);
        self.array.send(device, Kind::Write, size);
        self.reads += 1;
        let copies = self.copies.entry(group).or_default();
        copies.devices.push(device);
        copies.have_log = false;
        self.count += 1;
        let Extra { pages_written, reads, writes, copies_max, made } = &mut self.extra;
        (*reads, *writes, *made) = (*reads + 1, *writes + 1, *made + 1);
        *pages_written += size.pages();
        *copies_max = self.count.max(*copies_max);
    }

    fn has_room(&self) -> bool {
        self.count < (self.heat.len() as u64 / COPIES_PART).max(1)
    }

    /// Gives a group its copy on any other device, if it is read much more often than others.
    fn mirror_if_hot(&mut self, group: u64) {
        let reads = self.touch(group).reads;
        let is_looked_at = reads >= READS_MIN && reads.is_power_of_two();
        if !is_looked_at || self.array.devices() == 1 || self.copies.contains_key(&group) {
            return;
        }
        let all = self.reads % self.epoch_reads + 1;
        let is_hot = u64::from(reads) * self.heat.len() as u64 >= HOT_FACTOR * all;
        if is_hot && self.make_room() {
            let devices = self.array.devices() as u64;
            let device = (self.home(group) as u64 + 1 + self.dice.below(devices - 1)) % devices;
            self.copy(group, device as usize);
        }
    }

    /// If there is no room, drops all copies that were read neither in this epoch nor in the one before it.
    fn make_room(&mut self) -> bool {
        if !self.has_room() {
            let heat = &self.heat;
            let is_warm = |group: u64| self.epoch - heat[group as usize].epoch <= 1;
            let cold: Vec<u64> =
                self.copies.keys().copied().filter(|&group| !is_warm(group)).collect();
            cold.into_iter().for_each(|group| self.drop_copies(group));
        }
        self.has_room()
    }

    /// Copies groups that are searched often from busy devices to idle ones, at the end of an epoch. Copies of groups
    /// that are no longer read-intensive are dropped.
    fn balance(&mut self) {
        let heat = |striped: &Striped, group: u64| striped.heat[group as usize].at(striped.epoch);
        let is_over = |&group: &u64| !heat(self, group).is_read_intensive();
        let over: Vec<u64> = self.copies.keys().copied().filter(is_over).collect();
        over.into_iter().for_each(|group| self.drop_copies(group));
        let now: Vec<u64> = (0..self.array.devices()).map(|i| self.array.requests(i)).collect();
        let mut loads: Vec<f64> =
            now.iter().zip(&self.before).map(|(now, before)| (now - before) as f64).collect();
        self.before = now;
        let is_wanted = |&group: &u64| {
            let heat = heat(self, group);
            heat.reads >= READS_MIN && heat.is_read_intensive()
        };
        let mut hot: Vec<u64> = (0..self.heat.len() as u64).filter(is_wanted).collect();
        hot.sort_by_key(|&group| (Reverse(heat(self, group).reads), group));
        for group in hot {
            while self.has_room()
                && let Some(device) = self.relief(group, heat(self, group), &mut loads)
            {
                self.copy(group, device);
            }
        }
    }

    /// Returns the device for another copy of a group, if one of its devices is busy and that one remains less so.
    /// Brings the loads of all devices up to date.
    fn relief(&self, group: u64, heat: Heat, loads: &mut [f64]) -> Option<usize> {
        let mut holders = vec![self.home(group)];
        holders.extend(self.copies.get(&group).into_iter().flat_map(|copies| &copies.devices));
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        let busiest = holders.iter().map(|&holder| loads[holder]).fold(0.0, f64::max);
        let others = (0..loads.len()).filter(|device| !holders.contains(device));
        let idle = others.min_by(|&a, &b| loads[a].total_cmp(&loads[b]))?;
        let (reads, count) = (f64::from(heat.reads), holders.len() as f64);
        let added = reads / (count + 1.0) + f64::from(heat.writes);
        if busiest < BUSY * mean || loads[idle] + added >= busiest {
            return None;
        }
        for holder in holders {
            loads[holder] -= reads / count - reads / (count + 1.0);
        }
        loads[idle] += added;
        Some(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::zipf::Zipf, *};

    const GROUPS: u64 = 1000;
    /// Requests of each test.
    const REQUESTS: u64 = 60_000;

    /// A trace of searches by Zipf's law, some of them in the log, and of writes.
    fn trace(seed: u64, write_part: f64) -> Vec<(u64, Access)> {
        let (dice, zipf) = (Dice::new(seed), Zipf::new(GROUPS));
        let group = || zipf.rank(dice.unit()) * 7919 % GROUPS;
        let access = || match dice.unit() {
            unit if unit >= write_part => Access::SearchBucket,
            _ => [Access::SearchLog, Access::WritePage, Access::ReadGroup, Access::WriteGroup]
                [dice.below(4) as usize],
        };
        (0..REQUESTS).map(|_| (group(), access())).collect()
    }

    fn served(strategy: Strategy, devices: usize, trace: &[(u64, Access)]) -> Striped {
        let mut striped = Striped::new(strategy, devices, GROUPS, 2000, Dice::new(3));
        trace.iter().for_each(|&(group, access)| striped.serve([(group, access)]));
        striped
    }

    fn sum(striped: &Striped, of: impl Fn(&Array, usize) -> u64) -> u64 {
        (0..striped.array.devices()).map(|i| of(&striped.array, i)).sum()
    }

    fn most(striped: &Striped, of: impl Fn(&Array, usize) -> u64) -> u64 {
        (0..striped.array.devices()).map(|i| of(&striped.array, i)).max().unwrap()
    }

    #[test]
    fn one_device_serves_everything_without_copies() {
        let trace = trace(1, 0.2);
        for strategy in Strategy::ALL {
            let striped = served(strategy, 1, &trace);
            assert_eq!(striped.array.requests(0), REQUESTS, "{strategy:?}");
            assert_eq!(striped.extra, Extra::default(), "{strategy:?}");
        }
    }

    #[test]
    fn requests_are_those_of_the_trace_and_those_of_copies() {
        for (seed, devices) in [(1, 2), (2, 4), (3, 8)] {
            let trace = trace(seed, 0.2);
            let is_read = |access| ![Access::WritePage, Access::WriteGroup].contains(&access);
            let reads = trace.iter().filter(|(_, access)| is_read(*access)).count() as u64;
            for strategy in Strategy::ALL {
                let striped = served(strategy, devices, &trace);
                let Extra { reads: copied, writes, made, .. } = striped.extra;
                assert_eq!(sum(&striped, Array::reads), reads + copied, "{strategy:?}");
                assert_eq!(sum(&striped, Array::requests), REQUESTS + copied + writes);
                assert_eq!(copied, made);
                assert_eq!(made > 0, strategy != Strategy::Striping, "{strategy:?}");
                assert_eq!(writes > made, strategy == Strategy::Replication, "{strategy:?}");
            }
        }
    }

    #[test]
    fn without_copies_each_group_is_read_from_its_own_device() {
        let trace = trace(4, 0.3);
        let striped = served(Strategy::Striping, 4, &trace);
        for device in 0..4 {
            let mine = trace.iter().filter(|(group, _)| group % 4 == device).count();
            assert_eq!(striped.array.requests(device as usize), mine as u64);
        }
    }

    #[test]
    fn copies_relieve_the_busiest_device_of_a_skewed_trace() {
        for (seed, devices) in [(5, 2), (6, 4), (7, 8)] {
            let trace = trace(seed, 0.1);
            let [none, replication, mirrors] =
                Strategy::ALL.map(|strategy| served(strategy, devices, &trace));
            for copied in [&replication, &mirrors] {
                assert!(
                    most(copied, Array::reads) < most(&none, Array::reads),
                    "{devices} devices"
                );
                assert!(copied.array.end() < none.array.end(), "{devices} devices");
            }
            // The hottest group has more reads than a device should have; only replication gives it several copies.
            let even = sum(&none, Array::requests) / devices as u64;
            let busiest = most(&replication, Array::requests);
            assert!(busiest * 100 < even * 115, "{devices} devices: {busiest}, {even} if even");
        }
    }

    #[test]
    fn copies_have_at_most_their_part_of_the_groups() {
        for strategy in [Strategy::Replication, Strategy::Mirrors] {
            let striped = served(strategy, 8, &trace(8, 0.1));
            let count: usize = striped.copies.values().map(|copies| copies.devices.len()).sum();
            assert_eq!(striped.count, count as u64);
            assert!(striped.extra.copies_max <= GROUPS / COPIES_PART);
            for (&group, Copies { devices, .. }) in &striped.copies {
                let mut all = [vec![striped.home(group)], devices.clone()].concat();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), devices.len() + 1, "a device has one copy");
                assert!(strategy == Strategy::Replication || devices.len() == 1);
            }
        }
    }

    #[test]
    fn a_write_returns_when_the_first_copy_is_written() {
        let mut striped = Striped::new(Strategy::Replication, 2, 2, 1000, Dice::new(1));
        striped.copy(0, 1);
        // Device 0 is busy with five more reads; device 1 writes the copy, and then the page.
        (0..5).for_each(|_| striped.serve([(0, Access::ReadGroup)]));
        striped.serve([(0, Access::WritePage)]);
        assert_eq!(striped.mean_waits()[1], 75.0 + 54.0);
        assert_eq!((striped.extra.writes, striped.extra.pages_written), (2, 17));
    }

    #[test]
    fn a_mirror_is_dropped_when_its_group_is_written_anew() {
        let mut striped = Striped::new(Strategy::Mirrors, 2, 100, 1000, Dice::new(1));
        (0..16).for_each(|_| striped.serve([(0, Access::SearchBucket)]));
        assert_eq!(striped.count, 1);
        // Log pages are not in the copy, and do not end it.
        striped.serve([(0, Access::WritePage)]);
        (0..50).for_each(|_| striped.serve([(0, Access::SearchLog)]));
        assert_eq!((striped.count, striped.array.reads(1)), (1, 0));
        (0..50).for_each(|_| striped.serve([(0, Access::SearchBucket)]));
        assert!(striped.array.reads(1) > 20);
        striped.serve([(0, Access::WriteGroup)]);
        let reads = striped.array.reads(1);
        (0..15).for_each(|_| striped.serve([(0, Access::SearchBucket)]));
        assert_eq!((striped.count, striped.array.reads(1)), (0, reads));
        // The new group is as hot as the old one was.
        striped.serve([(0, Access::SearchBucket)]);
        assert_eq!(striped.count, 1);
    }
}
