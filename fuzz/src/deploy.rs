//! What servers read from object storage before they trust it: the pointer of a group, the topology, the
//! signature of a version, and keys.

use hashfold::work::SeededRandom;
use hashfold_deploy::{
    GroupPointer, PublicKey, SigningKey, Topology, TrustedKeys, VersionSignature, check_name,
};
use std::sync::LazyLock;

/// A pointer that all fields of the format are in.
const POINTER: &str = r#"{"format": 1, "seq": 7,
 "stores": {"people": {"version": 41, "id": "00000000000004d2",
  "root": "0909090909090909090909090909090909090909090909090909090909090909"}},
 "next": {}, "previous": [{}], "bad": [{"store": "people", "version": 40, "id": "00000000000004d1",
  "root": "0808080808080808080808080808080808080808080808080808080808080808"}],
 "activate_at_ms": 1764000000000, "by": "eve", "nonce": "1f", "reason": "tested"}"#;

/// Bytes that are often in the document.
const ALPHABET: &[u8] = b"\"{}[]:,-+.0123456789eflnrstu/ \\";

/// A topology that all fields of the format are in.
const TOPOLOGY: &str = r#"{"epoch":7,"shards":[
{"slots":[[0,99],[200,8191]],"nodes":[{"id":"a1","host":"10.0.0.1","port":6379,"tls_port":6380,"zone":"east"}]},
{"slots":[[100,199],[8192,16383]],"nodes":[{"id":"b1","host":"b1.example.org","port":6379}]}],
"min_ready":1,"keep":2}"#;

/// The bytes as a pointer, and a pointer in which they replace, insert and cut.
pub fn group_pointer(bytes: &[u8]) {
    check(bytes);
    check(&changed(POINTER, bytes));
}

/// The bytes as a topology, and a topology in which they replace, insert and cut.
pub fn topology(bytes: &[u8]) {
    for document in [bytes.to_vec(), changed(TOPOLOGY, bytes)] {
        if let Ok(topology) = Topology::from_bytes(&document) {
            topology.check().expect("the decoder checks it");
            let again = Topology::from_bytes(&topology.to_bytes());
            assert_eq!(again.expect("it was just written"), topology);
            let nodes = topology.nodes().map(|(_, node)| &node.id);
            nodes.for_each(|id| check_name("node", id).expect("the decoder checks names"));
        }
    }
}

/// Returns a document in which bytes replace, insert and cut: three bytes an edit.
fn changed(document: &str, bytes: &[u8]) -> Vec<u8> {
    let mut document = document.as_bytes().to_vec();
    for &[low, high, how] in bytes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([low, high])) % (document.len() + 1);
        let byte = ALPHABET[usize::from(how / 4) % ALPHABET.len()];
        match how % 4 {
            0 => document.insert(at, byte),
            1 if how == 1 => document.truncate(at),
            _ if at < document.len() => document[at] = byte,
            _ => {}
        }
    }
    document
}

/// Names in a pointer become parts of paths.
fn check(bytes: &[u8]) {
    if let Ok(pointer) = GroupPointer::from_bytes(bytes) {
        let sets = [&pointer.stores, &pointer.next].into_iter().chain(&pointer.previous);
        let names = sets.flat_map(|set| set.keys()).chain(pointer.bad.iter().map(|bad| &bad.store));
        names.for_each(|name| check_name("store", name).expect("the decoder checks names"));
    }
}

/// The file of the version that is signed.
const FILE: &[u8] = b"the bytes of a version file";

/// A key, and its signature of version 41 of the store `people`.
fn signed() -> &'static (SigningKey, Vec<u8>) {
    static SIGNED: LazyLock<(SigningKey, Vec<u8>)> = LazyLock::new(|| {
        let key = SigningKey::generate(&SeededRandom::new(1));
        let signature = VersionSignature::new(&key, "people", 41, FILE).to_bytes().to_vec();
        (key, signature)
    });
    &SIGNED
}

/// The bytes as a signature and as keys, and a signature and keys in which they replace bytes: two bytes
/// an edit. Only the signature as it was made is valid.
pub fn signature(bytes: &[u8]) {
    let (key, good) = signed();
    let trusted: TrustedKeys = [key.public()].into_iter().collect();
    for object in [bytes.to_vec(), edited(good, bytes)] {
        let Ok(signature) = VersionSignature::from_bytes(&object) else { continue };
        assert_eq!(signature.to_bytes().as_slice(), object);
        let is_valid = signature.verify(&trusted, "people", 41, FILE).is_ok();
        assert_eq!(is_valid, object == *good);
    }
    for pem in [key.to_pem(), key.public().to_pem()] {
        for text in [bytes.to_vec(), edited(pem.as_bytes(), bytes)] {
            let text = String::from_utf8_lossy(&text);
            if let Ok(key) = PublicKey::from_pem(&text) {
                let again = PublicKey::from_pem(&key.to_pem());
                assert_eq!(again.expect("it was just written"), key);
            }
            if let Ok(key) = SigningKey::from_pem(&text) {
                let again = SigningKey::from_pem(&key.to_pem()).expect("it was just written");
                assert_eq!(again.public(), key.public());
            }
        }
    }
}

fn edited(good: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut object = good.to_vec();
    for &[at, byte] in edits.as_chunks::<2>().0 {
        let at = usize::from(at) % object.len();
        object[at] = byte;
    }
    object
}

#[test]
fn the_documents_are_good() {
    GroupPointer::from_bytes(POINTER.as_bytes()).expect("it has all fields");
    Topology::from_bytes(TOPOLOGY.as_bytes()).expect("it has all fields");
}
