//! Batches of reads with many requests in flight, through threads: the fallback for a system that
//! refuses io_uring, as most containers do.
//!
//! The threads live as long as the batch: starting a thread takes less time than a read from flash.

use super::{BlockFile, Buffer, Extent, FileExtents, Visit, disk::read_each};
use crate::error::Result;
use std::{
    iter,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, Scope},
};

/// Maximum number of threads, and of requests in flight.
const THREADS_MAX: usize = 32;
/// Maximum number of requests that wait or are in flight: enough that no thread is idle.
const REQUESTS_MAX: usize = 2 * THREADS_MAX;
/// Maximum size of all buffers of requests, in bytes, unless a single request is longer.
const BUFFER_BYTES_MAX: usize = 16 << 20;
/// Size of a thread's stack, in bytes: a read needs little.
const STACK_BYTES: usize = 128 << 10;

/// An extent to be read, and the buffer to fill.
struct Request {
    /// Index of the extent.
    index: usize,
    /// Index of the extent's file.
    file: usize,
    extent: Extent,
    buffer: Buffer,
}

/// The threads of a batch, and their requests.
struct Reads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    files: &'env [&'env dyn BlockFile],
    threads: usize,
    requests: Sender<Request>,
    queue: Arc<Mutex<Receiver<Request>>>,
    answers: Sender<(Request, Result<()>)>,
    answered: Receiver<(Request, Result<()>)>,
    /// Number of requests that were started and not answered.
    waiting: usize,
    /// Size of their buffers, in bytes.
    buffer_bytes: usize,
}

/// Runs [`BlockFile::read_across`] in threads. If the system refuses to start threads, the caller's
/// thread reads.
pub(super) fn read_across(
    files: &[&dyn BlockFile],
    extents: &mut FileExtents<'_>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut extents = extents.peekable();
    let first = extents.next();
    if extents.peek().is_none() {
        let read = |file: usize, offset, bytes: &mut [u8]| files[file].read_at(offset, bytes);
        return read_each(&mut first.into_iter(), read, visit);
    }
    let mut extents = iter::chain(first, extents).enumerate().peekable();
    thread::scope(|scope| {
        let mut reads = Reads::new(scope, files);
        loop {
            while let Some((index, (file, extent))) =
                extents.next_if(|next| reads.have_room(next.1.1.len))
            {
                reads.start(index, file, extent);
            }
            if reads.waiting == 0 {
                return Ok(());
            }
            let request = reads.wait()?;
            visit(request.index, &request.buffer[..request.extent.len])?;
        }
    })
}

impl<'scope, 'env> Reads<'scope, 'env> {
    fn new(
        scope: &'scope Scope<'scope, 'env>,
        files: &'env [&'env dyn BlockFile],
    ) -> Reads<'scope, 'env> {
        let ((requests, queue), (answers, answered)) = (channel(), channel());
        let queue = Arc::new(Mutex::new(queue));
        let (threads, waiting, buffer_bytes) = (0, 0, 0);
        Reads { scope, files, threads, requests, queue, answers, answered, waiting, buffer_bytes }
    }

    fn have_room(&self, len: usize) -> bool {
        let has_bytes = self.buffer_bytes + len <= BUFFER_BYTES_MAX;
        self.waiting < REQUESTS_MAX && (has_bytes || self.waiting == 0)
    }

    /// Starts the request for an extent, and a thread for it if there may be more.
    fn start(&mut self, index: usize, file: usize, extent: Extent) {
        let buffer = Buffer::zeroed(extent.len);
        self.waiting += 1;
        self.buffer_bytes += buffer.len();
        let request = Request { index, file, extent, buffer };
        if self.threads < self.waiting.min(THREADS_MAX) && self.start_thread() {
            self.threads += 1;
        }
        match self.threads {
            0 => run(self.files, request, &self.answers),
            _ => self.requests.send(request).expect("the queue lives as long as its sender"),
        }
    }

    /// Starts a thread that runs requests. Returns whether the system allowed it.
    fn start_thread(&self) -> bool {
        let (files, queue, answers) = (self.files, self.queue.clone(), self.answers.clone());
        let run_all = move || {
            loop {
                let request = queue.lock().expect("nothing panics under this lock").recv();
                let Ok(request) = request else { return };
                run(files, request, &answers);
            }
        };
        let thread = thread::Builder::new().name("hashfold-read".into()).stack_size(STACK_BYTES);
        thread.spawn_scoped(self.scope, run_all).is_ok()
    }

    /// Waits for an answer, and returns its request.
    fn wait(&mut self) -> Result<Request> {
        let (request, result) = self.answered.recv().expect("its sender lives as long as it");
        self.waiting -= 1;
        self.buffer_bytes -= request.buffer.len();
        result.map(|()| request)
    }
}

/// Runs a request. After an error of another request, its answer has no receiver.
fn run(files: &[&dyn BlockFile], mut request: Request, answers: &Sender<(Request, Result<()>)>) {
    let Request { file, extent, ref mut buffer, .. } = request;
    let result = files[file].read_at(extent.offset, &mut buffer[..extent.len]);
    let _ = answers.send((request, result));
}
