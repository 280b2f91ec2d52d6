//! Several runs merged to one: the newest entry of a key wins.

use super::{Entry, Run, Summary};
use crate::{
    error::{Error, ErrorKind, Result, check_seed},
    key::{KeyHash, Seed},
};
use std::{fmt, hint::select_unpredictable};

/// The treatment of a tombstone that is the newest entry of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// The tombstone is kept, because older data outside this merge may hold the key.
    Keep,
    /// The tombstone is dropped, because there is no older data that it could delete.
    Drop,
}

/// A run that merges several runs of one seed. If several runs hold a key, the newest run's entry
/// is kept.
///
/// Entries are not copied: a tournament between the current entries of k runs finds the next one in
/// ⌈log₂ k⌉ comparisons. A run that does not ascend is an error.
pub struct Merge {
    /// The runs, newest first.
    runs: Vec<Box<dyn Run>>,
    is_ended: Vec<bool>,
    /// The inner nodes of the tournament tree, the root at index 1; each holds the head that lost
    /// there. The leaf of run `i` is node `i + k`, its parent is node `(i + k) / 2`.
    losers: Vec<RunHead>,
    /// The smallest head; `None` before the first step and at the end.
    winner: Option<RunHead>,
    /// The key of the last entry, dropped tombstones included.
    previous_key: Vec<u8>,
    is_started: bool,
    tombstones: Tombstones,
}

/// The hash of a run's current entry.
#[derive(Clone, Copy, Debug)]
struct RunHead {
    /// The largest possible hash if the run has ended.
    hash: KeyHash,
    run: usize,
}

impl Merge {
    /// Makes a run that merges `runs`, which are given newest first.
    ///
    /// # Errors
    /// `Argument` if there is no run, `WrongSeed` if two runs have different seeds.
    pub fn new(runs: Vec<Box<dyn Run>>, tombstones: Tombstones) -> Result<Merge> {
        let Some(first) = runs.first() else {
            return Err(Error::argument("number of runs", "1 or more", 0));
        };
        runs.iter().try_for_each(|run| check_seed(first.seed(), run.seed()))?;
        Ok(Merge {
            is_ended: vec![false; runs.len()],
            losers: Vec::with_capacity(runs.len()),
            runs,
            winner: None,
            previous_key: Vec::new(),
            is_started: false,
            tombstones,
        })
    }

    /// Steps to the next entry, which may be a tombstone.
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
    fn step_past(&mut self, winner: RunHead) -> Result<Option<RunHead>> {
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

    fn start(&mut self) -> Result<Option<RunHead>> {
        // The tournament is filled run by run: a head waits at the first empty node on its way to
        // the root, and only the last head reaches the root.
        let nobody = RunHead { hash: KeyHash::from_bits(0), run: usize::MAX };
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

    /// Steps `run` to its next entry, which must come after the previous entry.
    #[inline]
    fn head(&mut self, run: usize, previous: Option<KeyHash>) -> Result<RunHead> {
        if !self.runs[run].advance()? {
            self.is_ended[run] = true;
            return Ok(RunHead { hash: KeyHash::from_bits(u128::MAX), run });
        }
        let Entry { hash, key, .. } = self.runs[run].entry();
        // A run is moved only when it stands on the previous key.
        match previous {
            Some(previous) if (previous, self.previous_key.as_slice()) >= (hash, key) => {
                Err(ErrorKind::Order { previous, got: hash }.into())
            }
            _ => Ok(RunHead { hash, run }),
        }
    }

    /// Replays the matches of the last winner's run with its new head, from the leaf to the root,
    /// and returns the winner.
    #[inline]
    fn play(&mut self, head: RunHead) -> RunHead {
        let mut player = head;
        let mut node = (head.run + self.runs.len()) / 2;
        while node > 0 {
            player = self.meet(node, player);
            node /= 2;
        }
        player
    }

    /// Plays `player` against the head at `node`: the loser stays there, the winner is returned.
    #[inline]
    fn meet(&mut self, node: usize, player: RunHead) -> RunHead {
        let other = self.losers[node];
        let player_wins = if player.hash == other.hash {
            self.is_before(player, other)
        } else {
            player.hash < other.hash
        };
        // Either head may win, so a branch would be mispredicted half of the time. Selecting each
        // field separately keeps everything in registers.
        let choose = |if_wins: RunHead, if_loses: RunHead| RunHead {
            hash: select_unpredictable(player_wins, if_wins.hash, if_loses.hash),
            run: select_unpredictable(player_wins, if_wins.run, if_loses.run),
        };
        self.losers[node] = choose(other, player);
        choose(player, other)
    }

    /// Whether `a` comes before `b`, which has the same hash. If the keys are equal, too, the newer
    /// run comes first.
    #[cold]
    fn is_before(&self, a: RunHead, b: RunHead) -> bool {
        if self.is_ended[a.run] || self.is_ended[b.run] {
            return !self.is_ended[a.run];
        }
        (self.key(a), a.run) < (self.key(b), b.run)
    }

    fn key(&self, head: RunHead) -> &[u8] {
        self.runs[head.run].entry().key
    }
}

impl Run for Merge {
    fn seed(&self) -> Seed {
        self.runs[0].seed()
    }

    fn summary(&self) -> Summary {
        self.runs.iter().map(Run::summary).fold(Summary::EMPTY, Summary::union)
    }

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
