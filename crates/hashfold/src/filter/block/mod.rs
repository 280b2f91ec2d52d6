//! Fingerprints of one stretch in 4096 bytes, by Elias and Fano: packing and unpacking. `layout.rs`
//! has the bytes.

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
