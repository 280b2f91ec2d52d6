//! The bare device: the rates of plain writes and reads in place of builds and gets.

use super::{Budget, Dictionary, Getter, Reader, Visit};
use crate::{
    Result,
    data::{Data, Key},
    report::DEVICE,
};
use hashfold::{
    io::{ALIGNMENT, Access, BlockFile, Buffer, Disk, Extent, OsDisk, Writer},
    work::Threads,
};
use std::{path::Path, sync::Arc};

pub(super) struct Device;

const FILE: &str = "blocks";

impl Dictionary for Device {
    fn name(&self) -> String {
        DEVICE.to_owned()
    }

    fn note(&self) -> String {
        "direct I/O: the payload written in order; gets are reads of random 4 KiB blocks".to_owned()
    }

    fn has_values(&self) -> bool {
        false
    }

    fn build(&self, data: &Data, budget: Budget, folder: &Path) -> Result<u64> {
        let file = OsDisk.create(&folder.join(FILE), Access::Direct)?;
        let mut writer = Writer::new(file.clone(), Arc::new(Threads::new(budget.threads)));
        let mut value = Vec::new();
        for i in 0..data.count {
            data.fill_value(i, &mut value);
            writer.append(&data.key(i))?;
            writer.append(&value)?;
        }
        writer.append(&[0; ALIGNMENT])?;
        writer.finish()?;
        file.sync()?;
        Ok(0)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Reader>> {
        let file = OsDisk.open(&folder.join(FILE), Access::Direct)?;
        let blocks = file.size()? / ALIGNMENT as u64;
        Ok(Box::new(Blocks { file, blocks }))
    }
}

struct Blocks {
    file: Arc<dyn BlockFile>,
    blocks: u64,
}

impl Blocks {
    fn extent(&self, key: &Key) -> Extent {
        let number = u64::from_be_bytes(*key.first_chunk().expect("a key is longer"));
        let block = (u128::from(number) * u128::from(self.blocks)) >> 64;
        Extent { offset: block as u64 * ALIGNMENT as u64, len: ALIGNMENT }
    }
}

impl Reader for Blocks {
    fn index_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn has_batches(&self) -> bool {
        true
    }

    fn getter(&self) -> Result<Box<dyn Getter + '_>> {
        Ok(Box::new(BlockGetter { blocks: self, buffer: Buffer::zeroed(ALIGNMENT) }))
    }
}

struct BlockGetter<'a> {
    blocks: &'a Blocks,
    buffer: Buffer,
}

impl Getter for BlockGetter<'_> {
    fn get(&mut self, key: &Key, visit: &mut Visit<'_>) -> Result<()> {
        self.blocks.file.read_at(self.blocks.extent(key).offset, &mut self.buffer)?;
        visit(0, Some(&self.buffer))
    }

    fn get_many(&mut self, keys: &[Key], visit: &mut Visit<'_>) -> Result<()> {
        let mut extents = keys.iter().map(|key| self.blocks.extent(key));
        let mut result = Ok(());
        self.blocks.file.read_many(&mut extents, &mut |i, bytes| {
            let visited = visit(i, Some(bytes));
            if visited.is_err() {
                result = visited;
            }
            Ok(())
        })?;
        result
    }
}
