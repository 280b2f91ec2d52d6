use super::{Entry, Run};
use crate::{
    error::{ErrorKind, Result},
    key::KeyHash,
};
use std::{fmt, hint::select_unpredictable};

/// What a merge does with a tombstone that wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// It is an entry like any other: older data, not part of this merge, may hold the key.
    Keep,
    /// It is left out: nothing older is left that it could delete.
    Drop,
}

/// Merges runs of one seed into one; of a key in several runs, the newest run's entry stays.
///
/// Entries are not copied: each run shows its head, and a tournament between the heads finds the
/// next one in ⌈log₂ k⌉ comparisons. A run that does not ascend is refused.
pub struct Merge {
    /// The newest first.
    runs: Vec<Box<dyn Run>>,
    is_ended: Vec<bool>,
    /// The tournament's inner nodes, its root at 1: each holds the head that lost there. The
    /// leaf of run `i` is node `i + k`, above it node `(i + k) / 2`.
    losers: Vec<Head>,
    /// The smallest head; `None` before the first step and at the end.
    winner: Option<Head>,
    /// The key of the last entry stepped to, tombstones that were dropped included.
    previous_key: Vec<u8>,
    is_started: bool,
    tombstones: Tombstones,
}

/// What a run shows.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The largest of all if the run has ended.
    hash: KeyHash,
    run: usize,
}

impl Merge {
    /// Merges `runs`, the newest first.
    pub fn new(runs: Vec<Box<dyn Run>>, tombstones: Tombstones) -> Merge {
        Merge {
            is_ended: vec![false; runs.len()],
            losers: Vec::with_capacity(runs.len()),
            runs,
            winner: None,
            previous_key: Vec::new(),
            is_started: false,
            tombstones,
        }
    }

    /// Steps to the next entry, tombstone or not.
    fn step(&mut self) -> Result<bool> {
        if !self.is_started {
            self.is_started = true;
            self.winner = self.start()?;
        } else if let Some(winner) = self.winner {
            self.winner = self.step_past(winner)?;
        }
        let Some(winner) = self.winner else { return Ok(false) };
        self.previous_key.clear();
        self.previous_key.extend_from_slice(self.runs[winner.run].entry().key);
        Ok(true)
    }

    /// Moves all runs past the key of `winner` and returns the next winner.
    fn step_past(&mut self, winner: Head) -> Result<Option<Head>> {
        let mut next = winner;
        loop {
            let head = self.head(next.run, Some(winner.hash))?;
            next = self.play(head);
            if self.is_ended[next.run] {
                return Ok(None);
            }
            let is_same = next.hash == winner.hash && self.key(next) == self.previous_key;
            if !is_same {
                return Ok(Some(next));
            }
        }
    }

    fn start(&mut self) -> Result<Option<Head>> {
        // Each place in the tournament goes to the first who comes by, and only the last one gets
        // through to the root.
        let nobody = Head { hash: KeyHash::from_bits(0), run: usize::MAX };
        self.losers.resize(self.runs.len(), nobody);
        let mut winner = None;
        for run in 0..self.runs.len() {
            let mut player = self.head(run, None)?;
            let mut node = (run + self.runs.len()) / 2;
            while node > 0 && self.losers[node].run != nobody.run {
                player = self.meet(node, player);
                node /= 2;
            }
            if node > 0 {
                self.losers[node] = player;
            } else {
                winner = Some(player);
            }
        }
        Ok(winner.filter(|winner| !self.is_ended[winner.run]))
    }

    /// Steps `run` to its next entry, which must come after the previous one.
    #[inline]
    fn head(&mut self, run: usize, previous: Option<KeyHash>) -> Result<Head> {
        if !self.runs[run].advance()? {
            self.is_ended[run] = true;
            return Ok(Head { hash: KeyHash::from_bits(u128::MAX), run });
        }
        let Entry { hash, key, .. } = self.runs[run].entry();
        // No run is moved but past the previous key.
        match previous {
            Some(previous) if (previous, self.previous_key.as_slice()) >= (hash, key) => {
                Err(ErrorKind::Order { previous, got: hash }.into())
            }
            _ => Ok(Head { hash, run }),
        }
    }

    /// Lets the new head of the last winner's run play its matches, from its leaf to the root;
    /// returns the winner.
    #[inline]
    fn play(&mut self, head: Head) -> Head {
        let mut player = head;
        let mut node = (head.run + self.runs.len()) / 2;
        while node > 0 {
            player = self.meet(node, player);
            node /= 2;
        }
        player
    }

    /// `player` meets the head that waits at `node`: the loser stays, the winner is returned.
    #[inline]
    fn meet(&mut self, node: usize, player: Head) -> Head {
        let other = self.losers[node];
        let player_wins = if player.hash == other.hash {
            self.is_before(player, other)
        } else {
            player.hash < other.hash
        };
        // Either may win, so that a branch would be mispredicted every other time. Choosing field
        // by field keeps all of it in registers.
        let choose = |if_wins: Head, if_loses: Head| Head {
            hash: select_unpredictable(player_wins, if_wins.hash, if_loses.hash),
            run: select_unpredictable(player_wins, if_wins.run, if_loses.run),
        };
        self.losers[node] = choose(other, player);
        choose(player, other)
    }

    /// Whether `a` comes before `b`, which has the same hash. Of equal keys, the newer's does.
    #[cold]
    fn is_before(&self, a: Head, b: Head) -> bool {
        if self.is_ended[a.run] || self.is_ended[b.run] {
            return !self.is_ended[a.run];
        }
        (self.key(a), a.run) < (self.key(b), b.run)
    }

    fn key(&self, head: Head) -> &[u8] {
        self.runs[head.run].entry().key
    }
}

impl Run for Merge {
    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.step() {
                Ok(true) if self.tombstones == Tombstones::Drop && self.entry().value.is_none() => {
                }
                Ok(more) => return Ok(more),
                Err(error) => {
                    self.winner = None;
                    return Err(error);
                }
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        let winner = self.winner.expect("the last advance returned true");
        self.runs[winner.run].entry()
    }
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs.len();
        f.debug_struct("Merge").field("runs", &runs).field("tombstones", &self.tombstones).finish()
    }
}
