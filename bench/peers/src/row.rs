//! The measurements of one peer on one data set.

/// A number that is measured once per round.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name, with the unit at the end.
    pub name: &'static str,
    /// Number of decimals in print.
    pub decimals: usize,
}

/// The values of one number in all rounds, in ascending order; at least one.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    fn new(mut samples: Vec<f64>) -> Option<Samples> {
        samples.sort_by(f64::total_cmp);
        (!samples.is_empty()).then_some(Samples(samples))
    }

    pub fn median(&self) -> f64 {
        (self.0[(self.0.len() - 1) / 2] + self.0[self.0.len() / 2]) / 2.0
    }

    pub fn min(&self) -> f64 {
        self.0[0]
    }

    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

/// One peer on one data set.
#[derive(Clone, Debug)]
pub struct Row {
    pub data: String,
    pub peer: String,
    /// Facts that a reader needs to judge the numbers.
    pub note: String,
    /// One entry per column; `None` if the peer has no such number.
    pub figures: Vec<Option<Samples>>,
}

impl Row {
    /// Returns a row of the numbers of all rounds. Each round has one number per column.
    pub fn new(data: &str, peer: &str, note: &str, rounds: &[Vec<Option<f64>>]) -> Row {
        let columns = rounds.first().map_or(0, Vec::len);
        let figure = |i| Samples::new(rounds.iter().filter_map(|round| round[i]).collect());
        let figures = (0..columns).map(figure).collect();
        Row { data: data.to_owned(), peer: peer.to_owned(), note: note.to_owned(), figures }
    }
}
