//! Chains as bytes: the touches of a user in the order of their arrival.
//!
//! A touch is its size without this number, as a variable-length integer; its time in 8 bytes; and its channel, encoded as
//! the group of a summary. `docs/formats/checkpoint.md` has this, too, in words.

use super::{events::Value, windows::decode_group};
use crate::{
    codec::{Decoder, put_varint},
    error::{Error, Result},
};

/// A touch of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) time_ms: i64,
    /// The encoded channel.
    pub(super) channel: &'a [u8],
    /// The touch with its size.
    bytes: &'a [u8],
}

/// Appends a touch.
pub(super) fn put(out: &mut Vec<u8>, time_ms: i64, channel: &[u8]) {
    put_varint(out, (size_of::<i64>() + channel.len()) as u64);
    out.extend(time_ms.to_le_bytes());
    out.extend_from_slice(channel);
}

/// Takes a touch off the front.
fn take<'a>(chain: &mut Decoder<'a>) -> Result<Record<'a>> {
    let before = chain.rest();
    let mut fields = Decoder::new(chain.sized_bytes()?);
    let time_ms = fields.u64()? as i64;
    let bytes = &before[..before.len() - chain.rest().len()];
    Ok(Record { time_ms, channel: fields.rest(), bytes })
}

/// Returns the touches of a chain that [`put`] wrote or [`check`] has checked.
pub(super) fn records(chain: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = Decoder::new(chain);
    std::iter::from_fn(move || if rest.rest().is_empty() { None } else { take(&mut rest).ok() })
}

/// Checks the touches of a chain, each with this number of channel fields.
///
/// # Errors
/// Damage, or too many touches or none.
pub(super) fn check(chain: &[u8], fields: usize, touches_max: usize) -> Result<()> {
    let mut rest = Decoder::new(chain);
    let mut count = 0;
    while !rest.rest().is_empty() {
        decode_group(take(&mut rest)?.channel, fields)?;
        count += 1;
    }
    match (1..=touches_max).contains(&count) {
        true => Ok(()),
        false => Err(Error::field("touches of a chain", format!("1 to {touches_max}"), count)),
    }
}

/// Returns how many first bytes of a chain to remove, so that at most `keep` touches stay, and the first of them is not
/// older than `oldest_ms`.
pub(super) fn dropped(chain: &[u8], oldest_ms: i64, keep: usize) -> usize {
    let beyond = records(chain).count().saturating_sub(keep);
    let leading = records(chain).enumerate();
    let is_dropped = |(i, record): &(usize, Record<'_>)| *i < beyond || record.time_ms < oldest_ms;
    leading.take_while(is_dropped).map(|(_, record)| record.bytes.len()).sum()
}

/// Appends the touches of a chain that are not older than `oldest_ms`.
pub(super) fn put_young(out: &mut Vec<u8>, chain: &[u8], oldest_ms: i64) {
    let young = records(chain).filter(|record| record.time_ms >= oldest_ms);
    young.for_each(|record| out.extend_from_slice(record.bytes));
}

/// Decodes a chain, such as a value of a [`ChainDump`](super::ChainDump): the time of each touch in milliseconds since 1970, and
/// the values of its channel, `fields` of them. Touches are in the order of their arrival.
///
/// # Errors
/// Damage.
pub fn chain_touches(chain: &[u8], fields: usize) -> Result<Vec<(i64, Vec<Value<'_>>)>> {
    let mut rest = Decoder::new(chain);
    let mut touches = Vec::new();
    while !rest.rest().is_empty() {
        let record = take(&mut rest)?;
        touches.push((record.time_ms, decode_group(record.channel, fields)?));
    }
    Ok(touches)
}
