//! PHast+ (Beling and Sanders, 2025), a minimal perfect hash function whose size is between PtrHash
//! and the smallest.

use super::{Keys, Measured, Peer, build, check_minimal_perfect, time_gets};
use crate::{Result, measure::TemporaryFolder};
use ph::phast::Function2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Phast;

impl Peer for Phast {
    fn name(&self) -> String {
        "PHast+".to_owned()
    }

    fn note(&self) -> String {
        "order not preserved; takes the high 64 bits of hashes, unsorted".to_owned()
    }

    fn round(&self, keys: &Keys, _: &TemporaryFolder) -> Result<Measured> {
        let (index, build_ns) = build(keys.count(), || Ok(Function2::from_slice_st(&keys.highs)))?;
        check_minimal_perfect(&keys.highs, |key| index.get(key))?;
        Ok(Measured {
            bits_per_key: index.write_bytes() as f64 * 8.0 / keys.count() as f64,
            build_ns,
            get_ns: time_gets(&keys.queries.highs, |key| index.get(key)),
            ..Measured::default()
        })
    }
}
