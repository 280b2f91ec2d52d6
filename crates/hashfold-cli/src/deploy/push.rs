//! `hashfold deploy push`: uploads a version of a store.

use super::{about_transfer, open, parse_name, read_key};
use crate::{
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{Env, store};
use hashfold_deploy::{SigningKey, push, push_signed};
use serde_json::json;
use std::{path::PathBuf, time::Instant};

/// Upload what the remote lacks of one version of a store
///
/// Tables that earlier versions share are not uploaded again. The version can be fetched when all of it
/// is there. Every byte is compared with the hashes that were taken when it was built. After an
/// interruption, run it again: files that are there are not uploaded again.
#[derive(Args, Debug)]
pub(crate) struct PushArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Remote to push to
    #[arg(value_name = "URL")]
    url: String,
    /// Name of the store in the remote [default: the name of the folder]
    #[arg(long, value_name = "STORE", value_parser = parse_name)]
    store: Option<String>,
    /// Version to push [default: the current one]
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u64>)]
    version: Option<u64>,
    /// Sign the version with this private key, which `deploy keygen` makes; servers that trust its public
    /// key refuse versions without a signature
    #[arg(long, value_name = "FILE")]
    sign_with: Option<PathBuf>,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PushArgs) -> Result<Exit> {
    let start = Instant::now();
    let stop = Stop::on_signals()?;
    let name = args.store_name()?;
    let key = args.signing_key()?;
    let number = args.version.map_or_else(|| folder::current(&args.folder), Ok)?;
    let remote = open(&args.url)?;
    let versions = store::versions(&Env::system(), &args.folder)?;
    let total = versions
        .into_iter()
        .find_map(|(there, info)| Some(info.ok()?.bytes()).filter(|_| there == number))
        .ok_or_else(|| {
            let folder = args.folder.display();
            Failure::usage(format!(
                "{folder}: there is no version {number}; `hashfold versions` lists all versions"
            ))
        })?;
    let show = if args.json { Show::Json } else { Show::Text };
    let watch = stop.watch(Progress::start(show, "pushing", Unit::Bytes, Some(total)));
    let (env, folder) = (Env::system(), &args.folder);
    let pushed = match &key {
        None => push(&env, folder, Some(number), &remote, &name, &watch),
        Some(key) => push_signed(&env, folder, Some(number), &remote, &name, key, &watch),
    };
    let pushed = pushed.map_err(about_transfer)?;
    drop(watch);
    let seconds = start.elapsed().as_secs_f64();
    let key = key.map(|key| key.public().to_string());
    if args.json {
        write_line(json!({
            "event": "pushed", "folder": args.folder.to_string_lossy(), "remote": remote.to_string(),
            "store": name, "version": number, "id": format!("{:016x}", pushed.info.name.id),
            "tables": pushed.tables, "bytes": pushed.bytes, "bytes_of_version": total,
            "signed_with": key, "seconds": seconds,
        }))?;
    } else {
        let signed = key.map_or(String::new(), |key| format!(", signed with key {key}"));
        write_line(format_args!(
            "pushed {} to {remote}: {name} {number}{signed}, {} uploaded; its tables have {}; \
             {seconds:.1} s, {}/s",
            args.folder.display(),
            units::bytes(pushed.bytes),
            units::bytes(total),
            units::bytes(units::per_second(pushed.bytes, seconds)),
        ))?;
    }
    Ok(Exit::Done)
}

impl PushArgs {
    fn signing_key(&self) -> Result<Option<SigningKey>> {
        let read = |path: &PathBuf| {
            let key = SigningKey::from_pem(&read_key(path)?);
            Ok(key.map_err(|error| error.at(path.display().to_string()))?)
        };
        self.sign_with.as_ref().map(read).transpose()
    }

    /// Returns the name of the store in the remote.
    fn store_name(&self) -> Result<String> {
        if let Some(store) = &self.store {
            return Ok(store.clone());
        }
        let path = std::path::absolute(&self.folder);
        let name = path.ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let name = name.unwrap_or_default();
        parse_name(&name).map_err(|reason| {
            Failure::usage(format!("{reason}; give the store a name with --store"))
        })
    }
}
