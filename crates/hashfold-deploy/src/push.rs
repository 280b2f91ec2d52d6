//! Pushing a version: uploads what the remote lacks, and checks every byte on the way.

use crate::{
    error::{Error, ErrorKind, Result},
    key::SigningKey,
    layout::{self, TREE, check_name},
    objects::{Objects, When},
    pointer::target_of,
    remote::{Remote, RemoteVersion},
    signature::VersionSignature,
};
use hashfold::{
    Env, Error as StoreError, Place,
    io::{Access, Disk, read_all},
    store::{FileTree, Layer, Pointer, Tree, VersionInfo, table_path, version_path},
    work::Watch,
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::Path,
};

/// Maximum size of a version file or a block tree that is pushed, in bytes.
const SMALL_SIZE_MAX: u64 = 1 << 30;

/// The result of a push.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Description of the version.
    pub info: VersionInfo,
    /// Number of tables that were uploaded.
    pub tables: u64,
    /// Bytes that were uploaded.
    pub bytes: u64,
}

/// Uploads what the remote lacks of one version of a local store: the current one, unless `number` is
/// given. The tables come first, the version file last, so a version that is in the remote is complete.
/// `watch` counts the bytes of the version, also those that the remote has already.
///
/// Every byte is compared with the hashes in the version while it is read, so damage is not pushed. A
/// repeated push reads only small objects; an interrupted one goes on with the file where it was.
///
/// # Errors
/// `Exists` if the remote has another version with this number or another table with this id; damage
/// of the local files; the errors of the object store.
pub fn push(
    env: &Env,
    folder: &Path,
    number: Option<u64>,
    remote: &Remote,
    store: &str,
    watch: &Watch,
) -> Result<Pushed> {
    push_with(env, folder, number, remote, store, None, watch)
}

/// Uploads a version like [`push`], and its signature before the version file. A version that is in the
/// remote without a signature gets one.
///
/// # Errors
/// Those of [`push`]; `Exists` also if the remote has another signature of this version.
pub fn push_signed(
    env: &Env,
    folder: &Path,
    number: Option<u64>,
    remote: &Remote,
    store: &str,
    key: &SigningKey,
    watch: &Watch,
) -> Result<Pushed> {
    push_with(env, folder, number, remote, store, Some(key), watch)
}

fn push_with(
    env: &Env,
    folder: &Path,
    number: Option<u64>,
    remote: &Remote,
    store: &str,
    key: Option<&SigningKey>,
    watch: &Watch,
) -> Result<Pushed> {
    check_name("store", store)?;
    let disk = env.disk.as_ref();
    let pointer = Pointer::read(disk, folder)?;
    let unpublished = || StoreError::new(hashfold::ErrorKind::Unpublished).at(&Place::file(folder));
    let number = number.or(pointer.current).ok_or_else(unpublished)?;
    let path = version_path(folder, number);
    if !disk.exists(&path)? {
        return Err(StoreError::new(hashfold::ErrorKind::Absent).at(&Place::file(&path)).into());
    }
    // The version stays while it is pushed, as while it is read.
    let _share = disk.share(&path)?;
    let bytes = read_all(disk.open(&path, Access::Cached)?.as_ref(), SMALL_SIZE_MAX)?;
    let info = VersionInfo::from_bytes(&bytes, number)
        .map_err(|error| StoreError::new(error.kind().clone()).at(&Place::file(&path)))?;
    let (sizes, names) = Default::default();
    let (file, tables) = (&*bytes, 0);
    let mut push =
        Push { disk, folder, file, remote, store, key, watch, sizes, names, tables, bytes: 0 };
    push.list()?;
    push.check_version(&info)?;
    push.check_store(&info)?;
    push.tables(&info)?;
    push.version(&info)?;
    push.mend(&info)?;
    Ok(Pushed { tables: push.tables, bytes: push.bytes, info })
}

