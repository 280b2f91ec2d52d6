//! The pointer of a group of stores: which versions are current, and how a change makes the next
//! pointer of the last one.
//!
//! The object is JSON; ids and hashes are texts of hexadecimal digits. `docs/formats/deploy.md` has
//! the same table:
//!
//! | field          |                                                                              |
//! |----------------|------------------------------------------------------------------------------|
//! | format         | 1                                                                            |
//! | seq            | number of times that the pointer was changed                                 |
//! | stores         | for each store its current version: version, id, root                        |
//! | next           | the versions that a controller waits to publish, so that nodes fetch them    |
//! | trial          | the zone whose nodes use `next` before all others, if there is one: zone,    |
//! |                | activate_at_ms                                                               |
//! | previous       | the sets of versions that were current before, the latest last               |
//! | bad            | the versions that must not be published: store, version, id, root            |
//! | pinned         | the versions that stay in the remote, alike                                  |
//! | activate_at_ms | time at which nodes begin to use the versions, in milliseconds since 1970    |
//! | by             | who changed it                                                               |
//! | nonce          | a random number, by which a controller knows its own change                  |
//! | reason         | why it was changed                                                           |

use crate::{
    error::{Error, Result},
    layout::check_name,
};
use hashfold::store::VersionInfo;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The format of the document that this library reads and writes.
const FORMAT: u32 = 1;
/// Maximum size of the document, in bytes.
pub(crate) const SIZE_MAX: u64 = 1 << 22;
/// Maximum number of earlier sets of versions that are kept.
const PREVIOUS_MAX: usize = 64;
/// Maximum number of bad versions that are kept; the oldest are forgotten.
const BAD_MAX: usize = 4096;
/// Maximum number of pinned versions.
pub(crate) const PINNED_MAX: usize = 1024;

/// An id, written as 16 hexadecimal digits: many readers of JSON round large numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Id(pub u64);

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Id, String> {
        let id = u64::from_str_radix(&text, 16).map(Id);
        id.ok().filter(|id| id.to_string() == text).ok_or("expected 16 hexadecimal digits".into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A BLAKE3 hash, written as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        blake3::Hash::from(digest.0).to_hex().to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Digest, String> {
        let hash = blake3::Hash::from_hex(&text);
        hash.map(|hash| Digest(hash.into())).map_err(|_| "expected 64 hexadecimal digits".into())
    }
}

/// A version of a store that a pointer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Number of the version.
    pub version: u64,
    /// Id of the version.
    pub id: Id,
    /// Hash over the roots of its tables: the same for every version with the same content.
    pub root: Digest,
}

/// The versions of several stores, by store.
pub type Targets = BTreeMap<String, Target>;

/// A version, and the store that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVersion {
    /// Name of the store.
    pub store: String,
    /// The version.
    #[serde(flatten)]
    pub target: Target,
}

/// A zone whose nodes use the versions of [`GroupPointer::next`] before all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the zone.
    pub zone: String,
    /// Time at which its nodes begin to use the versions, in milliseconds since 1970.
    pub activate_at_ms: u64,
}

/// The pointer of a group of stores. Every change makes a new one, with the next sequence number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPointer {
    /// Format of the document: 1.
    pub format: u32,
    /// Number of times that the pointer was changed.
    pub seq: u64,
    /// The current version of each store.
    pub stores: Targets,
    /// The versions that a controller waits to publish: nodes fetch them, and report that they are
    /// ready.
    #[serde(default)]
    pub next: Targets,
    /// The zone whose nodes use the versions of `next` already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The sets of versions that were current before, the latest last.
    #[serde(default)]
    pub previous: Vec<Targets>,
    /// The versions that must not be published, the latest last.
    #[serde(default)]
    pub bad: Vec<StoreVersion>,
    /// The versions that stay in the remote until they are released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<StoreVersion>,
    /// Time at which nodes begin to use the current versions, in milliseconds since 1970.
    pub activate_at_ms: u64,
    /// Who made the last change: user, host.
    pub by: String,
    /// Random number of the last change.
    pub nonce: String,
    /// Reason of the last change; may be empty.
    pub reason: String,
}

