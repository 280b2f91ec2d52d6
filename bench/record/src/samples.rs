//! A number that is measured once per round.

/// The values of one number in all rounds, in ascending order; at least one.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Returns the values in ascending order, if there are any.
    pub fn new(mut values: Vec<f64>) -> Option<Samples> {
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Samples(values))
    }

    /// Returns the value in the middle, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        f64::midpoint(self.0[(self.0.len() - 1) / 2], self.0[self.0.len() / 2])
    }

    /// Returns the smallest value.
    pub fn min(&self) -> f64 {
        self.0[0]
    }

    /// Returns the largest value.
    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

impl From<Vec<f64>> for Samples {
    /// # Panics
    /// There is no value.
    fn from(values: Vec<f64>) -> Samples {
        Samples::new(values).expect("there is a round")
    }
}
