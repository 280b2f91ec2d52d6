//! Definitions of summaries: fields, rules, groups, aggregates and windows.

use super::events::{Events, Value};
use crate::{
    error::{Error, ErrorKind, Result},
    sketch::{PRECISION_MAX, PRECISION_MIN},
};

/// Precision of the sketches of [`Aggregate::Distinct`] unless the definition says otherwise: an error of 1.6 %, and
/// up to 4 KiB in each group.
pub const DISTINCT_PRECISION: u8 = 12;
/// Size of the longest group, all fields together, in bytes.
pub const GROUP_BYTES_MAX: usize = 8 << 10;
/// Number of groups of a summary, in all open windows, unless the definition says otherwise.
const GROUPS_MAX: usize = 1_000_000;
/// Largest number of values that [`Aggregate::Top`] returns.
const TOP_MAX: usize = 1000;
/// Largest number of bounds of a histogram.
const BOUNDS_MAX: usize = 1000;

/// A field of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field, for messages and columns.
    pub name: String,
    /// Kind of its values.
    pub kind: FieldKind,
}

impl Field {
    /// Makes a field.
    pub fn new(name: &str, kind: FieldKind) -> Field {
        Field { name: name.into(), kind }
    }
}

/// The kind of the values of a field, each of which may also be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Integers of 64 bits.
    Int,
    /// Numbers of IEEE 754, which are finite.
    Float,
    /// Text.
    Text,
}

/// A condition that an event must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the field.
    pub field: usize,
    /// Test of its value.
    pub test: Test,
}

/// The test of a [`Rule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value is one of these texts; an integer is compared as decimal text. Null is the empty text.
    In(Vec<Vec<u8>>),
    /// The value is none of these texts.
    NotIn(Vec<Vec<u8>>),
    /// The value is not null.
    Present,
    /// The number is at least this; null and text are not.
    AtLeast(i64),
}

impl Rule {
    /// Returns whether an event meets the condition.
    pub fn matches(&self, events: &Events, event: usize) -> bool {
        let value = events.get(event, self.field);
        match &self.test {
            Test::In(texts) => is_in(value, texts),
            Test::NotIn(texts) => !is_in(value, texts),
            Test::Present => value != Value::Null,
            Test::AtLeast(least) => match value {
                Value::Int(value) => value >= *least,
                Value::Float(value) => value >= *least as f64,
                Value::Null | Value::Text(_) => false,
            },
        }
    }
}

fn is_in(value: Value<'_>, texts: &[Vec<u8>]) -> bool {
    match value {
        Value::Null => texts.iter().any(Vec::is_empty),
        Value::Text(text) => texts.iter().any(|one| one == text),
        Value::Int(value) => texts.iter().any(|one| *one == value.to_string().into_bytes()),
        Value::Float(value) => texts.iter().any(|one| *one == value.to_string().into_bytes()),
    }
}

/// An aggregate of the events of a group. Fields are given by their numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Aggregate {
    /// Number of events.
    Count,
    /// Sum of a field of numbers. One beyond the integers or floats of 64 bits is null, and counted
    /// ([`SummaryStats::overflows`](super::SummaryStats::overflows)).
    Sum(usize),
    /// Smallest number; null if there is none.
    Min(usize),
    /// Largest number; null if there is none.
    Max(usize),
    /// Estimated number of distinct values that are not null.
    Distinct {
        /// The field.
        field: usize,
        /// Precision of the sketch, 4 to 18.
        precision: u8,
    },
    /// The most frequent values that are not null.
    Top {
        /// The field, of text or integers.
        field: usize,
        /// Number of values to return, 1 to 1000.
        count: usize,
    },
    /// Quantiles of a field of numbers, with a relative error of at most [`RELATIVE_ERROR`](super::RELATIVE_ERROR).
    Quantiles {
        /// The field.
        field: usize,
        /// The quantiles, each from 0 to 1.
        at: Vec<f64>,
    },
    /// Numbers of values below each bound, from the bound before on; the last number is of values from the last bound on.
    Histogram {
        /// The field, of numbers.
        field: usize,
        /// Bounds, ascending.
        bounds: Vec<f64>,
    },
}

impl Aggregate {
    /// Returns the number of the aggregated field; none for [`Aggregate::Count`].
    pub fn field(&self) -> Option<usize> {
        match self {
            Aggregate::Count => None,
            Aggregate::Sum(field) | Aggregate::Min(field) | Aggregate::Max(field) => Some(*field),
            Aggregate::Distinct { field, .. }
            | Aggregate::Top { field, .. }
            | Aggregate::Quantiles { field, .. }
            | Aggregate::Histogram { field, .. } => Some(*field),
        }
    }

