//! CSV and TSV: lines of fields, with quotes around fields that contain a delimiter, a quote or a
//! line end (RFC 4180).

use super::{
    COLUMNS_MAX, Format, Reader,
    bad_rows::Head,
    infer::Guess,
    selection::{Plan, Selection},
    sink::{Flaw, Sink},
    source::Meter,
    window::Window,
};
use crate::{
    failure::{Failure, Result},
    units,
};
use hashfold_rows::{Column, KeyType, Kind, Schema, Value};
use memchr::{memchr, memchr_iter, memchr2};
use std::ops::Range;

/// Maximum length of the line of column names, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// Options for splitting lines into fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) delimiter: u8,
    /// Whether the first line has the column names; otherwise columns are named 1, 2, 3 ...
    pub(crate) header: bool,
    /// Whether quotes around a field are syntax; otherwise they are text.
    pub(crate) quotes: bool,
}

/// Reads one CSV or TSV input.
pub(crate) struct CsvReader {
    window: Window,
    dialect: Dialect,
    plan: Plan,
    /// Whether the type of the keys is inferred.
    infers: bool,
    /// The line of column names.
    header: Vec<u8>,
    /// Number of fields per line.
    width: usize,
    /// The number of the next line, from 1 on.
    line: u64,
}

/// A line split into fields.
#[derive(Debug, Default)]
struct Fields {
    /// Ranges of the first fields: in the line, or in `text` if there are quotes.
    ranges: Vec<Range<usize>>,
    /// Maximum number of ranges: one more than the number of columns, so that the place of an extra
    /// field is known.
    ranges_max: usize,
    /// Number of all fields.
    count: usize,
    /// The fields without their quotes.
    text: Vec<u8>,
}

impl Fields {
    /// Allocates for lines that should have `width` fields.
    fn of_width(width: usize) -> Fields {
        Fields { ranges_max: width + 1, ..Fields::default() }
    }

    fn clear(&mut self) {
        self.ranges.clear();
        self.text.clear();
        self.count = 0;
    }

    fn push(&mut self, field: Range<usize>) {
        if self.count < self.ranges_max {
            self.ranges.push(field);
        }
        self.count += 1;
    }
}

/// Result of parsing the start of a window.
#[derive(Debug)]
enum Step {
    /// A complete record with its line end.
    Record { len: usize, quoted: bool },
    /// No record: the first line is malformed.
    Flaw { len: usize, flaw: Flaw },
    /// An incomplete record.
    More,
}

impl CsvReader {
    pub(crate) fn open(
        path: &str,
        dialect: Dialect,
        selection: &Selection,
        meter: &Meter,
    ) -> Result<CsvReader> {
        let mut window = Window::open(path, meter)?;
        window.skip_byte_order_mark();
        let Names { names, header, line } = read_names(&mut window, dialect)?;
        let width = names.len();
        let kinds = match selection.infers {
            true => infer(&window, dialect, width),
            false => vec![Kind::Text; width],
        };
        let columns = names.into_iter().zip(kinds).map(|(name, kind)| Column { name, kind });
        let plan = selection.plan(path, &columns.collect::<Vec<_>>())?;
        Ok(CsvReader { window, dialect, plan, infers: selection.infers, header, width, line })
    }

    /// Reads the complete records in the window. Returns their length.
    fn read_window(&mut self, fields: &mut Fields, sink: &mut Sink) -> Result<usize> {
        let bytes = self.window.bytes();
        let mut cutter = Cutter::new(self.dialect, self.window.at_end);
        let mut start = 0;
        while start < bytes.len() {
            let (len, quoted, outcome) = match cutter.cut(bytes, start, fields) {
                Step::More => break,
                Step::Flaw { len, flaw } => (len, false, Err(flaw)),
                Step::Record { len, .. } if is_blank(&bytes[start..start + len]) => {
                    (len, false, Ok(()))
                }
                Step::Record { len, quoted } => {
                    let text = if quoted { &fields.text } else { &bytes[start..start + len] };
                    (len, quoted, self.take(text, fields, sink))
                }
            };
            let record = without_line_end(&bytes[start..start + len]);
            sink.end_row(&self.window.file, self.line, outcome, record)?;
            self.line += 1 + if quoted { line_ends(record) } else { 0 };
            start += len;
        }
        Ok(start)
    }

