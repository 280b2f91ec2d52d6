//! Histories of concurrent transactions, checked for strict serializability in the manner of Elle.
//! (Kingsbury, Alvaro: Elle: Inferring Isolation Anomalies from Experimental Observations, 2020.)
//!
//! Each value is put once, so a read names the transaction that it depends on. The versions of a key
//! are in the order of sequence numbers. The committed transactions are as if one after the other if
//! these dependencies have no cycle:
//!
//! | edge | from                                     | to                                              |
//! |------|------------------------------------------|-------------------------------------------------|
//! | wr   | the transaction that wrote a version     | one that has read the version                   |
//! | ww   | the transaction that wrote a version     | the one that wrote the next version of the key  |
//! | rw   | a transaction that has read a version    | the one that wrote the next version of the key  |
//! | time | a transaction that has ended             | one that began later                            |
//!
//! Many deletions leave a key absent in the same way. The sequence number of a transaction decides
//! which of them it has seen; a history without a cycle is serializable whatever decided it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    fmt,
};

pub(super) type Key = u32;
/// The number that a put has written, and no other put; `None` if the key is absent.
pub(super) type Value = Option<u64>;

/// A transaction that was committed.
#[derive(Clone, Default)]
pub(super) struct Committed {
    pub(super) name: String,
    /// All reads, without those of own writes.
    pub(super) reads: Vec<(Key, Value)>,
    /// The last write of each key.
    pub(super) writes: BTreeMap<Key, Value>,
    /// Number of changes in the log.
    pub(super) changes: u64,
    /// The sequence number after the changes. If there are none, one that decides which deletions
    /// were seen.
    pub(super) seq: u64,
    /// Logical time before the first call.
    pub(super) began: u64,
    /// Logical time after the last call.
    pub(super) ended: u64,
}

impl fmt::Display for Committed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Committed { name, reads, writes, seq, began, ended, .. } = self;
        write!(f, "{name}, {began}..{ended}, seq {seq}: reads {reads:?}, writes {writes:?}")
    }
}

/// Checks that committed transactions are as if one after the other, in an order that agrees with
/// time.
///
/// # Errors
/// A read of a value that no committed transaction has put last; a cycle of dependencies.
pub(super) fn check_serial(history: &[Committed]) -> Result<(), String> {
    match dependencies(history)?.cycle() {
        None => Ok(()),
        Some(cycle) => Err(described(history, &cycle)),
    }
}

/// Checks that the log has the changes of these transactions, those of each together, and no other.
///
/// # Errors
/// Sequence numbers that several transactions have, or none.
pub(super) fn check_numbers(history: &[Committed], end: u64) -> Result<(), String> {
    let mut writers: Vec<_> = history.iter().filter(|writer| writer.changes > 0).collect();
    writers.sort_by_key(|writer| writer.seq);
    let mut last = 0;
    for writer in writers {
        let first = writer.seq - writer.changes;
        if first != last {
            return Err(format!("{writer} comes after the first {last} changes"));
        }
        last = writer.seq;
    }
    if last == end { Ok(()) } else { Err(format!("{end} changes, and {last} of transactions")) }
}

/// The versions of all keys.
pub(super) struct Versions(BTreeMap<Key, Vec<Version>>);

struct Version {
    seq: u64,
    value: Value,
    /// Index of the transaction that wrote it.
    writer: usize,
}

impl Versions {
    pub(super) fn of(history: &[Committed]) -> Versions {
        let mut versions = BTreeMap::<Key, Vec<Version>>::new();
        for (writer, Committed { writes, seq, .. }) in history.iter().enumerate() {
            for (key, value) in writes {
                let version = Version { seq: *seq, value: *value, writer };
                versions.entry(*key).or_default().push(version);
            }
        }
        versions.values_mut().for_each(|versions| versions.sort_by_key(|version| version.seq));
        Versions(versions)
    }

