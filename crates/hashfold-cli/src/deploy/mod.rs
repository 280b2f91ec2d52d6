//! `hashfold deploy`: versions of stores through object storage, to many servers at once. Each verb has
//! a file; the work is done by the crate `hashfold-deploy`.

mod cancel;
mod fetch;
mod gc;
mod keygen;
mod mark_bad;
mod pin;
mod publish;
mod push;
mod rollback;
mod status;
mod topology;

use crate::failure::{Exit, Failure, Result};
use clap::{Args, Subcommand};
use hashfold::{Env, ErrorKind as StoreErrorKind};
use hashfold_deploy::{
    Controller, Error, GROUP_DEFAULT, GroupPointer, PublicKey, Remote, StoreVersion, Targets,
    TrustedKeys, check_name,
};
use rustix::process::getuid;
use serde_json::{Value, json};
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Send versions of stores to many servers through object storage, and switch all at once
///
/// `push` uploads what is new in a version; `fetch`, or the server, downloads what it lacks; every
/// byte is checked on both ways. `publish` makes a pushed version current for all servers of a group,
/// by one atomic change of one small object; `rollback` takes it back, in the same time for data of any
/// size. With `keygen`, `push --sign-with` and `--trusted-key`, only versions with a valid signature are used.
///
/// URL is s3://BUCKET/PREFIX (credentials, region and endpoint as for other tools: AWS_ACCESS_KEY_ID,
/// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), a folder, file:///PATH, or https://HOST/PATH to
/// fetch only. gs:// and az:// are untested. hdfs://HOST:PORT/PATH, in a command with the feature `hdfs`, is
/// for push and fetch.
#[derive(Args, Debug)]
pub(crate) struct DeployArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Push(push::PushArgs),
    Fetch(fetch::FetchArgs),
    Publish(publish::PublishArgs),
    Rollback(rollback::RollbackArgs),
    Cancel(cancel::CancelArgs),
    Status(status::StatusArgs),
    MarkBad(mark_bad::MarkBadArgs),
    Pin(pin::PinArgs),
    Gc(gc::GcArgs),
    Topology(topology::TopologyArgs),
    Keygen(keygen::KeygenArgs),
}

pub(crate) fn run(args: &DeployArgs) -> Result<Exit> {
    match &args.verb {
        Verb::Push(args) => push::run(args),
        Verb::Fetch(args) => fetch::run(args),
        Verb::Publish(args) => publish::run(args),
        Verb::Rollback(args) => rollback::run(args),
        Verb::Cancel(args) => cancel::run(args),
        Verb::Status(args) => status::run(args),
        Verb::MarkBad(args) => mark_bad::run(args),
        Verb::Pin(args) => pin::run(args),
        Verb::Gc(args) => gc::run(args),
        Verb::Topology(args) => topology::run(args),
        Verb::Keygen(args) => keygen::run(args),
    }
}

/// Options of the verbs that use the pointer of a group.
#[derive(Args, Clone, Debug)]
struct GroupArgs {
    /// Group of stores that change together, and have one pointer
    #[arg(long, value_name = "GROUP", default_value = GROUP_DEFAULT, value_parser = parse_name)]
    group: String,
}

impl GroupArgs {
    /// Returns a controller of the group, which signs with the user's name and the host's.
    fn controller(&self, remote: &Remote) -> Result<Controller> {
        // Services and containers often have neither of the two.
        let user = env::var("USER").or_else(|_| env::var("LOGNAME"));
        let user = user.unwrap_or_else(|_| format!("uid-{}", getuid().as_raw()));
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let by = format!("{user}@{}", host.trim());
        Ok(Controller::new(&Env::system(), remote, &self.group, &by)?)
    }
}

/// The option of the verbs that refuse versions without a valid signature.
#[derive(Args, Clone, Debug)]
struct TrustArgs {
    /// Refuse a version that was not signed with this key, or with one of several: the file of a public
    /// key, which `deploy keygen` makes [default: signatures are not checked]
    #[arg(long = "trusted-key", value_name = "FILE")]
    trusted_keys: Vec<PathBuf>,
}

impl TrustArgs {
    /// Reads the keys.
    fn read(&self) -> Result<TrustedKeys> {
        let read = |path: &PathBuf| {
            let key = PublicKey::from_pem(&read_key(path)?);
            Ok(key.map_err(|error| error.at(path.display().to_string()))?)
        };
        self.trusted_keys.iter().map(read).collect()
    }
}

