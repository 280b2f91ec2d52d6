//! The memory of values that lookups have read, until the replies have them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes of values that each batch may have without a reservation.
const FREE_BYTES: usize = 256 << 10;

/// The reply to a request for whose values there is no memory now.
const BUSY: &str = "TRYAGAIN The values of other requests take the memory of clients";

/// Reservations are multiples of this number of bytes.
const STEP: u64 = 1 << 20;

/// A limit of the memory of the values of all batches, and what they take of it.
#[derive(Debug)]
pub(crate) struct ValueMemory {
    limit: u64,
    taken: AtomicU64,
}

impl ValueMemory {
    pub(crate) fn new(limit: u64) -> ValueMemory {
        ValueMemory { limit: limit.max(STEP), taken: AtomicU64::new(0) }
    }

    /// Takes memory. Returns `false` if there is not as much left.
    fn take(&self, bytes: u64) -> bool {
        let add = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.taken.fetch_update(Relaxed, Relaxed, add).is_ok()
    }
}

/// The room that a batch has for values.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    /// What was taken, and from where.
    taken: Option<(Arc<ValueMemory>, u64)>,
}

impl Default for Room {
    fn default() -> Room {
        Room { bytes: FREE_BYTES, taken: None }
    }
}

impl Room {
    /// Returns the number of bytes for which there is room.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for this number of bytes in all, if there is less.
    ///
    /// # Errors
    /// The errors of [`Room::grow`].
    pub(super) fn reserve(
        &mut self,
        bytes: usize,
        memory: &Arc<ValueMemory>,
    ) -> Result<(), String> {
        if bytes > self.bytes { self.grow(bytes, memory) } else { Ok(()) }
    }

    /// Makes room for a value beside this number of bytes of other requests.
    ///
    /// # Errors
    /// The reply: other requests take the memory now, or the value has more bytes than the memory.
    pub(super) fn reserve_beside(
        &mut self,
        others: usize,
        value: usize,
        memory: &Arc<ValueMemory>,
    ) -> Result<(), String> {
        let limit = memory.limit;
        if value > FREE_BYTES && (value as u64).next_multiple_of(STEP) > limit {
            return Err(format!(
                "ERR the value has {value} bytes, and the memory of clients {limit}; raise `client-memory`"
            ));
        }
        self.reserve(others + value, memory).map_err(|_| BUSY.into())
    }

    /// Makes room for this number of bytes in all, and for some more.
    ///
    /// # Errors
    /// The reply: other requests take the memory now, or there is less in all.
    #[cold]
    pub(super) fn grow(&mut self, bytes: usize, memory: &Arc<ValueMemory>) -> Result<(), String> {
        let (_, taken) = self.taken.get_or_insert_with(|| (memory.clone(), 0));
        let wanted = (bytes as u64).next_multiple_of(STEP);
        if wanted > memory.limit {
            let limit = memory.limit;
            return Err(format!(
                "ERR the values of one request have at most {limit} bytes, the memory of clients; ask for fewer \
                 keys at once"
            ));
        }
        if !memory.take(wanted - *taken) {
            return Err(BUSY.into());
        }
        *taken = wanted;
        self.bytes = wanted as usize;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((memory, taken)) = &self.taken {
            memory.taken.fetch_sub(*taken, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rooms_together_keep_the_limit_and_give_back_what_they_took() {
        let memory = Arc::new(ValueMemory::new(3 << 20));
        let (mut first, mut second) = (Room::default(), Room::default());
        first.grow(FREE_BYTES + 1, &memory).unwrap();
        first.grow(2 << 20, &memory).unwrap();
        assert_eq!(first.bytes(), 2 << 20);
        second.grow(1 << 20, &memory).unwrap();
        let busy = second.grow((1 << 20) + 1, &memory).unwrap_err();
        assert!(busy.starts_with("TRYAGAIN "), "{busy}");
        drop(first);
        second.grow(3 << 20, &memory).unwrap();
        let never = second.grow((3 << 20) + 1, &memory).unwrap_err();
        assert!(never.starts_with("ERR ") && never.contains("3145728"), "{never}");
        drop(second);
        assert_eq!(memory.taken.load(Relaxed), 0);
    }

    #[test]
    fn values_of_other_requests_are_no_fault_of_a_small_one() {
        let memory = Arc::new(ValueMemory::new(3 << 20));
        let mut room = Room::default();
        room.reserve_beside(1 << 20, 2 << 20, &memory).unwrap();
        let busy = room.reserve_beside(2 << 20, 2 << 20, &memory).unwrap_err();
        assert!(busy.starts_with("TRYAGAIN "), "{busy}");
        let never = room.reserve_beside(0, (3 << 20) + 1, &memory).unwrap_err();
        assert!(never.starts_with("ERR the value has 3145729 bytes"), "{never}");
    }
}
