//! The keys of signed versions: Ed25519 (RFC 8032), in PEM files like those of OpenSSL.
//!
//! A private key is PKCS#8 without a password (`PRIVATE KEY`), a public key is a
//! SubjectPublicKeyInfo (`PUBLIC KEY`), as in RFC 8410.

use crate::error::{Error, Result};
use ed25519_dalek::{
    SECRET_KEY_LENGTH, Signer as _, VerifyingKey,
    pkcs8::{
        DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, EncodePublicKey as _,
        KeypairBytes,
    },
};
use hashfold::work::Random;
use std::fmt;

/// Size of a public key, in bytes.
pub(crate) const PUBLIC_KEY_SIZE: usize = 32;
/// Size of a signature, in bytes.
pub(crate) const SIGNATURE_SIZE: usize = 64;

/// A private key, which signs versions.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// Makes a key of random numbers, which nobody may be able to predict:
    /// [`hashfold::work::SystemRandom`].
    pub fn generate(random: &dyn Random) -> SigningKey {
        let mut secret = [0; SECRET_KEY_LENGTH];
        for part in secret.as_chunks_mut::<8>().0 {
            *part = random.next_u64().to_le_bytes();
        }
        SigningKey(ed25519_dalek::SigningKey::from_bytes(&secret))
    }

    /// Decodes a key: PKCS#8 in PEM, without a password.
    ///
    /// # Errors
    /// `Argument`, if it is no such text.
    pub fn from_pem(text: &str) -> Result<SigningKey> {
        let key = ed25519_dalek::SigningKey::from_pkcs8_pem(text);
        key.map(SigningKey).map_err(|error| {
            let expected = "a private key for Ed25519 without a password, in PEM (PKCS#8), as \
                            `hashfold deploy keygen` writes it";
            Error::argument("signing key", expected, format!("a text that is none ({error})"))
        })
    }

    /// Encodes the key: PKCS#8 in PEM, without a password.
    pub fn to_pem(&self) -> String {
        // Without the public key, which not every reader of PKCS#8 accepts.
        let pair = KeypairBytes { secret_key: self.0.to_bytes(), public_key: None };
        let pem = pair.to_pkcs8_pem(Default::default());
        pem.expect("a key of the right size is encoded").to_string()
    }

    /// Returns the public key, which belongs to the trusted keys of servers.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_SIZE] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    /// Writes the id of the public key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

/// A public key, which verifies the signatures of versions. `Display` writes its id: the first 16
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Decodes a key: a SubjectPublicKeyInfo in PEM.
    ///
    /// # Errors
    /// `Argument`, if it is no such text, or a key for which everybody can make signatures.
    pub fn from_pem(text: &str) -> Result<PublicKey> {
        let refused = |reason: &dyn fmt::Display| {
            let expected = "a public key for Ed25519 in PEM, as `hashfold deploy keygen` writes it";
            Error::argument("trusted key", expected, format!("a text that is none ({reason})"))
        };
        let key = VerifyingKey::from_public_key_pem(text).map_err(|error| refused(&error))?;
        match key.is_weak() {
            true => Err(refused(&"the point has a small order")),
            false => Ok(PublicKey(key)),
        }
    }

    /// Encodes the key: a SubjectPublicKeyInfo in PEM.
    pub fn to_pem(&self) -> String {
        let pem = self.0.to_public_key_pem(Default::default());
        pem.expect("a key of the right size is encoded")
    }

    /// Returns the 32 bytes of the key.
    pub fn as_bytes(&self) -> &[u8; PUBLIC_KEY_SIZE] {
        self.0.as_bytes()
    }

    /// Whether the key has made the signature of a message.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8; SIGNATURE_SIZE]) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        self.0.verify_strict(message, &signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&id_of(self.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// Returns the first 16 hexadecimal digits of a public key, for messages.
pub(crate) fn id_of(key: &[u8; PUBLIC_KEY_SIZE]) -> String {
    key[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The public keys whose signatures are accepted. Without keys, versions need no signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys(Vec<PublicKey>);

impl TrustedKeys {
    /// Whether there are no keys, so that versions need no signature.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key with these bytes, if it is trusted.
    pub(crate) fn find(&self, bytes: &[u8; PUBLIC_KEY_SIZE]) -> Option<&PublicKey> {
        self.0.iter().find(|key| key.as_bytes() == bytes)
    }
}

impl FromIterator<PublicKey> for TrustedKeys {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> TrustedKeys {
        TrustedKeys(keys.into_iter().collect())
    }
}

impl fmt::Display for TrustedKeys {
    /// Writes the ids of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.0.iter().map(PublicKey::to_string).collect();
        f.write_str(&ids.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::work::SeededRandom;

    /// The private key of RFC 8410, section 10.3.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----
";

    /// The same key with its public key and an attribute, from there.
    const WITH_PUBLIC: &str = "-----BEGIN PRIVATE KEY-----
MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB
Z9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PRIVATE KEY-----
";

    /// The public key of RFC 8410, section 10.1, which belongs to the private one.
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
";

    #[test]
    fn the_keys_of_the_rfc_are_read_and_written() {
        let key = SigningKey::from_pem(PRIVATE).unwrap();
        assert_eq!((key.to_pem(), key.public().to_pem()), (PRIVATE.to_owned(), PUBLIC.to_owned()));
        assert_eq!(PublicKey::from_pem(PUBLIC).unwrap(), key.public());
        assert_eq!(key.public().to_string(), "19bf44096984cdfe");
        let with_public = SigningKey::from_pem(WITH_PUBLIC).unwrap();
        assert_eq!(with_public.to_pem(), PRIVATE);
    }

    #[test]
    fn a_key_that_was_made_survives_its_file() {
        let random = SeededRandom::new(7);
        let (one, other) = (SigningKey::generate(&random), SigningKey::generate(&random));
        assert_ne!(one.public(), other.public());
        for key in [one, other] {
            let again = SigningKey::from_pem(&key.to_pem()).unwrap();
            assert_eq!(again.sign(b"message"), key.sign(b"message"));
            assert!(key.public().has_signed(b"message", &again.sign(b"message")));
            assert!(!key.public().has_signed(b"messages", &again.sign(b"message")));
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        let cut = &PRIVATE[..PRIVATE.len() / 2];
        let x25519 = PUBLIC.replace("K2VwAyEA", "K2VuAyEA");
        let encrypted = PRIVATE.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        for text in ["", "x", cut, PUBLIC, &encrypted] {
            let error = SigningKey::from_pem(text).unwrap_err().to_string();
            assert!(error.starts_with("signing key is a text that is none ("), "{error}");
        }
        // The neutral element: every message has a signature by it.
        let weak = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END PUBLIC KEY-----
";
        for text in ["", "x", PRIVATE, &x25519, weak] {
            let error = PublicKey::from_pem(text).unwrap_err().to_string();
            assert!(error.starts_with("trusted key is a text that is none ("), "{error}");
        }
        assert!(!format!("{:?}", SigningKey::from_pem(PRIVATE)).contains("d4ee"), "it is a secret");
    }
}
