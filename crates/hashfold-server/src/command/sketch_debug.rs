//! `PFDEBUG` and `PFSELFTEST`: what is inside of a sketch, and whether sketches count right, as in Redis 7.

use super::{
    entry::{Call, Change, Command, Flag, Group, Run, StringCall, Work},
    sketch::{DAMAGED, sketch},
};
use hashfold::sketch::redis::{self, RedisHll};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "pfdebug",
        3,
        Group::Sketches,
        "Shows the registers or the encoding of a sketch.",
        Run::Change(debug as Change),
    )
    .writes()
    .with(Flag::Admin)
    .with(Flag::Dangerous)
    .keys(2, 2, 1),
    Command::new(
        "pfselftest",
        1,
        Group::Sketches,
        "Tests the registers and the estimates of sketches.",
        Run::Job(self_test),
    )
    .with(Flag::Admin)
    .with(Flag::Dangerous),
];

/// Size of the reply of `PFDEBUG GETREG` at most, in bytes.
const REGISTERS_REPLY_BYTES: usize = 16 + ":63\r\n".len() * redis::REGISTERS;

/// Returns the size of the reply to a command, in bytes, if that does not follow from the value that it reads.
pub(crate) fn reply_bytes(command: &Command) -> usize {
    if command.name == "pfdebug" { REGISTERS_REPLY_BYTES } else { 0 }
}

fn debug(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (arguments, key) = (call.arguments, call.arguments.at(2));
    let Some((mut sketch, expires_at)) = sketch(call, key)? else {
        return Err("ERR The specified key does not exist".into());
    };
    if arguments.is(1, "encoding") {
        call.reply.simple(if sketch.is_dense() { "dense" } else { "sparse" });
    } else if arguments.is(1, "decode") {
        let operations = sketch.operations().ok_or("ERR HLL encoding is not sparse")?;
        call.reply.bulk(operations.as_bytes());
    } else if arguments.is(1, "getreg") || arguments.is(1, "todense") {
        let was_sparse = sketch.make_dense().map_err(|_| DAMAGED)?;
        let registers = sketch.registers().map_err(|_| DAMAGED)?;
        if was_sparse {
            call.strings.put(key, sketch.into_bytes(), expires_at)?;
        }
        if arguments.is(1, "todense") {
            return call.integer(i64::from(was_sparse));
        }
        call.reply.array(registers.len());
        registers.iter().for_each(|value| call.reply.integer(i64::from(*value)));
    } else {
        return Err(format!("ERR Unknown PFDEBUG subcommand '{}'", arguments.text(1)));
    }
    Ok(())
}

/// Number of keys that the test inserts.
const TEST_KEYS: u64 = 1_000_000;

fn self_test(_: &mut Call<'_, '_>) -> Result<Work, String> {
    Ok(Box::new(|| {
        let tested = test_registers().and_then(|()| test_estimates(TEST_KEYS));
        Box::new(move |_, reply| match tested {
            Ok(()) => reply.simple("OK"),
            Err(error) => reply.error(&error),
        })
    }))
}

/// Sets all registers to values that follow no pattern, and reads them.
fn test_registers() -> Result<(), String> {
    let value = |index: usize| (index.wrapping_mul(0x9e37_79b9) >> 16 & 63) as u8;
    let values: Vec<u8> = (0..redis::REGISTERS).map(value).collect();
    let mut sketch = RedisHll::new();
    let read = sketch.raise_all(&values, true).and_then(|()| sketch.registers());
    let read = read.map_err(|error| format!("TESTFAILED {error}"))?;
    match values.iter().zip(&read).position(|(expected, got)| expected != got) {
        None => Ok(()),
        Some(i) => {
            Err(format!("TESTFAILED Register {i} should be {} but is {}", values[i], read[i]))
        }
    }
}

/// Inserts keys into a dense sketch and into one that becomes dense. At each power of ten, both have the same registers, and
/// their estimate is within six standard errors.
fn test_estimates(keys: u64) -> Result<(), String> {
    let failed = |error: hashfold::Error| format!("TESTFAILED {error}");
    let (mut dense, mut sparse) = (RedisHll::new(), RedisHll::new());
    dense.make_dense().map_err(failed)?;
    let mut checked = 1;
    for i in 1..=keys {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        dense.insert(&key).map_err(failed)?;
        sparse.insert(&key).map_err(failed)?;
        if i == checked {
            checked *= 10;
            let registers = dense.registers().map_err(failed)?;
            if sparse.registers().map_err(failed)? != registers {
                return Err("TESTFAILED dense/sparse disagree".into());
            }
            check_estimate(redis::count_of(&registers), i)?;
        }
    }
    Ok(())
}

fn check_estimate(got: u64, expected: u64) -> Result<(), String> {
    let standard_error = 1.04 / (redis::REGISTERS as f64).sqrt();
    let largest = (6.0 * standard_error * expected as f64).ceil() as u64;
    match got.abs_diff(expected) <= largest {
        true => Ok(()),
        false => Err(format!("TESTFAILED Too big error. card:{expected} estimate:{got}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sketches_pass_the_test_and_a_wrong_estimate_does_not() {
        assert_eq!(test_registers(), Ok(()));
        assert_eq!(test_estimates(20_000), Ok(()));
        assert_eq!(check_estimate(1048, 1000), Ok(()));
        assert!(check_estimate(1050, 1000).is_err() && check_estimate(950, 1000).is_err());
    }
}
