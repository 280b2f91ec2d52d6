//! Comparing the slots of two lines with a hash at once, and reading and writing all pairs of lines, with and without
//! special machine instructions.

use super::{
    choice,
    division::{self, Part},
    line::{self, CHUNK_LINES, Chunk, Format, LOW, Line, Pair, SLOTS_MAX},
};
use crate::cpu::Instructions;

/// Returns the slots of two lines whose last 48 bits are those of `hash`, a bit each, those of the second line from bit 8
/// on; slots that are not in use are left out.
#[inline(always)]
pub(super) fn equal(instructions: Instructions, lines: [&Line; 2], hash: u64) -> u32 {
    let in_use = line::in_use(lines[0]) | line::in_use(lines[1]) << 8;
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = x86::equal(instructions, lines, hash & LOW) {
        return found & in_use;
    }
    let _ = instructions;
    let [first, second] = lines;
    (equal_portable(first, hash & LOW) | equal_portable(second, hash & LOW) << 8) & in_use
}

/// Slots of the lines of a chunk, a bit each.
pub(super) type Masks = [u8; CHUNK_LINES];

/// Adds the pairs of a chunk to `pairs`, of which `count` are filled; there must be places for [`SLOTS_MAX`] more than there are.
/// `base` has the first bits of their hashes, which the lines do not have.
#[inline]
pub(super) fn gather(
    instructions: Instructions,
    format: Format,
    chunk: &Chunk,
    base: u64,
    pairs: &mut [Pair],
    count: &mut usize,
) {
    let mut gather = |format: Format| {
        chunk.iter().for_each(|line| format.gather(line, base, pairs, count));
    };
    match (format, instructions) {
        #[cfg(target_arch = "x86_64")]
        (Format::Narrow, Instructions::V3 | Instructions::V4) => {
            x86::gather(instructions, chunk, base, pairs, count);
        }
        // Two calls, which are compiled for a constant format each.
        (Format::Narrow, _) => gather(Format::Narrow),
        (Format::Wide, _) => gather(Format::Wide),
    }
}

/// Adds the pairs in these slots, which are a small part of a chunk, to `pairs`, of which `count` are filled.
#[inline]
pub(super) fn gather_slots(
    format: Format,
    chunk: &Chunk,
    masks: &Masks,
    base: u64,
    pairs: &mut [Pair],
    count: &mut usize,
) {
    for (lines, masks) in chunk.as_chunks::<8>().0.iter().zip(masks.as_chunks().0) {
        let mut slots = u64::from_le_bytes(*masks);
        while slots != 0 {
            let bit = slots.trailing_zeros() as usize;
            slots &= slots - 1;
            pairs[*count] = format.pair(&lines[bit / 8], bit % 8, base);
            *count += 1;
        }
    }
}

/// Returns the slots of a chunk that are in use.
#[inline]
pub(super) fn in_use(chunk: &Chunk) -> Masks {
    chunk.each_ref().map(|line| line::in_use(line) as u8)
}

/// Returns the number of these slots.
#[inline]
pub(super) fn count(masks: &Masks) -> usize {
    let words = masks.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    words.map(|word| word.count_ones() as usize).sum()
}

/// Returns the slots in use whose pairs belong to a part of their group.
#[inline]
pub(super) fn of_part(
    instructions: Instructions,
    format: Format,
    chunk: &Chunk,
    part: &Part,
) -> Masks {
    match (format, instructions) {
        #[cfg(target_arch = "x86_64")]
        (Format::Narrow, Instructions::V3 | Instructions::V4) => {
            x86::of_part(instructions, chunk, part)
        }
        // Two calls, which are compiled for a constant format each.
        (Format::Narrow, _) => of_part_portable(Format::Narrow, chunk, part),
        (Format::Wide, _) => of_part_portable(Format::Wide, chunk, part),
    }
}

/// Does what [`of_part`] does, slot by slot.
#[inline(always)]
fn of_part_portable(format: Format, chunk: &Chunk, part: &Part) -> Masks {
    chunk.each_ref().map(|line| {
        let has = |slot| u8::from(part.has(format.hash(line, slot)));
        let all = (0..format.slots()).fold(0, |mask, slot| mask | has(slot) << slot);
        all & line::in_use(line) as u8
    })
}

/// The two lines of its chunk that a pair may be in.
pub(super) type Choice = [u8; 2];

