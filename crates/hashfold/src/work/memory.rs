//! A limit of memory that several parts share.

use crate::error::{ErrorKind, Result};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A limit of memory that several parts of a process share. Each reserves memory before it takes it, and is
/// refused if the limit would be exceeded. Clones are the same budget.
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
        MemoryBudget(Arc::new(Counts { limit, reserved: AtomicU64::new(0) }))
    }

    /// Makes a budget that refuses nothing.
    pub fn unlimited() -> MemoryBudget {
        MemoryBudget::new(u64::MAX)
    }

    /// Returns the number of bytes that are reserved.
    pub fn reserved(&self) -> u64 {
        self.0.reserved.load(Relaxed)
    }

    /// Reserves memory.
    ///
    /// # Errors
    /// `Memory` if the limit would be exceeded; nothing is reserved then.
    pub fn reserve(&self, bytes: u64) -> Result<Reserved> {
        let counts = &self.0;
        let more = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= counts.limit);
        match counts.reserved.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Ok(Reserved { counts: counts.clone(), bytes }),
            Err(reserved) => {
                let limit = counts.limit;
                Err(ErrorKind::Memory { needs: bytes, reserved, limit }.into())
            }
        }
    }
}

impl Reserved {
    /// Changes the number of bytes to that which turned out to be needed.
    ///
    /// # Errors
    /// `Memory` if the limit would be exceeded; nothing is changed then.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let mut added = MemoryBudget(self.counts.clone()).reserve(more)?;
            // From here on, this reservation gives the bytes back.
            added.bytes = 0;
        } else {
            self.counts.reserved.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.counts.reserved.fetch_sub(self.bytes, Relaxed);
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
    fn threads_that_reserve_at_once_stay_below_the_limit() {
        let budget = MemoryBudget::new(1000);
        let count = || {
            let all: Vec<_> = (0..1000).map_while(|_| budget.reserve(7).ok()).collect();
            assert!(budget.reserved() <= 1000);
            all.len()
        };
        let most = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).max()
        });
        assert!(most <= Some(142));
        assert_eq!(budget.reserved(), 0);
    }
}
