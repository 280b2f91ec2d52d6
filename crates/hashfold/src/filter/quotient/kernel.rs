//! What a lookup does to a block that has its own machine instructions, in a portable and in an
//! x86-64-v3 version, and the choice between the two.

use super::layout::BLOCK_SLOTS;

/// One plane of a block: a byte of each of its slots.
pub(super) type Bytes = [u8; BLOCK_SLOTS];

/// How slots compare with a remainder, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) less: u64,
    pub(super) equal: u64,
}

/// How to find bits and to compare bytes.
pub(super) trait Kernel {
    /// The bit of `word` that has `rank` others below it, alone; 0 if there is none. `rank` is
    /// below 64.
    fn select(word: u64, rank: u32) -> u64;

    /// How 64 bytes compare with one.
    fn compare(bytes: &Bytes, with: u8) -> Compared;

    /// Bit `bit` of each of 64 bytes.
    fn gather(bytes: &Bytes, bit: u32) -> u64;

    /// Sets bit `bit` of those bytes whose bit of `bits` is set; it is 0 in all of them.
    fn scatter(bits: u64, bit: u32, bytes: &mut Bytes);

    /// Replaces the bytes whose bits are set in `places` by the ones below them; bit 0 is not set.
    fn shift_up(bytes: &mut Bytes, places: u64);

    /// Replaces the bytes whose bits are set in `places` by the ones above them; bit 63 is not set.
    fn shift_down(bytes: &mut Bytes, places: u64);
}

/// Work that is compiled once for each kernel.
pub(super) trait Task {
    type Output;

    /// Does it. Inline it always, so that it is compiled with its kernel's instructions.
    fn run<K: Kernel>(self) -> Self::Output;
}

/// Which kernel the processor can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine(Level);

/// Private, so that only [`Machine::best`] makes a V3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    V3,
}

impl Machine {
    #[cfg(test)]
    pub(super) const PORTABLE: Machine = Machine(Level::Portable);

    pub(super) fn best() -> Machine {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            return Machine(Level::V3);
        }
        Machine(Level::Portable)
    }

    #[inline(always)]
    pub(super) fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            Level::Portable => task.run::<Portable>(),
            #[cfg(target_arch = "x86_64")]
            Level::V3 => x86::run(task),
        }
    }
}

/// Runs everywhere.
pub(super) struct Portable;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The bits that each of eight bytes has above it or at the same place in `sums`.
#[inline(always)]
fn ones_up_to_each_byte(word: u64) -> u64 {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let eights = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    eights.wrapping_mul(LOW_BITS)
}

