//! Chains as versions of a store.

use crate::{
    chains::TIME,
    output::run_name,
    versions::{Versions, provenance},
};
use hashfold::{
    Env, Result,
    pipeline::{ChainDump, Chains, DumpSink, Field, FieldKind, Value, chain_touches},
    run::{Run as _, VALUE_BYTES_MAX},
};
use hashfold_rows::{Column, KeyType, Kind, Schema, utc_of_ms, write_json_bytes};
use serde_json::json;
use std::path::PathBuf;

/// Name of the attribute of a version that says which dump it is.
const DUMP: &str = "dump";
/// Name of the column.
const TOUCHES: &str = "touches";

/// Publishes each dump as a version of a store: users, and their touches as JSON.
#[derive(Debug)]
pub(crate) struct DumpStore {
    versions: Versions,
    schema: Schema,
    /// Names of the channel fields.
    channel: Vec<String>,
    /// Id of the run, and of those that it continues.
    run: u64,
}

impl DumpStore {
    /// Makes a receiver of dumps of chains of events with these fields.
    pub(crate) fn new(
        folder: PathBuf,
        chains: &Chains,
        fields: &[Field],
        env: Env,
        run: u64,
    ) -> DumpStore {
        let user = &fields[chains.user];
        let columns = vec![Column { name: TOUCHES.into(), kind: Kind::Json }];
        let mut schema = Schema::new(&user.name, columns);
        if user.kind == FieldKind::Int {
            schema.key_type = KeyType::Int64;
        }
        let channel = chains.channel.iter().map(|field| fields[*field].name.clone()).collect();
        DumpStore { versions: Versions::new(folder, env), schema, channel, run }
    }
}

impl DumpSink for DumpStore {
    fn dump(&mut self, mut dump: ChainDump) -> Result<()> {
        // A dump of other events has other counts.
        let stats = dump.stats();
        let own = json!({
            "chains": dump.name(), "at_ms": dump.at_ms(), "touches": stats.touches,
            "conversions": stats.conversions, "late": stats.late, "run": run_name(self.run),
        });
        let attributes = vec![
            (Schema::ATTRIBUTE.into(), self.schema.to_json()),
            (DUMP.into(), own.to_string().into_bytes()),
        ];
        let notes = vec![("chains", dump.name().to_owned()), ("at", utc_of_ms(dump.at_ms()))];
        let facts = (attributes, provenance(notes));
        let mut value = Vec::new();
        let DumpStore { versions, channel, .. } = self;
        versions.publish(facts, &mut |batch| {
            while dump.advance()? {
                let entry = dump.entry();
                write(channel, entry.value.unwrap_or_default(), &mut value)?;
                batch.push(entry.key, Some(&value))?;
            }
            Ok(())
        })
    }
}

/// Writes touches, whose channels have fields of these names: `[{"time":"2026-11-26T10:00:00Z","channel":"ads"}]`. If that is
/// longer than a value can be, without the touches that arrived first.
fn write(names: &[String], chain: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let touches = chain_touches(chain, names.len())?;
    let mut rest = &touches[..];
    loop {
        out.clear();
        write_json(names, rest, out);
        if out.len() <= VALUE_BYTES_MAX {
            return Ok(());
        }
        rest = &rest[rest.len().div_ceil(2)..];
    }
}

fn write_json(names: &[String], touches: &[(i64, Vec<Value<'_>>)], out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, (time_ms, channel)) in touches.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!("{{\"{TIME}\":\"{}\"", utc_of_ms(*time_ms)).as_bytes());
        for (name, value) in names.iter().zip(channel) {
            out.push(b',');
            write_json_bytes(name.as_bytes(), out);
            out.push(b':');
            match value {
                Value::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
                Value::Text(text) if !text.is_empty() => write_json_bytes(text, out),
                _ => out.extend_from_slice(b"null"),
            }
        }
        out.push(b'}');
    }
    out.push(b']');
}
