//! Parsed events: typed fields in one buffer.

/// The largest distance of an event's time from 1970, in milliseconds: about 285,000 years.
pub const TIME_MS_MAX: i64 = 1 << 53;

/// The value of a field of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// An integer.
    Int(i64),
    /// A number of IEEE 754.
    Float(f64),
    /// Bytes, mostly UTF-8 text.
    Text(&'a [u8]),
}

/// A value whose bytes are elsewhere.
#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Int(i64),
    Float(f64),
    /// Start and length in the bytes of the events.
    Text(usize, usize),
}

/// The events of a batch: a row of fields for each, and its time.
#[derive(Clone, Debug)]
pub struct Events {
    width: usize,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
    times: Vec<i64>,
}

impl Events {
    /// Makes a buffer for events of `width` fields.
    pub fn new(width: usize) -> Events {
        Events { width, cells: Vec::new(), bytes: Vec::new(), times: Vec::new() }
    }

    /// Begins an event, all of whose fields are null. An event that was begun and not ended is dropped.
    pub fn begin(&mut self) {
        self.cells.truncate(self.times.len() * self.width);
        self.cells.resize((self.times.len() + 1) * self.width, Cell::Null);
    }

    /// Sets a field of the event that was begun; the last value of a field counts.
    ///
    /// # Panics
    /// If no event was begun, or it has no such field.
    pub fn set(&mut self, field: usize, value: Value<'_>) {
        assert!(field < self.width, "the event has {} fields", self.width);
        let cell = match value {
            Value::Null => Cell::Null,
            Value::Int(value) => Cell::Int(value),
            Value::Float(value) => Cell::Float(value),
            Value::Text(text) => {
                self.bytes.extend_from_slice(text);
                Cell::Text(self.bytes.len() - text.len(), text.len())
            }
        };
        self.cells[self.times.len() * self.width + field] = cell;
    }

    /// Ends the event. `time_ms` is its time in milliseconds since 1970; times beyond [`TIME_MS_MAX`] count as that.
    pub fn end(&mut self, time_ms: i64) {
        self.times.push(time_ms.clamp(-TIME_MS_MAX, TIME_MS_MAX));
        assert!(self.cells.len() == self.times.len() * self.width, "an event was begun");
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns a field of an event that was ended.
    ///
    /// # Panics
    /// If there is no such event or field.
    #[inline]
    pub fn get(&self, event: usize, field: usize) -> Value<'_> {
        assert!(field < self.width && event < self.times.len(), "there is such a field");
        self.cell(self.cells[event * self.width + field])
    }

    /// Returns a field of the event that was begun and is not ended.
    ///
    /// # Panics
    /// If there is no such event or field.
    #[inline]
    pub fn current(&self, field: usize) -> Value<'_> {
        assert!(field < self.width, "there is such a field");
        self.cell(self.cells[self.times.len() * self.width + field])
    }

    #[inline]
    fn cell(&self, cell: Cell) -> Value<'_> {
        match cell {
            Cell::Null => Value::Null,
            Cell::Int(value) => Value::Int(value),
            Cell::Float(value) => Value::Float(value),
            Cell::Text(start, len) => Value::Text(&self.bytes[start..start + len]),
        }
    }

    /// Returns the times of all events, in milliseconds since 1970.
    #[inline]
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Removes all events.
    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.bytes.clear();
        self.times.clear();
    }

    /// Memory of the buffers, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>() + self.bytes.capacity()
    }
}
