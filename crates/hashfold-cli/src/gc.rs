//! `hashfold gc`: versions that nobody needs are removed.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    stop::Stop,
    units, versions,
};
use clap::Args;
use hashfold::{
    Error, ErrorClass, ErrorKind,
    store::{self, Reason, Removed, Retention, StoreWriter},
    work::{Clock as _, SystemClock},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Remove old versions of a store
///
/// The current version stays, and so do those that are pinned, that somebody reads, or that were
/// never published, unless --unpublished says otherwise.
#[derive(Args, Debug)]
pub(crate) struct GcArgs {
    /// The folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Keep so many of the newest versions besides the current one
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep: usize,
    /// Keep versions that are younger than this: 90s, 15m, 2h, 7d
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::parse_seconds)]
    min_age: u64,
    /// Remove versions that were never published too, as those are that did not pass a gate
    #[arg(long)]
    unpublished: bool,
    /// Give up versions whose files are missing or damaged and that no copy can restore; while there
    /// is one, no table is removed
    #[arg(long)]
    lost: bool,
    /// While less than this is free on the device, remove what the two rules above would keep, but
    /// not the version before the current one
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = units::parse_bytes)]
    free: usize,
    /// Remove so many bytes a second at most, to leave the device to others [default: no limit]
    #[arg(long, value_name = "BYTES/S", value_parser = units::parse_bytes)]
    rate: Option<usize>,
    /// The summary as a JSON object
    #[arg(long)]
    json: bool,
}

/// How long a pause may be before the stop flag is looked at again.
const STOP_CHECK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &GcArgs) -> Result<Exit> {
    let start = Instant::now();
    let stop = Stop::on_signals()?;
    let mut writer = folder::open_store(&args.store, device::executor(None))?;
    let rules = Retention {
        keep: args.keep,
        age_s_min: args.min_age,
        now_s: device::now_s(),
        free_bytes_min: args.free as u64,
    };
    if args.lost {
        give_up_lost(&args.store, &mut writer, args.json)?;
    }
    let mut pause = |bytes| args.pause(bytes, &stop);
    let discarded = match args.unpublished {
        true => discard(&mut writer, &rules, &mut pause),
        false => Ok(Removed::default()),
    };
    let removed = discarded.and_then(|discarded| {
        let mut removed = writer.collect(&rules, &mut pause)?;
        removed.versions.splice(0..0, discarded.versions);
        removed.tables += discarded.tables;
        removed.bytes += discarded.bytes;
        Ok(removed)
    });
    let removed = removed.map_err(|error| match error.kind() {
        ErrorKind::Stopped => Failure {
            exit: Exit::Stopped,
            message: "stopped; what was not removed yet will be the next time".into(),
        },
        _ => error.into(),
    })?;
    args.report(&removed, start.elapsed().as_secs_f64())?;
    Ok(Exit::Done)
}

/// Gives up the versions whose files are missing or damaged.
fn give_up_lost(folder: &Path, writer: &mut StoreWriter, json: bool) -> Result<()> {
    // One that is current is not given up: an error says what can be done.
    writer.parent()?;
    for (number, info) in store::versions(device::disk().as_ref(), folder)? {
        // A file of a newer format is whole, and not ours to give up.
        let is_newer = |error: &Error| matches!(error.kind(), ErrorKind::Version { .. });
        if info.is_err_and(|error| error.class() == ErrorClass::Damage && !is_newer(&error)) {
            writer.give_up(number)?;
            match json {
                true => write_line(json!({ "event": "gave up", "version": number }))?,
                false => write_line(format_args!("gave up version {number}"))?,
            }
        }
    }
    Ok(())
}

/// Removes the versions that were never published, unless they are young, pinned or read.
fn discard(
    writer: &mut StoreWriter,
    rules: &Retention,
    pause: &mut dyn FnMut(u64) -> hashfold::Result<()>,
) -> hashfold::Result<Removed> {
    let mut removed = Removed::default();
    for number in writer.numbers()? {
        let pointer = writer.pointer();
        let is_pinned = pointer.pinned.contains(&number);
        // A version that cannot be read may be needed to find out why.
        let Ok(info) = writer.version(number) else { continue };
        let is_young = rules.now_s.saturating_sub(info.created_s) < rules.age_s_min;
        if versions::state(pointer, number) != "unpublished" || is_pinned || is_young {
            continue;
        }
        match writer.discard(number) {
            Ok(one) => {
                removed.versions.extend(one.versions);
                removed.tables += one.tables;
                removed.bytes += one.bytes;
                pause(one.bytes)?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Busy) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

impl GcArgs {
    /// Takes as long as so many bytes may take.
    fn pause(&self, bytes: u64, stop: &Stop) -> hashfold::Result<()> {
        let rate = self.rate.unwrap_or(usize::MAX).max(1) as f64;
        let end = Instant::now() + Duration::from_secs_f64(bytes as f64 / rate);
        loop {
            if stop.is_asked() {
                return Err(Error::new(ErrorKind::Stopped));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            SystemClock.sleep(left.min(STOP_CHECK));
        }
    }

    fn report(&self, removed: &Removed, seconds: f64) -> Result<()> {
        if self.json {
            let kept = removed.kept.iter();
            let kept =
                kept.map(|(number, reason)| json!({ "number": number, "why": why(*reason) }));
            return write_line(json!({
                "event": "collected", "store": self.store.to_string_lossy(),
                "removed": removed.versions, "tables": removed.tables, "bytes": removed.bytes,
                "kept": kept.collect::<Vec<_>>(), "seconds": seconds,
            }));
        }
        for number in &removed.versions {
            write_line(format_args!("removed version {number}"))?;
        }
        for (number, reason) in &removed.kept {
            write_line(format_args!("kept version {number}: {}", why(*reason)))?;
        }
        write_line(format_args!(
            "collected {}: {} of {} removed, {} freed; {seconds:.1} s",
            self.store.display(),
            units::counted(removed.tables, "table", "tables"),
            units::counted(removed.versions.len() as u64, "version", "versions"),
            units::bytes(removed.bytes),
        ))
    }
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Current => "it is current",
        Reason::Pinned => "it is pinned",
        Reason::InUse => "somebody reads it",
        Reason::Unpublished => "it was never published",
        Reason::New => "it is one of the newest",
        Reason::Young => "it is young",
        Reason::Damaged => "it is damaged; restore it from a copy, or give it up with --lost",
        Reason::Lost => "its file is lost; restore it from a copy, or give it up with --lost",
    }
}
