//! Registers of 6 bits, the lowest bits of each byte first, as Redis and the bytes of sketches have them.

/// Number of bits of a register.
const WIDTH: usize = 6;
const MASK: u16 = (1 << WIDTH) - 1;

/// Returns the size of registers, in bytes. Their number is a multiple of 4.
pub(super) const fn size(registers: usize) -> usize {
    registers * WIDTH / 8
}

/// Returns the value of a register.
pub(super) fn get(bytes: &[u8], index: usize) -> u8 {
    let (at, shift) = (index * WIDTH / 8, index * WIDTH % 8);
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([bytes[at], next]) >> shift & MASK) as u8
}

/// Sets the value of a register: less than 64.
pub(super) fn set(bytes: &mut [u8], index: usize, value: u8) {
    let (at, shift) = (index * WIDTH / 8, index * WIDTH % 8);
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    let word = u16::from_le_bytes([bytes[at], next]);
    let [low, high] = (word & !(MASK << shift) | u16::from(value) << shift).to_le_bytes();
    bytes[at] = low;
    // Only a register that crosses into the next byte changes it.
    if let Some(next) = bytes.get_mut(at + 1) {
        *next = high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_back_and_change_no_others() {
        let mut bytes = vec![0; size(16)];
        let mut values = [0; 16];
        for i in 0..500_usize {
            let (index, value) = (i * 7 % 16, (i * 11 % 64) as u8);
            set(&mut bytes, index, value);
            values[index] = value;
            assert!((0..16).all(|index| get(&bytes, index) == values[index]), "{i}");
        }
    }
}
