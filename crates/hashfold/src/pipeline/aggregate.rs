//! The state of an aggregate of one group, from event to event.

use super::{
    budget::ALLOCATION_BYTES,
    definition::{Aggregate, FieldKind},
    events::Value,
    histogram::LogHistogram,
    stats::take_count,
    top::{Top, TopItem},
};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, Result},
    sketch::Hll,
};

/// The result of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// There is no result: no value came, or a sum is beyond the numbers of 64 bits.
    Null,
    /// Result of [`Aggregate::Count`], and the rounded estimate of [`Aggregate::Distinct`].
    Uint(u64),
    /// Result of a field of integers.
    Int(i64),
    /// Result of a field of floats, a finite number.
    Float(f64),
    /// Quantiles, in the order of the definition.
    Floats(Vec<f64>),
    /// Numbers of values of a histogram, one more than bounds.
    Counts(Vec<u64>),
    /// Frequent values, the most frequent first.
    Top(Vec<TopItem>),
}

/// A number of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

/// The state of an aggregate. Its variant is that of the [`Aggregate`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Count(u64),
    IntSum(i128),
    FloatSum(f64),
    Extreme(Option<Number>),
    Distinct(Box<Hll>),
    Top(Box<Top>),
    Quantiles(Box<LogHistogram>),
    Histogram(Box<[u64]>),
}

impl State {
    /// Makes the state of no events; `kind` is that of the aggregated field.
    pub(super) fn new(aggregate: &Aggregate, kind: FieldKind) -> State {
        match aggregate {
            Aggregate::Count => State::Count(0),
            Aggregate::Sum(_) if kind == FieldKind::Float => State::FloatSum(0.0),
            Aggregate::Sum(_) => State::IntSum(0),
            Aggregate::Min(_) | Aggregate::Max(_) => State::Extreme(None),
            Aggregate::Distinct { precision, .. } => {
                State::Distinct(Box::new(Hll::new(*precision).expect("the precision was checked")))
            }
            Aggregate::Top { .. } => State::Top(Box::new(Top::new())),
            Aggregate::Quantiles { .. } => State::Quantiles(Box::default()),
            Aggregate::Histogram { bounds, .. } => {
                State::Histogram(vec![0; bounds.len() + 1].into())
            }
        }
    }

    /// Adds the value of an event; null for [`Aggregate::Count`].
    #[inline]
    pub(super) fn add(&mut self, aggregate: &Aggregate, value: Value<'_>) {
        match (self, value) {
            (State::Count(count), _) => *count += 1,
            (_, Value::Null) => {}
            (State::IntSum(sum), Value::Int(value)) => *sum += i128::from(value),
            (State::FloatSum(sum), Value::Float(value)) => *sum += value,
            (State::FloatSum(sum), Value::Int(value)) => *sum += value as f64,
            (State::Extreme(extreme), Value::Int(value)) => {
                let is_max = matches!(aggregate, Aggregate::Max(_));
                keep(extreme, Number::Int(value), is_max);
            }
            (State::Extreme(extreme), Value::Float(value)) => {
                let is_max = matches!(aggregate, Aggregate::Max(_));
                keep(extreme, Number::Float(value), is_max);
            }
            (State::Distinct(sketch), value) => {
                with_text(value, |text| {
                    sketch.insert(text);
                });
            }
            (State::Top(top), value) => {
                let Aggregate::Top { count, .. } = aggregate else { return };
                with_text(value, |text| top.insert(text, *count));
            }
            (State::Quantiles(histogram), value) => {
                if let Some(value) = float(value) {
                    histogram.insert(value);
                }
            }
            (State::Histogram(counts), value) => {
                let Aggregate::Histogram { bounds, .. } = aggregate else { return };
                if let Some(value) = float(value) {
                    counts[bounds.partition_point(|bound| *bound <= value)] += 1;
                }
            }
            // The kinds of fields were checked: a parser gives no other value.
            (State::IntSum(_) | State::FloatSum(_) | State::Extreme(_), _) => {}
        }
    }

