//! A filter that was made a moment ago.

use super::filter_home::FilterHome;
use crate::data::filter::FilterKey;
use hashfold::Error;
use std::{path::Path, sync::Arc};

/// A filter that clients see, and that is gone after a crash, because its folder is still listed as one to be removed.
/// [`NewFilter::keep`] makes it durable; without that, it is removed when this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct NewFilter {
    home: Arc<FilterHome>,
    filter: Arc<FilterKey>,
    /// Keeps the folder from being removed.
    _claim: Arc<Path>,
    is_kept: bool,
}

impl NewFilter {
    pub(super) fn new(home: &Arc<FilterHome>, filter: FilterKey, claim: Arc<Path>) -> NewFilter {
        let (home, filter) = (home.clone(), Arc::new(filter));
        NewFilter { home, filter, _claim: claim, is_kept: false }
    }

    /// Returns the filter.
    pub(crate) fn filter(&self) -> &Arc<FilterKey> {
        &self.filter
    }

    /// Makes it durable that this is a filter: what was made durable before is so after any crash that leaves it.
    ///
    /// # Errors
    /// Errors of writing; the filter is removed.
    pub(crate) fn keep(mut self) -> Result<Arc<FilterKey>, Error> {
        self.home.keep(&self.filter)?;
        self.is_kept = true;
        Ok(self.filter.clone())
    }
}

impl Drop for NewFilter {
    fn drop(&mut self) {
        if !self.is_kept {
            self.home.take_back(&self.filter);
        }
    }
}
