//! The pointer of a group, which servers read from object storage.

use hashfold_deploy::{GroupPointer, check_name};

/// A pointer that all fields of the format are in.
const POINTER: &str = r#"{"format": 1, "seq": 7,
 "stores": {"people": {"version": 41, "id": "00000000000004d2",
  "root": "0909090909090909090909090909090909090909090909090909090909090909"}},
 "next": {}, "previous": [{}], "bad": [{"store": "people", "version": 40, "id": "00000000000004d1",
  "root": "0808080808080808080808080808080808080808080808080808080808080808"}],
 "activate_at_ms": 1764000000000, "by": "eve", "nonce": "1f", "reason": "tested"}"#;

/// Bytes that are often in the document.
const ALPHABET: &[u8] = b"\"{}[]:,-+.0123456789eflnrstu/ \\";

/// The bytes as a pointer, and a pointer in which they replace, insert and cut: three bytes an edit.
pub fn group_pointer(bytes: &[u8]) {
    check(bytes);
    let mut document = POINTER.as_bytes().to_vec();
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
    check(&document);
}

/// Names in a pointer become parts of paths.
fn check(bytes: &[u8]) {
    if let Ok(pointer) = GroupPointer::from_bytes(bytes) {
        let sets = [&pointer.stores, &pointer.next].into_iter().chain(&pointer.previous);
        let names = sets.flat_map(|set| set.keys()).chain(pointer.bad.iter().map(|bad| &bad.store));
        names.for_each(|name| check_name("store", name).expect("the decoder checks names"));
    }
}

#[test]
fn the_pointer_is_one() {
    GroupPointer::from_bytes(POINTER.as_bytes()).expect("it has all fields");
}
