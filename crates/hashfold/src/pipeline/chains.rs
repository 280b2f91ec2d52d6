//! Definitions of chains: users, their touches and conversions, and the models that share out conversions.

use super::{
    definition::{Field, FieldKind, Rule, field_of, in_definition},
    events::{Events, TIME_MS_MAX},
    model::{LastTouch, Model},
};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Maximum number of touches in a chain, and the default.
pub const TOUCHES_MAX: usize = 4096;
const TOUCHES: usize = 100;
/// Maximum age of a touch unless the definition says otherwise, in milliseconds: 30 days.
const AGE_MS: i64 = 30 * 86_400_000;
/// Memory of chains unless the definition says otherwise, and the least, in bytes.
const MEMORY_BYTES: u64 = 256 << 20;
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of channel fields and of models.
const PARTS_MAX: usize = 16;

/// The fields that credits have beside those of events, in this order.
pub(super) const CREDIT_FIELDS: [(&str, FieldKind); 6] = [
    ("model", FieldKind::Text),
    ("credit", FieldKind::Int),
    ("credit_value", FieldKind::Int),
    ("touch_age", FieldKind::Int),
    ("touch_number", FieldKind::Int),
    ("touches", FieldKind::Int),
];

/// Chains: the touches of each user in the order of their arrival, which share the credit for the user's conversions.
///
/// A chain has the last [`touches_max`](Chains::touches_max) touches that arrived. A conversion is handed to each model with those
/// touches of the chain that are not later than it, and not older than it by more than [`age_ms_max`](Chains::age_ms_max). Touches
/// that no conversion can use any more are removed.
///
/// The results are *credits*, which are events for summaries. A credit has the time and the fields of the conversion, but
/// the channel of the touch, and these fields:
///
/// | field          | kind    |                                                                      |
/// |----------------|---------|----------------------------------------------------------------------|
/// | `model`        | text    | name of the model                                                    |
/// | `credit`       | integer | the part of the conversion, in units of 1 / [`CREDIT_WHOLE`](super::CREDIT_WHOLE) |
/// | `credit_value` | integer | the part of the conversion's value; null if it has none              |
/// | `touch_age`    | integer | time from the touch to the conversion, in milliseconds               |
/// | `touch_number` | integer | place of the touch among those of the conversion, from 1             |
/// | `touches`      | integer | number of touches of the conversion                                  |
///
/// The credits of a conversion, for each model, have exactly the whole as their sum. A conversion without a touch has
/// one credit without a channel, `touch_age` and `touch_number`.
#[derive(Clone, Debug)]
pub struct Chains {
    /// Name, for messages.
    pub name: String,
    /// Number of the field with the user, of text or integers. Events without a user are counted.
    pub user: usize,
    /// Numbers of the fields that say which touch it is, such as channel and campaign, of text or integers.
    pub channel: Vec<usize>,
    /// Conditions that a touch must meet, all of them.
    pub touch: Vec<Rule>,
    /// Conditions that a conversion must meet, all of them, at least one. An event that is a touch, too, can be credited to
    /// itself.
    pub conversion: Vec<Rule>,
    /// Number of the field of integers whose value in a conversion is shared out.
    pub value: Option<usize>,
    /// Maximum age of a touch when the conversion happens, in milliseconds.
    pub age_ms_max: i64,
    /// Maximum number of touches in a chain.
    pub touches_max: usize,
    /// Time by which a conversion can be behind the clock of the stream, in milliseconds. Later ones are counted and not
    /// shared out.
    pub lateness_ms: i64,
    /// Whether a conversion ends the chain: the next one has only touches that arrive later.
    pub restarts: bool,
    /// The models, with different names.
    pub models: Vec<Arc<dyn Model>>,
    /// Maximum memory of all chains, in bytes, a part of the [memory](super::PipelineOptions::memory) of the pipeline. When
    /// either is exhausted, the pipeline ends with an error.
    pub memory_bytes: u64,
    /// Time between two dumps, in milliseconds: a dump is made when the clock of the stream passes a multiple of it
    /// since 1970.
    pub dump_ms: Option<i64>,
}

