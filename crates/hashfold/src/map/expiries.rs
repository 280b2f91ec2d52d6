//! When the entries of a span expire, which decides when a merge removes them.

use crate::{
    codec::{Decoder, put_varint, within},
    error::{Error, Result},
};

/// The times at which entries of a span expire, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expiries {
    /// Number of entries that expire.
    count: u64,
    /// The first time; 0 if there is none.
    first: u64,
    /// The time from which on at least half of the entries that expire have expired.
    middle: u64,
}

impl Expiries {
    /// Summarizes the times, in any order.
    pub(super) fn of(mut times: Vec<u64>) -> Expiries {
        times.sort_unstable();
        let at = |i: usize| times.get(i).copied().unwrap_or(0);
        Expiries { count: times.len() as u64, first: at(0), middle: at(times.len() / 2) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether an entry has expired.
    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.count > 0 && self.first <= now
    }

    /// Whether at least a quarter of this number of entries has expired.
    pub(super) fn are_many(&self, now: u64, entries: u64) -> bool {
        2 * self.count >= entries && self.count > 0 && self.middle <= now
    }

    /// Appends the encoded times.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        if self.count > 0 {
            out.extend([self.first, self.middle].iter().flat_map(|time| time.to_le_bytes()));
        }
    }

    /// Decodes the times of a span with this number of entries.
    pub(super) fn decode(fields: &mut Decoder<'_>, entries: u64) -> Result<Expiries> {
        let what = "number of entries that expire";
        match within(what, 0..=entries, fields.varint()?)? {
            0 => Ok(Expiries::default()),
            count => {
                let (first, middle) = (fields.u64()?, fields.u64()?);
                if middle < first {
                    let expected = format!("at least {first}");
                    return Err(Error::field("middle of the times of expiry", expected, middle));
                }
                Ok(Expiries { count, first, middle })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_entries_has_expired_when_they_are_many() {
        for count in 0..9_u64 {
            let expiries = Expiries::of((0..count).rev().map(|i| 10 * i + 5).collect());
            for (entries, now) in
                (count..20).flat_map(|entries| (0..100).map(move |now| (entries, now)))
            {
                let expired = (0..count).filter(|i| 10 * i + 5 <= now).count() as u64;
                assert_eq!(expiries.has_expired(now), expired > 0);
                if expiries.are_many(now, entries) {
                    assert!(4 * expired >= entries, "{expired} of {entries} at {now}");
                }
            }
            assert_eq!(expiries.are_many(u64::MAX, count), count > 0);
        }
    }

    #[test]
    fn times_come_back_and_damage_is_an_error() {
        for times in [vec![], vec![7], vec![u64::MAX, 0, 5]] {
            let expiries = Expiries::of(times);
            let mut bytes = Vec::new();
            expiries.encode(&mut bytes);
            assert_eq!(Expiries::decode(&mut Decoder::new(&bytes), 3).unwrap(), expiries);
            for cut in 0..bytes.len() {
                assert!(Expiries::decode(&mut Decoder::new(&bytes[..cut]), 3).is_err());
            }
        }
        let bytes = [&[1][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0; 8]].concat();
        assert!(Expiries::decode(&mut Decoder::new(&bytes), 3).is_err());
        assert!(Expiries::decode(&mut Decoder::new(&[4]), 3).is_err());
    }
}