/// Returns the two lines that each pair may be in.
#[inline]
pub(super) fn choose(instructions: Instructions, pairs: &[Pair], choices: &mut [Choice]) {
    #[cfg(target_arch = "x86_64")]
    if x86::choose(instructions, pairs, choices) {
        return;
    }
    let _ = instructions;
    choose_portable(pairs, choices);
}

/// Does what [`choose`] does. It is compiled again for special instructions.
#[inline(always)]
fn choose_portable(pairs: &[Pair], choices: &mut [Choice]) {
    for (choice, pair) in choices.iter_mut().zip(pairs) {
        *choice = choice::lines(pair.hash).map(|line| line as u8);
    }
}

/// The pairs of the lines of a chunk, by their numbers: those in the first slots of each line.
#[derive(Default)]
pub(super) struct Slots {
    pairs: [[u8; 8]; CHUNK_LINES],
    counts: [u8; CHUNK_LINES],
}

const _: () = assert!(CHUNK_LINES * SLOTS_MAX <= 256);

impl Slots {
    /// Returns the number of pairs in a line.
    #[inline(always)]
    pub(super) fn count(&self, line: usize) -> u8 {
        self.counts[line % CHUNK_LINES]
    }

    /// Adds a pair to a line; returns `false`, and changes nothing, if the line is full.
    #[inline(always)]
    pub(super) fn add(&mut self, format: Format, line: usize, pair: usize) -> bool {
        let line = line % CHUNK_LINES;
        let slot = usize::from(self.counts[line]);
        if slot >= format.slots() {
            return false;
        }
        self.pairs[line][slot] = pair as u8;
        self.counts[line] += 1;
        true
    }

    /// Returns the slots of each line, and the number of pairs in them.
    fn lines(&self) -> impl Iterator<Item = (&[u8; 8], u8)> {
        self.pairs.iter().zip(self.counts)
    }
}

/// Writes pairs to the slots of lines. What is in the other slots is arbitrary.
#[inline]
pub(super) fn pack(
    instructions: Instructions,
    format: Format,
    pairs: &[Pair],
    slots: &Slots,
    lines: &mut [Line],
) {
    match (format, instructions) {
        // A slot that is not in use gets some pair.
        #[cfg(target_arch = "x86_64")]
        (Format::Narrow, Instructions::V3 | Instructions::V4) if !pairs.is_empty() => {
            x86::pack(instructions, pairs, slots, lines);
        }
        // Two calls, which are compiled for a constant format each.
        (Format::Narrow, _) => pack_portable(Format::Narrow, pairs, slots, lines),
        (Format::Wide, _) => pack_portable(Format::Wide, pairs, slots, lines),
    }
}

/// Does what [`pack`] does, pair by pair.
#[inline(always)]
fn pack_portable(format: Format, pairs: &[Pair], slots: &Slots, lines: &mut [Line]) {
    for (line, (slots, count)) in lines.iter_mut().zip(slots.lines()) {
        let numbers = slots[..usize::from(count)].iter().enumerate();
        let meta = numbers.fold(0, |meta, (slot, number)| {
            meta | format.write(line, slot, pairs[usize::from(*number)])
        });
        line::set_meta(line, meta);
    }
}