    /// Returns the versions of a key in order, without the first one: the key is absent.
    fn of_key(&self, key: Key) -> &[Version] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns the value of a key after the first `seq` changes.
    pub(super) fn at(&self, key: Key, seq: u64) -> Value {
        let versions = self.of_key(key);
        let count = versions.partition_point(|version| version.seq <= seq);
        count.checked_sub(1).and_then(|last| versions[last].value)
    }

    /// Returns the number of versions of a key up to the one that a transaction has read: 0 if it has
    /// seen none.
    fn seen(&self, reader: &Committed, key: Key, value: Value) -> Option<usize> {
        let versions = self.of_key(key);
        let has_value = |count: usize| match count.checked_sub(1) {
            None => value.is_none(),
            Some(last) => versions[last].value == value,
        };
        let limit = match value {
            Some(_) => versions.len(),
            // Its own deletion is no read.
            None => versions.partition_point(|version| match reader.changes {
                0 => version.seq <= reader.seq,
                _ => version.seq < reader.seq,
            }),
        };
        (0..=limit).rev().find(|count| has_value(*count))
    }
}

/// A reason why a transaction comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Wr(Key),
    Ww(Key),
    Rw(Key),
    Time,
}

/// Transactions, then the moments at which they ended; with edges to those that come later.
#[derive(Default)]
struct Graph(Vec<Vec<(usize, Edge)>>);

fn dependencies(history: &[Committed]) -> Result<Graph, String> {
    let mut graph = Graph(vec![Vec::new(); history.len()]);
    let versions = Versions::of(history);
    for (key, versions) in &versions.0 {
        for pair in versions.windows(2) {
            graph.add(pair[0].writer, pair[1].writer, Edge::Ww(*key));
        }
    }
    for (reader, transaction) in history.iter().enumerate() {
        for &(key, value) in &transaction.reads {
            let seen = versions.seen(transaction, key, value).ok_or_else(|| {
                format!("{transaction} has read {value:?} of key {key}, which was not committed")
            })?;
            let (before, after) = versions.of_key(key).split_at(seen);
            if let Some(version) = before.last() {
                graph.add(version.writer, reader, Edge::Wr(key));
            }
            if let Some(version) = after.first() {
                graph.add(reader, version.writer, Edge::Rw(key));
            }
        }
    }
    graph.add_time(history);
    Ok(graph)
}

impl Graph {
    fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.0[from].push((to, edge));
        }
    }

    /// Adds the moments at which transactions end: each leads to the next one, and the last one
    /// before a transaction leads to the transaction.
    fn add_time(&mut self, history: &[Committed]) {
        let mut ends: Vec<usize> = (0..history.len()).collect();
        ends.sort_by_key(|i| history[*i].ended);
        let first = self.0.len();
        self.0.resize(first + ends.len(), Vec::new());
        for (i, transaction) in ends.iter().enumerate() {
            self.add(*transaction, first + i, Edge::Time);
            if i > 0 {
                self.add(first + i - 1, first + i, Edge::Time);
            }
        }
        for (i, transaction) in history.iter().enumerate() {
            let count = ends.partition_point(|end| history[*end].ended < transaction.began);
            if count > 0 {
                self.add(first + count - 1, i, Edge::Time);
            }
        }
    }

    /// Returns a shortest cycle: its nodes, each with the edge to the next one.
    fn cycle(&self) -> Option<Vec<(usize, Edge)>> {
        let mut before = vec![0; self.0.len()];
        self.0.iter().flatten().for_each(|(to, _)| before[*to] += 1);
        // What comes after no other node is in no cycle.
        let mut firsts: Vec<usize> = (0..before.len()).filter(|node| before[*node] == 0).collect();
        while let Some(node) = firsts.pop() {
            for (to, _) in &self.0[node] {
                before[*to] -= 1;
                if before[*to] == 0 {
                    firsts.push(*to);
                }
            }
        }
        let left = (0..before.len()).filter(|node| before[*node] > 0);
        left.filter_map(|node| self.way_back(node)).min_by_key(Vec::len)
    }

    /// Returns a shortest way from a node to itself.
    fn way_back(&self, start: usize) -> Option<Vec<(usize, Edge)>> {
        let mut reached = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for &(to, edge) in &self.0[node] {
                if let Entry::Vacant(place) = reached.entry(to) {
                    place.insert((node, edge));
                    queue.push_back(to);
                }
            }
            if reached.contains_key(&start) {
                break;
            }
        }
        let mut way = vec![*reached.get(&start)?];
        while way[way.len() - 1].0 != start {
            way.push(reached[&way[way.len() - 1].0]);
        }
        way.reverse();
        Some(way)
    }
}