/// Author, time and random number of a change of the pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signed {
    pub(crate) by: String,
    pub(crate) nonce: String,
    pub(crate) reason: String,
    pub(crate) activate_at_ms: u64,
}

impl GroupPointer {
    /// Decodes the document. Names in it are checked, because they become parts of paths.
    ///
    /// # Errors
    /// `Damaged`, if it is no such document or has a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<GroupPointer> {
        let pointer: GroupPointer = serde_json::from_slice(bytes)
            .map_err(|error| Error::damaged(0, "a pointer in JSON", error))?;
        if pointer.format != FORMAT {
            return Err(Error::damaged(0, format!("format {FORMAT}"), pointer.format));
        }
        if pointer.seq > MAX_NUMBER {
            let expected = format!("a sequence number of at most {MAX_NUMBER}");
            return Err(Error::damaged(0, expected, pointer.seq));
        }
        let sets = [&pointer.stores, &pointer.next].into_iter().chain(&pointer.previous);
        for (store, target) in sets.flatten() {
            check_target(store, target)?;
        }
        let named = pointer.bad.iter().chain(&pointer.pinned);
        for StoreVersion { store, target } in named {
            check_target(store, target)?;
        }
        if let Some(Trial { zone, .. }) = &pointer.trial {
            let wrong = |error| Error::damaged(0, "the name of a zone", error);
            check_name("zone", zone).map_err(wrong)?;
        }
        Ok(pointer)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("all keys are texts")
    }

    /// Whether a version must not be published: it, or a version with the same content, is marked bad.
    pub fn is_bad(&self, store: &str, target: &Target) -> bool {
        let is_same = |bad: &StoreVersion| {
            bad.store == store && (bad.target.id == target.id || bad.target.root == target.root)
        };
        self.bad.iter().any(is_same)
    }

    /// Whether all of these versions are current.
    pub fn has(&self, targets: &Targets) -> bool {
        targets.iter().all(|(store, target)| self.stores.get(store) == Some(target))
    }

    /// Returns the versions that the nodes of a zone use, and the time from which on they do, in milliseconds
    /// since 1970. A node without a zone uses the current versions.
    pub fn of_zone(&self, zone: Option<&str>) -> (Targets, u64) {
        match self.trial.as_ref().filter(|trial| zone == Some(trial.zone.as_str())) {
            None => (self.stores.clone(), self.activate_at_ms),
            Some(trial) => {
                let mut stores = self.stores.clone();
                stores.extend(self.next.clone());
                (stores, trial.activate_at_ms)
            }
        }
    }

    /// Returns the pointer after these versions became current.
    pub(crate) fn published(&self, targets: &Targets, signed: Signed) -> GroupPointer {
        let mut next = self.signed(signed);
        next.push_previous();
        next.stores.extend(targets.clone());
        next.next.clear();
        next.trial = None;
        next
    }

    /// Returns the pointer after the announcement of these versions. Announcing none withdraws those that
    /// were announced, also from a zone that uses them.
    pub(crate) fn announced(&self, targets: &Targets, signed: Signed) -> GroupPointer {
        // The current versions stay active, whatever time they were given.
        let activate_at_ms = self.activate_at_ms;
        let mut next = self.signed(Signed { activate_at_ms, ..signed });
        next.next = targets.clone();
        next.trial = None;
        next
    }

    /// Returns the pointer after the nodes of a zone got these versions before all others.
    pub(crate) fn tried(&self, targets: &Targets, zone: &str, signed: Signed) -> GroupPointer {
        let trial = Trial { zone: zone.to_owned(), activate_at_ms: signed.activate_at_ms };
        GroupPointer { trial: Some(trial), ..self.announced(targets, signed) }
    }

    /// Returns the earlier sets of versions of which none is bad, the latest first.
    pub(crate) fn good_sets(&self) -> impl Iterator<Item = &Targets> {
        let is_good = |set: &&Targets| {
            **set != self.stores && !set.iter().any(|(store, target)| self.is_bad(store, target))
        };
        self.previous.iter().rev().filter(is_good)
    }

    /// Returns the set of versions that the next rollback makes current, unless they were removed from the remote;
    /// `None` if there is no such set. While a zone uses other versions than the rest, the next rollback only ends
    /// that, and the one after it leads to this set.
    pub fn rollback_target(&self) -> Option<&Targets> {
        self.good_sets().next()
    }

    /// Returns the pointer after a rollback to an earlier set of versions: it is current, and the versions that it
    /// replaces are bad.
    pub(crate) fn rolled_back(&self, to: &Targets, signed: Signed) -> GroupPointer {
        let mut next = self.signed(signed);
        let replaced = self.stores.iter().filter(|(store, target)| to.get(*store) != Some(target));
        for (store, target) in replaced {
            next.add_bad(StoreVersion { store: store.clone(), target: *target });
        }
        next.previous.retain(|set| set != to);
        next.push_previous();
        next.stores = to.clone();
        next.next.clear();
        next
    }

    /// Returns the pointer after the versions that a zone used before the rest were taken back: they are bad, and
    /// the current ones stay.
    pub(crate) fn taken_back(&self, signed: Signed) -> GroupPointer {
        let mut next = self.signed(signed);
        for (store, target) in std::mem::take(&mut next.next) {
            next.add_bad(StoreVersion { store, target });
        }
        next.trial = None;
        next
    }

    /// Returns the pointer after a version was marked bad.
    pub(crate) fn marked(&self, bad: StoreVersion, signed: Signed) -> GroupPointer {
        let activate_at_ms = self.activate_at_ms;
        let mut next = self.signed(Signed { activate_at_ms, ..signed });
        // A version that is being prepared is withdrawn, and a zone does not go on with the others of its
        // set alone.
        next.next.retain(|store, target| bad.store != *store || bad.target.id != target.id);
        next.trial = next.trial.filter(|_| next.next == self.next);
        next.add_bad(bad);
        next
    }

    /// Returns the pointer after a version was pinned.
    pub(crate) fn pinning(&self, version: StoreVersion, signed: Signed) -> GroupPointer {
        let activate_at_ms = self.activate_at_ms;
        let mut next = self.signed(Signed { activate_at_ms, ..signed });
        next.pinned.push(version);
        next
    }

    /// Returns the pointer after a version was released.
    pub(crate) fn releasing(&self, version: &StoreVersion, signed: Signed) -> GroupPointer {
        let activate_at_ms = self.activate_at_ms;
        let mut next = self.signed(Signed { activate_at_ms, ..signed });
        next.pinned.retain(|pinned| pinned != version);
        next
    }

    fn signed(&self, Signed { by, nonce, reason, activate_at_ms }: Signed) -> GroupPointer {
        let (format, seq) = (FORMAT, self.seq + 1);
        GroupPointer { format, seq, by, nonce, reason, activate_at_ms, ..self.clone() }
    }

    /// Adds the current versions to those that were current before.
    fn push_previous(&mut self) {
        if !self.stores.is_empty() {
            self.previous.retain(|set| *set != self.stores);
            self.previous.push(self.stores.clone());
            let spare = self.previous.len().saturating_sub(PREVIOUS_MAX);
            self.previous.drain(..spare);
        }
    }

    fn add_bad(&mut self, bad: StoreVersion) {
        if !self.bad.contains(&bad) {
            self.bad.push(bad);
            let spare = self.bad.len().saturating_sub(BAD_MAX);
            self.bad.drain(..spare);
        }
    }
}

