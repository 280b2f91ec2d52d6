//! The paper's quotient filter, at its load of 3/4.

use super::{
    Keys, Measured, PAPER_LOAD, Peer, REMAINDER_BITS, ask_all, check, check_removed,
    paper::PaperFilter, quarter, rate,
};
use crate::Result;
use hashfold::KeyHash;
use std::hint::black_box;

pub(super) struct Paper;

impl Peer for Paper {
    fn name(&self) -> String {
        "the paper's quotient filter".to_owned()
    }

    fn note(&self) -> String {
        format!(
            "three bits a slot, load {PAPER_LOAD}: as many keys fewer; a slot takes 16 bits in \
             memory, so that nothing is packed, and 12 in bits_per_item, as the paper packs it"
        )
    }

    fn round(&self, keys: &Keys) -> Result<Measured> {
        // The other filters have more keys in the same number of slots.
        let count = ((1_u64 << keys.log_slots) as f64 * PAPER_LOAD) as usize;
        let salt = keys.all.len() - count;
        let mut fewer = Keys {
            log_slots: keys.log_slots,
            all: keys.all[..count].to_vec(),
            present: Vec::new(),
            absent: keys.absent.clone(),
        };
        fewer.present.extend((0..keys.present.len()).map(|i| {
            let i = crate::data::mix((i ^ salt) as u64) % count as u64;
            keys.all[i as usize]
        }));
        round(&fewer)
    }
}

fn round(keys: &Keys) -> Result<Measured> {
    let (mut filter, insert) = rate(keys.all.len(), || fill(keys, &keys.all));
    let expected = filter.len() as f64 / 2_f64.powi((keys.log_slots + REMAINDER_BITS) as i32);
    let lookups = ask_all(keys, expected, |hash| filter.contains(filter.fingerprint(hash.high())))?;
    let items = filter.len();
    let (seen, iterate) = rate(items as usize, || {
        filter.iter().fold(0, |seen: u64, it| {
            black_box(it);
            seen + 1
        })
    });
    check(seen == items, || "an iteration lost an item")?;
    let (built, build) = rate(items as usize, || filter.build(filter.iter()));
    check(built.len() == items, || "a built filter lost an item")?;
    let (left, right) = keys.all.split_at(keys.all.len() / 2);
    let (left, right) = (fill(keys, left), fill(keys, right));
    let (merged, merge) = rate(keys.all.len(), || left.merge(&right));
    check(merged.len() == items, || "a merge lost an item")?;
    let bits_per_item = filter.packed_bits() as f64 / items as f64;
    let (removed, delete) = rate(quarter(keys).len(), || {
        let mut removed = 0;
        for hash in quarter(keys) {
            removed += u64::from(filter.remove(filter.fingerprint(hash.high())));
        }
        removed
    });
    check_removed(removed, keys)?;
    Ok(Measured {
        bits_per_item,
        error_rate: lookups.error_rate,
        insert: Some(insert),
        present: lookups.present,
        absent: lookups.absent,
        delete: Some(delete),
        iterate: Some(iterate),
        build: Some(build),
        merge: Some(merge),
    })
}

fn fill(keys: &Keys, hashes: &[KeyHash]) -> PaperFilter {
    let mut filter = PaperFilter::new(keys.log_slots, REMAINDER_BITS);
    for hash in hashes {
        filter.insert(filter.fingerprint(hash.high()));
    }
    filter
}

#[path = "../../../../crates/hashfold/tests/it/paper_quotient.rs"]
#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::{PaperFilter, reference::PaperQuotient};
    use crate::data::mix;

    /// A small filter, nearly always three quarters full, of which a part is removed and inserted
    /// again.
    #[test]
    fn the_fast_filter_agrees_with_the_obviously_right_one() {
        for seed in 0..20 {
            let mut fast = PaperFilter::new(8, 4);
            // The twin has more slots, because its clusters wrap around.
            let mut right = PaperQuotient::new(9, 4);
            for i in 0..3000 {
                let fingerprint = mix(mix(seed) ^ i) >> 52;
                let is_in = right.contains(fingerprint);
                assert_eq!(fast.contains(fingerprint), is_in);
                if is_in {
                    assert!(!fast.insert(fingerprint));
                }
                if is_in || right.len() > 192 {
                    assert_eq!(fast.remove(fingerprint), right.remove(fingerprint), "{i}");
                } else {
                    assert!(fast.insert(fingerprint) && right.insert(fingerprint), "{i}");
                }
                assert_eq!(fast.len() as usize, right.len());
            }
            assert_eq!(fast.iter().collect::<Vec<_>>(), right.iterate());
            let built = fast.build(fast.iter());
            assert!((0..4096).all(|i| built.contains(i) == right.contains(i)));
            let mut other = PaperFilter::new(8, 4);
            for i in 0..50 {
                other.insert(mix(i) >> 52);
            }
            let merged = fast.merge(&other);
            assert!(
                (0..4096).all(|i| merged.contains(i) == (fast.contains(i) || other.contains(i)))
            );
        }
    }
}
