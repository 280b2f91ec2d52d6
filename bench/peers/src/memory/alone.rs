//! A round in a process of its own, whose memory is that of one table.

use super::{COLUMNS, Options, Peer, Place, peers, position};
use crate::{
    Result,
    limit::{Group, Limit},
};
use std::{
    env,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
};

/// Name of the time of a part among the figures that a process says.
pub(super) const PART: &str = "part";

/// The figures of a round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// In the order of [`COLUMNS`].
    pub figures: Vec<Option<f64>>,
    /// Time of each part, in seconds.
    pub parts: Vec<f64>,
    /// Whether the process was killed at the memory limit.
    pub is_killed: bool,
}

impl Round {
    fn new() -> Round {
        Round { figures: vec![None; COLUMNS.len()], parts: Vec::new(), is_killed: false }
    }

    fn take(&mut self, name: &str, value: f64) {
        match name {
            PART => self.parts.push(value),
            _ => self.figures[position(name)] = Some(value),
        }
    }
}

/// Says in how many rounds a process was killed.
pub(super) fn killed(rounds: &[Round]) -> String {
    match rounds.iter().filter(|round| round.is_killed).count() {
        0 => String::new(),
        count => format!("; killed at the memory limit in {count} of {} rounds", rounds.len()),
    }
}

/// Measures one round in a new process, with its memory limit. Tests measure in their own process.
pub(super) fn measure_alone(peer: &Peer, options: &Options, folder: &Path) -> Result<Round> {
    let mut round = Round::new();
    if cfg!(test) {
        let say = &mut |name: &str, value| round.take(name, value);
        peer.round(&mut Place { options, folder, say })?;
        return Ok(round);
    }
    let group = Group::create();
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1)).args(["--alone", &peer.id()]);
    command.arg("--within").arg(folder);
    match &group {
        Ok(group) => _ = command.arg("--group").arg(&group.folder),
        Err(error) => eprintln!("the memory has no limit: {error}"),
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    for line in String::from_utf8(output.stdout)?.lines() {
        let (name, value) = line.split_once(' ').ok_or("expected a name and a figure")?;
        round.take(name, value.parse()?);
    }
    match (output.status.success(), output.status.signal()) {
        (true, _) => Ok(round),
        (false, Some(libc::SIGKILL)) if group.is_ok() => {
            eprintln!("{} was killed at the memory limit", peer.id());
            Ok(Round { is_killed: true, ..round })
        }
        _ => Err(format!("{}: {}", peer.id(), output.status).into()),
    }
}

/// Measures one round of the peer that `alone` names, for [`measure_alone`].
pub fn run_alone(options: &Options) -> Result<()> {
    let (Some(id), Some(folder)) = (&options.alone, &options.within) else {
        return Err("expected --alone NAME --within FOLDER".into());
    };
    let peers = peers(options);
    let peer = peers.iter().find(|peer| peer.id() == *id);
    let peer = peer.ok_or_else(|| format!("there is no peer {id:?}"))?;
    let limit = options.group.as_deref().map(|group| Limit::join(group, options.limit_bytes()));
    limit.transpose()?;
    // Standard output is written line by line.
    let say = &mut |name: &str, value: f64| println!("{name} {value}");
    peer.round(&mut Place { options, folder, say })
}
