//! Blocks: fingerprints in 4096 bytes, in Elias-Fano form; packing and unpacking. `layout.rs`
//! describes the bytes.

mod decode;
mod encode;
mod kernel;
mod layout;
mod portable;
#[cfg(test)]
mod tests;

pub(super) use self::{
    encode::Encoder,
    layout::{BLOCK_SIZE, Block, Bytes, ITEMS_MAX, unseal},
};
