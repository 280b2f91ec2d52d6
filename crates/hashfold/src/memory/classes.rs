//! Size classes of blocks: 16 to 64 bytes in steps of 2, to 128 in steps of 4, then eight per doubling to 4 KiB, and such
//! that a page of 64 KiB is full of them; above, one for each number of blocks on a page. The class of a block follows
//! from its length, so no block has a header.

/// Size of a page in bytes.
pub(super) const PAGE_BYTES: usize = 1 << 16;

/// The unit of block sizes, in bytes.
const STEP: usize = 2;

/// Size of the smallest blocks in bytes.
pub(super) const BLOCK_BYTES_MIN: usize = 16;

/// Maximum length of a block in bytes: the largest number of 15 bits.
pub(super) const BLOCK_BYTES_MAX: usize = (1 << 15) - 1;

/// Number of classes.
pub(super) const CLASSES: usize = EIGHTHS + 14;

/// Number of classes up to 64 bytes, and up to 128.
const STEPS_OF_2: usize = 25;
const STEPS_OF_4: usize = STEPS_OF_2 + 16;
/// Number of classes up to 4 KiB. A page has 15 blocks of the next class, and 2 of the last.
const EIGHTHS: usize = STEPS_OF_4 + 5 * 8;

/// The size of the blocks of each class, in bytes.
const SIZES: [usize; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let size = if class < STEPS_OF_2 {
            BLOCK_BYTES_MIN + class * 2
        } else if class < STEPS_OF_4 {
            64 + (class - STEPS_OF_2 + 1) * 4
        } else if class < EIGHTHS {
            let step = class - STEPS_OF_4;
            (128 << (step / 8)) / 8 * (step % 8 + 9)
        } else {
            PAGE_BYTES / (CLASSES + 1 - class)
        };
        // As many blocks as fit, each as large as it can be then.
        let blocks = PAGE_BYTES / size;
        let most = PAGE_BYTES / blocks / STEP * STEP;
        sizes[class] = if class < STEPS_OF_4 { size } else { most };
        class += 1;
    }
    sizes
};

/// The number of blocks of each class on a page.
static BLOCKS: [u16; CLASSES] = {
    let mut blocks = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        blocks[class] = (PAGE_BYTES / SIZES[class]) as u16;
        class += 1;
    }
    blocks
};

/// The class of each length, in steps.
static BY_STEPS: [u8; PAGE_BYTES / 2 / STEP + 1] = {
    let mut classes = [0; PAGE_BYTES / 2 / STEP + 1];
    let (mut steps, mut class) = (0, 0);
    while steps < classes.len() {
        if steps * STEP > SIZES[class] {
            class += 1;
        }
        classes[steps] = class as u8;
        steps += 1;
    }
    classes
};

/// Returns the class of blocks of this length.
#[inline]
pub(super) fn class_of(len: usize) -> usize {
    usize::from(BY_STEPS[len.div_ceil(STEP)])
}

/// Returns the size of the blocks of a class, in bytes.
#[inline]
pub(super) fn size(class: usize) -> usize {
    SIZES[class]
}

/// Returns the number of blocks of a class on a page.
#[inline]
pub(super) fn blocks(class: usize) -> usize {
    usize::from(BLOCKS[class])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for len in 0..=BLOCK_BYTES_MAX {
            let class = class_of(len);
            assert!(size(class) >= len && (class == 0 || size(class - 1) < len), "{len}");
        }
    }

    #[test]
    fn blocks_fill_their_pages_and_waste_little() {
        for class in 0..CLASSES {
            let used = blocks(class) * size(class);
            assert!(used <= PAGE_BYTES && used > PAGE_BYTES * 99 / 100, "{class}: {used}");
            assert!(size(class).is_multiple_of(STEP));
            let before = if class < STEPS_OF_4 { continue } else { size(class - 1) };
            let part = if size(class) <= 8 << 10 { 8 } else { 3 };
            assert!((size(class) - before) * part <= size(class) + STEP * part, "{class}");
        }
    }
}
