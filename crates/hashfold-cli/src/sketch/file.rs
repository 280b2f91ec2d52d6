//! Files of sketches.

use super::{
    any,
    groups::{self, Groups},
    image::{Image, Source},
};
use crate::{
    failure::{Failure, Result},
    preview,
    stop::Stop,
    wait::WaitArgs,
};
use hashfold::{
    KeyHash, Seed,
    error::Place,
    io::{Access, Disk as _, Lock, OsDisk, read_all},
    sketch::AnySketch,
};
use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The largest file that is read, in bytes: 2^24 smallest hashes take 36 MiB, other sketches 4 MiB at most.
const SIZE_MAX: u64 = 64 << 20;

/// Ending of the hidden name of a file that is being written, after 16 hexadecimal digits.
const NEW_ENDING: &str = ".hashfold-new";

/// Time to wait for other commands that write a sketch to the same folder, in seconds.
const WAIT_SECONDS: u64 = 30;

/// Reads the bytes of a sketch; `None` if there is no file.
pub(super) fn read_bytes_if_any(path: &Path) -> Result<Option<Vec<u8>>> {
    if !OsDisk.exists(path)? {
        return Ok(None);
    }
    Ok(Some(read_all(&*OsDisk.open(path, Access::Cached)?, SIZE_MAX)?.to_vec()))
}

/// Reads a sketch from the bytes of a file, in any of the formats.
pub(super) fn decode(path: &Path, bytes: Vec<u8>, source: Option<Source>) -> Result<Image> {
    let source = source.map_or_else(|| recognise(path, &bytes), Ok)?;
    Ok(Image::read(bytes, source).map_err(|error| error.at(&Place::file(path)))?)
}

/// Returns the format of a file, and refuses one that is no sketch.
fn recognise(path: &Path, bytes: &[u8]) -> Result<Source> {
    Source::of(bytes).ok_or_else(|| no_sketch(path, bytes))
}

fn no_sketch(path: &Path, bytes: &[u8]) -> Failure {
    let begins = match bytes {
        [] => "is empty".to_owned(),
        _ => format!("begins with {}", preview::key(&bytes[..bytes.len().min(8)])),
    };
    Failure::usage(format!(
        "{}: is no sketch: the file {begins}, expected one of Hashfold, Redis, PostgreSQL or Apache DataSketches",
        path.display()
    ))
}

/// Refuses a file whose bytes are those of no sketch. Some formats begin with bytes that other files begin with, too.
fn require_sketch(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_sketch = match Source::of(bytes) {
        None => false,
        Some(Source::Hashfold | Source::Redis) => true,
        Some(source) => Image::read(bytes.to_vec(), source).is_ok(),
    };
    if is_sketch { Ok(()) } else { Err(no_sketch(path, bytes)) }
}

/// Refuses an output that is there and is none of the inputs, unless it is to be replaced.
pub(super) fn refuse_existing(out: &Path, inputs: &[PathBuf], replace: bool) -> Result<()> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let Some(own) = real(out).filter(|_| !replace) else { return Ok(()) };
    if inputs.iter().any(|input| real(input).as_ref() == Some(&own)) {
        return Ok(());
    }
    let out = out.display();
    let message = format!(
        "{out}: exists already, and is none of the sketches that are read; --replace replaces it"
    );
    Err(Failure::usage(message))
}

/// Refuses a folder where a file of a sketch is expected; `hint` says what to do.
pub(super) fn refuse_folder(path: &Path, hint: &str) -> Result<()> {
    match path.is_dir() {
        false => Ok(()),
        true => {
            let path = path.display();
            Err(Failure::usage(format!(
                "{path}: is a folder, expected the file of a sketch; {hint}"
            )))
        }
    }
}

/// Reads a sketch: a file in any of the formats, or `DIR:GROUP`.
pub(super) fn read_image(path: &Path, source: Option<Source>) -> Result<Image> {
    if let Some((folder, group)) = groups::split(path).filter(|_| !path.exists()) {
        let sketch = Groups::open(folder)?.get(group.as_bytes())?;
        return Ok(Image::Hashfold(AnySketch::Hll(sketch)));
    }
    refuse_folder(path, "one group of a table is DIR:GROUP")?;
    let bytes = read_bytes_if_any(path)?.ok_or_else(|| {
        let path = path.display();
        Failure::usage(format!(
            "{path}: there is no sketch here; `hashfold sketch add {path}` makes one"
        ))
    })?;
    decode(path, bytes, source)
}