    #[inline]
    fn take(&self, text: &[u8], fields: &Fields, sink: &mut Sink) -> Result<(), Flaw> {
        if fields.count != self.width {
            return Err(wrong_width(self.width, fields));
        }
        let field = |i: usize| &text[fields.ranges[i].clone()];
        let key = field(self.plan.key);
        let placed = |flaw: Flaw| match flaw.source {
            Some(source) => flaw.at(fields.ranges[source].start + 1),
            None => flaw,
        };
        if self.plan.deletes(field).map_err(placed)? {
            return sink.delete(key);
        }
        if self.infers {
            sink.keys.add_key(key);
        }
        sink.push_row(&self.plan, key, |i| Value::Bytes(field(i))).map_err(placed)
    }
}

impl Reader for CsvReader {
    fn schema(&self) -> &Schema {
        &self.plan.schema
    }

    fn head(&self) -> Head {
        Head { format: Format::Csv, header: self.header.clone() }
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        if !self.infers {
            sink.keys.add(KeyType::Text);
        }
        for (column, source) in self.plan.sources.iter().enumerate() {
            source.iter().for_each(|_| sink.fill(column));
        }
        let mut fields = Fields::of_width(self.width);
        loop {
            let used = self.read_window(&mut fields, sink)?;
            self.window.consume(used);
            if !self.window.fill(self.line)? {
                return Ok(());
            }
        }
    }
}

/// The first line of an input.
struct Names {
    names: Vec<String>,
    /// The line; empty if it is a row.
    header: Vec<u8>,
    /// Number of the line after it.
    line: u64,
}

/// Returns the kinds of the columns by the rows in the window.
fn infer(window: &Window, dialect: Dialect, width: usize) -> Vec<Kind> {
    let (bytes, mut start) = (window.bytes(), 0);
    let mut cutter = Cutter::new(dialect, window.at_end);
    let mut fields = Fields::of_width(width);
    let mut guesses = vec![Guess::of_text(); width];
    while start < bytes.len() {
        let (len, text) = match cutter.cut(bytes, start, &mut fields) {
            Step::Record { len, quoted: true } => (len, &fields.text[..]),
            Step::Record { len, quoted: false } => (len, &bytes[start..start + len]),
            Step::Flaw { len, .. } => {
                start += len;
                continue;
            }
            Step::More => break,
        };
        if fields.count == width && !is_blank(&bytes[start..start + len]) {
            for (guess, range) in guesses.iter_mut().zip(&fields.ranges) {
                guess.see(Value::Bytes(&text[range.clone()]));
            }
        }
        start += len;
    }
    guesses.iter().map(Guess::kind).collect()
}

/// Reads the column names.
fn read_names(window: &mut Window, dialect: Dialect) -> Result<Names> {
    let mut fields = Fields::of_width(COLUMNS_MAX);
    let (len, quoted) = loop {
        if window.bytes().is_empty() {
            return Err(Failure::input(&window.file, "is empty; expected lines of fields"));
        }
        match Cutter::new(dialect, window.at_end).cut(window.bytes(), 0, &mut fields) {
            Step::Record { len, quoted } => break (len, quoted),
            Step::Flaw { flaw, .. } => {
                return Err(Failure::input(format_args!("{}:1", window.file), flaw.reason));
            }
            Step::More if dialect.header && window.bytes().len() >= HEADER_BYTES_MAX => {
                return Err(Failure::input(
                    format_args!("{}:1", window.file),
                    format_args!(
                        "the header is longer than {} bytes; expected a line of column names, \
                         or --no-header if the first line is a row",
                        units::count(HEADER_BYTES_MAX as u64)
                    ),
                ));
            }
            Step::More => window.fill(1).map(drop)?,
        }
    };
    if fields.count > COLUMNS_MAX {
        return Err(Failure::input(
            format_args!("{}:1", window.file),
            format_args!(
                "the line has {} fields, the most accepted is {}",
                units::count(fields.count as u64),
                units::count(COLUMNS_MAX as u64)
            ),
        ));
    }
    if !dialect.header {
        let names = (1..=fields.ranges.len()).map(|i| i.to_string()).collect();
        return Ok(Names { names, header: Vec::new(), line: 1 });
    }
    let record = &window.bytes()[..len];
    let line = 2 + line_ends(without_line_end(record));
    let text = if quoted { &fields.text } else { record };
    let name = |range: &Range<usize>| String::from_utf8_lossy(&text[range.clone()]).into_owned();
    let names: Vec<String> = fields.ranges.iter().map(name).collect();
    if !quoted && names.iter().any(|name| name.contains('\r')) {
        let what = "the lines end with carriage returns alone; expected line feeds";
        return Err(Failure::input(format_args!("{}:1", window.file), what));
    }
    let header = without_line_end(record).to_vec();
    window.consume(len);
    Ok(Names { names, header, line })
}