/// Compares all slots of a line without special instructions.
fn equal_portable(line: &Line, low: u64) -> u32 {
    (0..SLOTS_MAX).fold(0, |mask, slot| mask | u32::from(line::low(line, slot) == low) << slot)
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{
        CHUNK_LINES, Choice, Chunk, Format, Instructions, Line, Masks, Pair, Part, SLOTS_MAX,
        Slots, choice, choose_portable, division, line,
    };
    use line::NARROW_HIGH;
    use std::arch::x86_64::*;

    /// The bytes that spread five numbers of 48 bits, from a byte of a line on, to lanes of 64 bits.
    const fn lanes_from(start: usize) -> [u8; 64] {
        let mut places = [0; 64];
        let mut i = 0;
        while i < 64 {
            places[i] = (start + i / 8 * 6 + i % 8) as u8 % 64;
            i += 1;
        }
        places
    }

    /// The bytes of these lanes that are in use.
    const LANES_USED: u64 = 0x003F_3F3F_3F3F;
    const HASHES: [u8; 64] = lanes_from(0);
    const VALUES: [u8; 64] = lanes_from(line::NARROW_VALUES);

    /// Compares the slots of two lines, used or not; returns `None` if the instructions for it may not be used.
    #[inline(always)]
    pub(super) fn equal(instructions: Instructions, lines: [&Line; 2], low: u64) -> Option<u32> {
        match instructions {
            Instructions::Portable => None,
            Instructions::V3 => {
                // SAFETY: the processor has AVX2: `Instructions` are detected.
                Some(unsafe { equal_v3(lines[0], low) | equal_v3(lines[1], low) << 8 })
            }
            // SAFETY: the processor has AVX-512 with VBMI: `Instructions` are detected.
            Instructions::V4 => Some(unsafe { equal_v4(lines[0], lines[1], low) }),
        }
    }

    /// Spreads five numbers of 48 bits to lanes of 64 bits, and compares all with one instruction.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
    fn equal_v4(first: &Line, second: &Line, low: u64) -> u32 {
        // SAFETY: 64 bytes are read, of an array of this size each.
        let (places, first, second) = unsafe {
            let load = |bytes: &[u8; 64]| _mm512_loadu_si512(bytes.as_ptr().cast());
            (load(&HASHES), load(first), load(second))
        };
        let low = _mm512_set1_epi64(low as i64);
        let first = _mm512_maskz_permutexvar_epi8(LANES_USED, places, first);
        let second = _mm512_maskz_permutexvar_epi8(LANES_USED, places, second);
        let all = (1 << SLOTS_MAX) - 1;
        let second = _mm512_mask_cmpeq_epi64_mask(all, second, low);
        u32::from(_mm512_mask_cmpeq_epi64_mask(all, first, low)) | u32::from(second) << 8
    }

    /// Does what [`super::gather`] does for narrow lines.
    ///
    /// # Panics
    /// If the processor does not have the instructions, or these are the portable ones.
    pub(super) fn gather(
        instructions: Instructions,
        chunk: &Chunk,
        base: u64,
        pairs: &mut [Pair],
        count: &mut usize,
    ) {
        assert!(instructions <= Instructions::in_use());
        match instructions {
            Instructions::Portable => unreachable!("the caller has portable code"),
            // SAFETY: the processor has AVX2: `Instructions` are detected.
            Instructions::V3 => unsafe { gather_v3(chunk, base, pairs, count) },
            // SAFETY: the processor has AVX-512 with VBMI: `Instructions` are detected.
            Instructions::V4 => unsafe { gather_v4(chunk, base, pairs, count) },
        }
    }

    /// Spreads four hashes and four values to lanes of 64 bits, and writes each pair over the last one if that was of a free
    /// slot.
    #[target_feature(enable = "avx2")]
    fn gather_v3(chunk: &Chunk, base: u64, pairs: &mut [Pair], count: &mut usize) {
        let bits = Format::Narrow.hash_bits();
        let bases = _mm256_set1_epi64x((base >> bits << bits) as i64);
        let shifts = _mm256_setr_epi64x(5, 10, 15, 20);
        let high_mask = _mm256_set1_epi64x((1 << line::NARROW_HIGH_BITS) - 1);
        for line in chunk {
            let mask = line::in_use(line) as u8;
            let meta = _mm256_set1_epi64x(i64::from(line::meta(line)));
            let high = _mm256_and_si256(_mm256_srlv_epi64(meta, shifts), high_mask);
            let high = _mm256_or_si256(_mm256_slli_epi64::<{ line::LOW_BITS as i32 }>(high), bases);
            let hashes = _mm256_or_si256(four_lanes::<0>(line), high);
            let values = four_lanes::<{ line::NARROW_VALUES }>(line);
            // The first pair and the third, and the second and the fourth.
            let odd = _mm256_unpacklo_epi64(hashes, values);
            let even = _mm256_unpackhi_epi64(hashes, values);
            let four = [
                _mm256_castsi256_si128(odd),
                _mm256_castsi256_si128(even),
                _mm256_extracti128_si256::<1>(odd),
                _mm256_extracti128_si256::<1>(even),
            ];
            let places: &mut [Pair; SLOTS_MAX] =
                pairs[*count..].first_chunk_mut().expect("there are places for all slots");
            let mut filled = 0;
            for (slot, pair) in four.into_iter().enumerate() {
                // SAFETY: `filled` is at most `slot`: of five pairs of 16 bytes, one of the first four is written.
                unsafe { _mm_storeu_si128(places.as_mut_ptr().add(filled).cast(), pair) }
                filled += usize::from(mask >> slot & 1);
            }
            places[filled] = Format::Narrow.pair(line, SLOTS_MAX - 1, base);
            *count += filled + usize::from(mask >> (SLOTS_MAX - 1) & 1);
        }
    }

    /// Spreads the numbers of a line to lanes of 64 bits, and writes those of the slots in use.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,popcnt")]
    fn gather_v4(chunk: &Chunk, base: u64, pairs: &mut [Pair], count: &mut usize) {
        let bits = Format::Narrow.hash_bits();
        let base = _mm512_set1_epi64((base >> bits << bits) as i64);
        // SAFETY: 64 bytes are read, of an array of this size each.
        let load = |bytes: &[u8; 64]| unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        let (hash_places, value_places) = (load(&HASHES), load(&VALUES));
        let shifts = _mm512_setr_epi64(5, 10, 15, 20, 25, 64, 64, 64);
        let high_mask = _mm512_set1_epi64((1 << line::NARROW_HIGH_BITS) - 1);
        // The hash and the value of each of the first four pairs, and of the fifth.
        let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        let last = _mm512_setr_epi64(4, 12, 4, 12, 4, 12, 4, 12);
        for line in chunk {
            let mask = line::in_use(line) as u8;
            let bytes = load(line);
            let hashes = _mm512_maskz_permutexvar_epi8(LANES_USED, hash_places, bytes);
            let values = _mm512_maskz_permutexvar_epi8(LANES_USED, value_places, bytes);
            let meta = _mm512_set1_epi64(i64::from(line::meta(line)));
            let high = _mm512_and_si512(_mm512_srlv_epi64(meta, shifts), high_mask);
            let high = _mm512_slli_epi64::<{ line::LOW_BITS }>(high);
            let hashes = _mm512_or_si512(_mm512_or_si512(hashes, high), base);
            let four = _mm512_permutex2var_epi64(hashes, first, values);
            let four = _mm512_maskz_compress_epi64(TWICE[usize::from(mask & 15)], four);
            let fifth = _mm512_castsi512_si128(_mm512_permutex2var_epi64(hashes, last, values));
            let places: &mut [Pair; SLOTS_MAX] =
                pairs[*count..].first_chunk_mut().expect("there are places for all slots");
            let of_four = (mask & 15).count_ones() as usize;
            // SAFETY: of five pairs of 16 bytes, the first four are written, and one from the first to the fifth.
            unsafe {
                let start = places.as_mut_ptr();
                _mm512_storeu_si512(start.cast(), four);
                _mm_storeu_si128(start.add(of_four).cast(), fifth);
            }
            *count += of_four + usize::from(mask >> 4 & 1);
        }
    }

    /// Does what [`super::of_part`] does for narrow lines.
    ///
    /// # Panics
    /// If the processor does not have the instructions, or these are the portable ones.
    pub(super) fn of_part(instructions: Instructions, chunk: &Chunk, part: &Part) -> Masks {
        assert!(instructions <= Instructions::in_use());
        match instructions {
            Instructions::Portable => unreachable!("the caller has portable code"),
            // SAFETY: the processor has AVX2: `Instructions` are detected.
            Instructions::V3 | Instructions::V4 => unsafe { of_part_v3(chunk, part) },
        }
    }

    /// Looks up the buckets of eight pairs at once: the first four of two lines, and the fifth of eight lines.
    #[target_feature(enable = "avx2")]
    fn of_part_v3(chunk: &Chunk, part: &Part) -> Masks {
        let mut masks = [0; CHUNK_LINES];
        let of_two = chunk.as_chunks::<2>().0.iter().zip(masks.as_chunks_mut::<2>().0);
        for (lines, masks) in of_two {
            let [first, second] = lines.each_ref().map(|line| {
                let low = four_lanes::<0>(line);
                _mm256_castsi256_ps(_mm256_xor_si256(low, _mm256_srli_epi64::<16>(low)))
            });
            // The first two pairs of both lines, and then the other two of both.
            let folded = _mm256_shuffle_ps::<0b10_00_10_00>(first, second);
            let found = are_in(part, _mm256_castps_si256(folded));
            masks[0] = found & 3 | found >> 2 & 12;
            masks[1] = found >> 2 & 3 | found >> 4 & 12;
        }
        let of_eight = chunk.as_chunks::<8>().0.iter().zip(masks.as_chunks_mut::<8>().0);
        for (lines, masks) in of_eight {
            let folded =
                lines.each_ref().map(|line| choice::folded(line::low(line, SLOTS_MAX - 1)));
            // SAFETY: 32 bytes are read, of an array of this size.
            let found = are_in(part, unsafe { _mm256_loadu_si256(folded.as_ptr().cast()) });
            for (i, (mask, line)) in masks.iter_mut().zip(lines).enumerate() {
                *mask = (*mask | (found >> i & 1) << (SLOTS_MAX - 1)) & line::in_use(line) as u8;
            }
        }
        if let Some(bit) = part.bit {
            let of_lines = masks.iter_mut().zip(chunk);
            of_lines.for_each(|(mask, line)| *mask &= with_bit(line, bit));
        }
        masks
    }

    /// Returns the slots of a narrow line whose hashes have a bit, used or not.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn with_bit(line: &Line, bit: u32) -> u8 {
        if let Some(high) = bit.checked_sub(line::LOW_BITS) {
            return five_bits::<{ line::NARROW_HIGH_BITS }>(
                line::meta(line) >> (SLOTS_MAX as u32 + high),
            );
        }
        let (byte, after) = (bit as usize / 8, 7 - bit % 8);
        // SAFETY: 32 of the 64 bytes of a line are read, from one of the first six on.
        let bytes = unsafe { _mm256_loadu_si256(line.as_ptr().add(byte).cast()) };
        // The first bits of bytes, one of each slot in six bytes.
        let bits = _mm256_sll_epi16(bytes, _mm_cvtsi32_si128(after as i32));
        five_bits::<6>(_mm256_movemask_epi8(bits) as u32)
    }

    /// Returns five bits, the first one and those at multiples of this distance, next to each other.
    #[inline(always)]
    fn five_bits<const DISTANCE: u32>(bits: u32) -> u8 {
        const { assert!(DISTANCE == 5 || DISTANCE == 6) };
        let all = (0..5).fold(0, |all, i| all | 1 << (DISTANCE * i));
        // Moves bit i to bit 20 + i. No two products of a bit and a term are at one place.
        let factor = (0..5).fold(0, |all, i| all | 1_u64 << (20 - (DISTANCE - 1) * i));
        ((u64::from(bits & all) * factor) >> 20) as u8 & 31
    }

    /// A set of buckets is a register of eight words.
    const _: () = assert!(size_of::<division::Buckets>() == size_of::<__m256i>());

    /// Whether the buckets of eight folded hashes are of a part, a bit each.
    #[target_feature(enable = "avx2")]
    fn are_in(part: &Part, folded: __m256i) -> u8 {
        let mixed = _mm256_mullo_epi32(folded, _mm256_set1_epi32(part.factor as i32));
        let bucket = _mm256_srli_epi32::<{ division::AFTER_BUCKET as i32 }>(mixed);
        // SAFETY: 32 bytes are read, of an array of this size.
        let words = unsafe { _mm256_loadu_si256(part.buckets.as_ptr().cast()) };
        let words = _mm256_permutevar8x32_epi32(words, _mm256_srli_epi32::<5>(bucket));
        let bit = _mm256_and_si256(bucket, _mm256_set1_epi32(31));
        let found = _mm256_srlv_epi32(words, bit);
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32::<31>(found))) as u8
    }

    /// Does what [`super::choose`] does; returns `false` if the instructions for it may not be used.
    ///
    /// # Panics
    /// If the processor does not have the instructions.
    pub(super) fn choose(
        instructions: Instructions,
        pairs: &[Pair],
        choices: &mut [Choice],
    ) -> bool {
        assert!(instructions <= Instructions::in_use());
        match instructions {
            Instructions::Portable => return false,
            // SAFETY: the processor has AVX2: `Instructions` are detected.
            Instructions::V3 => unsafe { choose_v3(pairs, choices) },
            // SAFETY: the processor has AVX-512 with VBMI: `Instructions` are detected.
            Instructions::V4 => unsafe { choose_v4(pairs, choices) },
        }
        true
    }

    /// [`choose_portable`], compiled for several pairs at once.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
    fn choose_v4(pairs: &[Pair], choices: &mut [Choice]) {
        choose_portable(pairs, choices);
    }

    /// [`choose_portable`], compiled for several pairs at once.
    #[target_feature(enable = "avx2")]
    fn choose_v3(pairs: &[Pair], choices: &mut [Choice]) {
        choose_portable(pairs, choices);
    }

    /// Does what [`super::pack`] does for narrow lines, if there is a pair.
    ///
    /// # Panics
    /// If the processor does not have the instructions, or these are the portable ones.
    pub(super) fn pack(
        instructions: Instructions,
        pairs: &[Pair],
        slots: &Slots,
        lines: &mut [Line],
    ) {
        assert!(instructions <= Instructions::in_use());
        match instructions {
            Instructions::Portable => unreachable!("the caller has portable code"),
            // SAFETY: the processor has AVX2: `Instructions` are detected.
            Instructions::V3 => unsafe { pack_v3(pairs, slots, lines) },
            // SAFETY: the processor has AVX-512 with VBMI, and BMI2: `Instructions` are detected.
            Instructions::V4 => unsafe { pack_v4(pairs, slots, lines) },
        }
    }

    /// Writes hashes and values two by two, from the first one on: each write ends with bytes that the next one replaces.
    #[target_feature(enable = "avx2")]
    fn pack_v3(pairs: &[Pair], slots: &Slots, lines: &mut [Line]) {
        let two = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1);
        for (line, (slots, count)) in lines.iter_mut().zip(slots.lines()) {
            let mut highs = 0;
            let pair: [__m128i; SLOTS_MAX] = std::array::from_fn(|slot| {
                let pair: &Pair = &pairs[usize::from(slots[slot])];
                let high = (pair.hash >> line::LOW_BITS) as u32 & NARROW_HIGH;
                highs |= high << (line::NARROW_HIGH_BITS as usize * slot);
                // SAFETY: 16 bytes are read, of a pair, which has this size.
                unsafe { _mm_loadu_si128(std::ptr::from_ref(pair).cast()) }
            });
            let hashes =
                |slot: usize| _mm_shuffle_epi8(_mm_unpacklo_epi64(pair[slot], pair[slot + 1]), two);
            let values =
                |slot: usize| _mm_shuffle_epi8(_mm_unpackhi_epi64(pair[slot], pair[slot + 1]), two);
            let mut put = |start: usize, bytes: __m128i| {
                let place: &mut [u8; 16] =
                    line[start..].first_chunk_mut().expect("16 bytes follow");
                // SAFETY: 16 bytes are written, of an array of this size.
                unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), bytes) }
            };
            put(0, hashes(0));
            put(12, hashes(2));
            put(24, pair[4]);
            put(line::NARROW_VALUES, values(0));
            put(line::NARROW_VALUES + 12, values(2));
            Format::Narrow.set_value(line, 4, pairs[usize::from(slots[4])].value);
            line::set_meta(line, highs << SLOTS_MAX | ((1 << count) - 1));
        }
    }

    /// Puts the bytes of five pairs in their order in a line.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,bmi2")]
    fn pack_v4(pairs: &[Pair], slots: &Slots, lines: &mut [Line]) {
        // SAFETY: 64 bytes are read, of an array of this size each.
        let load = |bytes: &[u8; 64]| unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        let (places, high_places) = (load(&PAIRS), load(&HIGHS));
        for (line, (slots, count)) in lines.iter_mut().zip(slots.lines()) {
            let pair = |slot: usize| {
                let pair: &Pair = &pairs[usize::from(slots[slot])];
                // SAFETY: 16 bytes are read, of a pair, which has this size.
                unsafe { _mm_loadu_si128(std::ptr::from_ref(pair).cast()) }
            };
            let four = _mm512_castsi128_si512(pair(0));
            let four = _mm512_inserti32x4::<1>(four, pair(1));
            let four = _mm512_inserti32x4::<2>(four, pair(2));
            let four = _mm512_inserti32x4::<3>(four, pair(3));
            let fifth = _mm512_castsi128_si512(pair(4));
            let bytes = _mm512_permutex2var_epi8(four, places, fifth);
            // SAFETY: 64 bytes are written, of an array of this size.
            unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), bytes) }
            let highs = _mm512_permutex2var_epi8(four, high_places, fifth);
            let highs = _mm_cvtsi128_si64(_mm512_castsi512_si128(highs)) as u64;
            let highs = _pext_u64(highs, HIGH_BITS) as u32;
            line::set_meta(line, highs << SLOTS_MAX | ((1 << count) - 1));
        }
    }

    /// The byte of five pairs that each byte of a narrow line has.
    const PAIRS: [u8; 64] = {
        let mut places = [0; 64];
        let mut i = 0;
        while i < 2 * line::NARROW_VALUES {
            let (start, byte) =
                if i < line::NARROW_VALUES { (0, i) } else { (8, i - line::NARROW_VALUES) };
            places[i] = (byte / 6 * 16 + start + byte % 6) as u8;
            i += 1;
        }
        places
    };

    /// The bytes of five pairs that have bits 48 to 55 of their hashes.
    const HIGHS: [u8; 64] = {
        let mut places = [0; 64];
        let mut slot = 0;
        while slot < SLOTS_MAX {
            places[slot] = slot as u8 * 16 + 6;
            slot += 1;
        }
        places
    };

    /// The bits of these bytes that a narrow line has.
    const HIGH_BITS: u64 = 0x001F_1F1F_1F1F;

    /// Each of four bits twice.
    const TWICE: [u8; 16] = {
        let mut twice = [0; 16];
        let mut i = 0;
        while i < 16 {
            let mut bit = 0;
            while bit < 4 {
                twice[i] |= ((i >> bit & 1) * (3 << (2 * bit))) as u8;
                bit += 1;
            }
            i += 1;
        }
        twice
    };

    /// Spreads four numbers of 48 bits, from byte `START` of a line on, to lanes of 64 bits.
    #[target_feature(enable = "avx2")]
    fn four_lanes<const START: usize>(line: &Line) -> __m256i {
        const { assert!(START + 28 <= line::LINE_BYTES) };
        // SAFETY: two times 16 bytes of the line are read, the last of which is before byte `START` + 28.
        let halves = unsafe {
            let load = |start: usize| _mm_loadu_si128(line.as_ptr().add(start).cast());
            _mm256_set_m128i(load(START + 12), load(START))
        };
        let places = _mm256_setr_epi8(
            0, 1, 2, 3, 4, 5, -1, -1, 6, 7, 8, 9, 10, 11, -1, -1, 0, 1, 2, 3, 4, 5, -1, -1, 6, 7,
            8, 9, 10, 11, -1, -1,
        );
        _mm256_shuffle_epi8(halves, places)
    }

    /// Compares four slots in a register, and the fifth by itself.
    #[target_feature(enable = "avx2")]
    fn equal_v3(line: &Line, low: u64) -> u32 {
        let equal = _mm256_cmpeq_epi64(four_lanes::<0>(line), _mm256_set1_epi64x(low as i64));
        let four = _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32;
        four | u32::from(line::low(line, SLOTS_MAX - 1) == low) << (SLOTS_MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::division::{CHUNKS_MAX, DEPTH_MAX, Division},
        *,
    };
    use crate::key::{KeyHash, Seed};

    #[test]
    fn all_instructions_find_the_same_slots() {
        for i in 0..20_000_u64 {
            let mut lines = [[0_u8; 64]; 2];
            for (place, bytes) in lines.as_flattened_mut().chunks_mut(16).enumerate() {
                let seed = Seed(i * 8 + place as u64);
                bytes.copy_from_slice(&KeyHash::of(b"line", seed).bits().to_le_bytes());
            }
            let hash = KeyHash::of(&i.to_le_bytes(), Seed(1)).high();
            // Some slots have the hash, and some all but one bit of it.
            for slot in 0..SLOTS_MAX {
                let bytes = match i >> (2 * slot) & 3 {
                    0 => continue,
                    1 => hash ^ 1 << (i % 48),
                    _ => hash,
                };
                let line = &mut lines[slot % 2];
                line[slot * 6..slot * 6 + 6].copy_from_slice(&bytes.to_le_bytes()[..6]);
            }
            let [a, b] = &lines;
            let portable = equal(Instructions::Portable, [a, b], hash);
            for instructions in [Instructions::V3, Instructions::V4] {
                let instructions = instructions.min(Instructions::in_use());
                assert_eq!(equal(instructions, [a, b], hash), portable, "{instructions:?} {i}");
            }
        }
    }

    const LEVELS: [Instructions; 3] = [Instructions::Portable, Instructions::V3, Instructions::V4];

    fn pairs(count: u64, bits: u32) -> Vec<Pair> {
        let pair = |i: u64| {
            let [hash, value] = [1, 2].map(|seed| KeyHash::of(&i.to_le_bytes(), Seed(seed)).high());
            let hash = BASE >> bits << bits | hash & ((1 << bits) - 1);
            Pair { hash, value: value & line::NARROW_VALUE_MAX }
        };
        (0..count).map(pair).collect()
    }

    const BASE: u64 = 0xABCD_EF01_2345_6789;

    #[test]
    fn all_instructions_choose_the_lines_of_each_pair() {
        let pairs = pairs(1000, 64 - 11);
        for instructions in LEVELS {
            let mut choices = vec![[0; 2]; pairs.len()];
            choose(instructions.min(Instructions::in_use()), &pairs, &mut choices);
            for (choice, pair) in choices.iter().zip(&pairs) {
                assert_eq!(choice.map(usize::from), choice::lines(pair.hash));
            }
        }
    }

    /// Lines with each number of pairs are written, some pairs are removed, and the others are read.
    #[test]
    fn all_instructions_read_what_all_have_written() {
        let all = pairs(100, Format::Narrow.hash_bits());
        let (mut slots, mut next) = (Slots::default(), 0);
        for line in 0..CHUNK_LINES {
            for _ in 0..line % (SLOTS_MAX + 1) {
                assert!(slots.add(Format::Narrow, line, next));
                next += 1;
            }
        }
        for writing in LEVELS.map(|instructions| instructions.min(Instructions::in_use())) {
            let (mut lines, mut expected) = ([[0xFF; 64]; CHUNK_LINES], Vec::new());
            pack(writing, Format::Narrow, &all, &slots, &mut lines);
            for (i, (line, (numbers, count))) in lines.iter_mut().zip(slots.lines()).enumerate() {
                let (first, removed) = (expected.len(), i / 6 % 7);
                let numbers = numbers[..usize::from(count)].iter();
                expected.extend(numbers.map(|number| all[usize::from(*number)]));
                if removed < usize::from(count) {
                    line::remove(line, removed);
                    expected.remove(first + removed);
                }
            }
            for reading in LEVELS.map(|instructions| instructions.min(Instructions::in_use())) {
                let mut found = vec![Pair { hash: 0, value: 0 }; expected.len() + SLOTS_MAX];
                let mut count = 0;
                gather(reading, Format::Narrow, &lines, BASE, &mut found, &mut count);
                assert_eq!(found[..count], expected, "{writing:?} {reading:?}");
            }
        }
    }

    /// Returns a chunk whose lines have each number of pairs in use, and arbitrary bytes in the other slots.
    fn chunk(format: Format) -> Chunk {
        let mut next = pairs(CHUNK_LINES as u64 * 5, format.hash_bits()).into_iter();
        std::array::from_fn(|i| {
            let mut line = [i as u8; 64];
            line::set_meta(&mut line, 0);
            for slot in (0..format.slots()).filter(|slot| i >> slot & 1 == 1) {
                format.set(&mut line, slot, next.next().unwrap());
            }
            line
        })
    }

    #[test]
    fn all_instructions_gather_the_pairs_of_a_chunk() {
        for format in [Format::Narrow, Format::Wide] {
            let chunk = chunk(format);
            for some in [0, 0b10101, 0b01010, 0b11110, 0b11111] {
                let masks = in_use(&chunk).map(|mask| mask & some);
                let mut expected = Vec::new();
                for (line, mask) in chunk.iter().zip(&masks) {
                    let slots = (0..format.slots()).filter(|slot| mask >> slot & 1 == 1);
                    expected.extend(slots.map(|slot| format.pair(line, slot, BASE)));
                }
                let mut pairs = vec![Pair { hash: 0, value: 0 }; expected.len() + SLOTS_MAX];
                let mut found = 0;
                gather_slots(format, &chunk, &masks, BASE, &mut pairs, &mut found);
                assert_eq!(pairs[..found], expected, "{format:?} {some}");
                if some < 0b11111 {
                    continue;
                }
                for instructions in LEVELS.map(|level| level.min(Instructions::in_use())) {
                    pairs.fill(Pair { hash: 0, value: 0 });
                    found = 0;
                    gather(instructions, format, &chunk, BASE, &mut pairs, &mut found);
                    assert_eq!(pairs[..found], expected, "{instructions:?} {format:?}");
                }
            }
        }
    }

    #[test]
    fn all_instructions_find_the_pairs_of_a_part() {
        for format in [Format::Narrow, Format::Wide] {
            let chunk = chunk(format);
            let depths = if format == Format::Narrow { 3..=DEPTH_MAX } else { 0..=DEPTH_MAX };
            let division = |depth| Division { lower: 0x2468_ACE1, upper: 0x1357_9BDF, depth };
            let parts = depths.flat_map(|depth| {
                (1..=CHUNKS_MAX).map(move |count| division(depth).of_last(count))
            });
            let mut found_any = 0;
            for part in parts {
                let of_line = |line| {
                    let has = |slot: &usize| part.has(format.pair(line, *slot, BASE).hash);
                    let slots = (0..format.slots()).filter(has);
                    slots.fold(0, |mask, slot| mask | 1 << slot) & line::in_use(line) as u8
                };
                let expected = chunk.each_ref().map(of_line);
                found_any += count(&expected);
                for instructions in LEVELS.map(|level| level.min(Instructions::in_use())) {
                    let found = of_part(instructions, format, &chunk, &part);
                    assert_eq!(found, expected, "{instructions:?} {format:?} {part:?}");
                }
            }
            assert!(found_any > 1000, "{found_any}");
        }
    }
}