fn check_target(store: &str, target: &Target) -> Result<()> {
    check_name("store", store).map_err(|error| Error::damaged(0, "the name of a store", error))?;
    match target.version {
        1..=MAX_NUMBER => Ok(()),
        number => Err(Error::damaged(0, format!("a version from 1 to {MAX_NUMBER}"), number)),
    }
}

/// The highest number of a version, and the highest sequence number.
pub(crate) const MAX_NUMBER: u64 = u64::MAX >> 1;

/// Returns a version as a target of a pointer.
pub(crate) fn target_of(info: &VersionInfo) -> Target {
    let mut hasher = blake3::Hasher::new();
    for (kind, layers) in [(0, &info.bases), (1, &info.deltas)] {
        for layer in layers {
            hasher.update(&[kind, u8::from(layer.is_part)]);
            hasher.update(&layer.table.to_le_bytes());
            hasher.update(&layer.root);
            hasher.update(&(layer.chunks.ranges().len() as u64).to_le_bytes());
            for range in layer.chunks.ranges() {
                hasher.update(&range.start.to_le_bytes());
                hasher.update(&range.end.to_le_bytes());
            }
        }
    }
    let root = Digest(hasher.finalize().into());
    Target { version: info.name.number, id: Id(info.name.id), root }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::work::{Random as _, SeededRandom};

    fn target(version: u64) -> Target {
        Target { version, id: Id(version * 7), root: Digest([version as u8; 32]) }
    }

    fn set(versions: &[(&str, u64)]) -> Targets {
        versions.iter().map(|(store, version)| ((*store).to_owned(), target(*version))).collect()
    }

    fn published(sets: &[&[(&str, u64)]]) -> GroupPointer {
        let publish = |pointer: GroupPointer, versions: &&[(&str, u64)]| {
            pointer.published(&set(versions), Signed::default())
        };
        sets.iter().fold(GroupPointer::default(), publish)
    }

    fn back(pointer: &GroupPointer) -> Option<GroupPointer> {
        Some(pointer.rolled_back(pointer.rollback_target()?, Signed::default()))
    }

    #[track_caller]
    fn check_rolled_back(pointer: &GroupPointer, stores: &[(&str, u64)], bad: &[(&str, u64)]) {
        let back = back(pointer).unwrap();
        assert_eq!(back.stores, set(stores));
        let marked: Vec<(&str, u64)> =
            back.bad.iter().map(|bad| (bad.store.as_str(), bad.target.version)).collect();
        assert_eq!(marked, bad);
        assert_eq!(back.seq, pointer.seq + 1);
        assert_eq!(GroupPointer::from_bytes(&back.to_bytes()).unwrap(), back);
    }

    #[test]
    fn a_rollback_leads_to_the_latest_good_set_and_marks_what_it_replaces() {
        check_rolled_back(&published(&[&[("a", 1)], &[("a", 2)]]), &[("a", 1)], &[("a", 2)]);
        let group = published(&[&[("a", 1), ("b", 1)], &[("a", 2)]]);
        check_rolled_back(&group, &[("a", 1), ("b", 1)], &[("a", 2)]);
        let grown = published(&[&[("a", 1)], &[("b", 1)]]);
        check_rolled_back(&grown, &[("a", 1)], &[("b", 1)]);
        let three = published(&[&[("a", 1)], &[("a", 2)], &[("a", 3)]]);
        check_rolled_back(&back(&three).unwrap(), &[("a", 1)], &[("a", 3), ("a", 2)]);
        let bad = StoreVersion { store: "a".into(), target: target(2) };
        check_rolled_back(
            &three.marked(bad, Signed::default()),
            &[("a", 1)],
            &[("a", 2), ("a", 3)],
        );
        assert_eq!(back(&published(&[&[("a", 1)]])), None);
        assert_eq!(back(&GroupPointer::default()), None);
    }

    #[track_caller]
    fn check_of_zone(pointer: &GroupPointer, zone: Option<&str>, stores: &[(&str, u64)], at: u64) {
        assert_eq!(pointer.of_zone(zone), (set(stores), at), "{zone:?}");
        assert_eq!(GroupPointer::from_bytes(&pointer.to_bytes()).unwrap(), *pointer);
    }

    fn signed_for(activate_at_ms: u64) -> Signed {
        Signed { activate_at_ms, ..Signed::default() }
    }

    #[test]
    fn only_the_zone_of_a_trial_uses_what_is_announced() {
        let before = GroupPointer::default().published(&set(&[("a", 1), ("b", 1)]), signed_for(7));
        let (old, new) = ([("a", 1), ("b", 1)], [("a", 2), ("b", 1)]);
        let announced = before.announced(&set(&[("a", 2)]), signed_for(8));
        let tried = announced.tried(&set(&[("a", 2)]), "east", signed_for(9));
        for zone in [None, Some("west"), Some("")] {
            check_of_zone(&tried, zone, &old, 7);
        }
        check_of_zone(&announced, Some("east"), &old, 7);
        check_of_zone(&tried, Some("east"), &new, 9);
        let other = StoreVersion { store: "a".into(), target: target(9) };
        check_of_zone(&tried.marked(other, signed_for(10)), Some("east"), &new, 9);
        let bad = StoreVersion { store: "a".into(), target: target(2) };
        for (ended, at) in [
            (tried.announced(&set(&[]), signed_for(10)), 7),
            (tried.announced(&set(&[("a", 3)]), signed_for(10)), 7),
            (tried.marked(bad.clone(), signed_for(10)), 7),
            (tried.taken_back(signed_for(10)), 10),
        ] {
            check_of_zone(&ended, Some("east"), &old, at);
            check_of_zone(&ended, None, &old, at);
            assert_eq!(ended.trial, None);
        }
        assert_eq!(tried.taken_back(signed_for(10)).bad, [bad]);
        let published = tried.published(&set(&[("a", 2)]), signed_for(11));
        check_of_zone(&published, Some("east"), &new, 11);
        check_of_zone(&published, None, &new, 11);
        check_rolled_back(&published, &old, &[("a", 2)]);
    }

    #[test]
    fn the_same_content_is_bad_under_every_number() {
        let bad = StoreVersion { store: "a".into(), target: target(2) };
        let pointer = published(&[&[("a", 1)]]).marked(bad, Signed::default());
        let again = Target { version: 9, id: Id(1), root: target(2).root };
        assert!(pointer.is_bad("a", &again) && !pointer.is_bad("b", &again));
        assert!(!pointer.is_bad("a", &target(1)));
    }

    #[test]
    fn a_document_with_foreign_names_or_another_format_is_refused() {
        let good = String::from_utf8(published(&[&[("a", 1)]]).to_bytes()).unwrap();
        GroupPointer::from_bytes(good.as_bytes()).unwrap();
        for (from, to) in [
            ("\"a\"", "\"../a\""),
            ("\"a\"", "\"\""),
            ("\"format\": 1", "\"format\": 2"),
            ("\"seq\": 1", "\"seq\": 18446744073709551615"),
            ("\"version\": 1", "\"version\": 0"),
            ("\"version\": 1", "\"version\": -1"),
            ("\"id\": \"0", "\"id\": \"x"),
            ("\"root\": \"0", "\"root\": \"00"),
            ("\"next\"", "\"trial\": {\"zone\": \"../a\", \"activate_at_ms\": 1}, \"next\""),
            ("{", "["),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert!(GroupPointer::from_bytes(bad.as_bytes()).is_err(), "{to}");
        }
        for end in 0..good.len() {
            assert!(GroupPointer::from_bytes(&good.as_bytes()[..end]).is_err());
        }
    }

    #[test]
    fn bytes_of_strangers_never_panic() {
        let good = published(&[&[("a", 1), ("b", 2)], &[("a", 2)]]);
        let good = back(&good).unwrap();
        let good = good.tried(&set(&[("a", 3)]), "east", Signed::default()).to_bytes();
        let random = SeededRandom::new(1);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.next_u64() % 3 {
                let at = random.next_u64() as usize % bytes.len();
                match random.next_u64() % 3 {
                    0 => bytes[at] = random.next_u64() as u8,
                    1 => drop(bytes.drain(at..)),
                    _ => bytes.insert(at, b"\"{}[]:,-1e."[random.next_u64() as usize % 11]),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            if let Ok(pointer) = GroupPointer::from_bytes(&bytes) {
                let names = pointer.stores.keys().chain(pointer.bad.iter().map(|bad| &bad.store));
                names.for_each(|name| check_name("store", name).unwrap());
                let _ = pointer.of_zone(Some("east"));
                let _ = back(&pointer);
            }
        }
        let deep = "[".repeat(1 << 20);
        assert!(GroupPointer::from_bytes(deep.as_bytes()).is_err());
    }

    #[test]
    fn the_lists_stay_bounded() {
        let mut pointer = GroupPointer::default();
        for version in 1..200 {
            pointer = pointer.published(&set(&[("a", version)]), Signed::default());
        }
        assert_eq!((pointer.previous.len(), pointer.seq), (PREVIOUS_MAX, 199));
    }
}
