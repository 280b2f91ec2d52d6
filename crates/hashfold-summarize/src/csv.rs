//! Events as comma-separated values, one event a frame.

use crate::{
    config::{Format, Stream, TimeFormat},
    scalar,
};
use hashfold::pipeline::{Events, FieldKind};
use memchr::memchr;

/// Why a frame is no event.
const COLUMNS: &str = "another number of columns";
const QUOTES: &str = "a quoted value without an end";

/// A parser of comma-separated values. A value in double quotes can have delimiters and doubled quotes.
#[derive(Clone, Debug)]
pub struct CsvParser {
    delimiter: u8,
    /// The uses of each column.
    columns: Vec<Use>,
    has_time: bool,
    /// A value without its quotes.
    unquoted: Vec<u8>,
}

/// The uses of a column.
#[derive(Clone, Debug, Default)]
struct Use {
    fields: Vec<(usize, FieldKind)>,
    time: Option<TimeFormat>,
}

impl CsvParser {
    /// Makes the parser of a stream of this format; `None` for other formats.
    pub fn new(stream: &Stream) -> Option<CsvParser> {
        let Format::Csv { columns, delimiter } = &stream.format else { return None };
        let uses = columns.iter().map(|column| Use {
            fields: (0..stream.fields.len())
                .filter(|field| stream.from[*field] == *column)
                .map(|field| (field, stream.fields[field].kind))
                .collect(),
            time: stream.time.as_ref().filter(|time| time.from == *column).map(|time| time.format),
        });
        Some(CsvParser {
            delimiter: *delimiter,
            columns: uses.collect(),
            has_time: stream.time.is_some(),
            unquoted: Vec::new(),
        })
    }

    /// Parses a frame, and adds its event.
    ///
    /// # Errors
    /// The reason why the frame is no event.
    pub fn parse(&mut self, frame: &[u8], events: &mut Events) -> Result<(), &'static str> {
        events.begin();
        let mut time_ms = if self.has_time { None } else { Some(0) };
        let mut rest = Some(frame);
        for column in &self.columns {
            let text = rest.ok_or(COLUMNS)?;
            let (plain, after) = take(text, self.delimiter, &mut self.unquoted)?;
            let value = plain.unwrap_or(&self.unquoted);
            rest = after;
            for (field, kind) in &column.fields {
                events.set(*field, scalar::of_text(*kind, value)?);
            }
            if let Some(format) = column.time {
                time_ms = Some(scalar::time_of_text(format, value)?);
            }
        }
        match rest {
            None => events.end(time_ms.ok_or(scalar::NO_TIME)?),
            Some(_) => return Err(COLUMNS),
        }
        Ok(())
    }
}

/// A value, if it is not in quotes, and the text behind its delimiter, if there is one.
type Taken<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Takes the value at the front. A value in quotes is put into `unquoted`.
fn take<'a>(
    text: &'a [u8],
    delimiter: u8,
    unquoted: &mut Vec<u8>,
) -> Result<Taken<'a>, &'static str> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        return Ok(match memchr(delimiter, text) {
            Some(end) => (Some(&text[..end]), Some(&text[end + 1..])),
            None => (Some(text), None),
        });
    };
    unquoted.clear();
    let mut rest = quoted;
    loop {
        let end = memchr(b'"', rest).ok_or(QUOTES)?;
        unquoted.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest {
            [] => return Ok((None, None)),
            [b'"', after @ ..] => {
                unquoted.push(b'"');
                rest = after;
            }
            [byte, after @ ..] if *byte == delimiter => return Ok((None, Some(after))),
            _ => return Err(QUOTES),
        }
    }
}
