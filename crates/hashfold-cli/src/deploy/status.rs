//! `hashfold deploy status`: which versions are current, and what the servers have ready.

use super::{GroupArgs, open, pointer_json};
use crate::{
    device,
    failure::{Exit, Result},
    output::write_line,
    units,
};
use clap::Args;
use hashfold_deploy::{GroupPointer, NodeSample, Readiness, Remote, Status, StoreVersion};
use hashfold_rows::utc;
use serde_json::json;
use std::collections::BTreeSet;

/// Show the current versions of a group, the last change, and what each server has ready
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Remote with the versions
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    group: GroupArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<Exit> {
    let remote = open(&args.url)?;
    let Status { pointer, nodes } = args.group.controller(&remote)?.status()?;
    if args.json {
        let mut object = pointer_json("status", &args.group.group, &pointer);
        object["remote"] = json!(remote.to_string());
        object["nodes"] = json!(nodes);
        write_line(object)?;
        return Ok(Exit::Done);
    }
    write_line(headline(&args.group.group, &pointer))?;
    if let Some(trial) = &pointer.trial {
        let (zone, since) = (&trial.zone, utc(trial.activate_at_ms / 1000));
        write_line(format_args!("zone {zone} uses the next versions from {since}"))?;
    }
    write_table(&stores(&remote, &pointer)?)?;
    if !nodes.is_empty() {
        write_line("")?;
        let mut rows = vec![["server", "seen", "slots", "versions"].map(String::from)];
        rows.extend(nodes.iter().map(|(name, node)| server(name, node)));
        write_table(&rows)?;
    }
    Ok(Exit::Done)
}

/// `group main: change 3 by eve@host, active from 2026-11-24 21:00:00: wrong prices`.
fn headline(group: &str, pointer: &GroupPointer) -> String {
    let GroupPointer { seq, by, activate_at_ms, reason, .. } = pointer;
    if *seq == 0 {
        return format!("group {group}: nothing was published yet");
    }
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let active = utc(activate_at_ms / 1000);
    format!("group {group}: change {seq} by {by}, active from {active}{reason}")
}

/// Returns a row for each store: its current version, the one that servers fetch, the one that a
/// rollback leads to, the bad, the pinned, and the pushed ones.
fn stores(remote: &Remote, pointer: &GroupPointer) -> Result<Vec<[String; 7]>> {
    let columns = ["store", "current", "next", "previous", "bad", "pinned", "pushed"];
    let mut rows = vec![columns.map(String::from)];
    // A remote without listings has the names of the pointer.
    let has_listings = remote.has_listings();
    let listed = if has_listings { remote.stores()? } else { Vec::new() };
    let names: BTreeSet<&String> = listed.iter().chain(pointer.stores.keys()).collect();
    for store in names {
        let pushed = if has_listings { remote.versions(store)? } else { Vec::new() };
        let version = |targets: &hashfold_deploy::Targets| {
            targets.get(store).map_or("-".to_owned(), |target| target.version.to_string())
        };
        let list = |numbers: Vec<u64>| match numbers.is_empty() {
            true => "-".to_owned(),
            false => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
        };
        let named = |versions: &[StoreVersion]| {
            let of_store = versions.iter().filter(|version| version.store == *store);
            list(of_store.map(|version| version.target.version).collect())
        };
        rows.push([
            store.clone(),
            version(&pointer.stores),
            version(&pointer.next),
            pointer.rollback_target().map_or("-".to_owned(), version),
            named(&pointer.bad),
            named(&pointer.pinned),
            list(pushed),
        ]);
    }
    Ok(rows)
}

/// Returns the row of a server: `a (east)  2s ago  0-8191 (topology 3)  people 41: current, people 42: fetching`.
fn server(name: &str, node: &Readiness) -> [String; 4] {
    let age = device::now_s().saturating_sub(node.at_ms / 1000);
    let mut states = Vec::new();
    for (store, versions) in &node.versions {
        for (number, version) in versions {
            let sample = version.sample.map(describe_sample).unwrap_or_default();
            states.push(format!("{store} {number}: {version}{sample}"));
        }
    }
    let range = |(first, last): &(u32, u32)| format!("{first}-{last}");
    let slots = match node.slots.is_empty() {
        true => "all".to_owned(),
        false => node.slots.iter().map(range).collect::<Vec<_>>().join(" "),
    };
    let topology = node.topology.map(|epoch| format!(" (topology {epoch})")).unwrap_or_default();
    let slots = slots + &topology;
    let zone = node.zone.as_ref().map(|zone| format!(" ({zone})")).unwrap_or_default();
    [format!("{name}{zone}"), format!("{} ago", units::seconds(age)), slots, states.join(", ")]
}

/// Returns ` (of 1,000 keys of version 41: 12 changed, 0 removed)`.
fn describe_sample(sample: NodeSample) -> String {
    let [keys, changed, removed] = [sample.keys, sample.changed, sample.removed].map(units::count);
    format!(" (of {keys} keys of version {}: {changed} changed, {removed} removed)", sample.from)
}

/// Writes rows with aligned columns.
fn write_table<const N: usize>(rows: &[[String; N]]) -> Result<()> {
    let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or_default();
    for row in rows {
        let cells = row.iter().enumerate().map(|(i, text)| format!("{text:<0$}", width(i)));
        write_line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
