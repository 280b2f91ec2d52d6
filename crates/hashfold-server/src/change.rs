//! Changes by operators: which version of a store is current, and which versions are kept. Each change is
//! noted in the audit log before it begins, and before its result is known.

use crate::{
    audit::{AuditLog, What},
    config::{Config, DeployConfig},
    data::{DataSet, SAMPLE_PAUSE, warming},
    deploy::read_keys,
    error::StartError,
};
use hashfold::{
    Env, Error, ErrorClass, ErrorKind,
    store::{Gates, Pin, StoreWriter},
    work::Watch,
};
use hashfold_deploy::{
    Controller, ErrorKind as DeployErrorKind, GroupPointer, PublishOptions, Remote, TrustedKeys,
};
use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tracing::{info, warn};

/// Time that a publication in a group waits for its servers: as long as a person looks at a page that is
/// loading.
const WAIT: Duration = Duration::from_secs(30);

/// Number of keys of the current version that are looked up in a version with a limit of changes.
const SAMPLE: u64 = 1000;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// Make a version current, also one that is marked bad or does not pass gates if that is forced.
    Publish {
        version: u64,
        is_forced: bool,
        /// Maximum fraction of a sample of keys that may be missing or have another value.
        change_max: Option<f64>,
    },
    /// Make the version before current, or the named one, and mark the current version bad.
    RollBack { to: Option<u64> },
    /// Keep a version regardless of the rules of retention.
    Pin { version: u64 },
    /// Keep a version as long as the rules say.
    Unpin { version: u64 },
    /// Withdraw the versions that servers of the group fetch before they become current.
    Cancel,
}

impl Action {
    /// Returns the name in the audit log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Publish { .. } => "publish",
            Action::RollBack { .. } => "rollback",
            Action::Pin { .. } => "pin",
            Action::Unpin { .. } => "unpin",
            Action::Cancel => "cancel",
        }
    }

    /// Returns the version that is asked for, if one is.
    fn version(self) -> Option<u64> {
        match self {
            Action::Publish { version, .. }
            | Action::Pin { version }
            | Action::Unpin { version } => Some(version),
            Action::RollBack { to } => to,
            Action::Cancel => None,
        }
    }

    /// Whether the action is about the pointer of a group, if the store follows one.
    fn is_of_group(self) -> bool {
        !matches!(self, Action::Pin { .. } | Action::Unpin { .. })
    }
}

/// A change that somebody asks for.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) data: Arc<DataSet>,
    pub(crate) action: Action,
    /// Why, in the words of who asks.
    pub(crate) reason: String,
    pub(crate) who: String,
    /// `page`, `http` or `redis`.
    pub(crate) via: &'static str,
    /// The sequence number of the pointer that was looked at; another pointer is not changed.
    pub(crate) seq: Option<u64>,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The version that is current, or was pinned or unpinned.
    pub(crate) version: u64,
    /// The version that was current before.
    pub(crate) previous: Option<u64>,
    /// The sequence number of the pointer.
    pub(crate) seq: u64,
}

/// The reason why a change is not done as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// The pointer is not the one that was looked at; nothing was changed.
    Moved(String),
    /// The change is not possible, or not yet: the same versions are current. A version of a group may have been
    /// announced to its servers, which go on fetching it.
    Refused(String),
    /// The pointer was changed, but something that belongs to the change has failed: it may not be durable,
    /// not be served by this server, or not be in the audit log. Or the reply of the object storage was lost, so that
    /// nobody knows whether the pointer was changed.
    Incomplete(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Moved(message) | ChangeError::Refused(message) => f.write_str(message),
            ChangeError::Incomplete(message) => {
                write!(f, "the pointer may have changed, and not all was done: {message}")
            }
        }
    }
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> ChangeError {
        ChangeError::Refused(error.to_string())
    }
}

impl From<hashfold_deploy::Error> for ChangeError {
    fn from(error: hashfold_deploy::Error) -> ChangeError {
        match error.kind() {
            DeployErrorKind::Overtaken { .. } => ChangeError::Moved(error.to_string()),
            _ => ChangeError::Refused(error.to_string()),
        }
    }
}

/// The group that stores follow, and the object storage with its pointer.
#[derive(Debug)]
pub(crate) struct Group {
    remote: Remote,
    config: DeployConfig,
    trusted_keys: TrustedKeys,
}

/// What changes need: the audit log, and the group that stores follow.
#[derive(Debug)]
pub(crate) struct Changer {
    env: Env,
    audit: Option<AuditLog>,
    group: Option<Group>,
    has_memory_limit: bool,
    is_stopping: Arc<AtomicBool>,
}

