//! The space that a map takes on the device.

use super::{Map, MapDevice, block::BLOCK_SIZE, catalog};
use crate::{
    error::Result,
    io::Access,
    manifest::{self, NAME},
};

/// The space that a map takes on the device, in bytes. Holes in files are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapSpace {
    /// Space of the blocks in use, in bytes: those with entries or changes, and those that the last
    /// checkpoint or a snapshot needs.
    pub used_bytes: u64,
    /// The part of `used_bytes` that is large values, in bytes.
    pub large_bytes: u64,
    /// The part of `used_bytes` that is copies of groups on other devices, in bytes.
    pub mirror_bytes: u64,
    /// Space of free blocks, in bytes: a reserve for the next writes.
    pub free_bytes: u64,
    /// Space of the write-ahead log, in bytes.
    pub log_bytes: u64,
    /// Space of the catalog and the manifest, in bytes.
    pub catalog_bytes: u64,
}

impl MapSpace {
    /// Returns the space of all files together, in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.used_bytes + self.free_bytes + self.log_bytes + self.catalog_bytes
    }
}

impl Map {
    /// Measures the space that the map takes on the device.
    ///
    /// # Errors
    /// If a file cannot be measured.
    pub fn space(&self) -> Result<MapSpace> {
        let core = self.core();
        let (free, blocks) = core.space.counts();
        let used_bytes = (blocks - free) * BLOCK_SIZE as u64;
        Ok(MapSpace {
            used_bytes,
            large_bytes: self.stat().large_blocks * BLOCK_SIZE as u64,
            mirror_bytes: core.space.mirrors.size() * BLOCK_SIZE as u64,
            free_bytes: core.space.file.device_bytes()?.saturating_sub(used_bytes),
            log_bytes: core.log().device_bytes()?,
            catalog_bytes: self.catalog_bytes()?,
        })
    }

    /// Returns the devices of the map, in order. Empty if the map is on one device.
    ///
    /// # Errors
    /// If a file cannot be measured.
    pub fn devices(&self) -> Result<Vec<MapDevice>> {
        let core = self.core();
        core.devices.figures(&core.folder.path)
    }

    fn catalog_bytes(&self) -> Result<u64> {
        let folder = &self.core().folder;
        let mut bytes = 0;
        for name in folder.disk.list(&folder.path)? {
            if !catalog::is_catalog(&name) && name != NAME && name != manifest::NEW_NAME {
                continue;
            }
            let file = folder.disk.open(&folder.path.join(name), Access::Cached);
            match file.and_then(|file| file.device_bytes()) {
                Ok(size) => bytes += size,
                // A checkpoint has replaced it meanwhile.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}
