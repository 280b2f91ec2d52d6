//! Batches of reads or writes with many requests in flight, through io_uring.
//!
//! The kernel reads and writes the buffers of a [`Ring`] without the compiler's knowledge. This is
//! sound because a buffer is lent to one request at a time and not touched until the request's
//! completion was seen, and because dropping a ring first waits for all requests in flight.
#![allow(unsafe_code)]

use super::{BlockFile, Buffer, Extent, FileExtents, Visit};
use crate::error::{Error, Result};
use io_uring::{IoUring, opcode, types::Fd};
use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind},
    mem,
    os::fd::AsRawFd,
    sync::Arc,
    thread,
};

/// Maximum number of requests in flight: enough to keep a fast device busy.
const IN_FLIGHT_MAX: usize = 128;
/// Maximum size of all buffers of a ring, in flight or kept, in bytes, unless a single request is
/// longer.
const BUFFER_BYTES_MAX: usize = 16 << 20;
/// Maximum size of a buffer that a slot keeps for its next request, in bytes.
const KEPT_BUFFER_SIZE_MAX: usize = BUFFER_BYTES_MAX / IN_FLIGHT_MAX;
/// Each system call submits and collects 1/8 of the requests in flight: a larger part needs fewer
/// calls, but the queue runs emptier.
const PART_PER_CALL: usize = 8;
/// Number of queued requests that are submitted while the caller still computes the next extents, so
/// that the device does not wait for all of them.
const SUBMITTED_AT_ONCE: usize = 16;
/// Maximum number of consecutive refusals by the kernel before they are an error.
const REFUSALS_MAX: usize = 10_000;
/// Maximum size of a single request, in bytes; the kernel takes at most 2 GiB.
const REQUEST_SIZE_MAX: usize = 1 << 30;

/// The largest valid offset; `u64::MAX` would mean the file's current position.
const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();

/// The result of a request that the kernel was not asked for.
const NOT_STARTED: i32 = -1;

/// The operation on the extents of a batch.
pub(super) enum Transfer<'a, 'b> {
    /// Read each extent, and pass it to the callback.
    Read(&'a mut Visit<'b>),
    /// Write these bytes to each extent.
    Write(&'a [(u64, &'a [u8])]),
}

impl Transfer<'_, '_> {
    fn action(&self) -> &'static str {
        match self {
            Transfer::Read(_) => "read",
            Transfer::Write(_) => "write",
        }
    }
}

/// Checks that the system allows io_uring. Without it, [`Access::Direct`](super::Access::Direct)
/// keeps up to 32 reads of a batch in flight by threads, which takes more CPU time per read.
///
/// # Errors
/// The system's refusal. The default seccomp profile of most container runtimes refuses io_uring.
pub fn check_io_uring() -> io::Result<()> {
    Ring::new().map(drop)
}

/// A queue of requests, with their buffers.
pub(super) struct Ring {
    uring: IoUring,
    slots: Vec<Slot>,
    /// Indexes of the slots that are not in flight.
    free: Vec<usize>,
    /// Size of the buffers in flight, in bytes.
    bytes_in_flight: usize,
    /// Size of all buffers, in flight and kept, in bytes.
    buffer_bytes: usize,
}