impl Changer {
    /// Opens the audit log of a configuration. Makes no request to the remote.
    ///
    /// # Errors
    /// The audit log cannot be opened, or was changed; the remote has no such form; the file of a trusted key
    /// cannot be used.
    pub(crate) fn open(config: &Config, env: &Env) -> Result<Changer, StartError> {
        let open = |path: &Path| AuditLog::open(env, path).map_err(StartError::Data);
        let audit = config.admin.audit.as_deref().map(open).transpose()?;
        let group = config.deploy.as_ref().map(|config| -> Result<Group, StartError> {
            let remote = Remote::open(env, &config.remote).map_err(StartError::Deploy)?;
            let trusted_keys = read_keys(env.disk.as_ref(), &config.trusted_keys);
            let trusted_keys = trusted_keys.map_err(StartError::Deploy)?;
            Ok(Group { remote, config: config.clone(), trusted_keys })
        });
        let (env, is_stopping) = (env.clone(), Arc::default());
        let has_memory_limit = config.memory_bytes > 0;
        Ok(Changer { env, audit, group: group.transpose()?, has_memory_limit, is_stopping })
    }

    /// Ends changes that wait for servers of the group; they change nothing.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    /// Returns what ends a change that waits.
    fn watch(&self) -> Watch {
        let is_stopping = self.is_stopping.clone();
        Watch::new(move |_| match is_stopping.load(Relaxed) {
            true => Err(ErrorKind::Stopped.into()),
            false => Ok(()),
        })
    }

    /// Returns the audit log, if there is one.
    pub(crate) fn audit(&self) -> Option<&AuditLog> {
        self.audit.as_ref()
    }

    /// Returns the group that stores follow, if they follow one.
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Makes a change. May wait for the device, and for servers of the group.
    ///
    /// # Errors
    /// Nothing was changed, but for [`ChangeError::Incomplete`].
    pub(crate) fn apply(&self, change: &Change) -> Result<Changed, ChangeError> {
        let mut what = What {
            who: change.who.clone(),
            via: change.via.to_owned(),
            action: change.action.name().to_owned(),
            store: change.data.name().to_string(),
            version: change.action.version(),
            reason: change.reason.clone(),
        };
        let number = self.audit.as_ref().map(|audit| audit.begin(&what)).transpose()?;
        let result = match self.group.as_ref().filter(|_| change.data.follows_group()) {
            None => apply(change, &self.env, self.has_memory_limit),
            Some(group) if change.action.is_of_group() => {
                group.apply(change, &self.env, &self.watch())
            }
            Some(group) => group
                .check_seen(change, &self.env)
                .and_then(|()| apply(change, &self.env, self.has_memory_limit)),
        };
        let (who, store) = (&change.who, change.data.name());
        match &result {
            Ok(Changed { version, seq, .. }) => {
                info!(who, %store, version, seq, action = what.action, "changed");
            }
            Err(error) => warn!(who, %store, action = what.action, %error, "not done"),
        }
        if let (Some(audit), Some(number)) = (&self.audit, number) {
            let error = result.as_ref().map_err(ToString::to_string);
            what.version = result.as_ref().map_or(what.version, |changed| Some(changed.version));
            let seq = error.as_ref().map(|changed| changed.seq).map_err(String::as_str);
            let noted = audit.end(number, &what, seq);
            if let (Ok(_), Err(error)) = (&result, noted) {
                return Err(ChangeError::Incomplete(error.to_string()));
            }
        }
        result
    }
}

/// Changes the pointer of a store in its folder.
fn apply(change: &Change, env: &Env, has_limit: bool) -> Result<Changed, ChangeError> {
    let mut writer = StoreWriter::open(env, change.data.folder())?;
    let (previous, seq) = (writer.pointer().current, writer.pointer().sequence);
    // A store of a group shows the number of the group's pointer, which was checked already.
    let expected = change.seq.filter(|_| !change.data.follows_group());
    if let Some(expected) = expected.filter(|expected| *expected != seq) {
        return Err(moved(change, expected, seq));
    }
    if let Some(number) = change.action.version()
        && writer.version(number).is_err_and(|error| error.is_absent())
    {
        let name = change.data.name();
        return Err(ChangeError::Refused(format!("{name} has no version {number}")));
    }
    if has_limit {
        check_memory(&writer, change)?;
    }
    let changed = make(&mut writer, change);
    // A change that fails may have replaced the pointer, as a whole or with a part of the change.
    let (version, seq) = match (changed, writer.pointer().sequence) {
        (Ok(version), now) => (version, now),
        (Err(error), now) if now == seq => return Err(error),
        (Err(error), _) => return Err(ChangeError::Incomplete(error.to_string())),
    };
    drop(writer);
    let refreshed = change.data.refresh(&warming(&env.clock, || false));
    refreshed.map_err(|error| ChangeError::Incomplete(error.to_string()))?;
    Ok(Changed { version, previous, seq })
}

