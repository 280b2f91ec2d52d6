//! A limit of memory that several parts share.

use crate::error::{ErrorKind, Result};
use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A limit of memory that several parts of a process share. Each reserves memory before it takes it, and is
/// refused if the limit would be exceeded. Clones are the same budget. A budget can be [part](MemoryBudget::part) of
/// another one.
///
/// ```
/// use hashfold::work::MemoryBudget;
///
/// let budget = MemoryBudget::new(100);
/// let index = budget.reserve(80).unwrap();
/// assert!(budget.reserve(30).is_err());
/// drop(index);
/// assert!(budget.reserve(30).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    limit: u64,
    reserved: AtomicU64,
    /// The budget that this one is a part of.
    whole: Option<Arc<Counts>>,
}

impl Counts {
    /// Reserves memory here and in the budgets that this one is a part of, or nowhere.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let limit = self.limit;
        let more = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= limit);
        if let Err(reserved) = self.reserved.fetch_update(Relaxed, Relaxed, more) {
            return Err(ErrorKind::Memory { needs: bytes, reserved, limit }.into());
        }
        let whole = self.whole.as_ref().map_or(Ok(()), |whole| whole.reserve(bytes));
        if whole.is_err() {
            self.reserved.fetch_sub(bytes, Relaxed);
        }
        whole
    }

    /// Gives memory back, here and in the budgets that this one is a part of.
    fn free(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Relaxed);
        if let Some(whole) = &self.whole {
            whole.free(bytes);
        }
    }
}

/// Memory that was reserved in a [`MemoryBudget`]; dropping this gives it back.
#[derive(Debug)]
#[must_use]
pub struct Reserved {
    counts: Arc<Counts>,
    bytes: u64,
}

impl MemoryBudget {
    /// Makes a budget of this number of bytes.
    pub fn new(limit: u64) -> MemoryBudget {
        MemoryBudget(Arc::new(Counts { limit, reserved: AtomicU64::new(0), whole: None }))
    }

    /// Makes a budget of a part of this one: at most `limit` bytes, which are reserved in both.
    ///
    /// ```
    /// use hashfold::work::MemoryBudget;
    ///
    /// let whole = MemoryBudget::new(100);
    /// let part = whole.part(60);
    /// let index = part.reserve(50).unwrap();
    /// assert!(part.reserve(20).is_err() && whole.reserve(60).is_err());
    /// drop(index);
    /// let others = whole.reserve(90).unwrap();
    /// assert!(part.reserve(20).is_err());
    /// ```
    pub fn part(&self, limit: u64) -> MemoryBudget {
        let whole = Some(self.0.clone());
        MemoryBudget(Arc::new(Counts { limit, reserved: AtomicU64::new(0), whole }))
    }

    /// Makes a budget that refuses nothing.
    pub fn unlimited() -> MemoryBudget {
        MemoryBudget::new(u64::MAX)
    }

    /// Returns the number of bytes that are reserved.
    pub fn reserved(&self) -> u64 {
        self.0.reserved.load(Relaxed)
    }

    /// Returns the number of bytes that are left: of this budget, or of one that it is a part of if that has less.
    ///
    /// ```
    /// use hashfold::work::MemoryBudget;
    ///
    /// let whole = MemoryBudget::new(100);
    /// let (part, other) = (whole.part(50), whole.part(60));
    /// let _reserved = (part.reserve(25).unwrap(), other.reserve(50).unwrap());
    /// assert_eq!((part.left(), other.left(), whole.left()), (25, 10, 25));
    /// ```
    pub fn left(&self) -> u64 {
        let budgets = iter::successors(Some(&self.0), |counts| counts.whole.as_ref());
        let left =
            |counts: &Arc<Counts>| counts.limit.saturating_sub(counts.reserved.load(Relaxed));
        budgets.map(left).fold(u64::MAX, u64::min)
    }

    /// Reserves memory.
    ///
    /// # Errors
    /// `Memory` if the limit, or that of a budget that this one is a part of, would be exceeded; nothing is reserved then.
    pub fn reserve(&self, bytes: u64) -> Result<Reserved> {
        self.0.reserve(bytes).map(|()| Reserved { counts: self.0.clone(), bytes })
    }
}

impl Reserved {
    /// Changes the number of bytes to that which turned out to be needed.
    ///
    /// # Errors
    /// `Memory` if the limit would be exceeded; nothing is changed then.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.counts.reserve(more)?,
            None => self.counts.free(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.counts.free(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_never_more_than_the_limit() {
        let budget = MemoryBudget::new(100);
        let half = budget.reserve(50).unwrap();
        let mut rest = budget.reserve(50).unwrap();
        let refused = budget.reserve(1).unwrap_err();
        let ErrorKind::Memory { needs: 1, reserved: 100, limit: 100 } = refused.kind() else {
            panic!("{refused}")
        };
        assert!(
            refused.to_string().contains("needs 1 bytes of memory, and 100 of 100"),
            "{refused}"
        );
        assert!(rest.resize(51).is_err());
        rest.resize(20).unwrap();
        assert_eq!(budget.reserved(), 70);
        drop(half);
        rest.resize(100).unwrap();
        assert!(budget.reserve(1).is_err());
        drop(rest);
        assert_eq!(budget.reserved(), 0);
        assert!(budget.reserve(u64::MAX).is_err());
        drop(MemoryBudget::unlimited().reserve(u64::MAX).unwrap());
    }

    #[test]
    fn what_is_reserved_in_a_part_is_reserved_in_the_whole() {
        let whole = MemoryBudget::new(100);
        let [first, second] = [80, 70].map(|limit| whole.part(limit));
        let mut most = first.reserve(60).unwrap();
        let is_refused_by = |refused: Result<Reserved>, is_limit: u64, is_reserved: u64| {
            let refused = refused.unwrap_err();
            let ErrorKind::Memory { reserved, limit, .. } = *refused.kind() else {
                panic!("{refused}")
            };
            assert_eq!((limit, reserved), (is_limit, is_reserved));
        };
        is_refused_by(first.reserve(30), 80, 60);
        is_refused_by(second.reserve(50), 100, 60);
        // What the whole refuses is not reserved in the part.
        assert_eq!([&whole, &first, &second].map(MemoryBudget::reserved), [60, 60, 0]);
        most.resize(30).unwrap();
        let rest = second.reserve(70).unwrap();
        assert!(most.resize(31).is_err());
        assert_eq!([&whole, &first, &second].map(MemoryBudget::reserved), [100, 30, 70]);
        drop((most, rest));
        assert_eq!([&whole, &first, &second].map(MemoryBudget::reserved), [0; 3]);
    }

    #[test]
    fn threads_that_reserve_at_once_stay_below_the_limit() {
        let whole = MemoryBudget::new(1000);
        for budget in [whole.clone(), whole.part(2000)] {
            let count = || {
                let all: Vec<_> = (0..1000).map_while(|_| budget.reserve(7).ok()).collect();
                assert!(whole.reserved() <= 1000);
                all.len()
            };
            let most = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).max()
            });
            assert!(most <= Some(142));
            assert_eq!((budget.reserved(), whole.reserved()), (0, 0));
        }
    }
}