/// A buffer, and its extent.
struct Slot {
    buffer: Buffer,
    /// The open file of the request in flight, which stays open until the request is complete.
    descriptor: Option<Arc<File>>,
    /// Index of the extent's file; the last field is the index of the extent.
    file: usize,
    extent: Extent,
    index: usize,
}

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        let extent = Extent { offset: 0, len: 0 };
        let idle =
            || Slot { buffer: Buffer::zeroed(0), descriptor: None, file: 0, extent, index: 0 };
        Ok(Ring {
            uring: IoUring::new(IN_FLIGHT_MAX as u32)?,
            slots: (0..IN_FLIGHT_MAX).map(|_| idle()).collect(),
            free: (0..IN_FLIGHT_MAX).collect(),
            bytes_in_flight: 0,
            buffer_bytes: 0,
        })
    }

    /// Runs [`BlockFile::read_across`] or [`BlockFile::write_many`]. After an error the ring must be
    /// dropped.
    pub(super) fn run(
        &mut self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        transfer: &mut Transfer<'_, '_>,
    ) -> Result<()> {
        let mut extents = extents.enumerate().peekable();
        loop {
            let mut queued = 0;
            while let Some((index, (file, extent))) =
                extents.peek().copied().filter(|next| self.has_room(next.1.1.len))
            {
                match files[file].descriptor() {
                    Some(descriptor) => {
                        self.start(descriptor, (file, index, extent), transfer);
                        queued += 1;
                        if queued % SUBMITTED_AT_ONCE == 0 {
                            // What the kernel refuses now, `wait` submits.
                            let _ = self.uring.submit();
                        }
                    }
                    // Descriptors are short, and the requests in flight hold some.
                    None if self.in_flight() > 0 => break,
                    None => {
                        let slot = self.fill_slot((file, index, extent), transfer);
                        self.finish(files, slot, NOT_STARTED, transfer)?;
                    }
                }
                extents.next();
            }
            if self.in_flight() == 0 {
                return Ok(());
            }
            let part = self.in_flight().div_ceil(PART_PER_CALL);
            let place = files[0].place();
            self.wait(part).map_err(|error| Error::io(transfer.action(), error).at(place))?;
            // The next requests are started after this part, so that the device does not wait for a
            // slow `visit`.
            for _ in 0..part {
                let Some((slot, done)) = self.completed() else { break };
                self.finish(files, slot, done, transfer)?;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn has_room(&self, len: usize) -> bool {
        let Some(&next) = self.free.last() else { return false };
        let len = len.max(self.slots[next].buffer.len());
        self.bytes_in_flight + len <= BUFFER_BYTES_MAX || self.in_flight() == 0
    }

    /// Queues the request for an extent, to be submitted.
    fn start(
        &mut self,
        descriptor: Arc<File>,
        (file, index, extent): (usize, usize, Extent),
        transfer: &Transfer<'_, '_>,
    ) {
        let i = self.fill_slot((file, index, extent), transfer);
        self.free.pop();
        let slot = &mut self.slots[i];
        let len = extent.len.min(REQUEST_SIZE_MAX) as u32;
        let (fd, offset) = (Fd(descriptor.as_raw_fd()), extent.offset.min(OFFSET_MAX));
        slot.descriptor = Some(descriptor);
        let request = match transfer {
            Transfer::Read(_) => {
                opcode::Read::new(fd, slot.buffer.as_mut_ptr(), len).offset(offset).build()
            }
            Transfer::Write(_) => {
                opcode::Write::new(fd, slot.buffer.as_ptr(), len).offset(offset).build()
            }
        };
        let request = request.user_data(i as u64);
        self.bytes_in_flight += slot.buffer.len();
        // SAFETY: The buffer has `len` bytes. It is neither dropped nor touched before the
        // request's completion was seen: until then its slot is not free, and dropping the ring
        // waits.
        unsafe { self.uring.submission().push(&request) }
            .expect("the queue has room for all slots");
    }

    /// Gives the slot that is free next an extent, and a buffer with the bytes to write. Returns the
    /// slot's index.
    fn fill_slot(
        &mut self,
        (file, index, extent): (usize, usize, Extent),
        transfer: &Transfer<'_, '_>,
    ) -> usize {
        let i = *self.free.last().expect("has_room was asked");
        self.make_buffer(i, extent.len);
        let slot = &mut self.slots[i];
        (slot.file, slot.index, slot.extent) = (file, index, extent);
        if let Transfer::Write(writes) = transfer {
            slot.buffer[..extent.len].copy_from_slice(writes[index].1);
        }
        i
    }

    /// Gives a slot a buffer of at least `len` bytes. Other slots lose their kept buffers if all
    /// buffers together would exceed [`BUFFER_BYTES_MAX`].
    fn make_buffer(&mut self, i: usize, len: usize) {
        if self.slots[i].buffer.len() >= len {
            return;
        }
        self.drop_buffer(i);
        let mut kept = 0;
        while self.buffer_bytes + len > BUFFER_BYTES_MAX && kept < self.free.len() {
            self.drop_buffer(self.free[kept]);
            kept += 1;
        }
        self.slots[i].buffer = Buffer::zeroed(len);
        self.buffer_bytes += len;
    }

    fn drop_buffer(&mut self, i: usize) {
        let buffer = mem::replace(&mut self.slots[i].buffer, Buffer::zeroed(0));
        self.buffer_bytes -= buffer.len();
    }

    /// Submits the queued requests and waits for `count` completions.
    fn wait(&self, count: usize) -> io::Result<()> {
        for _ in 0..REFUSALS_MAX {
            match self.uring.submit_and_wait(count) {
                Ok(_) => return Ok(()),
                Err(error) if is_passing(&error) => thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Takes a completion: the slot, and the number of transferred bytes or a negative error
    /// number.
    fn completed(&mut self) -> Option<(usize, i32)> {
        let completion = self.uring.completion().next()?;
        let i = completion.user_data() as usize;
        self.free.push(i);
        self.slots[i].descriptor = None;
        self.bytes_in_flight -= self.slots[i].buffer.len();
        Some((i, completion.result()))
    }

    fn finish(
        &mut self,
        files: &[&dyn BlockFile],
        i: usize,
        done: i32,
        transfer: &mut Transfer<'_, '_>,
    ) -> Result<()> {
        let slot = &mut self.slots[i];
        let (file, offset) = (files[slot.file], slot.extent.offset);
        let bytes = &mut slot.buffer[..slot.extent.len];
        // The request was not started, incomplete, interrupted, postponed, unaligned, past the end, or it
        // failed: a plain call for the same bytes completes it or returns the right error.
        let is_whole = usize::try_from(done) == Ok(bytes.len());
        match transfer {
            Transfer::Read(visit) => {
                if !is_whole {
                    file.read_at(offset, bytes)?;
                }
                visit(slot.index, bytes)?;
            }
            Transfer::Write(_) if !is_whole => file.write_at(offset, bytes)?,
            Transfer::Write(_) => {}
        }
        if slot.buffer.len() > KEPT_BUFFER_SIZE_MAX {
            self.drop_buffer(i);
        }
        Ok(())
    }
}

/// Whether the call may succeed if it is retried.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy)
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.wait(1).is_err() {
                // The kernel may write to the buffers at any time, so they are never freed.
                mem::forget(mem::take(&mut self.slots));
                return;
            }
            while self.completed().is_some() {}
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} in flight)", self.in_flight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_of_a_ring_never_take_more_than_they_should() {
        // Sandboxes refuse rings.
        let Ok(mut ring) = Ring::new() else { return };
        for len in [4096, KEPT_BUFFER_SIZE_MAX, 8192, 2 * KEPT_BUFFER_SIZE_MAX, 1 << 20, 4096] {
            for i in 0..IN_FLIGHT_MAX {
                ring.make_buffer(i, len);
                assert!(ring.slots[i].buffer.len() >= len);
                let bytes: usize = ring.slots.iter().map(|slot| slot.buffer.len()).sum();
                assert_eq!(ring.buffer_bytes, bytes);
                assert!(bytes <= BUFFER_BYTES_MAX, "{bytes} at {i} of {len}");
            }
        }
        ring.make_buffer(3, 2 * BUFFER_BYTES_MAX);
        assert_eq!(ring.buffer_bytes, 2 * BUFFER_BYTES_MAX);
    }
}