/// The lowest bits of eight bytes, which have no others, as one byte.
#[inline(always)]
fn gather_low_bits(word: u64) -> u64 {
    // Bit 8 i moves to bit 56 + i; no two bits meet on the way.
    word.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Kernel for Portable {
    #[inline(always)]
    fn select(word: u64, rank: u32) -> u64 {
        let sums = ones_up_to_each_byte(word);
        // In the sums, the bytes before the one that is looked for are at most `rank`.
        let whole = ((u64::from(rank) * LOW_BITS) | HIGH_BITS) - sums;
        let before = 8 * (whole & HIGH_BITS).count_ones();
        if before == 64 {
            return 0;
        }
        let mut rest = rank - (sums << 8 >> before & 0xff) as u32;
        let mut bits = word >> before;
        while rest > 0 {
            bits &= bits - 1;
            rest -= 1;
        }
        (bits & bits.wrapping_neg()) << before
    }

    #[inline(always)]
    fn compare(bytes: &Bytes, with: u8) -> Compared {
        let (words, _) = bytes.as_chunks::<8>();
        let with = u64::from(with) * LOW_BITS;
        let mut compared = Compared { less: 0, equal: 0 };
        for (i, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            // Of the low seven bits the high bit says whether they are no less; none borrows.
            let no_less = (word | HIGH_BITS) - (with & !HIGH_BITS);
            let less = (!word & with) | (!(word ^ with) & !no_less);
            let differ = word ^ with;
            let differ = ((differ & !HIGH_BITS) + !HIGH_BITS) | differ;
            compared.less |= gather_low_bits((less & HIGH_BITS) >> 7) << (8 * i);
            compared.equal |= gather_low_bits((!differ & HIGH_BITS) >> 7) << (8 * i);
        }
        compared
    }

    #[inline(always)]
    fn gather(bytes: &Bytes, bit: u32) -> u64 {
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().enumerate().fold(0, |bits, (i, word)| {
            bits | gather_low_bits(u64::from_le_bytes(*word) >> bit & LOW_BITS) << (8 * i)
        })
    }

    #[inline(always)]
    fn scatter(bits: u64, bit: u32, bytes: &mut Bytes) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte |= ((bits >> i & 1) as u8) << bit;
        }
    }

    #[inline(always)]
    fn shift_up(bytes: &mut Bytes, places: u64) {
        for i in (1..BLOCK_SLOTS).rev() {
            bytes[i] = if places >> i & 1 == 1 { bytes[i - 1] } else { bytes[i] };
        }
    }

    #[inline(always)]
    fn shift_down(bytes: &mut Bytes, places: u64) {
        for i in 0..BLOCK_SLOTS - 1 {
            bytes[i] = if places >> i & 1 == 1 { bytes[i + 1] } else { bytes[i] };
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{Bytes, Compared, Kernel, Task};
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_alignr_epi8, _mm256_and_si256, _mm256_blendv_epi8,
        _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_set1_epi32,
        _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_shuffle_epi8, _mm256_sll_epi16,
        _mm256_storeu_si256, _pdep_u64,
    };

    /// With AVX2, BMI1, BMI2, LZCNT and POPCNT. Only `Machine::best` knows where it may run.
    struct V3;

    /// Runs a task where `Machine::best` found the instructions for it.
    #[inline(always)]
    pub(super) fn run<T: Task>(task: T) -> T::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn compiled<T: Task>(task: T) -> T::Output {
            task.run::<V3>()
        }
        // SAFETY: `Machine::best` found these features; only it makes a machine of this level,
        // and only such a machine comes here.
        unsafe { compiled(task) }
    }

    #[inline(always)]
    fn load(bytes: &Bytes) -> [__m256i; 2] {
        let start = bytes.as_ptr().cast::<__m256i>();
        // SAFETY: the two loads are of the two halves of 64 bytes; the instruction is there, as
        // the type V3 promises, whose methods are the only callers.
        unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
    }

    /// Stores `others` in the bytes whose bits are set in `places`, and `bytes` in the others.
    #[inline(always)]
    fn replace(out: &mut Bytes, bytes: [__m256i; 2], others: [__m256i; 2], places: u64) {
        let start = out.as_mut_ptr().cast::<__m256i>();
        for i in 0..2 {
            // SAFETY: the two stores are of the two halves of 64 bytes; the instructions are
            // there, as the type V3 promises, whose methods are the only callers.
            unsafe {
                let word = _mm256_set1_epi32((places >> (32 * i)) as i32);
                // Byte j of the half gets the byte of the word with its bit, then the bit.
                let which = _mm256_setr_epi64x(
                    0,
                    0x0101_0101_0101_0101,
                    0x0202_0202_0202_0202,
                    0x0303_0303_0303_0303,
                );
                let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
                let spread = _mm256_and_si256(_mm256_shuffle_epi8(word, which), own);
                let is_set = _mm256_cmpeq_epi8(spread, own);
                let blended = _mm256_blendv_epi8(bytes[i], others[i], is_set);
                _mm256_storeu_si256(start.add(i), blended);
            }
        }
    }

    impl Kernel for V3 {
        #[inline(always)]
        fn select(word: u64, rank: u32) -> u64 {
            // SAFETY: the instruction is there, as the type promises.
            unsafe { _pdep_u64(1 << rank, word) }
        }

        #[inline(always)]
        fn compare(bytes: &Bytes, with: u8) -> Compared {
            let [low, high] = load(bytes);
            // SAFETY: the instructions are there, as the type promises.
            unsafe {
                let with = _mm256_set1_epi8(with as i8);
                let mask = |bytes| u64::from(_mm256_movemask_epi8(bytes) as u32);
                let equal = [_mm256_cmpeq_epi8(low, with), _mm256_cmpeq_epi8(high, with)];
                let equal = mask(equal[0]) | mask(equal[1]) << 32;
                // Those that are the smaller one of the two.
                let least = |half| _mm256_cmpeq_epi8(_mm256_min_epu8(half, with), half);
                let no_more = mask(least(low)) | mask(least(high)) << 32;
                Compared { less: no_more & !equal, equal }
            }
        }

        #[inline(always)]
        fn gather(bytes: &Bytes, bit: u32) -> u64 {
            let [low, high] = load(bytes);
            // SAFETY: the instructions are there, as the type promises.
            unsafe {
                // The bit becomes the highest of its byte, whose own bits go to the next one.
                let count = _mm_cvtsi32_si128(7 - bit as i32);
                let mask =
                    |half| u64::from(_mm256_movemask_epi8(_mm256_sll_epi16(half, count)) as u32);
                mask(low) | mask(high) << 32
            }
        }

        #[inline(always)]
        fn scatter(bits: u64, bit: u32, bytes: &mut Bytes) {
            let halves = load(bytes);
            // SAFETY: the instructions are there, as the type promises.
            let set = unsafe {
                let value = _mm256_set1_epi8((1_u8 << bit) as i8);
                halves.map(|half| _mm256_or_si256(half, value))
            };
            replace(bytes, halves, set, bits);
        }

        #[inline(always)]
        fn shift_up(bytes: &mut Bytes, places: u64) {
            let [low, high] = load(bytes);
            // SAFETY: the instructions are there, as the type promises.
            let below = unsafe {
                let before_low = _mm256_permute2x128_si256::<0x08>(low, low);
                let before_high = _mm256_permute2x128_si256::<0x21>(low, high);
                [
                    _mm256_alignr_epi8::<15>(low, before_low),
                    _mm256_alignr_epi8::<15>(high, before_high),
                ]
            };
            replace(bytes, [low, high], below, places);
        }

        #[inline(always)]
        fn shift_down(bytes: &mut Bytes, places: u64) {
            let [low, high] = load(bytes);
            // SAFETY: the instructions are there, as the type promises.
            let above = unsafe {
                let after_low = _mm256_permute2x128_si256::<0x21>(low, high);
                let after_high = _mm256_permute2x128_si256::<0x81>(high, high);
                [_mm256_alignr_epi8::<1>(after_low, low), _mm256_alignr_epi8::<1>(after_high, high)]
            };
            replace(bytes, [low, high], above, places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All operations of one kernel on one input.
    type Results = (Vec<u64>, Vec<Compared>, Vec<u64>, Vec<Bytes>);

    struct All(u64, Bytes);

    impl Task for All {
        type Output = Results;

        #[inline(always)]
        fn run<K: Kernel>(self) -> Results {
            let All(word, bytes) = self;
            let selected = (0..64).map(|rank| K::select(word, rank)).collect();
            let compared = (0..=255).map(|byte| K::compare(&bytes, byte)).collect();
            let gathered = (0..8).map(|bit| K::gather(&bytes, bit)).collect();
            let mut changed = Vec::new();
            for bit in 0..8 {
                let mut out = bytes.map(|byte| byte & !(1 << bit));
                K::scatter(word, bit, &mut out);
                changed.push(out);
            }
            let mut out = bytes;
            K::shift_up(&mut out, word & !1);
            changed.push(out);
            let mut out = bytes;
            K::shift_down(&mut out, word & !(1 << 63));
            changed.push(out);
            (selected, compared, gathered, changed)
        }
    }

    fn naive(word: u64, bytes: Bytes) -> Results {
        let set: Vec<u64> = (0..64).map(|i| word & 1 << i).filter(|&bit| bit != 0).collect();
        let selected = (0..64).map(|rank| set.get(rank).copied().unwrap_or(0)).collect();
        let mask = |is: &dyn Fn(u8) -> bool| {
            bytes.iter().enumerate().fold(0, |mask, (i, &byte)| mask | u64::from(is(byte)) << i)
        };
        let compared = (0..=255).map(|with| Compared {
            less: mask(&|byte| byte < with),
            equal: mask(&|byte| byte == with),
        });
        let gathered = (0..8).map(|bit| mask(&|byte| byte >> bit & 1 == 1)).collect();
        let mut changed = Vec::new();
        for bit in 0..8 {
            let scattered = |i: usize| bytes[i] & !(1 << bit) | ((word >> i & 1) as u8) << bit;
            changed.push(std::array::from_fn(scattered));
        }
        let is_set = |i: usize| word >> i & 1 == 1;
        changed.push(std::array::from_fn(|i| bytes[if i > 0 && is_set(i) { i - 1 } else { i }]));
        changed.push(std::array::from_fn(|i| bytes[if i < 63 && is_set(i) { i + 1 } else { i }]));
        (selected, compared.collect(), gathered, changed)
    }

    #[test]
    fn the_kernels_do_the_same() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 29
        };
        let mut words = vec![0, 1, 1 << 63, u64::MAX, 0xff, 0xff << 56, HIGH_BITS, LOW_BITS];
        words.extend((0..100).map(|_| random() & random()));
        for word in words {
            let bytes: Bytes = std::array::from_fn(|_| (random() >> 33) as u8);
            let expected = naive(word, bytes);
            for machine in [Machine::PORTABLE, Machine::best()] {
                assert_eq!(machine.run(All(word, bytes)), expected, "{machine:?} {word:x}");
            }
        }
    }
}