/// Reads a sketch as [`read_image`] does, as one that can be united with others.
pub(super) fn read(path: &Path) -> Result<AnySketch> {
    Ok(read_image(path, None)?.to_sketch()?)
}

/// The file of a sketch that is written. No other command writes a sketch to its folder meanwhile.
pub(super) struct Target {
    path: PathBuf,
    /// The path as the user has given it.
    shown: PathBuf,
    _lock: Box<dyn Lock>,
}

impl Target {
    /// Refuses what is no file and would be replaced.
    pub(super) fn check(path: &Path) -> Result<()> {
        refuse_folder(path, "a folder takes the union of folders, or --by")?;
        if path.exists() && !path.is_file() {
            let path = path.display();
            return Err(Failure::usage(format!(
                "{path}: is no regular file, expected the file of a sketch"
            )));
        }
        match groups::split(path).filter(|_| !path.exists()) {
            None => Ok(()),
            Some((folder, group)) => Err(Failure::usage(format!(
                "{}: is the group {} of a table; `hashfold sketch add {} --by COL` changes groups",
                path.display(),
                preview::name(group),
                folder.display()
            ))),
        }
    }

    /// Locks the folder of a file. Symbolic links to the file stay.
    pub(super) fn lock(path: &Path, stop: &Stop) -> Result<Target> {
        Target::check(path)?;
        let (shown, path) = (path.to_owned(), OsDisk.absolute(path)?);
        let folder = path.parent().expect("a file is in a folder");
        if !folder.is_dir() {
            let (shown, folder) = (shown.display(), folder.display());
            return Err(Failure::usage(format!("{shown}: there is no folder {folder}")));
        }
        // Others hold it for milliseconds.
        let lock = WaitArgs::of(WAIT_SECONDS).retry(stop, || Ok(OsDisk.lock(folder)?))?;
        Ok(Target { path, shown, _lock: lock })
    }

    /// Returns the bytes of the file that is there now.
    pub(super) fn read_if_any(&self) -> Result<Option<Vec<u8>>> {
        read_bytes_if_any(&self.path)
    }

    /// Replaces the sketch, or makes it; another file is refused. Durable when this returns. The permissions stay.
    ///
    /// A hidden file takes the bytes, with the permissions of the old file, and replaces it when it is complete.
    /// Symbolic links and other files of the user are not replaced. A crash may leave the hidden file, and the next
    /// command that writes this sketch removes it.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        if let Some(old) = self.read_if_any()? {
            require_sketch(&self.shown, &old)?;
        }
        let folder = self.path.parent().expect("a file is in a folder");
        let name = self.path.file_name().expect("the path is that of a file");
        let new = folder.join(hidden_name(name));
        let failure = |error: io::Error| Failure::io(self.shown.display(), "write", &error);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failure(error)),
            _ => {}
        }
        let written = self.fill(&new, bytes).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = written {
            // It may not be there.
            let _ = fs::remove_file(&new);
            return Err(failure(error));
        }
        Ok(OsDisk.sync_folder(folder)?)
    }

    /// Makes a file with the permissions of this one.
    fn fill(&self, new: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let permissions = fs::metadata(&self.path).map(|metadata| metadata.permissions()).ok();
        if permissions.is_some() {
            // Nobody else reads it before it has these.
            options.mode(0o600);
        }
        let mut file = options.open(new)?;
        permissions.map(|permissions| file.set_permissions(permissions)).transpose()?;
        file.write_all(bytes)?;
        file.sync_all()
    }
}

/// Returns the name of the hidden file that becomes the file of a name. The length is fixed: a name and an ending would
/// be too long for a file system if the name is as long as allowed.
fn hidden_name(name: &OsStr) -> String {
    format!(".{:016x}{NEW_ENDING}", KeyHash::of(name.as_bytes(), Seed(0)).high())
}

/// Reads sketches and brings them to the lowest precision among them, which loses nothing else.
pub(super) fn read_alike(paths: &[PathBuf]) -> Result<Vec<AnySketch>> {
    any::alike(paths.iter().map(|path| read(path)).collect::<Result<_>>()?)
}

/// Returns the union of sketches in files.
pub(super) fn read_union(paths: &[PathBuf]) -> Result<AnySketch> {
    let mut sketches = read_alike(paths)?.into_iter();
    let mut union = sketches.next().expect("the command needs a file");
    for (sketch, path) in sketches.zip(&paths[1..]) {
        any::unite(&mut union, &sketch, path)?;
    }
    Ok(union)
}
