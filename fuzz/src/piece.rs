//! Pieces of dumped filters.

use hashfold::checksum::{crc32c, crc32c_append};
use hashfold_server::piece::{Last, Piece, PieceWriter};

/// A head with the right magic, version and checksum, and the bytes after it, as a stranger can send them. A
/// piece that is accepted is written again as the same piece.
pub fn piece(bytes: &[u8]) {
    let _ = Piece::decode(bytes);
    let mut sealed = bytes.to_vec();
    if let Some((head, items)) = sealed.split_at_mut_checked(88) {
        head[..6].copy_from_slice(b"HFDP\x01\0");
        let sum = crc32c_append(crc32c(&head[..84]), items);
        head[84..].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(piece) = Piece::decode(&sealed) else { return };
    let mut writer = PieceWriter::new(piece.of.mode);
    for (fingerprint, count) in piece.items.iter() {
        assert!(fingerprint <= piece.of.universe.last() && count > 0);
        writer.push(fingerprint, count);
    }
    let last = if piece.is_last { Last::Yes } else { Last::No };
    let again =
        writer.finish(&piece.of, piece.number, piece.before, last).expect("it had a number");
    assert_eq!(Piece::decode(&again).expect("it was just written"), piece);
}
