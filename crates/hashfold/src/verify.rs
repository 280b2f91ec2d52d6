//! Reports of checks of whole data sets.

use crate::error::{Error, ErrorClass, Result};

/// The result of checking a whole data set.
#[derive(Debug, Default)]
pub struct VerifyReport<F> {
    /// The amounts that were checked, by the kind of data set.
    pub figures: F,
    /// The damage that was found, in the order of reading.
    pub damage: Vec<Error>,
}

impl<F: Default> VerifyReport<F> {
    /// Returns the report of a data set that cannot be opened because of this damage. Returns
    /// errors of other classes.
    ///
    /// # Errors
    /// The error itself.
    pub fn of(error: Error) -> Result<VerifyReport<F>> {
        let mut report = VerifyReport::default();
        report.note(Err::<(), _>(error))?;
        Ok(report)
    }
}

impl<F> VerifyReport<F> {
    /// Returns whether no damage was found.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Adds damage to the report, and returns `None` for it. Other errors end the check.
    pub(crate) fn note<T>(&mut self, checked: Result<T>) -> Result<Option<T>> {
        match checked {
            Err(error) if error.class() == ErrorClass::Damage => {
                self.damage.push(error);
                Ok(None)
            }
            checked => checked.map(Some),
        }
    }
}
