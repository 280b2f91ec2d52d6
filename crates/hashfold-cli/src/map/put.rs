//! `hashfold map put`: puts one value.

use super::open::{self, ChangeArgs};
use crate::{
    columns,
    failure::{Exit, Failure, Result},
    output::write_line,
    preview,
    stop::Stop,
};
use clap::Args;
use hashfold_rows::{Form, KeyType};
use std::{ffi::OsString, path::PathBuf};

/// Put one value in a map, durable when the command ends
///
/// The value replaces an older one of the key. A value of a map with several columns is changed with
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
    #[command(flatten)]
    change: ChangeArgs,
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
    map.put(key, args.value.as_encoded_bytes())?;
    map.sync()?;
    write_line(format_args!("put in {}: key {}", args.map.display(), preview::key(key)))?;
    Ok(Exit::Done)
}
