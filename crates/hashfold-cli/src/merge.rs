//! `hashfold merge`: merges the deltas of a store into its bases, or rewrites it with another number
//! of chunks.

use crate::{
    device,
    failure::{Exit, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    run::SortOptions,
    store::{SlotMap, UpdateMode, VersionFacts, VersionInfo},
};
use serde_json::json;
use std::{path::PathBuf, time::Instant};

/// Merge the deltas of a store into its bases as a new version, and publish it
///
/// The new version has the same entries and exact counts, and lookups no longer read deltas first.
/// Rewrites the data of every chunk that has deltas.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Rewrite the store with this number of chunks. Reads and writes all data, and needs as much free
    /// space again
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u32>)]
    chunks: Option<u32>,
    /// Memory for sorting with --chunks
    #[arg(long, default_value = "1GiB", value_parser = units::parse_memory, value_name = "SIZE")]
    memory: usize,
    /// Threads that write [default: number of cores + 2]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MergeArgs) -> Result<Exit> {
    let start = Instant::now();
    folder::current(&args.store)?;
    let stop = Stop::on_signals()?;
    let executor = device::executor(args.threads);
    let mut writer =
        args.wait.retry(&stop, || folder::open_store(&args.store, executor.clone()))?;
    let old = writer.version(folder::current(&args.store)?)?;
    let slots = args.chunks.map(SlotMap::new).transpose()?.filter(|new| *new != old.shape.slots);
    if old.delta_depth() == 0 && slots.is_none() {
        return args.report(&old, None);
    }
    let show = if args.json { Show::Json } else { Show::Text };
    let passes = if slots.is_some() { 2 } else { 1 };
    let total = Some(passes * *old.entries().end());
    let progress = Progress::start(show, "writing", Unit::Entries, total);
    let facts = VersionFacts {
        id: device::random()?,
        created_s: device::now_s(),
        provenance: vec![("command".into(), b"merge".into())],
    };
    let (sort, watch) = (SortOptions::within(args.memory), stop.watch(progress));
    let info = match slots {
        Some(slots) => writer.rechunk(slots, sort, facts, &watch)?,
        None => {
            let batch = writer.batch(sort)?;
            writer.write(batch, UpdateMode::Merge, facts, &watch)?
        }
    };
    writer.publish(info.name.number)?;
    args.report(&info, Some((old.delta_depth(), start)))
}

impl MergeArgs {
    /// Prints the current version; `made` has the number of merged deltas and the start time, or is
    /// `None` if nothing was merged.
    fn report(&self, info: &VersionInfo, made: Option<(usize, Instant)>) -> Result<Exit> {
        let (number, deltas) = (info.name.number, made.map_or(0, |(deltas, _)| deltas));
        let chunks = match self.chunks {
            Some(chunks) => format!(", {}", units::counted(chunks.into(), "chunk", "chunks")),
            None => String::new(),
        };
        let seconds = made.map_or(0.0, |(_, start)| start.elapsed().as_secs_f64());
        if self.json {
            write_line(json!({
                "event": "merged", "store": self.store.to_string_lossy(), "version": number,
                "entries": info.entries().start(), "deltas_merged": deltas,
                "chunks": info.shape.slots.chunks(), "bytes": info.bytes(), "seconds": seconds,
            }))?;
        } else if made.is_none() {
            write_line(format_args!(
                "merged {}: version {number} has no deltas; nothing was changed",
                self.store.display()
            ))?;
        } else {
            write_line(format_args!(
                "merged {}: version {number}, published: {}, {} merged{chunks}; {}; {seconds:.1} s",
                self.store.display(),
                units::entries(&info.entries()),
                units::counted(deltas as u64, "delta", "deltas"),
                units::bytes(info.bytes()),
            ))?;
        }
        Ok(Exit::Done)
    }
}