    /// Returns the memory of what the state has outside of itself, in bytes, as a budget counts it.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        match self {
            State::Count(_) | State::IntSum(_) | State::FloatSum(_) | State::Extreme(_) => 0,
            State::Distinct(sketch) => boxed::<Hll>() + ALLOCATION_BYTES + sketch.bytes() as u64,
            State::Top(top) => boxed::<Top>() + top.bytes(),
            State::Quantiles(histogram) => boxed::<LogHistogram>() + histogram.bytes(),
            State::Histogram(counts) => size_of_val(&**counts) as u64 + ALLOCATION_BYTES,
        }
    }

    /// Returns the most bytes by which a value can let the state of an aggregate grow.
    pub(super) fn growth_max(aggregate: &Aggregate) -> u64 {
        match aggregate {
            // A list of registers, beside the larger one that it is copied to.
            Aggregate::Distinct { precision, .. } => 1 << precision,
            Aggregate::Top { .. } => Top::GROWTH_MAX,
            Aggregate::Quantiles { .. } => LogHistogram::BUCKET_BYTES,
            Aggregate::Count
            | Aggregate::Sum(_)
            | Aggregate::Min(_)
            | Aggregate::Max(_)
            | Aggregate::Histogram { .. } => 0,
        }
    }

    /// Returns whether a value may let the state grow.
    pub(super) fn may_grow(&self, aggregate: &Aggregate, value: Value<'_>) -> bool {
        match (self, value) {
            (_, Value::Null) => false,
            // A list of registers is smaller than all registers, and may grow with any value.
            (State::Distinct(sketch), _) => sketch.bytes() < sketch.register_count(),
            (State::Top(top), value) => {
                let Aggregate::Top { count, .. } = aggregate else { return false };
                let mut may_grow = false;
                with_text(value, |text| may_grow = top.may_grow(text, *count));
                may_grow
            }
            (State::Quantiles(histogram), value) => {
                float(value).is_some_and(|value| histogram.may_grow(value))
            }
            _ => false,
        }
    }

    /// Returns the result.
    pub(super) fn output(&self, aggregate: &Aggregate) -> Output {
        match (self, aggregate) {
            (State::Count(count), _) => Output::Uint(*count),
            (State::IntSum(sum), _) => i64::try_from(*sum).map_or(Output::Null, Output::Int),
            // JSON and SQL have no infinity, and what comes after it says nothing.
            (State::FloatSum(sum), _) if !sum.is_finite() => Output::Null,
            (State::FloatSum(sum), _) => Output::Float(*sum),
            (State::Extreme(None), _) => Output::Null,
            (State::Extreme(Some(Number::Int(value))), _) => Output::Int(*value),
            (State::Extreme(Some(Number::Float(value))), _) => Output::Float(*value),
            (State::Distinct(sketch), _) => Output::Uint(sketch.estimate().round() as u64),
            (State::Top(top), Aggregate::Top { count, .. }) => Output::Top(top.items(*count)),
            (State::Quantiles(histogram), Aggregate::Quantiles { at, .. }) => {
                let values: Option<Vec<f64>> =
                    at.iter().map(|at| histogram.quantile(*at)).collect();
                values.map_or(Output::Null, Output::Floats)
            }
            (State::Histogram(counts), _) => Output::Counts(counts.to_vec()),
            (State::Top(_) | State::Quantiles(_), _) => {
                unreachable!("the state is of the aggregate")
            }
        }
    }

    /// Whether the state is a sum beyond the numbers of 64 bits, whose result is null.
    pub(super) fn is_overflow(&self) -> bool {
        match self {
            State::IntSum(sum) => i64::try_from(*sum).is_err(),
            State::FloatSum(sum) => !sum.is_finite(),
            _ => false,
        }
    }

    /// Appends the state to a checkpoint; [`State::take`] reads it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            State::Count(count) => put_varint(out, *count),
            State::IntSum(sum) => out.extend(sum.to_le_bytes()),
            State::FloatSum(sum) => out.extend(sum.to_bits().to_le_bytes()),
            State::Extreme(None) => out.push(0),
            State::Extreme(Some(Number::Int(value))) => {
                out.push(1);
                out.extend(value.to_le_bytes());
            }
            State::Extreme(Some(Number::Float(value))) => {
                out.push(2);
                out.extend(value.to_bits().to_le_bytes());
            }
            State::Distinct(sketch) => put_bytes(out, &sketch.to_bytes()),
            State::Top(top) => top.put(out),
            State::Quantiles(histogram) => histogram.put(out),
            State::Histogram(counts) => counts.iter().for_each(|count| put_varint(out, *count)),
        }
    }

    /// Takes the state of an aggregate off a checkpoint.
    pub(super) fn take(
        aggregate: &Aggregate,
        kind: FieldKind,
        fields: &mut Decoder<'_>,
    ) -> Result<State> {
        let mut state = State::new(aggregate, kind);
        match &mut state {
            State::Count(count) => *count = take_count(fields)?,
            State::IntSum(sum) => {
                *sum = i128::from_le_bytes(fields.array()?);
                if sum.unsigned_abs() >> 126 != 0 {
                    return Err(Error::field("sum in a checkpoint", "less than 2^126", *sum));
                }
            }
            State::FloatSum(sum) => *sum = f64::from_bits(fields.u64()?),
            State::Extreme(extreme) => {
                *extreme = match fields.u8()? {
                    0 => None,
                    1 => Some(Number::Int(fields.u64()? as i64)),
                    2 => Some(Number::Float(f64::from_bits(fields.u64()?))),
                    other => return Err(Error::field("kind of a number", "0 to 2", other)),
                }
            }
            State::Distinct(sketch) => {
                let read = Hll::from_bytes(fields.sized_bytes()?)?;
                if read.precision() != sketch.precision() || read.family() != sketch.family() {
                    let expected = sketch.precision().to_string();
                    return Err(Error::field("precision of a sketch", expected, read.precision()));
                }
                **sketch = read;
            }
            State::Top(top) => {
                let Aggregate::Top { count, .. } = aggregate else { unreachable!("it is of Top") };
                **top = Top::take(fields, *count)?;
            }
            State::Quantiles(histogram) => **histogram = LogHistogram::take(fields)?,
            State::Histogram(counts) => {
                for count in counts {
                    *count = take_count(fields)?;
                }
            }
        }
        Ok(state)
    }
}

/// Returns the memory of a boxed value, in bytes.
const fn boxed<T>() -> u64 {
    size_of::<T>() as u64 + ALLOCATION_BYTES
}

fn keep(extreme: &mut Option<Number>, value: Number, is_max: bool) {
    let is_better = match (*extreme, value) {
        (None, _) => true,
        (Some(Number::Int(known)), Number::Int(value)) => {
            (value > known) == is_max && value != known
        }
        (Some(known), value) => {
            let (known, value) = (as_f64(known), as_f64(value));
            if is_max { value > known } else { value < known }
        }
    };
    if is_better {
        *extreme = Some(value);
    }
}

fn as_f64(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

fn float(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Int(value) => Some(value as f64),
        Value::Float(value) => Some(value),
        Value::Null | Value::Text(_) => None,
    }
}

/// Calls `use_text` with the text of a value that is not null: the decimal text of a number.
fn with_text(value: Value<'_>, use_text: impl FnOnce(&[u8])) {
    match value {
        Value::Null => {}
        Value::Text(text) => use_text(text),
        Value::Int(value) => use_text(value.to_string().as_bytes()),
        Value::Float(value) => use_text(value.to_string().as_bytes()),
    }
}
