//! The capacity of a filter that grows: RedisBloom adds filters, each larger than the one before by the
//! expansion. One of ours holds all items; these numbers say how many filters RedisBloom would have.

/// Number of fingerprints for each item of the capacity that keep the false-positive rate: a filter that
/// grows holds it up to this multiple of its capacity.
pub(super) const ROOM: u64 = 1024;

/// The capacity and the number of filters with which all items have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) capacity: u64,
    pub(super) filters: u64,
}

/// Returns the growth of a filter: expansions of the first capacity until `items` have room. With an
/// expansion of 0 there is none.
pub(super) fn growth(first: u64, expansion: u32, items: u64) -> Growth {
    let mut growth = Growth { capacity: first, filters: 1 };
    let mut next = first;
    while expansion > 0 && growth.capacity < items {
        next = next.saturating_mul(expansion.into()).max(1);
        growth.capacity = growth.capacity.saturating_add(next);
        growth.filters += 1;
    }
    growth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_sums_of_powers() {
        for (first, expansion, items, capacity, filters) in [
            (100, 2, 0, 100, 1),
            (100, 2, 100, 100, 1),
            (100, 2, 101, 300, 2),
            (100, 2, 301, 700, 3),
            (100, 1, 301, 400, 4),
            (100, 0, 1000, 100, 1),
            (u64::MAX, 2, u64::MAX, u64::MAX, 1),
        ] {
            assert_eq!(growth(first, expansion, items), Growth { capacity, filters });
        }
    }
}