    fn check(&self, fields: &[Field]) -> Result<()> {
        let kind = self
            .field()
            .map(|field| field_of(fields, field).map(|field| field.kind))
            .transpose()?;
        let is_number = kind != Some(FieldKind::Text);
        let wrong = |expected: &str, got: String| Err(Error::argument("aggregate", expected, got));
        match self {
            Aggregate::Count => Ok(()),
            Aggregate::Distinct { precision, .. } => {
                match (PRECISION_MIN..=PRECISION_MAX).contains(precision) {
                    true => Ok(()),
                    false => wrong("a precision of 4 to 18", precision.to_string()),
                }
            }
            Aggregate::Top { count, .. } => match (1..=TOP_MAX).contains(count) {
                true if kind != Some(FieldKind::Float) => Ok(()),
                true => wrong("a field of text or integers", "one of floats".into()),
                false => wrong("1 to 1000 values", count.to_string()),
            },
            _ if !is_number => wrong("a field of numbers", "one of text".into()),
            Aggregate::Quantiles { at, .. } => {
                match at.iter().find(|at| !(0.0..=1.0).contains(*at)) {
                    None if !at.is_empty() => Ok(()),
                    None => wrong("a quantile", "none".into()),
                    Some(at) => wrong("quantiles from 0 to 1", at.to_string()),
                }
            }
            Aggregate::Histogram { bounds, .. } => {
                let is_good = !bounds.is_empty()
                    && bounds.len() <= BOUNDS_MAX
                    && bounds.iter().all(|bound| bound.is_finite())
                    && bounds.windows(2).all(|pair| pair[0] < pair[1]);
                if is_good {
                    Ok(())
                } else {
                    wrong("1 to 1000 bounds that ascend", format!("{bounds:?}"))
                }
            }
            Aggregate::Sum(_) | Aggregate::Min(_) | Aggregate::Max(_) => Ok(()),
        }
    }
}

pub(super) fn field_of(fields: &[Field], field: usize) -> Result<&Field> {
    let expected = || format!("less than {}", fields.len());
    fields.get(field).ok_or_else(|| Error::argument("number of a field", expected(), field))
}

/// Adds to an error about an argument which definition is wrong: "summary" or "chains", and its name.
pub(super) fn in_definition(error: Error, what: &str, name: &str) -> Error {
    match error.kind() {
        ErrorKind::Argument { what: argument, expected, got } => Error::new(ErrorKind::Argument {
            what: argument,
            expected: expected.clone(),
            got: format!("{got} in the {what} \"{name}\""),
        }),
        _ => error,
    }
}

/// A column of a summary: an aggregate and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Aggregate of each group.
    pub aggregate: Aggregate,
}

impl Column {
    /// Makes a column.
    pub fn new(name: &str, aggregate: Aggregate) -> Column {
        Column { name: name.into(), aggregate }
    }
}

/// A summary: which events it takes, their groups, and what is computed of each group in each window of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Name, for messages.
    pub name: String,
    /// Conditions that an event must meet, all of them.
    pub rules: Vec<Rule>,
    /// Numbers of the fields whose values make a group; all events are one group if there is none.
    pub group_by: Vec<usize>,
    /// Columns of a group.
    pub columns: Vec<Column>,
    /// Length of a window, in milliseconds; without one, all events are in one window.
    pub window_ms: Option<i64>,
    /// Time by which the clock of the stream must be past the end of a window before the window ends, in milliseconds.
    pub lateness_ms: i64,
    /// Maximum number of groups in all open windows. Events of further groups are counted and not summarised.
    pub groups_max: usize,
}

impl Summary {
    /// Makes a summary of all events as one group in one window.
    pub fn new(name: &str, columns: Vec<Column>) -> Summary {
        Summary {
            name: name.into(),
            rules: Vec::new(),
            group_by: Vec::new(),
            columns,
            window_ms: None,
            lateness_ms: 0,
            groups_max: GROUPS_MAX,
        }
    }

    /// Sets the conditions of events.
    #[must_use]
    pub fn rules(self, rules: Vec<Rule>) -> Summary {
        Summary { rules, ..self }
    }

    /// Sets the fields whose values make a group, at least one of text or integers.
    #[must_use]
    pub fn group_by(self, group_by: Vec<usize>) -> Summary {
        Summary { group_by, ..self }
    }

    /// Sets the length of windows and the allowed lateness, in milliseconds.
    #[must_use]
    pub fn windows(self, window_ms: i64, lateness_ms: i64) -> Summary {
        Summary { window_ms: Some(window_ms), lateness_ms, ..self }
    }

    /// Sets the maximum number of groups in all open windows.
    #[must_use]
    pub fn groups_max(self, groups_max: usize) -> Summary {
        Summary { groups_max, ..self }
    }

    /// Checks the definition against the fields of the events.
    ///
    /// # Errors
    /// `Argument`: a field that does not exist or is of the wrong kind, or a number out of its range.
    pub fn check(&self, fields: &[Field]) -> Result<()> {
        let check = || {
            self.rules.iter().try_for_each(|rule| field_of(fields, rule.field).map(drop))?;
            for field in &self.group_by {
                if field_of(fields, *field)?.kind == FieldKind::Float {
                    return Err(Error::argument("field of a group", "text or integers", "floats"));
                }
            }
            self.columns.iter().try_for_each(|column| column.aggregate.check(fields))?;
            if self.columns.is_empty() {
                return Err(Error::argument("number of columns", "1 or more", 0));
            }
            match self.window_ms {
                Some(..1) => Err(Error::argument(
                    "length of a window in ms",
                    "1 or more",
                    self.window_ms.unwrap_or(0),
                )),
                _ if self.lateness_ms < 0 => {
                    Err(Error::argument("lateness in ms", "0 or more", self.lateness_ms))
                }
                _ => Ok(()),
            }
        };
        check().map_err(|error| in_definition(error, "summary", &self.name))
    }

    /// Returns whether the summary depends on a field.
    pub(super) fn uses(&self, field: usize) -> bool {
        self.group_by.contains(&field)
            || self.rules.iter().any(|rule| rule.field == field)
            || self.columns.iter().any(|column| column.aggregate.field() == Some(field))
    }

    /// Returns whether the summary takes an event.
    pub fn takes(&self, events: &Events, event: usize) -> bool {
        self.rules.iter().all(|rule| rule.matches(events, event))
    }
}
