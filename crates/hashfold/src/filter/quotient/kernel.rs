//! The operations on a block that profit from special machine instructions: portable, with AVX2 and
//! with AVX-512, and the choice between them.

use super::layout::{BLOCK_SLOTS, SlotLayout};
#[cfg(target_arch = "x86_64")]
use crate::{cpu::Instructions, filter::machine::Wide};

/// A byte plane of a block: one byte per slot.
pub(super) type Plane = [u8; BLOCK_SLOTS];

/// Returns the bits from `low` to `high`, both included and below 64.
#[inline(always)]
pub(super) fn mask(low: usize, high: usize) -> u64 {
    (u64::MAX << low) & (u64::MAX >> (BLOCK_SLOTS - 1 - high))
}

/// The result of comparing slots with a remainder: a bit per slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) less: u64,
    pub(super) equal: u64,
}

/// The operations that find bits and compare bytes.
pub(super) trait Kernel {
    /// Whether [`ForLayout`] is worth the size of its code.
    const FOR_LAYOUTS: bool;

    /// Runs a task in a separate function, so that rare code takes no registers from the rest.
    fn call<T: KernelTask>(task: T) -> T::Output;

    /// Returns only the bit of `word` with `rank` bits below it; 0 if there is none. `rank` is
    /// below 64.
    fn select(word: u64, rank: u32) -> u64;

    /// Returns the first position from `from` on that lies between a bit of `starts` and the bit of
    /// `stops` with the same rank: at or after the start, before the stop. If `stops` has no more
    /// bits, the stop is 64. Returns 64 if there is no such position.
    #[inline(always)]
    fn gap(starts: u64, stops: u64, from: usize) -> usize {
        let mut place = from;
        while place < BLOCK_SLOTS {
            let rank = (stops & mask(0, place)).count_ones();
            let start = if rank == u64::BITS { 0 } else { Self::select(starts, rank) };
            let start = start.trailing_zeros() as usize;
            if start <= place {
                return place;
            }
            place = start;
        }
        BLOCK_SLOTS
    }

    /// Compares 64 bytes with `with`.
    fn compare(bytes: &Plane, with: u8) -> Compared;

    /// Returns bit `bit` of each of 64 bytes.
    fn gather(bytes: &Plane, bit: u32) -> u64;

    /// Sets bit `bit` in the bytes whose bit in `bits` is set. The bit must be 0 in all bytes.
    fn scatter(bits: u64, bit: u32, bytes: &mut Plane);

    /// Moves the bytes from `low` on up by one, over the byte at `high`, and writes `first` to
    /// `low`.
    fn shift_up(bytes: &mut Plane, low: usize, high: usize, first: u8);

    /// Moves the bytes up to `high` down by one, over the byte at `low`, and writes `last` to
    /// `high`.
    fn shift_down(bytes: &mut Plane, low: usize, high: usize, last: u8);
}

/// A task that is compiled once for each kernel.
pub(super) trait KernelTask {
    type Output;

    /// Runs the task. Must always be inlined, so that it is compiled with its kernel's
    /// instructions.
    fn run<K: Kernel>(self) -> Self::Output;
}

/// A task on blocks of one layout.
pub(super) trait LayoutTask {
    type Output;

    /// Returns the layout of the blocks.
    fn layout(&self) -> SlotLayout;

    /// Runs the task with that layout. Must always be inlined.
    fn run<K: Kernel>(self, layout: SlotLayout) -> Self::Output;
}

/// A task that is compiled separately for each of the usual layouts, whose false-positive rates are
/// 1 in 70 to 1 in 70,000. With a constant number of planes, an operation takes a quarter fewer
/// instructions. With fewer instructions, the processor begins more operations while it waits for
/// memory.
pub(super) struct ForLayout<T>(pub(super) T);

impl<T: LayoutTask> KernelTask for ForLayout<T> {
    type Output = T::Output;

