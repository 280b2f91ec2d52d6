//! Opening maps for changes.

use crate::{
    failure::{Failure, Result},
    folder,
    output::write_note,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    folder::Contents,
    manifest::Kind,
    map::{self, Durability, MAP_MEMORY_MIN, Map, MapOptions, Salvage},
    run::SortOptions,
    work::Watch,
};
use hashfold_rows::Schema;
use std::path::{Path, PathBuf};

/// Options for changing a map.
#[derive(Args, Debug)]
pub(super) struct ChangeArgs {
    /// Memory budget, at least 8MiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_memory)]
    memory: usize,
    /// Folder of another device, repeated in order, if those of a map on several devices have moved
    #[arg(long = "device", value_name = "DIR")]
    devices: Vec<PathBuf>,
    #[command(flatten)]
    wait: WaitArgs,
}

impl ChangeArgs {
    /// Returns the options of a map, whose changes are durable when it is synced or closed.
    pub(super) fn options(&self) -> MapOptions {
        let options = MapOptions::new().memory(self.memory).devices(self.devices.clone());
        options.durability(Durability::Buffered)
    }

    /// Returns the options of a sort of entries for a map. Its changes may take the other half of the
    /// memory.
    pub(super) fn sort_options(&self) -> SortOptions {
        SortOptions::within(self.memory / 2)
    }

    /// Opens an existing map.
    pub(super) fn open(&self, folder: &Path, stop: &Stop) -> Result<Map> {
        folder::require_map(folder)?;
        self.wait.retry(stop, || Ok(Map::open_with(folder, self.options())?))
    }

    /// Reads what is left of a map, and sorts it in memory or in the file `spill`.
    pub(super) fn salvage(
        &self,
        (folder, spill): (&Path, &Path),
        stop: &Stop,
        watch: &Watch,
    ) -> Result<Salvage> {
        self.wait.retry(stop, || Ok(map::salvage(folder, spill, self.options(), watch)?))
    }
}

/// Makes all changes durable, and ends with a checkpoint, without which each command would leave a segment of the log. If only
/// the checkpoint fails, as on a full disk, that is a warning.
pub(super) fn close(map: Map) -> hashfold::Result<()> {
    map.sync()?;
    if let Err(error) = map.close() {
        write_note(format_args!(
            "hashfold: warning: {error}; all changes are durable, and the next command reads them from the log"
        ));
    }
    Ok(())
}

/// Returns the columns of a map.
pub(super) fn schema(map: &Map) -> Result<Schema> {
    Ok(Schema::of_attribute(map.attribute(Schema::ATTRIBUTE))?)
}

/// Refuses a folder that is not free for a new map.
pub(super) fn check_free(folder: &Path) -> Result<()> {
    match folder::holds(folder)? {
        Contents::Nothing => folder::check_empty(
            folder,
            "map",
            &[
                "MANIFEST.first",
                "MANIFEST.new",
                "map-data",
                "map-device",
                "map-device.new",
                "catalog-0000000001",
            ],
        ),
        Contents::DataSet(Kind::Map) => Err(Failure::usage(format!(
            "{}: there is a map here already; change it with `hashfold map put` or `import`",
            folder.display()
        ))),
        _ => folder::require_map(folder),
    }
}

fn parse_memory(text: &str) -> Result<usize, String> {
    match units::parse_bytes(text)? {
        bytes if bytes < MAP_MEMORY_MIN => Err("expected at least 8MiB".into()),
        bytes => Ok(bytes),
    }
}
