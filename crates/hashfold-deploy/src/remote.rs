//! A remote: the place to which versions are pushed, and from which they are fetched.

use crate::{
    cloud::Cloud,
    error::{Error, ErrorKind, Result},
    folder::FolderObjects,
    key::TrustedKeys,
    layout::{self, STORES},
    objects::{Object, Objects},
    pointer::{Target, target_of},
    probe::check_conditions,
    signature::{self, check_signature},
};
use hashfold::{Env, store::VersionInfo, work::Random};
use std::{
    collections::BTreeSet,
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use url::Url;

/// Maximum size of a version file, in bytes: more than a version with the most chunks and deltas has.
const VERSION_SIZE_MAX: u64 = 1 << 28;

/// The place to which versions are pushed, and from which they are fetched. Clones are the same
/// remote.
#[derive(Clone, Debug)]
pub struct Remote {
    objects: Arc<dyn Objects>,
    /// Whether the conditional writes have been checked.
    is_checked: Arc<AtomicBool>,
}

/// A version in a remote: its file, and what the file says.
pub(crate) struct RemoteVersion {
    pub(crate) bytes: Vec<u8>,
    pub(crate) info: VersionInfo,
}

impl Remote {
    /// Opens a remote by its URL: `s3://BUCKET/PREFIX` (credentials, region and endpoint come from the
    /// environment, `AWS_…`), `gs://…` and `az://…` (untested), `hdfs://HOST:PORT/PATH` (with the feature
    /// `hdfs`; without a pointer), `http://…` and `https://…` (only to read), `file:///…`, or the path of a
    /// folder. Makes no request.
    ///
    /// # Errors
    /// `Argument` for another URL, or for a folder that is a data set.
    pub fn open(env: &Env, url: &str) -> Result<Remote> {
        match Url::parse(url) {
            Ok(parsed) if parsed.scheme() == "file" => {
                let path = parsed.to_file_path().map_err(|()| {
                    Error::argument("remote", "file:///, and an absolute path", url)
                })?;
                Remote::folder(env, &path)
            }
            Ok(parsed) if url.contains("://") => Ok(Remote::new(Arc::new(Cloud::open(&parsed)?))),
            _ => Remote::folder(env, Path::new(url)),
        }
    }

    fn folder(env: &Env, path: &Path) -> Result<Remote> {
        Ok(Remote::new(Arc::new(FolderObjects::new(env.clone(), path)?)))
    }

    /// Makes a remote of a set of objects.
    pub fn new(objects: Arc<dyn Objects>) -> Remote {
        Remote { objects, is_checked: Arc::default() }
    }

    /// Returns the objects of the remote.
    pub fn objects(&self) -> &dyn Objects {
        self.objects.as_ref()
    }

    /// Checks once that conditional writes are real ([`check_conditions`]); later calls return at
    /// once.
    pub(crate) fn check(&self, random: &dyn Random) -> Result<()> {
        if !self.is_checked.load(Relaxed) {
            check_conditions(self.objects(), random)?;
            self.is_checked.store(true, Relaxed);
        }
        Ok(())
    }

    /// Whether stores, versions and reports of nodes can be listed: not by a web server.
    pub fn has_listings(&self) -> bool {
        self.objects.has_listings()
    }

    /// Returns the names of all stores in the remote, sorted.
    ///
    /// # Errors
    /// The error of the object store; an HTTP server has no listings.
    pub fn stores(&self) -> Result<Vec<String>> {
        let listed = self.objects.list(STORES)?;
        if listed.is_empty() {
            self.objects.check_there()?;
        }
        let stores: BTreeSet<String> = listed
            .iter()
            .filter_map(|object| object.name.split('/').nth(1))
            .filter(|name| layout::check_name("store", name).is_ok())
            .map(str::to_owned)
            .collect();
        Ok(stores.into_iter().collect())
    }

    /// Returns the numbers of the versions of a store in the remote, in order.
    ///
    /// # Errors
    /// The error of the object store; an HTTP server has no listings.
    pub fn versions(&self, store: &str) -> Result<Vec<u64>> {
        layout::check_name("store", store)?;
        let listed = self.objects.list(&layout::versions(store))?;
        let numbers = listed.iter().filter_map(|object| layout::version_number(&object.name));
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the description of a version in the remote.
    ///
    /// # Errors
    /// `Absent` if it was not pushed, `Damaged` if its file cannot be read.
    pub fn version(&self, store: &str, number: u64) -> Result<VersionInfo> {
        Ok(self.read_version(store, number)?.info)
    }

    /// Returns a version as a target of the pointer.
    pub(crate) fn target(&self, store: &str, number: u64) -> Result<Target> {
        Ok(target_of(&self.version(store, number)?))
    }

    /// Reads a version, which was pushed.
    pub(crate) fn read_version(&self, store: &str, number: u64) -> Result<RemoteVersion> {
        if let Some(version) = self.find_version(store, number)? {
            return Ok(version);
        }
        self.objects.check_there()?;
        let what = format!("version {number} of store {store}");
        let place = self.objects.place(&layout::version(store, number));
        Err(Error::new(ErrorKind::Absent { what }).at(place))
    }

    /// Reads a version, if it was pushed.
    pub(crate) fn find_version(&self, store: &str, number: u64) -> Result<Option<RemoteVersion>> {
        layout::check_name("store", store)?;
        let name = layout::version(store, number);
        let Some(object) = self.read(&name, VERSION_SIZE_MAX)? else { return Ok(None) };
        let info = VersionInfo::from_bytes(&object.bytes, number)
            .map_err(|error| damaged_object(&error, self.objects.place(&name)))?;
        Ok(Some(RemoteVersion { bytes: object.bytes, info }))
    }

    /// Reads a version, and refuses it if none of the trusted keys has signed it. Without trusted keys, a
    /// version needs no signature.
    pub(crate) fn read_trusted(
        &self,
        store: &str,
        number: u64,
        trusted: &TrustedKeys,
    ) -> Result<RemoteVersion> {
        let version = self.read_version(store, number)?;
        if trusted.is_empty() {
            return Ok(version);
        }
        let name = layout::signature(store, number);
        let object = match self.read(&name, signature::SIZE as u64) {
            // An object that is too large is no signature.
            Err(error) if matches!(error.kind(), ErrorKind::Limit { .. }) => Some(Vec::new()),
            read => read?.map(|object| object.bytes),
        };
        check_signature(object.as_deref(), trusted, store, number, &version.bytes)
            .map_err(|error| error.at(self.objects.place(&name)))?;
        Ok(version)
    }

    /// Reads a whole object, if it exists.
    pub(crate) fn read(&self, name: &str, size_max: u64) -> Result<Option<Object>> {
        Ok(self.objects.get(name, size_max, None)?.object())
    }
}

/// Turns the error of decoding the bytes of an object into damage of this object.
pub(crate) fn damaged_object(error: &hashfold::Error, place: String) -> Error {
    let offset = error.place().and_then(|place| place.offset).unwrap_or(0);
    Error::damaged(offset, "a file as the builder wrote it", error.kind()).at(place)
}

impl fmt::Display for Remote {
    /// Writes the URL or the path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.objects.place("").trim_end_matches('/'))
    }
}
