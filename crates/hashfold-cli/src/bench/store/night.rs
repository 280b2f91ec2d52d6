//! Changes from one version to the next, and the entries afterwards.

use super::super::pairs::Row;
use hashfold::store::Changes;

/// A batch over pairs `0..base`. Of ten rows, eight change a pair, one adds a pair, and one deletes
/// a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Night {
    pub(super) base: u64,
    /// Number of rows, at most `base`.
    pub(super) size: u64,
    /// Number of the night, from 1. Each night changes other pairs, as long as there are enough.
    pub(super) generation: u64,
}

const ADDS: u64 = 8;
const DELETES: u64 = 9;

impl Night {
    pub(super) fn rows(self) -> impl Iterator<Item = Row> {
        (0..self.size).map(move |i| self.row(i))
    }

    fn row(self, i: u64) -> Row {
        let number = (self.spread(i) + self.generation) % self.base;
        match i % 10 {
            ADDS => Row { number: self.added(i), generation: self.generation },
            DELETES => Row { number, generation: Row::DELETED },
            _ => Row { number, generation: self.generation },
        }
    }

    fn spread(self, i: u64) -> u64 {
        (u128::from(i) * u128::from(self.base) / u128::from(self.size)) as u64
    }

    fn added(self, i: u64) -> u64 {
        self.base + (self.generation - 1) * self.size + i
    }

    /// Returns the new generation of a pair's value, if the night changes the pair.
    fn generation_of(self, number: u64) -> Option<u64> {
        if number >= self.base {
            let i = number.checked_sub(self.added(0)).filter(|i| *i < self.size)?;
            return (i % 10 == ADDS).then_some(self.generation);
        }
        let place = (number + self.base - self.generation % self.base) % self.base;
        let i = (u128::from(place) * u128::from(self.size)).div_ceil(u128::from(self.base)) as u64;
        if i >= self.size || self.spread(i) != place {
            return None;
        }
        match i % 10 {
            ADDS => None,
            DELETES => Some(Row::DELETED),
            _ => Some(self.generation),
        }
    }

    fn count(self, is_kind: impl Fn(u64) -> bool) -> u64 {
        let whole = (0..10).filter(|digit| is_kind(*digit)).count() as u64 * (self.size / 10);
        whole + (0..self.size % 10).filter(|digit| is_kind(*digit)).count() as u64
    }

    /// Returns the expected changes of a version, computed from the pairs alone.
    pub(super) fn changes(self) -> Changes {
        let (added, removed) = (self.count(|i| i == ADDS), self.count(|i| i == DELETES));
        let changed = self.count(|i| i < ADDS);
        Changes { added, changed, removed, unchanged: self.base - changed - removed }
    }

    /// Returns the bytes of keys, and of the values that are not deleted.
    pub(super) fn bytes(self, key_size: usize, value_size: usize) -> u64 {
        let puts = self.size - self.changes().removed;
        self.size * key_size as u64 + puts * value_size as u64
    }
}

/// Pairs `0..base` and the nights after them.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) base: u64,
    pub(super) nights: Vec<Night>,
}

impl History {
    pub(super) fn of(base: u64) -> History {
        History { base, nights: Vec::new() }
    }

    pub(super) fn and(mut self, night: Night) -> History {
        self.nights.push(night);
        self
    }

    /// Returns the pair with this number, if it is present now.
    pub(super) fn row(&self, number: u64) -> Option<Row> {
        let touched = self.nights.iter().rev().find_map(|night| night.generation_of(number));
        let generation = touched.or((number < self.base).then_some(0))?;
        (generation != Row::DELETED).then_some(Row { number, generation })
    }

    /// Returns the upper bound of pair numbers.
    pub(super) fn numbers(&self) -> u64 {
        self.base + self.nights.iter().map(|night| night.size).sum::<u64>()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        (0..self.numbers()).filter_map(|number| self.row(number))
    }

    pub(super) fn count(&self) -> u64 {
        let (mut more, mut fewer) = (0, 0);
        for changes in self.nights.iter().map(|night| night.changes()) {
            more += changes.added;
            fewer += changes.removed;
        }
        self.base + more - fewer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The history agrees with applying the rows one by one.
    #[test]
    fn the_history_agrees_with_applying_the_rows() {
        for (base, size) in [(1000, 1), (1000, 10), (1003, 97), (100, 100), (7, 3)] {
            let mut pairs: BTreeMap<u64, u64> = (0..base).map(|number| (number, 0)).collect();
            let mut history = History::of(base);
            let nights = if base / size > 4 { 4 } else { 1 };
            for generation in 1..=nights {
                let night = Night { base, size, generation };
                for row in night.rows() {
                    match row.generation {
                        Row::DELETED => pairs.remove(&row.number),
                        generation => pairs.insert(row.number, generation),
                    };
                }
                history = history.and(night);
                let rows: Vec<Row> =
                    pairs.iter().map(|(&number, &generation)| Row { number, generation }).collect();
                assert!(history.rows().eq(rows), "{size} of {base}, night {generation}");
                assert_eq!(history.count(), pairs.len() as u64, "{size} of {base}");
            }
        }
    }
}
