//! Sketches: their own bytes, strings of Redis, images of postgresql-hll and DataSketches, and expressions over
//! sketches.

use hashfold::{
    checksum::crc32c,
    sketch::{
        BottomK, DataSketchesHll, Expression, Ghll, Hll, PostgresHll, RedisHll, ghll,
        inclusion_exclusion, joint,
    },
};

/// Bytes of a sketch, once as they are and once with the right checksum; an expression; and images of other
/// programs, as they are and after heads that are right.
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
    generalized(bytes, &forged);
    bottom_k(bytes, &forged);
    string_of_redis(bytes);
    string_of_redis(&[b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80", bytes].concat());
    image_of_postgres(bytes);
    image_of_datasketches(bytes);
    let Some((choice, rest)) = bytes.split_first() else { return };
    image_of_postgres(&[&[0x11 + choice % 4, 0x64 | choice & 1, 0x7f][..], rest].concat());
    let [mode, precision, flags] = [choice % 3, 4 + choice % 7, choice >> 4 << 2];
    let [preamble, mode] = [[2, 3, 10][usize::from(mode)], mode | choice >> 6 << 2];
    let head = [preamble, 1, 7, precision, choice % 6, flags, choice % 8, mode];
    image_of_datasketches(&[&head[..], rest].concat());
    // An array of registers whose sums are those of the registers.
    let registers: Vec<u8> = (0..16).map(|i| rest.get(i).map_or(0, |byte| byte & 63)).collect();
    let sum: f64 = registers.iter().map(|value| 0.5_f64.powi((*value).into())).sum();
    let zeros = registers.iter().filter(|value| **value == 0).count() as u32;
    let numbers = [0.0, sum, 0.0].map(f64::to_le_bytes).concat();
    let counts = [zeros, 0].map(u32::to_le_bytes).concat();
    image_of_datasketches(
        &[&[10, 1, 7, 4, 0, 24, 0, 10], &numbers[..], &counts, &registers].concat(),
    );
}

fn image_of_postgres(bytes: &[u8]) {
    let Ok(mut sketch) = PostgresHll::from_bytes(bytes) else { return };
    assert_eq!(PostgresHll::from_bytes(&sketch.to_bytes()).expect("it was just written"), sketch);
    let before = sketch.to_hll();
    sketch.insert(bytes);
    let mut after = sketch.to_hll();
    after.union(&before).expect("they are alike");
    assert_eq!(after, sketch.to_hll());
    assert!(after.estimate().is_finite());
    let same = PostgresHll::from_hll(&after).expect("it came from an image");
    assert_eq!(same.to_hll(), after);
}

fn image_of_datasketches(bytes: &[u8]) {
    let Ok(mut sketch) = DataSketchesHll::from_bytes(bytes) else { return };
    let before = sketch.to_hll();
    (0..40_u8).for_each(|i| sketch.insert(&[i]));
    let mut after = sketch.to_hll();
    after.union(&before).expect("they are alike");
    assert_eq!(after, sketch.to_hll());
    for image in [sketch.to_bytes(), sketch.to_updatable_bytes()] {
        assert_eq!(DataSketchesHll::from_bytes(&image).expect("it was just written"), sketch);
    }
    let mut twice = sketch.clone();
    twice.union(&sketch);
    assert_eq!(twice.to_hll(), after);
}

fn generalized(bytes: &[u8], forged: &[u8]) {
    let _ = Ghll::from_bytes(bytes);
    if let Ok(sketch) = Ghll::from_bytes(forged) {
        assert_eq!(Ghll::from_bytes(&sketch.to_bytes()).expect("it was just written"), sketch);
        let estimate = sketch.estimate_with_error();
        assert!(estimate.value.is_finite() && estimate.standard_error.is_finite());
        let joint = ghll::joint(&sketch, &sketch).expect("a sketch is like itself");
        let (low, high) = joint.intersection.interval(0.95);
        assert!(low <= high, "{joint:?}");
    }
}

fn bottom_k(bytes: &[u8], forged: &[u8]) {
    let _ = BottomK::from_bytes(bytes);
    if let Ok(sketch) = BottomK::from_bytes(forged) {
        assert_eq!(BottomK::from_bytes(&sketch.to_bytes()).expect("it was just written"), sketch);
        let estimate = sketch.estimate(0.95).expect("the confidence is right");
        assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate:?}");
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