/// Reads the file of a key. A file that is not there is wrong usage.
fn read_key(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::usage(format!(
            "{}: there is no such file; make keys with `hashfold deploy keygen`",
            path.display()
        )),
        io::ErrorKind::InvalidData => {
            Failure::usage(format!("{}: expected a key in PEM, got other bytes", path.display()))
        }
        _ => Failure::io(path.display(), "read", &error),
    })
}

/// Options of the verbs that change the pointer.
#[derive(Args, Clone, Debug)]
struct ChangeArgs {
    /// Reason of the change, which `status` shows
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

/// Reads the name of a store or a group.
fn parse_name(text: &str) -> Result<String, String> {
    check_name("name", text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// A version on the command line: `N`, or `STORE=N`.
#[derive(Clone, Debug)]
struct VersionArg {
    store: Option<String>,
    number: u64,
}

/// Reads a version: `N`, or `STORE=N`.
fn parse_version(text: &str) -> Result<VersionArg, String> {
    let (store, number) = match text.split_once('=') {
        Some((store, number)) => (Some(parse_name(store)?), number),
        None => (None, text),
    };
    match number.parse() {
        Ok(number @ 1..) => Ok(VersionArg { store, number }),
        _ => Err("expected the number of a version, like 41 or people=41".into()),
    }
}

/// Opens a remote.
fn open(url: &str) -> Result<Remote> {
    Ok(Remote::open(&Env::system(), url)?)
}

/// Returns the given store, or the only store of a remote.
fn store_of(remote: &Remote, given: Option<&String>) -> Result<String> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let mut stores = remote.stores()?;
    match stores.len() {
        1 => Ok(stores.remove(0)),
        0 => Err(Failure::usage(format!(
            "{remote}: nothing was pushed here yet; push a version with `hashfold deploy push`"
        ))),
        _ => Err(Failure::usage(format!(
            "{remote}: there are several stores: {}; name one with --store, or the version as STORE=N",
            stores.join(", ")
        ))),
    }
}

/// `people 41, prices 7`.
fn describe(targets: &Targets) -> String {
    let one = |(store, target): (&String, &hashfold_deploy::Target)| {
        format!("{store} {}", target.version)
    };
    targets.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `people 40, people 41`: the bad versions from the `skipped`th on.
fn describe_bad(pointer: &GroupPointer, skipped: usize) -> String {
    let bad = pointer.bad.iter().skip(skipped);
    bad.map(|bad| format!("{} {}", bad.store, bad.target.version)).collect::<Vec<_>>().join(", ")
}

/// Returns a pointer as a JSON object, with an event and the group.
fn pointer_json(event: &str, group: &str, pointer: &GroupPointer) -> Value {
    let versions = |targets: &Targets| -> Value {
        targets.iter().map(|(store, target)| (store.clone(), json!(target.version))).collect()
    };
    let named = |versions: &[StoreVersion]| -> Value {
        let one = |it: &StoreVersion| json!({ "store": it.store, "version": it.target.version });
        versions.iter().map(one).collect()
    };
    json!({
        "event": event, "group": group, "change": pointer.seq,
        "stores": versions(&pointer.stores), "next": versions(&pointer.next), "trial": pointer.trial,
        "bad": named(&pointer.bad), "pinned": named(&pointer.pinned),
        "activate_at_ms": pointer.activate_at_ms, "by": pointer.by, "reason": pointer.reason,
    })
}

/// Returns a duration as text: `2 s`, `500 ms`.
fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

/// Turns the error of a transfer into a failure. A transfer that is stopped goes on later.
fn about_transfer(error: Error) -> Failure {
    match error.is_stop() {
        true => Failure {
            exit: Exit::Stopped,
            message: "stopped; run it again to go on with the rest".into(),
        },
        false => error.into(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error.is_refusal() {
            true => Exit::No,
            false => error.class().into(),
        };
        match error.of_store().map(|of| (of, of.kind())) {
            // There is no option that replaces a version.
            Some((of, StoreErrorKind::Exists)) => {
                let hint = "; the folder has another version of this number, use another folder";
                Failure { exit, message: format!("{of}{hint}") }
            }
            Some((of, _)) => of.clone().into(),
            None => Failure { exit, message: error.to_string() },
        }
    }
}
