//! The signature of a version, an object beside its file.
//!
//! `docs/formats/deploy.md` has the same tables. The object:
//!
//! | offset | size | field     |                                      |
//! |-------:|-----:|-----------|--------------------------------------|
//! |      0 |    8 | magic     | `HASHFSIG`                           |
//! |      8 |    4 | version   | 1                                    |
//! |     12 |   32 | key       | the public key of the signer         |
//! |     44 |   64 | signature | Ed25519 (RFC 8032), over the message |
//!
//! The message:
//!
//! | offset | size | field   |                                        |
//! |-------:|-----:|---------|----------------------------------------|
//! |      0 |   16 | purpose | `HASHFOLD-VERSION`                     |
//! |     16 |    8 | number  | of the version                         |
//! |     24 |   32 | hash    | BLAKE3 of the version file             |
//! |     56 |    – | store   | its name in the remote, up to the end  |

use crate::{
    error::{Error, ErrorKind, Result},
    key::{PUBLIC_KEY_SIZE, SIGNATURE_SIZE, SigningKey, TrustedKeys, id_of},
};
use hashfold::codec::Decoder;

const MAGIC: &[u8; 8] = b"HASHFSIG";
const FORMAT: u32 = 1;
/// Size of the object, in bytes.
pub(crate) const SIZE: usize = 108;
const KEY_OFFSET: usize = 12;
const _: () = assert!(KEY_OFFSET + PUBLIC_KEY_SIZE + SIGNATURE_SIZE == SIZE);

/// What keys of this kind sign; keys that sign other things must not be misled to sign a version.
const PURPOSE: &[u8; 16] = b"HASHFOLD-VERSION";

/// The signature of a version: of its store's name in the remote, its number, and all bytes of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSignature {
    /// The public key of the signer.
    key: [u8; PUBLIC_KEY_SIZE],
    signature: [u8; SIGNATURE_SIZE],
}

impl VersionSignature {
    /// Signs a version: its store's name in the remote, its number, and the bytes of its file.
    pub fn new(key: &SigningKey, store: &str, number: u64, file: &[u8]) -> VersionSignature {
        let signature = key.sign(&message(store, number, file));
        VersionSignature { key: *key.public().as_bytes(), signature }
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// `Damaged`, if it is no such object or has another format.
    pub fn from_bytes(bytes: &[u8]) -> Result<VersionSignature> {
        if bytes.len() != SIZE {
            return Err(Error::damaged(0, format!("{SIZE} bytes"), bytes.len()));
        }
        let mut fields = Decoder::new(bytes);
        if fields.array()? != *MAGIC {
            return Err(Error::damaged(0, "a signature of a version", "another object"));
        }
        match fields.u32()? {
            FORMAT => Ok(VersionSignature { key: fields.array()?, signature: fields.array()? }),
            other => Err(Error::damaged(8, format!("format {FORMAT}"), other)),
        }
    }

    /// Encodes the object.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut out = Vec::with_capacity(SIZE);
        out.extend(MAGIC);
        out.extend(FORMAT.to_le_bytes());
        out.extend(self.key);
        out.extend(self.signature);
        out.try_into().expect("the fields above are SIZE bytes")
    }

    /// Returns the id of the signer's public key.
    pub(crate) fn key_id(&self) -> String {
        id_of(&self.key)
    }

    /// Checks that one of the trusted keys has signed this version, with these bytes.
    ///
    /// # Errors
    /// `Untrusted`.
    pub fn verify(
        &self,
        trusted: &TrustedKeys,
        store: &str,
        number: u64,
        file: &[u8],
    ) -> Result<()> {
        let id = self.key_id();
        let Some(key) = trusted.find(&self.key) else {
            let got = format!("one by the key {id}, which is not trusted");
            return Err(untrusted(trusted, store, number, got));
        };
        match key.has_signed(&message(store, number, file), &self.signature) {
            true => Ok(()),
            false => {
                let got = format!(
                    "one that names the key {id}, and is of another version, another store or other \
                     bytes"
                );
                Err(untrusted(trusted, store, number, got))
            }
        }
    }
}

/// Checks the object beside a version's file, which may be missing.
///
/// # Errors
/// `Untrusted`.
pub(crate) fn check_signature(
    object: Option<&[u8]>,
    trusted: &TrustedKeys,
    store: &str,
    number: u64,
    file: &[u8],
) -> Result<()> {
    let untrusted = |got: String| untrusted(trusted, store, number, got);
    let object = object.ok_or_else(|| untrusted("none".to_owned()))?;
    let signature = VersionSignature::from_bytes(object)
        .map_err(|_| untrusted("an object that is no signature".to_owned()))?;
    signature.verify(trusted, store, number, file)
}

