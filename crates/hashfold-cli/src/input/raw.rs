//! Raw input, records of: key length and value length as little-endian `u32`, key, value.

use super::{
    Format, Reader,
    bad_rows::Head,
    selection::Selection,
    sink::{Flaw, Sink},
    source::Meter,
    window::Window,
};
use crate::failure::{Failure, Result};
use hashfold::{
    codec::Decoder,
    run::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
};
use hashfold_rows::{KeyType, Schema};

/// Reads one raw input.
pub(crate) struct RawReader {
    window: Window,
    schema: Schema,
    /// The number of the next record, from 1 on.
    record: u64,
}

const HEAD_BYTES: usize = 8;

impl RawReader {
    pub(crate) fn open(path: &str, selection: &Selection, meter: &Meter) -> Result<RawReader> {
        let schema = Schema::unnamed();
        selection.check_unnamed(path)?;
        let what = match () {
            () if selection.key.is_some() || !selection.values.is_empty() => {
                "leave --key and --value out"
            }
            () if !selection.markers.is_empty() => "none can say which keys are to be deleted",
            () => "",
        };
        if !what.is_empty() {
            return Err(Failure::usage(format!("{path}: raw input has no columns; {what}")));
        }
        let window = Window::open(path, meter)?;
        Ok(RawReader { window, schema, record: 1 })
    }

    /// Reads the complete records in the window; returns their length.
    fn read_window(&mut self, sink: &mut Sink) -> Result<usize> {
        let mut decoder = Decoder::new(self.window.bytes());
        let mut used = 0;
        while let Some((key, value)) = take_record(&mut decoder) {
            let outcome = sink.push(key, |out| {
                out.extend_from_slice(value);
                Ok(())
            });
            let end = self.window.bytes().len() - decoder.rest().len();
            sink.end_row(&self.window.file, self.record, outcome, &self.window.bytes()[used..end])?;
            self.record += 1;
            used = end;
        }
        Ok(used)
    }

    /// Refuses a record that is incomplete or too long. The rest of the input can't be read, because
    /// its lengths can't be trusted.
    fn check_rest(&mut self, sink: &mut Sink) -> Result<()> {
        let rest = self.window.bytes();
        let reason = match Decoder::new(rest).array::<HEAD_BYTES>().map(lengths) {
            Ok((key, _)) if key > KEY_BYTES_MAX => {
                format!("the key is {key} bytes long, the longest accepted is {KEY_BYTES_MAX}")
            }
            Ok((_, value)) if value > VALUE_BYTES_MAX => format!(
                "the value is {value} bytes long, the longest accepted is {VALUE_BYTES_MAX}"
            ),
            _ if rest.is_empty() || !self.window.at_end => return Ok(()),
            _ => "the record is cut short".to_string(),
        };
        sink.end_row(&self.window.file, self.record, Err(Flaw::new(reason)), b"")?;
        self.window.close();
        Ok(())
    }
}

impl Reader for RawReader {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn head(&self) -> Head {
        Head { format: Format::Raw, header: Vec::new() }
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        sink.keys.add(KeyType::Text);
        sink.fill(0);
        loop {
            let used = self.read_window(sink)?;
            self.window.consume(used);
            self.check_rest(sink)?;
            if !self.window.fill(self.record)? {
                return Ok(());
            }
        }
    }
}

/// Takes the next record if it is complete.
fn take_record<'a>(decoder: &mut Decoder<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let mut ahead = decoder.clone();
    let (key, value) = lengths(ahead.array().ok()?);
    let record = (ahead.bytes(key as u64).ok()?, ahead.bytes(value as u64).ok()?);
    *decoder = ahead;
    Some(record)
}

fn lengths(head: [u8; HEAD_BYTES]) -> (usize, usize) {
    let (key, value) = head.split_at(HEAD_BYTES / 2);
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("half of the head"));
    (number(key) as usize, number(value) as usize)
}
