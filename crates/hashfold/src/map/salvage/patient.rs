//! A disk that reads what it can of a damaged device.

use crate::{
    error::{Error, ErrorClass, Place, Result},
    io::{ALIGNMENT, BlockFile, Disk, DiskLayer},
};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of failed reads that are kept for the report.
const FAILURES_MAX: usize = 1000;

/// A disk whose files have zeros in place of blocks that the device cannot read.
#[derive(Clone, Debug)]
pub(super) struct PatientDisk {
    disk: Arc<dyn Disk>,
    failures: Failures,
}

/// The errors of the device.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<Vec<Error>>>);

impl Failures {
    fn add(&self, error: Error) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_MAX {
            failures.push(error);
        }
    }

    /// Returns the errors since the last call.
    pub(super) fn take(&self) -> Vec<Error> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PatientDisk {
    pub(super) fn on(disk: Arc<dyn Disk>) -> PatientDisk {
        PatientDisk { disk, failures: Failures::default() }
    }

    /// Returns the errors of the device, also those that are still to come.
    pub(super) fn failures(&self) -> Failures {
        self.failures.clone()
    }
}

impl DiskLayer for PatientDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(PatientFile { file, failures: self.failures.clone() })
    }
}

#[derive(Debug)]
struct PatientFile {
    file: Arc<dyn BlockFile>,
    failures: Failures,
}

impl BlockFile for PatientFile {
    fn place(&self) -> &Place {
        self.file.place()
    }

    fn place_at(&self, offset: u64) -> Place {
        self.file.place_at(offset)
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }

    /// Fills `bytes`, with zeros for the blocks that cannot be read or are not there.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if self.file.read_at(offset, bytes).is_ok() {
            return Ok(());
        }
        for (i, block) in bytes.chunks_mut(ALIGNMENT).enumerate() {
            let offset = offset.saturating_add((i * ALIGNMENT) as u64);
            if let Err(error) = self.file.read_at(offset, block) {
                block.fill(0);
                // The end of the file is found by other checks.
                if error.class() == ErrorClass::Io {
                    self.failures.add(error);
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
}
