//! Changes by operators: which version of a store is current, and which versions are kept. Each change is
//! noted in the audit log before it begins, and before its result is known.

use crate::{
    audit::{AuditLog, What},
    config::{Config, DeployConfig},
    data::DataSet,
    error::StartError,
};
use hashfold::{
    Env, Error,
    store::{Pin, StoreWriter},
    work::Watch,
};
use hashfold_deploy::{
    Controller, ErrorKind as DeployErrorKind, GroupPointer, PublishOptions, Remote,
};
use std::{fmt, path::Path, sync::Arc, time::Duration};
use tracing::{info, warn};

/// Time that a publication in a group waits for its servers: as long as a person looks at a page that is
/// loading.
const WAIT: Duration = Duration::from_secs(30);

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Make a version current, also one that is marked bad if that is forced.
    Publish { version: u64, is_forced: bool },
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

/// The reason why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// The pointer is not the one that was looked at.
    Moved(String),
    /// The change is not possible.
    Refused(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ChangeError::Moved(message) | ChangeError::Refused(message)) = self;
        f.write_str(message)
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
}

/// What changes need: the audit log, and the group that stores follow.
#[derive(Debug)]
pub(crate) struct Changer {
    env: Env,
    audit: Option<AuditLog>,
    group: Option<Group>,
}

impl Changer {
    /// Opens the audit log of a configuration. Makes no request to the remote.
    ///
    /// # Errors
    /// The audit log cannot be opened, or was changed; the remote has no such form.
    pub(crate) fn open(config: &Config, env: &Env) -> Result<Changer, StartError> {
        let open = |path: &Path| AuditLog::open(env, path).map_err(StartError::Data);
        let audit = config.admin.audit.as_deref().map(open).transpose()?;
        let group = config.deploy.as_ref().map(|config| -> Result<Group, StartError> {
            let remote = Remote::open(env, &config.remote).map_err(StartError::Deploy)?;
            Ok(Group { remote, config: config.clone() })
        });
        Ok(Changer { env: env.clone(), audit, group: group.transpose()? })
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
    /// Nothing was changed, or the change cannot be noted in the audit log.
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
        let result = match &self.group {
            Some(group) if change.data.follows_group() && change.action.is_of_group() => {
                group.apply(change, &self.env)
            }
            _ => apply(change, &self.env),
        };
        let (who, store) = (&change.who, change.data.name());
        match &result {
            Ok(Changed { version, seq, .. }) => {
                info!(who, %store, version, seq, action = what.action, "changed");
            }
            Err(error) => warn!(who, %store, action = what.action, %error, "not changed"),
        }
        if let (Some(audit), Some(number)) = (&self.audit, number) {
            let error = result.as_ref().map_err(ToString::to_string);
            what.version = result.as_ref().map_or(what.version, |changed| Some(changed.version));
            let seq = error.as_ref().map(|changed| changed.seq).map_err(String::as_str);
            audit.end(number, &what, seq)?;
        }
        result
    }
}

/// Changes the pointer of a store in its folder.
fn apply(change: &Change, env: &Env) -> Result<Changed, ChangeError> {
    let mut writer = StoreWriter::open(env, change.data.folder())?;
    let (previous, seq) = (writer.pointer().current, writer.pointer().sequence);
    if let Some(expected) = change.seq.filter(|expected| *expected != seq) {
        return Err(ChangeError::Moved(format!(
            "{}: expected change {expected} of the pointer, got {seq}; look again, then repeat it if it \
             is still right",
            change.data.name()
        )));
    }
    let version = match change.action {
        Action::Publish { version, is_forced } => {
            if is_forced {
                writer.forgive(version)?;
            }
            writer.publish(version)?;
            version
        }
        Action::RollBack { to: None } => writer.roll_back()?,
        Action::RollBack { to: Some(version) } => {
            writer.publish(version)?;
            if let Some(bad) = previous.filter(|previous| *previous != version) {
                writer.condemn(bad)?;
            }
            version
        }
        Action::Pin { version } => {
            writer.pin(version, Pin::Keep)?;
            version
        }
        Action::Unpin { version } => {
            writer.pin(version, Pin::Release)?;
            version
        }
        Action::Cancel => {
            let message =
                format!("{}: nothing to cancel: the store follows no group", change.data.name());
            return Err(ChangeError::Refused(message));
        }
    };
    let seq = writer.pointer().sequence;
    drop(writer);
    change.data.refresh()?;
    Ok(Changed { version, previous, seq })
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

    /// Changes the pointer of the group. A rollback concerns all of its stores.
    fn apply(&self, change: &Change, env: &Env) -> Result<Changed, ChangeError> {
        let store = change.data.name().to_string();
        let group = self.name();
        let mut controller = self.controller(env, &change.who)?;
        if let Some(seq) = change.seq {
            controller = controller.only_after(seq);
        }
        let current = |pointer: &GroupPointer| pointer.stores.get(&store).map(|it| it.version);
        let previous = current(&controller.pointer()?);
        let lead = PublishOptions::default().lead;
        let pointer = match change.action {
            Action::Publish { version, is_forced } => {
                let options = PublishOptions {
                    wait: WAIT,
                    allow_bad: is_forced,
                    reason: change.reason.clone(),
                    ..PublishOptions::default()
                };
                let versions = [(store.clone(), version)];
                controller.publish(&versions, &options, &Watch::default())?
            }
            Action::RollBack { to: None } => controller.roll_back(&change.reason, lead)?,
            Action::Cancel => controller.cancel(&change.reason)?,
            Action::RollBack { to: Some(version) } => {
                return Err(ChangeError::Refused(format!(
                    "{store} follows the group {group}, which rolls back to the versions before; publish \
                     version {version} instead"
                )));
            }
            Action::Pin { .. } | Action::Unpin { .. } => {
                unreachable!("versions are pinned in stores")
            }
        };
        let version = current(&pointer).unwrap_or_default();
        Ok(Changed { version, previous, seq: pointer.seq })
    }
}
