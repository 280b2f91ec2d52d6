//! `hashfold gc`: removes versions that are not needed.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    Env, Error, ErrorClass, ErrorKind,
    store::{self, Reason, Removed, Retention, StoreWriter},
    work::{Clock as _, SystemClock, Watch},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Remove old versions of a store
///
/// Always kept: the current version, pinned versions, and versions that a reader has open. Otherwise:
///
/// - published versions: the --keep newest are kept. Of several with the same entries, such as a
///   version and its merge, only the newest counts, so that a rollback finds other entries.
/// - versions that were never current (not published yet, or a gate failed): kept until they are
///   older than --unpublished-age.
/// - versions that were rolled back: removed.
///
/// No version younger than --min-age is removed. --dry-run shows what would be removed.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct GcArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Only show what would be removed and kept, and why
    #[arg(long)]
    dry_run: bool,
    /// Number of newest published versions to keep besides the current one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = units::parse_number::<usize>)]
    keep: usize,
    /// Minimum age of versions to remove: 90s, 15m, 2h, 7d
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::parse_seconds)]
    min_age: u64,
    /// Minimum age of versions to remove that were never current: not published yet, or a gate failed
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = units::parse_seconds)]
    unpublished_age: u64,
    /// Give up versions whose version files are missing or damaged and can't be restored from a copy;
    /// no table is removed while there is one
    #[arg(long)]
    lost: bool,
    /// Free space to reach on the device: while less is free, --keep and --min-age are ignored for
    /// published versions, but the version that a rollback leads to stays
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = units::parse_bytes)]
    free: usize,
    /// Maximum rate of removal, in bytes per second [default: no limit]
    #[arg(long, value_name = "BYTES/S", value_parser = units::parse_bytes)]
    rate: Option<usize>,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

/// Maximum time between two checks of the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &GcArgs) -> Result<Exit> {
    let start = Instant::now();
    let stop = Stop::on_signals()?;
    let executor = device::executor(None);
    let mut writer =
        args.wait.retry(&stop, || folder::open_store(&args.store, executor.clone()))?;
    let rules = Retention {
        keep: args.keep,
        age_s_min: args.min_age,
        unpublished_age_s_min: args.unpublished_age,
        now_s: device::now_s(),
        free_bytes_min: args.free as u64,
    };
    if args.dry_run {
        let planned = writer.plan_collection(&rules)?;
        return args.report(&planned, start.elapsed().as_secs_f64()).map(|()| Exit::Done);
    }
    if args.lost {
        give_up_lost(&args.store, &mut writer, args.json)?;
    }
    let removed = writer.collect(&rules, &args.watch(&stop));
    let removed = removed.map_err(|error| match error.kind() {
        ErrorKind::Stopped => Failure {
            exit: Exit::Stopped,
            message: "stopped; run it again to remove the rest".into(),
        },
        _ => error.into(),
    })?;
    args.report(&removed, start.elapsed().as_secs_f64())?;
    Ok(Exit::Done)
}

/// Gives up the versions whose version files are missing or damaged.
fn give_up_lost(folder: &Path, writer: &mut StoreWriter, json: bool) -> Result<()> {
    // The current version is never given up: this error says what to do.
    writer.parent()?;
    for (number, info) in store::versions(&Env::system(), folder)? {
        // A file of a newer format is not damaged.
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

impl GcArgs {
    /// Returns a watch that limits the rate to --rate, and cancels the work at Ctrl-C.
    fn watch(&self, stop: &Stop) -> Watch {
        let rate = self.rate.unwrap_or(usize::MAX).max(1) as f64;
        let stop = stop.clone();
        Watch::new(move |bytes| {
            let end = SystemClock.now() + Duration::from_secs_f64(bytes as f64 / rate);
            loop {
                if stop.is_asked() {
                    return Err(Error::new(ErrorKind::Stopped));
                }
                let left = end.saturating_sub(SystemClock.now());
                if left.is_zero() {
                    return Ok(());
                }
                SystemClock.sleep(left.min(STOP_CHECK));
            }
        })
    }

    fn report(&self, removed: &Removed, seconds: f64) -> Result<()> {
        if self.json {
            let kept = removed.kept.iter();
            let kept =
                kept.map(|(number, reason)| json!({ "number": number, "why": why(*reason) }));
            return write_line(json!({
                "event": "collected", "dry_run": self.dry_run, "store": self.store.to_string_lossy(),
                "removed": removed.versions, "tables": removed.tables, "bytes": removed.bytes,
                "kept": kept.collect::<Vec<_>>(), "seconds": seconds,
            }));
        }
        let (did, freed) = match self.dry_run {
            true => ("would remove", "would be freed"),
            false => ("removed", "freed"),
        };
        for number in &removed.versions {
            write_line(format_args!("{did} version {number}"))?;
        }
        for (number, reason) in &removed.kept {
            write_line(format_args!("kept version {number}: {}", why(*reason)))?;
        }
        write_line(format_args!(
            "{} {}: {did} {} and {}, {} {freed}; {seconds:.1} s",
            if self.dry_run { "gc of" } else { "collected" },
            self.store.display(),
            units::counted(removed.versions.len() as u64, "version", "versions"),
            units::counted(removed.tables, "table", "tables"),
            units::bytes(removed.bytes),
        ))
    }
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Current => "it is current",
        Reason::Pinned => "it is pinned",
        Reason::InUse => "a reader has it open",
        Reason::Unpublished => "it was never published, and is younger than --unpublished-age",
        Reason::New => "it is one of the newest",
        Reason::Young => "it is young",
        Reason::Damaged => "it is damaged; restore it from a copy, or give it up with --lost",
        Reason::Lost => "its file is lost; restore it from a copy, or give it up with --lost",
    }
}
