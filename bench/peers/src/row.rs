//! The measurements of one peer on one data set.

use record::Samples;
use serde_json::Value;

/// A number that is measured once per round.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name, with the unit at the end.
    pub name: &'static str,
    /// Number of decimals in results.
    pub decimals: usize,
    /// Title of its chart: what it is, its unit, and which direction is better; `None` if it is not
    /// drawn.
    pub title: Option<&'static str>,
    /// Factor from results to the chart, for a unit in which the numbers have few zeros.
    pub scale: f64,
}

impl Column {
    /// Returns a column that is not drawn.
    pub const fn new(name: &'static str, decimals: usize) -> Column {
        Column { name, decimals, title: None, scale: 1.0 }
    }

    /// Returns a column that is drawn.
    pub const fn drawn(name: &'static str, decimals: usize, title: &'static str) -> Column {
        Column { name, decimals, title: Some(title), scale: 1.0 }
    }

    /// Returns the column drawn in a unit that is smaller by this factor.
    pub const fn times(self, scale: f64) -> Column {
        Column { scale, ..self }
    }

    /// Whether the numbers are rates, which the device can limit.
    pub fn is_rate(&self) -> bool {
        self.name.contains("_per_s")
    }
}

/// One peer on one data set.
#[derive(Clone, Debug)]
pub struct Row {
    pub data: String,
    pub peer: String,
    /// Facts that a reader needs to judge the numbers.
    pub note: String,
    /// Number of measurements that medians are of.
    pub rounds: usize,
    /// One entry per column; `None` if the peer has no such number.
    pub figures: Vec<Option<Samples>>,
}

impl Row {
    /// Returns a row of the numbers of all rounds. Each round has one number per column.
    pub fn new(data: &str, peer: &str, note: &str, rounds: &[Vec<Option<f64>>]) -> Row {
        let columns = rounds.first().map_or(0, Vec::len);
        let figure = |i| Samples::new(rounds.iter().filter_map(|round| round[i]).collect());
        let figures = (0..columns).map(figure).collect();
        let [data, peer, note] = [data, peer, note].map(str::to_owned);
        Row { data, peer, note, rounds: rounds.len(), figures }
    }

    /// Returns a row of a file of results.
    pub fn from_json(columns: &[Column], line: &Value) -> Row {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let figure = |column: &Column| {
            let values = ["median", "min", "max"].map(|name| line[column.name][name].as_f64());
            Samples::new(values.into_iter().flatten().collect())
        };
        Row {
            data: text("data"),
            peer: text("peer"),
            note: text("note"),
            rounds: line["rounds"].as_u64().unwrap_or(0) as usize,
            figures: columns.iter().map(figure).collect(),
        }
    }
}