impl Chains {
    /// Makes chains of all events of each user, of 30 days, with the model [`LastTouch`] and no conversions.
    pub fn new(name: &str, user: usize, channel: Vec<usize>) -> Chains {
        Chains {
            name: name.into(),
            user,
            channel,
            touch: Vec::new(),
            conversion: Vec::new(),
            value: None,
            age_ms_max: AGE_MS,
            touches_max: TOUCHES,
            lateness_ms: 0,
            restarts: false,
            models: vec![Arc::new(LastTouch)],
            memory_bytes: MEMORY_BYTES,
            dump_ms: None,
        }
    }

    /// Returns the fields of credits, for events with `fields`.
    pub fn credit_fields(&self, fields: &[Field]) -> Vec<Field> {
        let added = CREDIT_FIELDS.iter().map(|(name, kind)| Field::new(name, *kind));
        fields.iter().cloned().chain(added).collect()
    }

    /// Checks the definition against the fields of the events.
    ///
    /// # Errors
    /// `Argument`: a field that does not exist or is of the wrong kind, or a number out of its range.
    pub fn check(&self, fields: &[Field]) -> Result<()> {
        let checked = self.check_fields(fields).and_then(|()| self.check_numbers());
        checked.map_err(|error| in_definition(error, "chains", &self.name))
    }

    fn check_fields(&self, fields: &[Field]) -> Result<()> {
        let rules = self.touch.iter().chain(&self.conversion);
        rules.into_iter().try_for_each(|rule| field_of(fields, rule.field).map(drop))?;
        for field in self.channel.iter().chain([&self.user]) {
            if field_of(fields, *field)?.kind == FieldKind::Float {
                return Err(Error::argument("user or channel", "text or integers", "floats"));
            }
        }
        if let Some(value) = self.value
            && field_of(fields, value)?.kind != FieldKind::Int
        {
            let name = &fields[value].name;
            let expected = "a field of integers, such as cents";
            return Err(Error::argument("value of conversions", expected, format!("\"{name}\"")));
        }
        let taken = CREDIT_FIELDS.iter().find(|(name, _)| fields.iter().any(|f| f.name == *name));
        match taken {
            Some((name, _)) => {
                let expected = "another, since credits have a field of this name";
                Err(Error::argument("name of a field", expected, format!("\"{name}\"")))
            }
            None => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<()> {
        let within = |what, got: u64, min: u64, max: u64| match (min..=max).contains(&got) {
            true => Ok(()),
            false => Err(Error::argument(what, format!("{min} to {max}"), got)),
        };
        let time = |what, got: i64, min: i64| match (min..=TIME_MS_MAX).contains(&got) {
            true => Ok(()),
            false => Err(Error::argument(what, format!("{min} to {TIME_MS_MAX}"), got)),
        };
        within("number of channel fields", self.channel.len() as u64, 1, PARTS_MAX as u64)?;
        within("number of models", self.models.len() as u64, 1, PARTS_MAX as u64)?;
        within("number of touches", self.touches_max as u64, 1, TOUCHES_MAX as u64)?;
        within("memory of chains in bytes", self.memory_bytes, MEMORY_BYTES_MIN, u64::MAX)?;
        time("age of touches in ms", self.age_ms_max, 1)?;
        time("lateness in ms", self.lateness_ms, 0)?;
        time("time between dumps in ms", self.dump_ms.unwrap_or(1), 1)?;
        if self.conversion.is_empty() {
            return Err(Error::argument("number of conditions of a conversion", "1 or more", 0));
        }
        let mut names: Vec<&str> = self.models.iter().map(|model| model.name()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let got = format!("\"{}\" twice", pair[0]);
                Err(Error::argument("models", "ones with different names", got))
            }
            None => Ok(()),
        }
    }

    /// Returns whether an event is a touch.
    pub fn is_touch(&self, events: &Events, event: usize) -> bool {
        self.touch.iter().all(|rule| rule.matches(events, event))
    }

    /// Returns whether an event is a conversion.
    pub fn is_conversion(&self, events: &Events, event: usize) -> bool {
        self.conversion.iter().all(|rule| rule.matches(events, event))
    }

    /// Returns the time from which on touches can still be used when the clock is at `now_ms`.
    pub(super) fn oldest_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.lateness_ms).saturating_sub(self.age_ms_max)
    }
}