fn untrusted(trusted: &TrustedKeys, store: &str, number: u64, got: String) -> Error {
    let what = format!("version {number} of store {store}");
    let expected = format!("a signature by a trusted key ({trusted})");
    ErrorKind::Untrusted { what, expected, got }.into()
}

/// Returns the bytes that are signed.
fn message(store: &str, number: u64, file: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(56 + store.len());
    out.extend(PURPOSE);
    out.extend(number.to_le_bytes());
    out.extend(blake3::hash(file).as_bytes());
    out.extend(store.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PublicKey;
    use hashfold::work::SeededRandom;

    const FILE: &[u8] = b"the bytes of a version file";

    fn key(seed: u64) -> SigningKey {
        SigningKey::generate(&SeededRandom::new(seed))
    }

    fn trusted(keys: &[&SigningKey]) -> TrustedKeys {
        keys.iter().map(|key| key.public()).collect()
    }

    #[test]
    fn a_signature_is_of_one_version_of_one_store_with_these_bytes() {
        let (key, other) = (key(1), key(2));
        let signature = VersionSignature::new(&key, "people", 41, FILE);
        let check = |keys: &[&SigningKey], store: &str, number, file: &[u8]| {
            signature.verify(&trusted(keys), store, number, file).is_ok()
        };
        assert!(check(&[&key], "people", 41, FILE));
        assert!(check(&[&other, &key], "people", 41, FILE));
        assert!(!check(&[&other], "people", 41, FILE));
        assert!(!check(&[], "people", 41, FILE));
        for (store, number, file) in [
            ("people", 42, FILE),
            ("people", 0, FILE),
            ("peopl", 41, FILE),
            ("people2", 41, FILE),
            ("", 41, FILE),
            ("people", 41, &FILE[1..]),
            ("people", 41, b""),
        ] {
            assert!(!check(&[&key], store, number, file), "{store} {number}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_refused() {
        let key = key(3);
        let trusted = trusted(&[&key]);
        let good = VersionSignature::new(&key, "people", 1, FILE).to_bytes();
        assert_eq!(VersionSignature::from_bytes(&good).unwrap().to_bytes(), good);
        let check = |object: &[u8]| check_signature(Some(object), &trusted, "people", 1, FILE);
        check(&good).unwrap();
        for bit in 0..8 * SIZE {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = check(&bad).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Untrusted { .. }), "bit {bit}: {error}");
        }
        let longer = [good.as_slice(), &[0]].concat();
        for bad in (0..SIZE).map(|len| &good[..len]).chain([longer.as_slice()]) {
            assert!(check(bad).unwrap_err().is_untrusted(), "{}", bad.len());
        }
    }

    #[test]
    fn an_error_says_what_is_expected_and_what_is_there() {
        let (key, other) = (key(4), key(5));
        let keys = trusted(&[&key]);
        let signed =
            |key: &SigningKey, store| VersionSignature::new(key, store, 1, FILE).to_bytes();
        let ids = [&key, &other].map(|key| key.public().to_string());
        for (object, got) in [
            (None, "got none".to_owned()),
            (Some(vec![0; SIZE]), "got an object that is no signature".to_owned()),
            (Some(signed(&other, "people").to_vec()), format!("got one by the key {}", ids[1])),
            (Some(signed(&key, "prices").to_vec()), format!("names the key {}", ids[0])),
        ] {
            let checked = check_signature(object.as_deref(), &keys, "people", 1, FILE);
            let error = checked.unwrap_err().to_string();
            let what = format!(
                "version 1 of store people is refused: expected a signature by a trusted key ({}), ",
                ids[0]
            );
            assert!(error.starts_with(&what) && error.contains(&got), "{error}");
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().as_chunks::<2>().0.iter();
        let pairs = digits.map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    /// The object as `openssl pkeyutl -sign -rawin` and another BLAKE3 make it, with the key of RFC 8410.
    #[test]
    fn other_programs_make_the_same_object() {
        let pem = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----
";
        let object = bytes(
            "48415348465349470100000019bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1\
             c09e2f9fc3ff61030f1157eb41e8e1f9fad591cf4fdcf569eb783402dcb99d75\
             b80d589d78b99b23dd2f38140947361cb69ddc262fa842725ded17c1e2a5dd02",
        );
        let key = SigningKey::from_pem(pem).unwrap();
        let signature = VersionSignature::new(&key, "people", 41, FILE);
        assert_eq!(signature.to_bytes().as_slice(), object);
    }

    /// RFC 8032, section 7.1, test 2: the key, and the signature of one byte.
    #[test]
    fn signatures_are_those_of_the_rfc() {
        let public = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=
-----END PUBLIC KEY-----
";
        let signature = bytes(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        let signature = signature.try_into().unwrap();
        let key = PublicKey::from_pem(public).unwrap();
        assert!(key.has_signed(&[0x72], &signature));
        assert!(!key.has_signed(&[0x73], &signature));
    }
}
