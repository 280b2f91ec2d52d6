//! Standard input, named pipes and terminals: reads that end when nothing has come for a time, as those of connections do.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::File,
    io::{self, ErrorKind, Read},
};

/// Time for which a read waits.
const READ_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A reader of bytes that another process writes.
#[derive(Debug)]
pub(crate) struct Pipe {
    file: File,
    timeout: Timespec,
}

impl Pipe {
    pub(crate) fn new(file: File) -> Pipe {
        Pipe { file, timeout: READ_TIMEOUT }
    }

    /// From now on, a read returns only what has come already.
    pub(crate) fn wait_no_more(&mut self) {
        self.timeout = Timespec::default();
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut ready, Some(&self.timeout))? {
            0 => Err(ErrorKind::TimedOut.into()),
            _ => self.file.read(buffer),
        }
    }
}
