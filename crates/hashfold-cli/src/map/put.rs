//! `hashfold map put`: puts one value.

use super::open::{self, ChangeArgs};
use crate::{
    columns,
    failure::{Exit, Failure, Result},
    output::write_line,
    preview,
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    Error, ErrorKind,
    map::Write,
    work::{Clock as _, SystemClock},
};
use hashfold_rows::{Form, KeyType};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Put one value in a map, durable when the command ends
///
/// The value replaces an older one of the key, and when that one expires. A value of a map with several columns is changed with
/// `hashfold map import`.
#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    key: OsString,
    /// Value: the bytes of the argument
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    value: OsString,
    /// Time after which the entry is absent, such as 500ms, 90s, 15m, 2h or 7d [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    expires_in: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PutArgs {
    /// Adds map and key to the error about a size.
    fn about(&self, error: Error) -> Failure {
        if !matches!(error.kind(), ErrorKind::Limit { .. }) {
            return error.into();
        }
        let key = preview::key(self.key.as_encoded_bytes());
        Failure::input(format_args!("{}: key {key}", self.map.display()), error)
    }
}

pub(crate) fn run(args: &PutArgs) -> Result<Exit> {
    let map = args.change.open(&args.map, &Stop::never())?;
    let schema = open::schema(&map)?;
    if schema.form != Form::Plain || schema.key_type != KeyType::Text {
        return Err(Failure::usage(format!(
            "{}: has the columns {}, expected a key and one value of text or bytes; use `hashfold map \
             import`",
            args.map.display(),
            columns::preview(&schema)
        )));
    }
    let key = args.key.as_encoded_bytes();
    let expires_at = args.expires_in.map(|time| {
        let expires_at = SystemClock.unix_time().saturating_add(time).as_millis();
        u64::try_from(expires_at).unwrap_or(u64::MAX)
    });
    let value = Some(args.value.as_encoded_bytes());
    map.write(&[Write { key, value, expires_at }]).map_err(|error| args.about(error))?;
    open::close(map)?;
    write_line(format_args!("put in {}: key {}", args.map.display(), preview::key(key)))?;
    Ok(Exit::Done)
}
