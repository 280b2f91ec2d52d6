//! Sketches: their own bytes, strings of Redis, and expressions over sketches.

use hashfold::{
    checksum::crc32c,
    sketch::{BottomK, Expression, Hll, RedisHll, inclusion_exclusion, joint},
};

/// Bytes of a sketch, once as they are and once with the right checksum; a string of Redis; an expression.
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
    bottom_k(bytes, &forged);
    string_of_redis(bytes);
    string_of_redis(&[b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80", bytes].concat());
}

fn bottom_k(bytes: &[u8], forged: &[u8]) {
    let _ = BottomK::from_bytes(bytes);
    if let Ok(sketch) = BottomK::from_bytes(forged) {
        assert_eq!(BottomK::from_bytes(&sketch.to_bytes()).expect("it was just written"), sketch);
        let estimate = sketch.estimate(0.95).expect("the confidence is right");
        assert!(estimate.value.is_finite() && estimate.low <= estimate.high, "{estimate:?}");
        let mut union = sketch.clone();
        union.union(&sketch).expect("they are alike");
        assert_eq!(union, sketch);
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(expression) = text.parse::<Expression>() {
        let again: Expression = expression.to_string().parse().expect("it was just printed");
        assert!((0..64).all(|sets| again.contains(sets) == expression.contains(sets)));
    }
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
