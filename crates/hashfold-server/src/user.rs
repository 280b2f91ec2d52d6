//! Users: who may connect, what they see, and which commands they may call.

use crate::{command::CommandSet, data::Space, protocol::matches};
use argon2::{
    Argon2, PasswordHash, PasswordHasher as _, PasswordVerifier as _, password_hash::SaltString,
};
use hashfold::work::Random;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The name of the user of connections that gave no name.
pub(crate) const DEFAULT: &str = "default";

/// A user.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: Password,
    pub(crate) space: Arc<Space>,
    /// Spaces that keys such as `name:{key}` are looked up in.
    pub(crate) spaces: HashMap<String, Arc<Space>>,
    pub(crate) commands: CommandSet,
    /// Patterns of the keys that the user may use; all keys if there is none.
    pub(crate) keys: Vec<String>,
    /// The reply to lookups of a user that has no data set because it could have one of several.
    pub(crate) choice: Option<String>,
}

impl User {
    /// Returns the user's own space, and the others.
    pub(crate) fn all_spaces(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.spaces.values().chain([&self.space])
    }

    /// Whether the user may use a key.
    #[inline]
    pub(crate) fn may_use(&self, key: &[u8]) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|pattern| matches(pattern.as_bytes(), key))
    }
}

/// Returns the hash of a password for a configuration file: Argon2id in the PHC format, with 19 MiB and 2 passes.
///
/// # Errors
/// The password is longer than 4 GiB.
pub fn hash_password(password: &[u8], random: &dyn Random) -> Result<String, String> {
    let salt = [random.next_u64(), random.next_u64()].map(u64::to_le_bytes);
    let salt = SaltString::encode_b64(salt.as_flattened()).map_err(|error| error.to_string())?;
    let hash = Argon2::default().hash_password(password, &salt);
    hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

/// A user's password.
#[derive(Debug)]
pub(crate) enum Password {
    /// Everybody who can connect may be this user.
    None,
    /// An Argon2 hash, and the last password that was right: hashing takes 20 ms.
    Hash { hash: String, right: Mutex<Option<Vec<u8>>> },
}

impl Password {
    /// Returns a password that has this Argon2 hash, in the PHC format.
    ///
    /// # Errors
    /// What is wrong with the hash.
    pub(crate) fn of_hash(hash: &str) -> Result<Password, String> {
        PasswordHash::new(hash).map_err(|error| {
            format!("password: expected an Argon2 hash ($argon2id$…), got one that is {error}")
        })?;
        Ok(Password::Hash { hash: hash.into(), right: Mutex::default() })
    }

    /// Whether no password is needed.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Password::None)
    }

    /// Whether a password is known to be right, because it was so before or none is needed.
    pub(crate) fn is_known(&self, password: &[u8]) -> bool {
        let Password::Hash { right, .. } = self else { return true };
        let right = right.lock().unwrap_or_else(PoisonError::into_inner);
        right.as_deref().is_some_and(|right| is_equal(right, password))
    }

    /// Whether a password is right, which takes 20 ms if that is not known.
    pub(crate) fn is(&self, password: &[u8]) -> bool {
        let Password::Hash { hash, right } = self else { return true };
        if self.is_known(password) {
            return true;
        }
        let Ok(parsed) = PasswordHash::new(hash) else { return false };
        let is_right = Argon2::default().verify_password(password, &parsed).is_ok();
        if is_right {
            *right.lock().unwrap_or_else(PoisonError::into_inner) = Some(password.to_vec());
        }
        is_right
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}
