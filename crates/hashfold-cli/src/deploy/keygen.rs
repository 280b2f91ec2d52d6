//! `hashfold deploy keygen`: makes a pair of keys for signed versions.

use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
};
use clap::Args;
use hashfold::work::SystemRandom;
use hashfold_deploy::SigningKey;
use serde_json::json;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Who may read and write the file of a private key: its owner.
const PRIVATE_MODE: u32 = 0o600;
/// Who may read and write the file of a public key: everybody may read it.
const PUBLIC_MODE: u32 = 0o644;

/// Make a private key for `deploy push --sign-with`, and the public key that servers trust
///
/// The keys are for Ed25519, in PEM files like those of `openssl genpkey -algorithm ed25519`. The private
/// key has no password; only its owner may read the file. Keep it where versions are pushed, and nowhere
/// else. Files that exist are not replaced.
#[derive(Args, Debug)]
pub(crate) struct KeygenArgs {
    /// File for the private key; the public key goes to FILE.pub
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &KeygenArgs) -> Result<Exit> {
    let key = SigningKey::generate(&SystemRandom);
    let (private_file, public_file) = (&args.file, public_file(&args.file));
    create(private_file, &key.to_pem(), PRIVATE_MODE)?;
    if let Err(failure) = create(&public_file, &key.public().to_pem(), PUBLIC_MODE) {
        // One of a pair is of no use.
        let _ = fs::remove_file(private_file);
        return Err(failure);
    }
    let (id, private_file, public_file) =
        (key.public().to_string(), private_file.display(), public_file.display());
    if args.json {
        write_line(json!({
            "event": "generated", "key": id, "private": private_file.to_string(),
            "public": public_file.to_string(),
        }))?;
    } else {
        write_line(format_args!(
            "generated key {id}: {private_file} (private, keep it secret), {public_file} (public)"
        ))?;
    }
    Ok(Exit::Done)
}

/// Returns the file of the public key: with `.pub` behind its name.
fn public_file(private_file: &Path) -> PathBuf {
    let mut name = private_file.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Creates a file, which must not exist, and makes it durable.
fn create(path: &Path, text: &str, mode: u32) -> Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = new.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::usage(format!(
            "{}: the file exists, and keys are not replaced; give another name",
            path.display()
        )),
        _ => Failure::io(path.display(), "create", &error),
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| File::open(folder_of(path))?.sync_all());
    written.map_err(|error| {
        // The first error counts.
        let _ = fs::remove_file(path);
        Failure::io(path.display(), "write", &error)
    })
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