fn wrong_width(expected: usize, fields: &Fields) -> Flaw {
    let column = match fields.ranges.get(expected) {
        Some(first_too_many) => first_too_many.start,
        None => fields.ranges.last().map_or(0, |last| last.end),
    };
    let fields = units::counted(fields.count as u64, "field", "fields");
    Flaw::new(format!("the line has {fields}, expected {expected}")).at(column + 1)
}

fn is_blank(line: &[u8]) -> bool {
    matches!(line, b"\n" | b"\r\n" | b"\r")
}

fn line_ends(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

fn without_line_end(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// Splits the bytes of a window into records.
struct Cutter {
    dialect: Dialect,
    /// Whether the bytes reach to the end of the input.
    at_end: bool,
    /// No quote is before this offset. This saves a search per line, because most files have no
    /// quotes.
    quote: usize,
}

impl Cutter {
    fn new(dialect: Dialect, at_end: bool) -> Cutter {
        Cutter { dialect, at_end, quote: if dialect.quotes { 0 } else { usize::MAX } }
    }

    /// Splits off the record that starts at `start`, inside of `bytes`.
    #[inline]
    fn cut(&mut self, bytes: &[u8], start: usize, fields: &mut Fields) -> Step {
        let rest = &bytes[start..];
        let len = match memchr(b'\n', rest) {
            Some(end) => end + 1,
            None if self.at_end => rest.len(),
            None => return Step::More,
        };
        if self.quote < start || self.quote == 0 {
            self.quote = memchr(b'"', rest).map_or(usize::MAX, |quote| start + quote);
        }
        if self.quote < start + len {
            return self.cut_quoted(rest, len, fields);
        }
        split(without_line_end(&rest[..len]), self.dialect.delimiter, fields);
        Step::Record { len, quoted: false }
    }

    fn cut_quoted(&self, rest: &[u8], line_len: usize, fields: &mut Fields) -> Step {
        match unquote(rest, self.dialect.delimiter, self.at_end, fields) {
            Ok(Some(len)) => Step::Record { len, quoted: true },
            Ok(None) => Step::More,
            Err(flaw) => Step::Flaw { len: line_len, flaw },
        }
    }
}

#[inline]
fn split(line: &[u8], delimiter: u8, fields: &mut Fields) {
    let Fields { ranges, ranges_max, count, .. } = fields;
    ranges.clear();
    let mut start = 0;
    let mut ends = memchr_iter(delimiter, line);
    for end in ends.by_ref().take(*ranges_max) {
        ranges.push(start..end);
        start = end + 1;
    }
    *count = if ranges.len() < *ranges_max {
        ranges.push(start..line.len());
        ranges.len()
    } else {
        ranges.len() + ends.count() + 1
    };
}

/// Splits off a record that may have quotes. Returns its length, or `None` if the record continues
/// after `bytes`.
fn unquote(
    bytes: &[u8],
    delimiter: u8,
    at_end: bool,
    fields: &mut Fields,
) -> Result<Option<usize>, Flaw> {
    fields.clear();
    let mut at = 0;
    loop {
        let start = fields.text.len();
        if bytes.get(at) == Some(&b'"') {
            match quoted_field(bytes, at, &mut fields.text) {
                Some(after) => at = after,
                None if at_end => {
                    return Err(Flaw::new("the quote is never closed").at(at + 1));
                }
                None => return Ok(None),
            }
        } else {
            let len = memchr2(delimiter, b'\n', &bytes[at..]).unwrap_or(bytes.len() - at);
            let field = &bytes[at..at + len];
            let is_last = bytes.get(at + len) != Some(&delimiter);
            fields.text.extend_from_slice(if is_last { without_line_end(field) } else { field });
            at += len;
        }
        fields.push(start..fields.text.len());
        match &bytes[at..] {
            [] if at_end => return Ok(Some(at)),
            [] | [b'\r'] if !at_end => return Ok(None),
            [b'\n', ..] => return Ok(Some(at + 1)),
            [b'\r', b'\n', ..] => return Ok(Some(at + 2)),
            [b'\r'] => return Ok(Some(at + 1)),
            [byte, ..] if *byte == delimiter => at += 1,
            _ => {
                let reason = "the field goes on after its closing quote; double the quotes \
                              inside, or give --no-quotes if they are part of the text";
                return Err(Flaw::new(reason).at(at + 1));
            }
        }
    }
}

/// Appends the field whose opening quote is at `start`; returns the offset after its closing one.
fn quoted_field(bytes: &[u8], start: usize, text: &mut Vec<u8>) -> Option<usize> {
    let mut at = start + 1;
    loop {
        let len = memchr(b'"', &bytes[at..])?;
        text.extend_from_slice(&bytes[at..at + len]);
        at += len + 1;
        if bytes.get(at) != Some(&b'"') {
            return Some(at);
        }
        text.push(b'"');
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect { delimiter: b',', header: false, quotes: true };

    /// Returns all records of `bytes`; `None` if a record is malformed.
    fn cut_all(bytes: &[u8]) -> Option<Vec<Vec<Vec<u8>>>> {
        let mut cutter = Cutter::new(DIALECT, true);
        let (mut start, mut records) = (0, Vec::new());
        let mut fields = Fields::of_width(bytes.len());
        while start < bytes.len() {
            let Step::Record { len, quoted } = cutter.cut(bytes, start, &mut fields) else {
                return None;
            };
            let line = &bytes[start..start + len];
            let text = if quoted { &fields.text[..] } else { line };
            if !is_blank(line) {
                records.push(fields.ranges.iter().map(|r| text[r.clone()].to_vec()).collect());
            }
            start += len;
        }
        Some(records)
    }

    /// Returns the records that the csv crate reads.
    fn naive(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
        let records = reader.byte_records().map(|record| record.unwrap());
        records.map(|record| record.iter().map(<[u8]>::to_vec).collect()).collect()
    }

    /// All inputs of up to seven significant characters, compared with the csv crate. Inputs that
    /// the csv crate accepts although they are malformed (text after a closing quote, no closing
    /// quote) are refused here.
    #[test]
    fn every_short_input_is_cut_as_the_csv_crate_does() {
        let alphabet = [&b"a"[..], b",", b"\"", b"\n", b"\r\n"];
        let mut accepted = 0;
        for code in 0..5usize.pow(7) {
            let mut bytes = Vec::new();
            (0..7).for_each(|i| bytes.extend(alphabet[code / 5usize.pow(i) % 5]));
            if let Some(records) = cut_all(&bytes) {
                assert_eq!(records, naive(&bytes), "{:?}", bytes.escape_ascii().to_string());
                accepted += 1;
            }
        }
        assert!(accepted > 20_000, "{accepted} inputs were accepted");
    }

    /// Issue 10: a line with many fields took 16 bytes per field.
    #[test]
    fn fields_past_the_width_are_counted_and_not_kept() {
        for (line, width, count) in [("a,b,c,d,e\n", 2, 5), ("a,b,c\n", 2, 3), ("a,b\n", 2, 2)] {
            for line in [line.to_string(), line.replace('a', "\"a\"")] {
                let mut fields = Fields::of_width(width);
                let step = Cutter::new(DIALECT, true).cut(line.as_bytes(), 0, &mut fields);
                assert!(matches!(step, Step::Record { len, .. } if len == line.len()));
                assert_eq!((fields.count, fields.ranges.len()), (count, count.min(width + 1)));
            }
        }
    }

    #[test]
    fn a_record_is_the_same_wherever_the_window_ends() {
        let bytes = b"\"a\"\"b\",\"c\r\nd\"\r\ne,f\r\n";
        let whole = cut_all(bytes).unwrap();
        assert_eq!(whole, naive(bytes));
        for cut in 1..bytes.len() - 1 {
            let mut fields = Fields::of_width(2);
            match Cutter::new(DIALECT, false).cut(&bytes[..cut], 0, &mut fields) {
                Step::More => assert!(cut < 15, "cut at {cut}"),
                Step::Record { len, quoted } => assert!(len == 15 && quoted, "cut at {cut}"),
                Step::Flaw { flaw, .. } => panic!("cut at {cut}: {}", flaw.reason),
            }
        }
    }
}