    #[inline(always)]
    fn run<K: Kernel>(self) -> T::Output {
        let ForLayout(task) = self;
        let layout = task.layout();
        macro_rules! for_each_number_of_bits {
            ($($remainder_bits:literal)*) => {
                match layout.remainder_bits {
                    $($remainder_bits if K::FOR_LAYOUTS => {
                        task.run::<K>(SlotLayout { remainder_bits: $remainder_bits, ..layout })
                    })*
                    _ => task.run::<K>(layout),
                }
            };
        }
        for_each_number_of_bits!(6 7 8 9 10 11 12 13 14 15 16)
    }
}

/// The kernel that the processor can run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processor(Level);

/// A private type, so that only the detection makes a `Processor`.
#[derive(Clone, Copy, Debug)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    V3,
    #[cfg(target_arch = "x86_64")]
    V4(Wide),
}

impl Processor {
    /// Returns all kernels that this process can use, the fastest last.
    pub(super) fn all() -> Vec<Processor> {
        let mut all = vec![Processor(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        if Instructions::in_use() >= Instructions::V3 {
            all.push(Processor(Level::V3));
            all.extend(Wide::detect().map(|wide| Processor(Level::V4(wide))));
        }
        all
    }

    pub(super) fn best() -> Processor {
        Processor::all().pop().expect("one runs everywhere")
    }

    #[inline(always)]
    pub(super) fn run<T: KernelTask>(self, task: T) -> T::Output {
        match self.0 {
            Level::Portable => Portable::call(task),
            #[cfg(target_arch = "x86_64")]
            Level::V3 => x86::V3::call(task),
            #[cfg(target_arch = "x86_64")]
            Level::V4(Wide { .. }) => x86::V4::call(task),
        }
    }
}

/// The kernel without special instructions.
pub(super) struct Portable;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Returns, for each of eight bytes, the number of bits up to and including that byte.
#[inline(always)]
fn ones_up_to_each_byte(word: u64) -> u64 {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let eights = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    eights.wrapping_mul(LOW_BITS)
}

/// Returns the lowest bits of eight bytes as one byte. Their other bits must be 0.
#[inline(always)]
fn gather_low_bits(word: u64) -> u64 {
    // Bit 8 i moves to bit 56 + i; no two bits collide on the way.
    word.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Kernel for Portable {
    const FOR_LAYOUTS: bool = false;

    #[inline(never)]
    fn call<T: KernelTask>(task: T) -> T::Output {
        task.run::<Portable>()
    }

    #[inline(always)]
    fn select(word: u64, rank: u32) -> u64 {
        let sums = ones_up_to_each_byte(word);
        // In the sums, the bytes before the wanted one are at most `rank`.
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
    fn compare(bytes: &Plane, with: u8) -> Compared {
        let (words, _) = bytes.as_chunks::<8>();
        let with = u64::from(with) * LOW_BITS;
        let mut compared = Compared { less: 0, equal: 0 };
        for (i, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            // The high bit of each byte says whether its low seven bits are no less; no byte
            // borrows from another.
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
    fn gather(bytes: &Plane, bit: u32) -> u64 {
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().enumerate().fold(0, |bits, (i, word)| {
            bits | gather_low_bits(u64::from_le_bytes(*word) >> bit & LOW_BITS) << (8 * i)
        })
    }

    #[inline(always)]
    fn scatter(bits: u64, bit: u32, bytes: &mut Plane) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte |= ((bits >> i & 1) as u8) << bit;
        }
    }

    #[inline(always)]
    fn shift_up(bytes: &mut Plane, low: usize, high: usize, first: u8) {
        bytes.copy_within(low..high, low + 1);
        bytes[low] = first;
    }

    #[inline(always)]
    fn shift_down(bytes: &mut Plane, low: usize, high: usize, last: u8) {
        bytes.copy_within(low + 1..=high, low);
        bytes[high] = last;
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{BLOCK_SLOTS, Compared, Kernel, KernelTask, Plane, mask};
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_alignr_epi8, _mm256_and_si256, _mm256_blendv_epi8,
        _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_set1_epi32,
        _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_shuffle_epi8, _mm256_sll_epi16,
        _mm256_storeu_si256, _mm512_cmpeq_epu8_mask, _mm512_cmplt_epu8_mask, _mm512_loadu_si512,
        _mm512_mask_compress_epi8, _mm512_mask_permutexvar_epi8, _mm512_mask_set1_epi8,
        _mm512_max_epu8, _mm512_set1_epi8, _mm512_storeu_si512, _pdep_u64,
    };

    /// The kernel with AVX2, BMI1, BMI2, LZCNT and POPCNT. Only `Processor` knows where it may run.
    pub(super) struct V3;

    #[inline(always)]
    fn load(bytes: &Plane) -> [__m256i; 2] {
        let start = bytes.as_ptr().cast::<__m256i>();
        // SAFETY: the two loads read the two halves of 64 bytes. The type V3, whose methods are the
        // only callers, promises the instruction.
        unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
    }

    /// Stores `others` in the bytes whose bits are set in `places`, and `bytes` in the other bytes.
    #[inline(always)]
    fn replace(out: &mut Plane, bytes: [__m256i; 2], others: [__m256i; 2], places: u64) {
        let start = out.as_mut_ptr().cast::<__m256i>();
        for i in 0..2 {
            // SAFETY: the two stores write the two halves of 64 bytes. The type V3, whose methods
            // are the only callers, promises the instructions.
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
        const FOR_LAYOUTS: bool = true;

        #[inline(always)]
        fn call<T: KernelTask>(task: T) -> T::Output {
            #[inline(never)]
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
            fn compiled<T: KernelTask>(task: T) -> T::Output {
                task.run::<V3>()
            }
            // SAFETY: the type promises the instructions.
            unsafe { compiled(task) }
        }

        #[inline(always)]
        fn select(word: u64, rank: u32) -> u64 {
            // SAFETY: the type promises the instruction.
            unsafe { _pdep_u64(1 << rank, word) }
        }

        #[inline(always)]
        fn compare(bytes: &Plane, with: u8) -> Compared {
            let [low, high] = load(bytes);
            // SAFETY: the type promises the instructions.
            unsafe {
                let with = _mm256_set1_epi8(with as i8);
                let mask = |bytes| u64::from(_mm256_movemask_epi8(bytes) as u32);
                let equal = [_mm256_cmpeq_epi8(low, with), _mm256_cmpeq_epi8(high, with)];
                let equal = mask(equal[0]) | mask(equal[1]) << 32;
                // Selects the bytes that are the smaller of the two.
                let least = |half| _mm256_cmpeq_epi8(_mm256_min_epu8(half, with), half);
                let no_more = mask(least(low)) | mask(least(high)) << 32;
                Compared { less: no_more & !equal, equal }
            }
        }

        #[inline(always)]
        fn gather(bytes: &Plane, bit: u32) -> u64 {
            let [low, high] = load(bytes);
            // SAFETY: the type promises the instructions.
            unsafe {
                // The bit becomes the highest bit of its byte; the higher bits move to the next
                // byte and are ignored.
                let count = _mm_cvtsi32_si128(7 - bit as i32);
                let mask =
                    |half| u64::from(_mm256_movemask_epi8(_mm256_sll_epi16(half, count)) as u32);
                mask(low) | mask(high) << 32
            }
        }

        #[inline(always)]
        fn scatter(bits: u64, bit: u32, bytes: &mut Plane) {
            let halves = load(bytes);
            // SAFETY: the type promises the instructions.
            let set = unsafe {
                let value = _mm256_set1_epi8((1_u8 << bit) as i8);
                halves.map(|half| _mm256_or_si256(half, value))
            };
            replace(bytes, halves, set, bits);
        }

        #[inline(always)]
        fn shift_up(bytes: &mut Plane, low: usize, high: usize, first: u8) {
            let halves = load(bytes);
            // SAFETY: the type promises the instructions.
            let below = unsafe {
                let before = [
                    _mm256_permute2x128_si256::<0x08>(halves[0], halves[0]),
                    _mm256_permute2x128_si256::<0x21>(halves[0], halves[1]),
                ];
                [
                    _mm256_alignr_epi8::<15>(halves[0], before[0]),
                    _mm256_alignr_epi8::<15>(halves[1], before[1]),
                ]
            };
            replace(bytes, halves, below, mask(low, high));
            bytes[low] = first;
        }

        #[inline(always)]
        fn shift_down(bytes: &mut Plane, low: usize, high: usize, last: u8) {
            let halves = load(bytes);
            // SAFETY: the type promises the instructions.
            let above = unsafe {
                let after = [
                    _mm256_permute2x128_si256::<0x21>(halves[0], halves[1]),
                    _mm256_permute2x128_si256::<0x81>(halves[1], halves[1]),
                ];
                [
                    _mm256_alignr_epi8::<1>(after[0], halves[0]),
                    _mm256_alignr_epi8::<1>(after[1], halves[1]),
                ]
            };
            replace(bytes, halves, above, mask(low, high));
            bytes[high] = last;
        }
    }

    /// The kernel with the instructions of V3 and of [`Wide`](super::Wide). Only `Processor` knows
    /// where it may run.
    pub(super) struct V4;

    /// The numbers 0 to 63; the next constants are the numbers of the bytes below and above.
    const NUMBERS: Plane = numbers_from(0);
    const BELOW: Plane = numbers_from(BLOCK_SLOTS - 1);
    const ABOVE: Plane = numbers_from(1);

    const fn numbers_from(first: usize) -> Plane {
        let mut numbers = [0; BLOCK_SLOTS];
        let mut i = 0;
        while i < BLOCK_SLOTS {
            numbers[i] = ((first + i) % BLOCK_SLOTS) as u8;
            i += 1;
        }
        numbers
    }

    /// Replaces the bytes whose bits are set in `places` by the bytes whose numbers are in `from`,
    /// then the byte of the bit `one` by `new`.
    #[inline(always)]
    fn replace_from(from: &Plane, bytes: &mut Plane, places: u64, new: u8, one: u64) {
        // SAFETY: the reads and the writes are within arrays of 64 bytes. The type V4, whose
        // methods are the only callers, promises the instructions.
        unsafe {
            let before = _mm512_loadu_si512(bytes.as_ptr().cast());
            let from = _mm512_loadu_si512(from.as_ptr().cast());
            let moved = _mm512_mask_permutexvar_epi8(before, places, from, before);
            let after = _mm512_mask_set1_epi8(moved, one, new as i8);
            _mm512_storeu_si512(bytes.as_mut_ptr().cast(), after);
        }
    }

    impl Kernel for V4 {
        const FOR_LAYOUTS: bool = true;

        #[inline(always)]
        fn call<T: KernelTask>(task: T) -> T::Output {
            #[inline(never)]
            #[target_feature(
                enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,lzcnt,popcnt"
            )]
            fn compiled<T: KernelTask>(task: T) -> T::Output {
                task.run::<V4>()
            }
            // SAFETY: the type promises the instructions.
            unsafe { compiled(task) }
        }

        #[inline(always)]
        fn select(word: u64, rank: u32) -> u64 {
            V3::select(word, rank)
        }

        #[inline(always)]
        fn gap(starts: u64, stops: u64, from: usize) -> usize {
            // SAFETY: the type promises the instructions. The reads are within arrays of 64 bytes.
            unsafe {
                let numbers = _mm512_loadu_si512(NUMBERS.as_ptr().cast());
                let none = _mm512_set1_epi8(BLOCK_SLOTS as i8);
                // Byte n is the position of the n-th bit.
                let starts_at = _mm512_mask_compress_epi8(none, starts, numbers);
                let stops_at = _mm512_mask_compress_epi8(none, stops, numbers);
                let first = _mm512_max_epu8(starts_at, _mm512_set1_epi8(from as i8));
                let gaps = _mm512_cmplt_epu8_mask(first, stops_at);
                let start = _pdep_u64(gaps & gaps.wrapping_neg(), starts);
                (start.trailing_zeros() as usize).max(from)
            }
        }

        #[inline(always)]
        fn compare(bytes: &Plane, with: u8) -> Compared {
            // SAFETY: the type promises the instructions. The read is within an array of 64 bytes.
            unsafe {
                let bytes = _mm512_loadu_si512(bytes.as_ptr().cast());
                let with = _mm512_set1_epi8(with as i8);
                Compared {
                    less: _mm512_cmplt_epu8_mask(bytes, with),
                    equal: _mm512_cmpeq_epu8_mask(bytes, with),
                }
            }
        }

        #[inline(always)]
        fn gather(bytes: &Plane, bit: u32) -> u64 {
            V3::gather(bytes, bit)
        }

        #[inline(always)]
        fn scatter(bits: u64, bit: u32, bytes: &mut Plane) {
            V3::scatter(bits, bit, bytes);
        }

        #[inline(always)]
        fn shift_up(bytes: &mut Plane, low: usize, high: usize, first: u8) {
            replace_from(&BELOW, bytes, mask(low, high), first, 1 << low);
        }

        #[inline(always)]
        fn shift_down(bytes: &mut Plane, low: usize, high: usize, last: u8) {
            replace_from(&ABOVE, bytes, mask(low, high), last, 1 << high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of all operations of one kernel on one input.
    type Results = (Vec<u64>, Vec<usize>, Vec<Compared>, Vec<u64>, Vec<Plane>);

    struct All(u64, u64, Plane);

    /// Returns all ranges of a block: the lowest and the highest slot.
    fn stretches() -> impl Iterator<Item = (usize, usize)> {
        const EDGES: [usize; 7] = [0, 1, 30, 31, 32, 33, 63];
        let pairs = EDGES.iter().flat_map(|&low| EDGES.map(|high| (low, high)));
        pairs.filter(|(low, high)| low <= high)
    }

    impl KernelTask for All {
        type Output = Results;

        #[inline(always)]
        fn run<K: Kernel>(self) -> Results {
            let All(word, other, bytes) = self;
            let selected = (0..64).map(|rank| K::select(word, rank)).collect();
            let gaps = (0..64).map(|from| K::gap(word, other, from)).collect();
            let compared = (0..=255).map(|byte| K::compare(&bytes, byte)).collect();
            let gathered = (0..8).map(|bit| K::gather(&bytes, bit)).collect();
            let mut changed = Vec::new();
            for bit in 0..8 {
                let mut out = bytes.map(|byte| byte & !(1 << bit));
                K::scatter(word, bit, &mut out);
                changed.push(out);
            }
            for (low, high) in stretches() {
                let mut out = bytes;
                K::shift_up(&mut out, low, high, 7);
                changed.push(out);
                let mut out = bytes;
                K::shift_down(&mut out, low, high, 7);
                changed.push(out);
            }
            (selected, gaps, compared, gathered, changed)
        }
    }

    fn naive(word: u64, other: u64, bytes: Plane) -> Results {
        let places = |word: u64| (0..64).filter(move |i| word >> i & 1 == 1);
        let selected = (0..64).map(|rank| places(word).nth(rank).map_or(0, |i| 1 << i)).collect();
        let stops = places(other).chain(std::iter::repeat(64));
        let gaps: Vec<_> = places(word).zip(stops).flat_map(|(start, stop)| start..stop).collect();
        let gap = |from| gaps.iter().copied().filter(|&place| place >= from).min().unwrap_or(64);
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
        for (low, high) in stretches() {
            let mut out = bytes.to_vec();
            out.remove(high);
            out.insert(low, 7);
            changed.push(out.try_into().unwrap());
            let mut out = bytes.to_vec();
            out.remove(low);
            out.insert(high, 7);
            changed.push(out.try_into().unwrap());
        }
        (selected, (0..64).map(gap).collect(), compared.collect(), gathered, changed)
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
            let bytes: Plane = std::array::from_fn(|_| (random() >> 33) as u8);
            for other in [word, word << 1, !word, random()] {
                let expected = naive(word, other, bytes);
                for machine in Processor::all() {
                    let got = machine.run(All(word, other, bytes));
                    assert_eq!(got, expected, "{machine:?} {word:x} {other:x}");
                }
            }
        }
    }
}