/// Returns the refusal of a change of another pointer than the one that was looked at.
fn moved(change: &Change, expected: u64, got: u64) -> ChangeError {
    ChangeError::Moved(format!(
        "{}: expected change {expected} of the pointer, got {got}; look again, then repeat it if it is \
         still right",
        change.data.name()
    ))
}

/// Refuses to make a version current that the server could not open for lack of memory.
fn check_memory(writer: &StoreWriter, change: &Change) -> Result<(), ChangeError> {
    let version = match change.action {
        Action::Publish { version, .. } => Some(version),
        Action::RollBack { to } => to.or_else(|| writer.previous()),
        Action::Pin { .. } | Action::Unpin { .. } | Action::Cancel => None,
    };
    match version.map(|version| change.data.view_of(version)) {
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Memory { .. }) => Err(error.into()),
        // Other errors are met again by the change itself.
        _ => Ok(()),
    }
}

/// Refuses a version that the store does not have, and one that is marked bad if publishing it is not forced.
fn check_version(writer: &StoreWriter, change: &Change) -> Result<(), ChangeError> {
    let Some(number) = change.action.version() else { return Ok(()) };
    let name = change.data.name();
    match writer.version(number) {
        Err(error) if error.is_absent() => {
            return Err(ChangeError::Refused(format!("{name}: there is no version {number}")));
        }
        found => found.map(drop)?,
    }
    let is_unforced = matches!(change.action, Action::Publish { is_forced: false, .. });
    if is_unforced && writer.pointer().bad.contains(&number) {
        return Err(ChangeError::Refused(format!(
            "{name}: version {number} is marked bad: it was rolled back, or failed a gate; publish it with \
             force"
        )));
    }
    Ok(())
}

/// Changes the pointer of a store, and returns the version that the change is about.
fn make(writer: &mut StoreWriter, change: &Change) -> Result<u64, ChangeError> {
    check_version(writer, change)?;
    match change.action {
        Action::Publish { version, is_forced, change_max } => {
            if is_forced {
                writer.forgive(version)?;
            } else if change_max.is_some() {
                check_gates(writer, change, version, change_max)?;
            }
            writer.publish(version)?;
            Ok(version)
        }
        Action::RollBack { to: None } => Ok(writer.roll_back()?),
        Action::RollBack { to: Some(version) } => {
            let bad = writer.pointer().current.filter(|current| *current != version);
            writer.publish(version)?;
            bad.map_or(Ok(()), |bad| writer.condemn(bad))?;
            Ok(version)
        }
        Action::Pin { version } => {
            writer.pin(version, Pin::Keep)?;
            Ok(version)
        }
        Action::Unpin { version } => {
            writer.pin(version, Pin::Release)?;
            Ok(version)
        }
        Action::Cancel => {
            let name = change.data.name();
            Err(ChangeError::Refused(format!("{name}: nothing to cancel: it follows no group")))
        }
    }
}

/// Refuses a version in which too many keys of a sample are missing or have another value.
fn check_gates(
    writer: &StoreWriter,
    change: &Change,
    version: u64,
    change_max: Option<f64>,
) -> Result<(), ChangeError> {
    let gates = Gates { change_max, sample: SAMPLE, pause: SAMPLE_PAUSE, ..Gates::default() };
    match writer.report(version, &gates)?.objections.first() {
        None => Ok(()),
        Some(objection) => Err(ChangeError::Refused(format!(
            "{}: version {version} does not pass the gate: {objection}; nothing was published",
            change.data.name()
        ))),
    }
}

impl Group {
    /// Returns the name of the group.
    pub(crate) fn name(&self) -> &str {
        &self.config.group
    }

    /// Returns the object storage.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns a controller that signs with somebody's name and that of this server.
    ///
    /// # Errors
    /// The name of the group is not a plain name.
    pub(crate) fn controller(&self, env: &Env, who: &str) -> hashfold_deploy::Result<Controller> {
        let DeployConfig { group, node, .. } = &self.config;
        Controller::new(env, &self.remote, group, &format!("{who} at {node}"))
    }

