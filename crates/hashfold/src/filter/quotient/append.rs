//! Writing a filter from its first slot to its last, without searching.

use super::{
    block::SlotBlockMut,
    kernel::{Kernel, KernelTask, Processor},
    layout::{BLOCK_SLOTS, SHIFT_MAX, SlotLayout},
};
use crate::io::Buffer;

/// Writes the blocks of fingerprints that come in ascending order, with copies one after the other.
///
/// The blocks are byte for byte those that inserting the fingerprints one by one makes.
#[derive(Debug)]
pub(super) struct Appender {
    bytes: Buffer,
    machine: Processor,
    state: AppendState,
}

#[derive(Debug)]
struct AppendState {
    layout: SlotLayout,
    /// The last fingerprint. Its slot is written once the next fingerprint shows whether the chain
    /// continues.
    pending: Option<u64>,
    /// The first free slot after all chains so far.
    next: usize,
    /// The block whose quotients are being written; the next field has its occupied bits.
    quotients: usize,
    occupied: u64,
    /// The block whose slots are being filled; the next fields are its ends and its remainders.
    slots: usize,
    ends: u64,
    remainders: [u64; BLOCK_SLOTS],
    overfull: bool,
}

/// The error of a cluster that is too long for the filter.
#[derive(Debug)]
pub(super) struct Overfull;

impl Appender {
    /// Returns an appender to `bytes`: zeros, as many as the layout has.
    pub(super) fn new(layout: SlotLayout, bytes: Buffer, machine: Processor) -> Appender {
        assert_eq!(bytes.len(), layout.bytes());
        let state = AppendState {
            layout,
            pending: None,
            next: 0,
            quotients: 0,
            occupied: 0,
            slots: 0,
            ends: 0,
            remainders: [0; BLOCK_SLOTS],
            overfull: false,
        };
        Appender { bytes, machine, state }
    }

    /// Appends fingerprints of the filter's universe, in ascending order.
    pub(super) fn append(&mut self, fingerprints: &[u64]) -> Result<(), Overfull> {
        self.machine.run(Append { appender: self, fingerprints });
        if self.state.overfull { Err(Overfull) } else { Ok(()) }
    }

    /// Returns the finished blocks.
    pub(super) fn finish(mut self) -> Result<Buffer, Overfull> {
        self.machine.run(Finish { appender: &mut self });
        if self.state.overfull { Err(Overfull) } else { Ok(self.bytes) }
    }
}

struct Append<'a> {
    appender: &'a mut Appender,
    fingerprints: &'a [u64],
}

impl KernelTask for Append<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self) {
        let Append { appender: Appender { bytes, state, .. }, fingerprints } = self;
        let Some((&first, rest)) = fingerprints.split_first() else { return };
        let mut pending = first;
        if let Some(before) = state.pending {
            state.put::<K>(bytes, before, first);
        }
        for &next in rest {
            state.put::<K>(bytes, pending, next);
            pending = next;
        }
        state.pending = Some(pending);
    }
}

struct Finish<'a> {
    appender: &'a mut Appender,
}

impl KernelTask for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self) {
        let Appender { bytes, state, .. } = self.appender;
        if let Some(pending) = state.pending.take() {
            // A fingerprint with another quotient ends the chain.
            state.put::<K>(bytes, pending, !pending);
        }
        state.leave_slots::<K>(bytes);
        state.leave_quotients(bytes, state.layout.all_blocks());
    }
}

impl AppendState {
    /// Writes a fingerprint to its slot; `next` is the fingerprint after it.
    #[inline(always)]
    fn put<K: Kernel>(&mut self, bytes: &mut [u8], fingerprint: u64, next: u64) {
        let quotient = self.layout.quotient(fingerprint);
        if quotient / BLOCK_SLOTS != self.quotients {
            self.leave_quotients(bytes, quotient / BLOCK_SLOTS);
        }
        let slot = self.next.max(quotient);
        if slot / BLOCK_SLOTS != self.slots {
            self.leave_slots::<K>(bytes);
            self.slots = slot / BLOCK_SLOTS;
        }
        let i = slot % BLOCK_SLOTS;
        self.remainders[i] = self.layout.remainder(fingerprint);
        self.occupied |= 1 << (quotient % BLOCK_SLOTS);
        self.ends |= u64::from(quotient != self.layout.quotient(next)) << i;
        self.next = slot + 1;
    }

    /// Writes the collected slots of the current block.
    #[inline(always)]
    fn leave_slots<K: Kernel>(&mut self, bytes: &mut [u8]) {
        if self.slots < self.layout.all_blocks() {
            let mut block = SlotBlockMut::of(bytes, self.layout, self.slots);
            block.set_ends(self.ends);
            block.set_remainders::<K>(&self.remainders);
        } else {
            self.overfull = true;
        }
        self.ends = 0;
        self.remainders = [0; BLOCK_SLOTS];
    }

    /// Writes the occupied bits of the finished block, and the offsets of the blocks after it, up
    /// to block `to`.
    #[inline(always)]
    fn leave_quotients(&mut self, bytes: &mut [u8], to: usize) {
        SlotBlockMut::of(bytes, self.layout, self.quotients).set_occupied(self.occupied);
        for index in self.quotients + 1..(to + 1).min(self.layout.all_blocks()) {
            let offset = self.next.saturating_sub(index * BLOCK_SLOTS);
            self.overfull |= offset > SHIFT_MAX;
            SlotBlockMut::of(bytes, self.layout, index).set_offset(offset as u16);
        }
        self.quotients = to;
        self.occupied = 0;
    }
}
