//! The next keys of a map that expire, so that they go soon after their time. Merges of the map drop the others.

use std::collections::BTreeSet;

/// Memory of an entry besides its key, in bytes.
const ENTRY_BYTES: usize = 64;

/// Milliseconds between two sweeps.
const SWEEP_EACH_MS: u64 = 100;

/// Maximum number of keys of a sweep.
const SWEPT_MAX: usize = 256;

/// Keys and the times at which they expire, the next ones first. A key that was changed since, without a look at its
/// value, may be there, too.
#[derive(Debug)]
pub(super) struct Expiries {
    keys: BTreeSet<(u64, Box<[u8]>)>,
    bytes: usize,
    /// Maximum memory, in bytes.
    bytes_max: usize,
    /// The time before which there is no sweep, in milliseconds since 1970.
    next_sweep: u64,
}

impl Expiries {
    pub(super) fn new(bytes_max: usize) -> Expiries {
        Expiries { keys: BTreeSet::new(), bytes: 0, bytes_max, next_sweep: 0 }
    }

    /// Whether no key is known that expires.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds a key. Those that expire last are forgotten if there is no room.
    pub(super) fn add(&mut self, expires_at: u64, key: &[u8]) {
        if self.keys.insert((expires_at, key.into())) {
            self.bytes += key.len() + ENTRY_BYTES;
        }
        while self.bytes > self.bytes_max {
            let Some((_, key)) = self.keys.pop_last() else { return };
            self.bytes -= key.len() + ENTRY_BYTES;
        }
    }

    /// Forgets a key, whose value is another one now.
    pub(super) fn remove(&mut self, expires_at: u64, key: &[u8]) {
        if self.keys.remove(&(expires_at, key.into())) {
            self.bytes -= key.len() + ENTRY_BYTES;
        }
    }

    /// Takes the keys of a sweep, which expire at `now_ms` or before: none if the last sweep was just now.
    pub(super) fn take(&mut self, now_ms: u64) -> Vec<Box<[u8]>> {
        let mut taken = Vec::new();
        if now_ms < self.next_sweep {
            return taken;
        }
        while taken.len() < SWEPT_MAX && self.keys.first().is_some_and(|(at, _)| *at <= now_ms) {
            let Some((_, key)) = self.keys.pop_first() else { break };
            self.bytes -= key.len() + ENTRY_BYTES;
            taken.push(key);
        }
        // A sweep that was full goes on at once.
        if taken.len() < SWEPT_MAX {
            self.next_sweep = now_ms + SWEEP_EACH_MS;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_keys_are_taken_when_they_are_due() {
        let mut expiries = Expiries::new(3 * (ENTRY_BYTES + 1));
        expiries.add(1, b"e");
        expiries.remove(1, b"e");
        for (at, key) in [(70, b"a"), (50, b"b"), (60, b"c"), (40, b"d"), (40, b"d")] {
            expiries.add(at, key);
        }
        assert!(expiries.take(39).is_empty());
        assert!(expiries.take(60).is_empty(), "the next sweep is 100 ms after the last one");
        let taken = expiries.take(139);
        assert_eq!(taken.concat(), b"dbc", "the last of four is forgotten");
        assert!(expiries.is_empty());
        assert_eq!(expiries.bytes, 0);
    }

    #[test]
    fn a_full_sweep_goes_on_at_once() {
        let mut expiries = Expiries::new(1 << 20);
        (0..SWEPT_MAX as u64 + 1).for_each(|i| expiries.add(i, &i.to_le_bytes()));
        assert_eq!(expiries.take(1000).len(), SWEPT_MAX);
        assert_eq!(expiries.take(1000).len(), 1);
    }
}
