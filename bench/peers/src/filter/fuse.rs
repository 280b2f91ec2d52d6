//! xorf: binary fuse filters, which are built from all keys at once.

use super::{Keys, Measured, Peer, ask_all, rate};
use crate::Result;
use xorf::{BinaryFuse8, BinaryFuse16, Filter};

pub(super) enum Fuse {
    Bits8,
    Bits16,
}

impl Peer for Fuse {
    fn name(&self) -> String {
        match self {
            Fuse::Bits8 => "xorf BinaryFuse8".to_owned(),
            Fuse::Bits16 => "xorf BinaryFuse16".to_owned(),
        }
    }

    fn note(&self) -> String {
        "static: built of all hashes at once, in any order; its error rates are fixed".to_owned()
    }

    fn round(&self, keys: &Keys) -> Result<Measured> {
        let hashes = keys.all.iter().map(|hash| hash.high());
        match self {
            Fuse::Bits8 => {
                let built = rate(keys.all.len(), || BinaryFuse8::try_from_iterator(hashes));
                measure(keys, (built.0?, built.1), 8)
            }
            Fuse::Bits16 => {
                let built = rate(keys.all.len(), || BinaryFuse16::try_from_iterator(hashes));
                measure(keys, (built.0?, built.1), 16)
            }
        }
    }
}

fn measure(keys: &Keys, (filter, build): (impl Filter<u64>, f64), bits: u32) -> Result<Measured> {
    let expected = 2_f64.powi(-(bits as i32));
    let lookups = ask_all(keys, expected, |hash| filter.contains(&hash.high()))?;
    Ok(Measured {
        bits_per_item: filter.len() as f64 * f64::from(bits) / keys.all.len() as f64,
        error_rate: lookups.error_rate,
        present: lookups.present,
        absent: lookups.absent,
        build: Some(build),
        ..Measured::default()
    })
}