    /// Refuses a change of one server if the pointer of the group is not the one that was looked at.
    fn check_seen(&self, change: &Change, env: &Env) -> Result<(), ChangeError> {
        let Some(expected) = change.seq else { return Ok(()) };
        match self.controller(env, &change.who)?.pointer()?.seq {
            seq if seq == expected => Ok(()),
            seq => Err(moved(change, expected, seq)),
        }
    }

    /// Makes a change of the group. A rollback concerns all of its stores.
    fn apply(&self, change: &Change, env: &Env, watch: &Watch) -> Result<Changed, ChangeError> {
        let store = change.data.name().to_string();
        let group = self.name();
        let mut controller = self.controller(env, &change.who)?;
        if let Some(seq) = change.seq {
            controller = controller.only_after(seq);
        }
        if let Action::RollBack { to: Some(version) } = change.action {
            return Err(ChangeError::Refused(format!(
                "{store} follows the group {group}, which rolls back to the versions before; publish \
                 version {version} instead"
            )));
        }
        let current = |pointer: &GroupPointer| pointer.stores.get(&store).map(|it| it.version);
        let before = controller.pointer()?;
        let pointer = self.change_pointer(&controller, change, watch);
        let pointer =
            pointer.map_err(|error| failed_change(&error, before.seq, controller.pointer()))?;
        let (version, previous) = (current(&pointer).unwrap_or_default(), current(&before));
        Ok(Changed { version, previous, seq: pointer.seq })
    }

    /// Changes the pointer of the group.
    fn change_pointer(
        &self,
        controller: &Controller,
        change: &Change,
        watch: &Watch,
    ) -> hashfold_deploy::Result<GroupPointer> {
        let lead = PublishOptions::default().lead;
        match change.action {
            Action::Publish { version, is_forced, change_max } => {
                let defaults = PublishOptions::default();
                let options = PublishOptions {
                    wait: WAIT,
                    allow_bad: is_forced,
                    trusted_keys: self.trusted_keys.clone(),
                    loss_max: if is_forced { 1.0 } else { defaults.loss_max },
                    change_max: change_max.filter(|_| !is_forced),
                    reason: change.reason.clone(),
                    ..defaults
                };
                let versions = [(change.data.name().to_string(), version)];
                controller.publish(&versions, &options, watch)
            }
            Action::RollBack { .. } => controller.roll_back(&change.reason, lead),
            Action::Cancel => controller.cancel(&change.reason),
            Action::Pin { .. } | Action::Unpin { .. } => {
                unreachable!("versions are pinned in stores")
            }
        }
    }
}

