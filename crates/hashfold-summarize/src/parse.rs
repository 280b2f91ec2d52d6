//! From frames to events: the envelope, then the format.

use crate::{
    config::{Envelope, Stream},
    csv::CsvParser,
    json::JsonParser,
    syslog,
};
use hashfold::pipeline::{Events, Parser};

/// The parser of a stream's frames.
#[derive(Clone, Debug)]
pub struct FrameParser {
    envelope: Envelope,
    format: FormatParser,
}

#[derive(Clone, Debug)]
enum FormatParser {
    Csv(CsvParser),
    Json(JsonParser),
}

impl FrameParser {
    /// Makes the parser of a stream.
    pub fn new(stream: &Stream) -> FrameParser {
        let csv = CsvParser::new(stream).map(FormatParser::Csv);
        let json = || JsonParser::new(stream).map(FormatParser::Json);
        let format = csv.or_else(json).expect("a stream has one of the formats");
        FrameParser { envelope: stream.envelope, format }
    }
}

impl Parser for FrameParser {
    fn parse(&mut self, frame: &[u8], events: &mut Events) -> Result<(), &'static str> {
        let event = match self.envelope {
            Envelope::None => frame,
            Envelope::Syslog => syslog::message(frame)?,
        };
        match &mut self.format {
            FormatParser::Csv(parser) => parser.parse(event, events),
            FormatParser::Json(parser) => parser.parse(event, events),
        }
    }
}