/// A push in progress.
struct Push<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    /// The bytes of the version file.
    file: &'a [u8],
    remote: &'a Remote,
    store: &'a str,
    /// The key that signs the version, if one does.
    key: Option<&'a SigningKey>,
    watch: &'a Watch,
    /// Sizes of the objects that the remote has, by name.
    sizes: HashMap<String, u64>,
    /// The names of the objects of the version's tables.
    names: BTreeSet<String>,
    tables: u64,
    bytes: u64,
}

impl Push<'_> {
    fn objects(&self) -> &dyn Objects {
        self.remote.objects()
    }

    /// Looks which objects of tables the remote has.
    fn list(&mut self) -> Result<()> {
        let listed = self.objects().list(&layout::tables(self.store))?;
        self.sizes = listed.into_iter().map(|object| (object.name, object.size)).collect();
        Ok(())
    }

    /// Uploads what the remote lacks of all tables of a version.
    fn tables(&mut self, info: &VersionInfo) -> Result<()> {
        let mut seen = HashSet::new();
        info.layers()
            .filter(|layer| seen.insert(layer.table))
            .try_for_each(|layer| self.table(layer))
    }

    /// Uploads once more what a collection has removed since it was listed: the version that it removed had tables
    /// in common with this one. A collection that has looked at the versions since this one was written spares them,
    /// or says that it must be pushed again.
    fn mend(&mut self, info: &VersionInfo) -> Result<()> {
        self.sign(info.name.number)?;
        self.list()?;
        match self.names.iter().all(|name| self.sizes.contains_key(name)) {
            true => Ok(()),
            false => self.tables(info),
        }
    }

    /// Refuses a number that another version has in the remote.
    fn check_version(&self, info: &VersionInfo) -> Result<()> {
        let number = info.name.number;
        let found = self.remote.find_version(self.store, number)?;
        let Some(RemoteVersion { bytes, info: there }) = found else { return Ok(()) };
        let is_same = there.store == info.store && target_of(&there) == target_of(info);
        // A signature is of all bytes of the file.
        if is_same && (self.key.is_none() || bytes == self.file) {
            return Ok(());
        }
        let name = |info: &VersionInfo, bytes: &[u8]| {
            let hash = blake3::hash(bytes).to_hex();
            format!("version {number}, id {:016x}, BLAKE3 {}…", info.name.id, &hash[..16])
        };
        let (expected, got) = (name(info, self.file), name(&there, &bytes));
        let place = self.objects().place(&layout::version(self.store, number));
        Err(Error::new(ErrorKind::Exists { expected, got }).at(place))
    }

    /// Refuses a name under which the remote has another store: its servers could use no version of this one.
    fn check_store(&self, info: &VersionInfo) -> Result<()> {
        let newest = self.remote.versions(self.store)?.pop();
        // A version that cannot be read says nothing; the push of its number will.
        let there = newest.and_then(|number| self.remote.version(self.store, number).ok());
        match there.filter(|there| there.store != info.store) {
            None => Ok(()),
            Some(there) => {
                let name = |info: &VersionInfo| format!("a version of store {:#018x}", info.store);
                let kind = ErrorKind::Exists { expected: name(info), got: name(&there) };
                Err(Error::new(kind).at(self.objects().place(&layout::versions(self.store))))
            }
        }
    }

    /// Uploads the files of a table that the remote lacks; the block tree last.
    fn table(&mut self, layer: &Layer) -> Result<()> {
        let folder = table_path(self.folder, layer.table);
        let tree = Tree::open(self.disk, &folder, layer)?;
        let tree_name = layout::table_file(self.store, layer.table, TREE);
        self.names.insert(tree_name.clone());
        let is_there = self.sizes.contains_key(&tree_name);
        if is_there {
            self.check_tree(layer, &tree_name)?;
        }
        let before = self.bytes;
        for file in &tree.files {
            let name = layout::table_file(self.store, layer.table, &file.name);
            self.names.insert(name.clone());
            if self.sizes.get(&name) == Some(&file.size()) {
                self.watch.add(file.size())?;
            } else {
                self.upload(&folder, file, &name)?;
            }
        }
        if !is_there {
            let file = self.disk.open(&folder.join(TREE), Access::Cached)?;
            let bytes = read_all(file.as_ref(), SMALL_SIZE_MAX)?;
            if self.objects().put(&tree_name, &bytes, When::Absent)?.is_none() {
                // Another push was faster.
                self.check_tree(layer, &tree_name)?;
            }
            self.bytes += bytes.len() as u64;
        }
        self.tables += u64::from(self.bytes > before);
        Ok(())
    }

    /// Refuses a table whose id another table has in the remote.
    fn check_tree(&self, layer: &Layer, name: &str) -> Result<()> {
        let there = self.remote.read(name, SMALL_SIZE_MAX)?;
        let same = there.map(|object| Tree::from_bytes(&object.bytes, layer));
        match same {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => {
                let expected = format!("the block tree of table {:016x}", layer.table);
                let kind = ErrorKind::Exists { expected, got: format!("another one ({error})") };
                Err(Error::new(kind).at(self.objects().place(name)))
            }
            None => {
                let what = "block tree, which was listed a moment ago".to_owned();
                Err(Error::new(ErrorKind::Absent { what }).at(self.objects().place(name)))
            }
        }
    }

    /// Uploads a file piece by piece. Stops at a piece that is not what the version names.
    fn upload(&mut self, folder: &Path, tree: &FileTree, name: &str) -> Result<()> {
        let file = self.disk.open(&folder.join(&tree.name), Access::Cached)?;
        let mut pieces = tree.pieces.iter();
        let (watch, mut bytes) = (self.watch, 0);
        let mut next = || {
            let Some(piece) = pieces.next() else { return Ok(None) };
            let mut part = vec![0; piece.size() as usize];
            file.read_at(piece.bytes.start, &mut part)?;
            if !piece.matches(&part) {
                let error =
                    StoreError::field("BLAKE3 of a piece", "that of the version", "another");
                return Err(error.at(&file.place().offset(piece.bytes.start)).into());
            }
            watch.add(piece.size())?;
            bytes += piece.size();
            Ok(Some(part))
        };
        self.remote.objects().upload(name, tree.size(), &mut next)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Writes the signature of the version, if there is a key. It is the same each time.
    fn sign(&mut self, number: u64) -> Result<()> {
        let Some(key) = self.key else { return Ok(()) };
        let signature = VersionSignature::new(key, self.store, number, self.file);
        let (name, bytes) = (layout::signature(self.store, number), signature.to_bytes());
        if self.objects().put(&name, &bytes, When::Absent)?.is_some() {
            self.bytes += bytes.len() as u64;
            return Ok(());
        }
        let there = self.remote.read(&name, SMALL_SIZE_MAX)?;
        let there = there.map_or(Vec::new(), |object| object.bytes);
        if there == bytes {
            return Ok(());
        }
        let got = match VersionSignature::from_bytes(&there) {
            Ok(other) => format!("another signature, by the key {}", other.key_id()),
            Err(_) => "no signature".to_owned(),
        };
        let expected = format!("that of these bytes by the key {}", key.public());
        Err(Error::new(ErrorKind::Exists { expected, got }).at(self.objects().place(&name)))
    }

    /// Writes the signature, if there is one, and the version file. From here on the version is in the remote.
    fn version(&mut self, info: &VersionInfo) -> Result<()> {
        self.sign(info.name.number)?;
        let name = layout::version(self.store, info.name.number);
        match self.objects().put(&name, self.file, When::Absent)? {
            Some(_) => self.bytes += self.file.len() as u64,
            None => self.check_version(info)?,
        }
        Ok(())
    }
}