fn described(history: &[Committed], cycle: &[(usize, Edge)]) -> String {
    let steps = cycle.iter().filter(|(node, _)| *node < history.len());
    let steps = steps.map(|(node, edge)| format!("\n{}\n  -{edge:?}->", history[*node]));
    format!("a cycle of {} steps:{}", steps.clone().count(), steps.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a transaction: `times @seq`, reads as `x=1`, writes as `x:=1`; `-` is absence.
    fn transaction(line: &str) -> Committed {
        let mut read = Committed { name: line.into(), ..Committed::default() };
        let key = |name: &str| name.bytes().next().unwrap().into();
        let value = |value: &str| value.parse().ok();
        for word in line.split_whitespace() {
            if let Some((began, ended)) = word.split_once("..") {
                (read.began, read.ended) = (began.parse().unwrap(), ended.parse().unwrap());
            } else if let Some(seq) = word.strip_prefix('@') {
                read.seq = seq.parse().unwrap();
            } else if let Some((name, written)) = word.split_once(":=") {
                read.writes.insert(key(name), value(written));
            } else {
                let (name, found) = word.split_once('=').unwrap();
                read.reads.push((key(name), value(found)));
            }
        }
        read.changes = read.writes.len() as u64;
        read
    }

    /// Checks what is found in a history: a failure with all of these words, or none.
    #[track_caller]
    fn check(lines: &[&str], words: &[&str]) {
        let history: Vec<_> = lines.iter().map(|line| transaction(line)).collect();
        let found = check_serial(&history);
        assert_eq!(found.is_err(), !words.is_empty(), "{found:?}");
        let found = found.err().unwrap_or_default();
        assert!(words.iter().all(|word| found.contains(word)), "{found}");
    }

    fn edges(history: &[&str]) -> Vec<Edge> {
        let history: Vec<_> = history.iter().map(|line| transaction(line)).collect();
        let cycle = dependencies(&history).unwrap().cycle().unwrap();
        cycle.iter().map(|(_, edge)| *edge).collect()
    }

    const X: Key = b'x' as Key;

    #[test]
    fn transactions_one_after_the_other_pass() {
        check(&[], &[]);
        check(
            &[
                "0..1 @2 x:=1 y:=2",
                "2..3 @2 x=1 y=2",
                "4..5 @3 x=1 x:=-",
                "6..7 @3 x=- y=2 z=-",
                "8..9 @5 x=- x:=3 y:=-",
                "10..11 @5 x=3 y=-",
            ],
            &[],
        );
    }

    #[test]
    fn concurrent_transactions_pass_if_there_is_an_order() {
        // The reader comes before the second writer, which has returned already.
        check(&["0..1 @1 x:=1", "2..4 @2 x=1 x:=2", "3..5 @1 x=1"], &[]);
        // Writes without reads.
        check(&["0..4 @2 x:=1 y:=2", "1..5 @4 x:=3 y:=4", "2..3 @4 x=1 y=2"], &[]);
        // Deletions that a reader cannot tell apart.
        check(&["0..1 @1 x:=-", "2..3 @2 x:=1", "4..7 @3 x=1 x:=-", "5..6 @2 x=1"], &[]);
        check(&["0..1 @1 x:=-", "2..3 @2 x:=1", "4..7 @3 x=1 x:=-", "5..6 @3 x=-"], &[]);
    }

    #[test]
    fn a_lost_update_is_found() {
        let history = ["0..1 @1 x:=1", "2..4 @2 x=1 x:=2", "3..5 @3 x=1 x:=3"];
        check(&history, &["2 steps", "x:=2", "x:=3"]);
        assert_eq!(edges(&history), [Edge::Ww(X), Edge::Rw(X)]);
        // Of an absent key, and of one that was deleted meanwhile.
        check(&["0..2 @1 x=- x:=1", "1..3 @2 x=- x:=2"], &["2 steps"]);
        check(&["0..1 @1 x:=1", "2..4 @2 x=1 x:=-", "3..5 @3 x=1 x:=3"], &["2 steps"]);
    }

    #[test]
    fn a_write_skew_is_found() {
        let history = ["0..1 @2 x:=1 y:=1", "2..4 @3 x=1 y=1 x:=2", "3..5 @4 x=1 y=1 y:=2"];
        check(&history, &["2 steps", "Rw(120)", "Rw(121)"]);
    }

    #[test]
    fn a_fractured_read_is_found() {
        check(&["0..2 @2 x:=1 y:=1", "1..3 @2 x=1 y=-"], &["2 steps", "Wr(120)", "Rw(121)"]);
        // Two reads of one key.
        check(&["0..1 @1 x:=1", "2..4 @2 x:=2", "3..5 @2 x=1 x=2"], &["2 steps", "Wr", "Rw"]);
    }

    #[test]
    fn an_aborted_read_is_found() {
        check(&["0..1 @1 x:=1", "2..3 @1 x=2"], &["not committed"]);
        // The value of another key.
        check(&["0..1 @1 x:=1", "2..3 @1 y=1"], &["not committed"]);
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = ["0..1 @1 x:=1", "2..3 @2 x:=2", "4..5 @2 x=1"];
        check(&history, &["2 steps", "Time", "Rw"]);
        assert_eq!(edges(&history[..]), [Edge::Time, Edge::Time, Edge::Rw(X)]);
        check(&["0..1 @1 x:=1", "2..3 @1 x=-"], &["2 steps", "Time", "Rw"]);
        // A deletion that is not seen, and one that is undone.
        check(&["0..1 @1 x:=1", "2..3 @2 x:=-", "4..5 @2 x=1"], &["2 steps"]);
        check(&["0..1 @1 x:=-", "2..3 @2 x:=1", "4..5 @2 x=-"], &["2 steps"]);
        // A read of what comes later.
        check(&["0..1 @1 x=2", "2..3 @1 x:=2"], &["2 steps", "Time", "Wr"]);
    }

    #[test]
    fn readers_that_see_two_writes_in_different_orders_are_found() {
        let history = ["0..4 @1 x:=1", "1..5 @2 y:=1", "2..6 @2 x=1 y=-", "3..7 @2 x=- y=1"];
        check(&history, &["4 steps", "Wr(120)", "Rw(121)", "Wr(121)", "Rw(120)"]);
    }

    #[test]
    fn numbers_that_no_transaction_has_are_found() {
        let of = |lines: &[&str], end| {
            check_numbers(&lines.iter().map(|line| transaction(line)).collect::<Vec<_>>(), end)
        };
        assert_eq!(of(&["@3 x:=1", "@2 x:=1 y:=1", "@3 x=1"], 3), Ok(()));
        assert!(of(&["@3 x:=1", "@2 x:=1 y:=1"], 4).is_err());
        assert!(of(&["@4 x:=1", "@2 x:=1 y:=1"], 4).is_err());
        assert!(of(&["@3 x:=1", "@3 x:=1 y:=1"], 3).is_err());
    }
}