/// Returns the error of a change of a group. `before` is the sequence number of the pointer before the change, `now`
/// the pointer after it: unless it is the same, a change whose reply is lost may have been made.
fn failed_change(
    error: &hashfold_deploy::Error,
    before: u64,
    now: hashfold_deploy::Result<GroupPointer>,
) -> ChangeError {
    let is_unchanged = now.is_ok_and(|now| now.seq == before);
    match error.class() == ErrorClass::Io && !is_unchanged {
        true => ChangeError::Incomplete(error.to_string()),
        false => error.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Event;
    use hashfold::{
        ReadOptions, Store, StoreOptions,
        io::{Disk, Fault, FaultPlan, FaultyDisk, MemoryDisk},
        manifest::Kind,
        store::Pointer,
    };

    fn folder() -> &'static Path {
        Path::new("people")
    }

    /// Makes a store with two versions, of which the second is current.
    fn disk() -> MemoryDisk {
        let disk = MemoryDisk::default();
        let options = StoreOptions::new().env(Env::on(Arc::new(disk.clone()))).chunks(1);
        let store = Store::open_or_create_with(folder(), options).unwrap();
        for value in ["a", "b"] {
            let mut update = store.update().unwrap();
            update.put("key", value).unwrap();
            update.publish().unwrap();
        }
        disk
    }

    fn changer(env: &Env) -> Result<Changer, StartError> {
        let mut config = Config::default();
        config.admin.audit = Some("audit.jsonl".into());
        Changer::open(&config, env)
    }

    fn change(env: &Env, action: Action) -> hashfold::Result<Change> {
        let options = ReadOptions::new().env(env.clone());
        let data = Arc::new(DataSet::open("people", folder(), Kind::Store, options)?);
        let (reason, who) = ("tested".to_owned(), "eve".to_owned());
        Ok(Change { data, action, reason, who, via: "http", seq: None })
    }

    fn pointer(disk: &dyn Disk) -> Pointer {
        Pointer::read(disk, folder()).unwrap()
    }

    /// Whichever operation of the disk fails, the reply says whether the pointer has changed, and no change
    /// happens that is not in the audit log.
    #[test]
    fn replies_say_what_has_happened_whichever_operation_fails() {
        let before = disk();
        let seq = pointer(&before).sequence;
        for action in [
            Action::Publish { version: 1, is_forced: false, change_max: None },
            Action::Publish { version: 1, is_forced: false, change_max: Some(1.0) },
            Action::Publish { version: 1, is_forced: true, change_max: Some(0.0) },
            Action::RollBack { to: None },
            Action::RollBack { to: Some(1) },
            Action::Pin { version: 1 },
        ] {
            let mut seen = [0; 3];
            for operation in 0.. {
                let fault = Fault::Failure { operation };
                let faulty = FaultyDisk::over(&before, FaultPlan::from(fault));
                let env = Env::on(Arc::new(faulty.clone()));
                let Ok(changer) = changer(&env) else { continue };
                let result = changer.apply(&change(&env, action).unwrap());
                let is_changed = pointer(&faulty).sequence != seq;
                let expected = !matches!(result, Err(ChangeError::Refused(_)));
                assert_eq!(is_changed, expected, "{action:?} {operation}: {result:?}");
                let log = changer.audit().unwrap().last(9);
                assert!(!is_changed || !log.is_empty(), "{action:?} {operation}");
                let is_done = log.first().is_some_and(|line| line.event == Event::Done);
                assert_eq!(is_done, result.is_ok(), "{action:?} {operation}: {log:?}");
                seen[match result {
                    Ok(_) => 0,
                    Err(ChangeError::Incomplete(_)) => 1,
                    Err(_) => 2,
                }] += 1;
                if faulty.operations() <= operation {
                    break;
                }
            }
            assert!(seen.iter().all(|count| *count > 0), "{action:?}: {seen:?}");
        }
    }

    #[test]
    fn a_change_of_a_group_whose_result_is_unknown_is_no_refusal() {
        let lost = || hashfold_deploy::Error::remote("write", "connection reset");
        let pointer = |seq| Ok(GroupPointer { seq, ..GroupPointer::default() });
        let is_refused = |error: hashfold_deploy::Error, now| {
            matches!(failed_change(&error, 7, now), ChangeError::Refused(_))
        };
        assert!(is_refused(lost(), pointer(7)));
        assert!(!is_refused(lost(), pointer(8)));
        assert!(!is_refused(lost(), Err(lost())));
        // A version that stays announced is not current.
        let late = DeployErrorKind::NotReady { expected: 1, got: "none".into() };
        assert!(is_refused(late.into(), pointer(8)));
    }

    #[test]
    fn a_version_that_changes_too_much_is_refused_unless_it_is_forced() {
        let env = Env::on(Arc::new(disk()));
        let changer = changer(&env).unwrap();
        let publish = |is_forced, part| {
            let action = Action::Publish { version: 1, is_forced, change_max: Some(part) };
            changer.apply(&change(&env, action).unwrap())
        };
        let Err(ChangeError::Refused(text)) = publish(false, 0.5) else { panic!("not refused") };
        assert!(text.contains("people: version 1") && text.contains("at most 0.5"), "{text}");
        assert_eq!(pointer(env.disk.as_ref()).current, Some(2));
        assert_eq!(publish(true, 0.5).unwrap().version, 1);
    }

    #[test]
    fn a_version_that_does_not_exist_is_named() {
        let env = Env::on(Arc::new(disk()));
        let changer = changer(&env).unwrap();
        for action in [
            Action::Publish { version: 9, is_forced: false, change_max: None },
            Action::Publish { version: 9, is_forced: true, change_max: Some(0.1) },
            Action::RollBack { to: Some(9) },
            Action::Pin { version: 9 },
            Action::Unpin { version: 9 },
        ] {
            let error = changer.apply(&change(&env, action).unwrap()).unwrap_err();
            assert_eq!(error, ChangeError::Refused("people has no version 9".into()), "{action:?}");
        }
    }

    #[test]
    fn only_the_pointer_that_was_seen_is_changed() {
        let env = Env::on(Arc::new(disk()));
        let changer = changer(&env).unwrap();
        let at =
            |seq| Change { seq: Some(seq), ..change(&env, Action::RollBack { to: None }).unwrap() };
        let seq = pointer(env.disk.as_ref()).sequence;
        assert!(matches!(changer.apply(&at(seq - 1)), Err(ChangeError::Moved(_))));
        let changed = changer.apply(&at(seq)).unwrap();
        assert_eq!((changed.version, changed.previous), (1, Some(2)));
        assert!(matches!(changer.apply(&at(seq)), Err(ChangeError::Moved(_))));
    }
}
