//! Sketches: their own bytes, and strings of Redis.

use hashfold::{
    checksum::crc32c,
    sketch::{Hll, RedisHll, inclusion_exclusion, joint},
};

/// Bytes of a sketch, once as they are and once with the right checksum; and a string of Redis.
pub fn sketch(bytes: &[u8]) {
    let _ = Hll::from_bytes(bytes);
    let forged = [bytes, &crc32c(bytes).to_le_bytes()].concat();
    if let Ok(sketch) = Hll::from_bytes(&forged) {
        assert_eq!(Hll::from_bytes(&sketch.to_bytes()).expect("it was just written"), sketch);
        assert!(sketch.estimate().is_finite());
        let both = [joint(&sketch, &sketch), inclusion_exclusion(&sketch, &sketch)];
        for joint in both.map(|joint| joint.expect("a sketch is like itself")) {
            let (low, high) = joint.intersection.interval(0.95);
            assert!(low <= high, "{joint:?}");
        }
    }
    string_of_redis(bytes);
    string_of_redis(&[b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80", bytes].concat());
}

fn string_of_redis(bytes: &[u8]) {
    let Ok(mut string) = RedisHll::from_bytes(bytes.to_vec()) else { return };
    let before = string.to_hll();
    if string.insert(bytes).is_ok()
        && let (Ok(before), Ok(mut after)) = (before, string.to_hll())
    {
        after.union(&before).expect("they are alike");
        assert_eq!(after, string.to_hll().expect("it was read just now"));
    }
    let _ = string.count();
}
