//! `LCS`: the longest common subsequence of two values.

use super::{
    NOT_AN_INTEGER, SYNTAX_ERROR,
    entry::Arguments,
    lookup::{Value, Values},
};
use crate::protocol::Reply;

/// Maximum size of the table of a comparison, in bytes: others wait for a millisecond.
const TABLE_BYTES_MAX: usize = 4 << 20;

/// What `LCS` replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LcsOptions {
    /// Whether only the length.
    is_len: bool,
    /// Whether the ranges that are equal.
    is_idx: bool,
    /// Least length of such a range.
    min_len: i64,
    /// Whether each range comes with its length.
    has_len: bool,
}

impl LcsOptions {
    pub(super) fn parse(arguments: &Arguments<'_>) -> Result<LcsOptions, String> {
        let mut options = LcsOptions::default();
        let mut i = 3;
        while i < arguments.len() {
            if arguments.is(i, "idx") {
                options.is_idx = true;
            } else if arguments.is(i, "len") {
                options.is_len = true;
            } else if arguments.is(i, "withmatchlen") {
                options.has_len = true;
            } else if arguments.is(i, "minmatchlen") && i + 1 < arguments.len() {
                i += 1;
                let min = crate::protocol::number(arguments.at(i)).ok_or(NOT_AN_INTEGER)?;
                options.min_len = min.max(0);
            } else {
                return Err(SYNTAX_ERROR.into());
            }
            i += 1;
        }
        match options.is_idx && options.is_len {
            true => Err("ERR If you want both the length and indexes, please just use IDX.".into()),
            false => Ok(options),
        }
    }
}

/// Writes the reply for the first two values.
pub(super) fn reply(options: LcsOptions, values: &dyn Values, reply: &mut Reply<'_>) {
    let mut texts = [&b""[..]; 2];
    for (i, text) in texts.iter_mut().enumerate() {
        match values.value(i) {
            Value::Absent => {}
            Value::Present(value) => *text = value,
            Value::Filter(_) => {
                return reply.error("ERR The specified keys must contain string values");
            }
            Value::Failed(error) => return reply.error(error),
        }
    }
    let [a, b] = texts;
    let cells = (a.len() as u128 + 1) * (b.len() as u128 + 1);
    if cells * size_of::<u32>() as u128 > TABLE_BYTES_MAX as u128 {
        return reply
            .error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
    }
    let table = Table::of(a, b);
    if options.is_len {
        return reply.integer(table.len().into());
    }
    let matches = table.matches();
    match options.is_idx {
        false => {
            let parts = matches.iter().rev().map(|it| &a[it.a..it.a + it.len]);
            reply.bulk(&parts.flatten().copied().collect::<Vec<u8>>());
        }
        true => reply_matches(options, &matches, table.len(), reply),
    }
}

fn reply_matches(options: LcsOptions, matches: &[Match], len: u32, reply: &mut Reply<'_>) {
    let shown = || matches.iter().filter(|it| it.len as i64 >= options.min_len);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(shown().count());
    for Match { a, b, len } in shown() {
        reply.array(if options.has_len { 3 } else { 2 });
        for start in [a, b] {
            reply.array(2);
            reply.integer(*start as i64);
            reply.integer((start + len - 1) as i64);
        }
        if options.has_len {
            reply.integer(*len as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(len.into());
}

/// A range of bytes that two texts have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// The lengths of the longest common subsequences of all beginnings of two texts.
struct Table<'t> {
    a: &'t [u8],
    b: &'t [u8],
    /// A row for each beginning of `a`, a column for each of `b`.
    lengths: Vec<u32>,
}

impl<'t> Table<'t> {
    fn of(a: &'t [u8], b: &'t [u8]) -> Table<'t> {
        let width = b.len() + 1;
        let mut lengths = vec![0; (a.len() + 1) * width];
        for (i, from_a) in a.iter().enumerate() {
            let (before, row) = lengths[i * width..].split_at_mut(width);
            for (j, from_b) in b.iter().enumerate() {
                row[j + 1] =
                    if from_a == from_b { before[j] + 1 } else { before[j + 1].max(row[j]) };
            }
        }
        Table { a, b, lengths }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths[i * (self.b.len() + 1) + j]
    }

    fn len(&self) -> u32 {
        self.at(self.a.len(), self.b.len())
    }

    /// Returns the ranges of one longest subsequence, from the last to the first.
    fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        let (mut i, mut j) = (self.a.len(), self.b.len());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                match matches.last_mut() {
                    Some(last) if last.a == i && last.b == j => {
                        *last = Match { a: i - 1, b: j - 1, len: last.len + 1 };
                    }
                    _ => matches.push(Match { a: i - 1, b: j - 1, len: 1 }),
                }
                (i, j) = (i - 1, j - 1);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_subsequence_is_found_in_ranges() {
        let table = Table::of(b"ohmytext", b"mynewtext");
        assert_eq!(table.len(), 6);
        let expected = [Match { a: 4, b: 5, len: 4 }, Match { a: 2, b: 0, len: 2 }];
        assert_eq!(table.matches(), expected);
        assert!(Table::of(b"", b"x").matches().is_empty());
    }
}
