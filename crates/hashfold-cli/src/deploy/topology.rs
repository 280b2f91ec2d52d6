//! `hashfold deploy topology`: which servers of a cluster have which slots.

use super::open;
use crate::{
    failure::{Exit, Failure, Result},
    output::{write_line, write_note},
};
use clap::Args;
use hashfold::Env;
use hashfold_deploy::{Remote, Topology};
use serde_json::json;
use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Print which servers of a cluster have which slots, or set it with --set
///
/// The topology is a JSON document. Servers whose configuration file names the remote (`cluster = "URL"`) look
/// at it twice a second. They open slots that they get before they answer for them, and answer for those that
/// they lose for 2 seconds more. The exit code of --set is 1 if the epoch of the document is not larger than
/// that of the topology that is there; a document without an epoch gets the next one.
#[derive(Args, Debug)]
pub(crate) struct TopologyArgs {
    /// Remote with the topology
    #[arg(value_name = "URL")]
    url: String,
    /// Replace the topology by that of a file
    #[arg(long, value_name = "FILE")]
    set: Option<PathBuf>,
    /// Print the result of --set as a JSON object
    #[arg(long, requires = "set")]
    json: bool,
}

pub(crate) fn run(args: &TopologyArgs) -> Result<Exit> {
    let remote = open(&args.url)?;
    match &args.set {
        Some(file) => set(&remote, file, args.json),
        None => print(&remote),
    }
}

fn print(remote: &Remote) -> Result<Exit> {
    let Some(topology) = remote.topology()? else {
        write_note(format_args!("{remote}: there is no topology; set one with --set FILE"));
        return Ok(Exit::No);
    };
    write_line(String::from_utf8_lossy(&topology.to_bytes()).trim_end())?;
    Ok(Exit::Done)
}

fn set(remote: &Remote, file: &Path, is_json: bool) -> Result<Exit> {
    let topology = Topology::from_draft(&read(file)?);
    let topology = topology.map_err(|error| error.at(file.display().to_string()))?;
    let topology = remote.set_topology(&Env::system(), &topology)?;
    if let Err(failure) = note_chunks(remote, &topology) {
        // The topology is set all the same.
        let message = failure.message;
        write_note(format_args!("{remote}: chunks were not compared with the shards: {message}"));
    }
    let (epoch, shards, nodes) = (topology.epoch, topology.shards.len(), topology.nodes().count());
    match is_json {
        true => write_line(json!({
            "event": "set topology", "remote": remote.to_string(), "epoch": epoch, "shards": shards,
            "nodes": nodes,
        }))?,
        false => write_line(format_args!(
            "set topology of {remote}: epoch {epoch}, shards {shards}, servers {nodes}"
        ))?,
    }
    Ok(Exit::Done)
}

/// Reads the file of a topology. A file that is not there is wrong usage.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than a topology may have is enough to refuse it.
    let read = fs::File::open(path)
        .and_then(|file| file.take(Topology::SIZE_MAX + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::usage(format!("{}: there is no such file", path.display())))
        }
        Err(error) => Err(Failure::io(path.display(), "read", &error)),
    }
}

/// Says which stores have chunks that lie in several shards: servers of both then open all of such a chunk.
fn note_chunks(remote: &Remote, topology: &Topology) -> Result<()> {
    for store in remote.stores()? {
        let Some(newest) = remote.versions(&store)?.pop() else { continue };
        let chunks = remote.version(&store, newest)?.shape.slots.chunks();
        let shards = topology.shards.len();
        if !(chunks as usize).is_multiple_of(shards) {
            write_note(format_args!(
                "{remote}: store {store} has {chunks} chunks, expected a multiple of the {shards} shards: \
                 servers open parts of chunks twice; `hashfold merge --chunks N` makes others"
            ));
        }
    }
    Ok(())
}
