//! `BF.*` on sets and `CF.*` on multisets: filters as keys, with the replies of RedisBloom.

mod bloom;
mod capacity;
mod cuckoo;
mod dump;
mod epochs;

pub(super) use self::{
    bloom::COMMANDS as BLOOM, cuckoo::COMMANDS as CUCKOO, epochs::COMMANDS as EPOCHS,
};

use super::{
    WRONG_TYPE,
    entry::{Call, Work},
};
use crate::{
    data::{DataSet, Duplicates, FilterKey, MakeError, NewFilter, NoPuts, Space, View, gone},
    protocol::Reply,
    transaction::{Pins, UnkeptFilter},
};
use hashfold::{Error, ErrorKind, filter::FilterOptions};
use std::sync::Arc;

/// The reply to commands about a filter that does not exist.
const NOT_FOUND: &str = "ERR not found";

/// The filter that a command is about: the first argument.
struct Target {
    space: Arc<Space>,
    /// The data in which the key may be a string, or the error reply if there are none yet.
    view: Result<Option<Arc<View>>, String>,
    /// What the transaction has read and changed, if the command is in one.
    pins: Option<Pins>,
    key: Vec<u8>,
    duplicates: Duplicates,
}

impl Target {
    fn of(call: &Call<'_, '_>, duplicates: Duplicates) -> Result<Target, String> {
        let space = call.session.space().cloned().ok_or("NOAUTH Authentication required.")?;
        let key = call.arguments.at(1);
        check_served(&space, key)?;
        let (view, pins) = (call.session.view(), call.session.pins.clone());
        Ok(Target { space, view, pins, key: key.to_vec(), duplicates })
    }

    /// Returns the filter, if there is one.
    ///
    /// # Errors
    /// The reply: the key has another type.
    fn find(&self) -> Result<Option<Arc<FilterKey>>, String> {
        match self.space.filter(&self.key) {
            Some(filter) if filter.duplicates() == self.duplicates => Ok(Some(filter)),
            Some(_) => Err(WRONG_TYPE.into()),
            None if self.is_string()? => Err(WRONG_TYPE.into()),
            None => Ok(None),
        }
    }

    /// Returns the filter.
    ///
    /// # Errors
    /// The reply: there is none, or the key has another type.
    fn existing(&self) -> Result<Arc<FilterKey>, String> {
        self.find()?.ok_or_else(|| NOT_FOUND.into())
    }

    /// Returns the filter, open for writing; makes it with the options of `make` if there is none.
    ///
    /// # Errors
    /// The reply: the key has another type, no filter can be made, or it is open for reading only.
    fn find_or_make(
        &self,
        make: impl FnOnce() -> Result<FilterOptions, String>,
    ) -> Result<Arc<FilterKey>, String> {
        let filter = match self.find()? {
            Some(filter) => filter,
            None => self.make(make()?).or_else(|error| {
                // Another connection may have made it meanwhile.
                self.find()?.ok_or(error)
            })?,
        };
        check_writable(&filter, &self.key)?;
        Ok(filter)
    }

    /// Whether the table or store has the key.
    fn is_string(&self) -> Result<bool, String> {
        let Some(view) = self.view.as_ref().map_err(String::clone)? else { return Ok(false) };
        view.has_key(&self.key).map_err(|error| failed(&error))
    }

    /// Returns the data in which the key may be a string, those in memory first: the user's, and those of all other users
    /// who see the filters.
    fn views(&self) -> Vec<Arc<View>> {
        let own = self.view.as_ref().ok().cloned().flatten();
        let beside = self.space.home().map_or(Vec::new(), |home| home.beside());
        let shown = |data: &Arc<DataSet>| self.pins.as_ref().and_then(|pins| pins.shown(data));
        let others = beside.iter().filter_map(|data| shown(data).or_else(|| data.view()));
        let is_own = |view: &View| own.as_ref().is_some_and(|own| own.shows_data_of(view));
        let others: Vec<Arc<View>> = others.filter(|view| !is_own(view)).collect();
        let mut all: Vec<Arc<View>> = own.iter().cloned().chain(others).collect();
        all.sort_by_key(|view| view.memory_address());
        all
    }

    /// Calls `show` at a moment at which the key is no string in any of these data and none is put, unless it is one.
    /// Returns whether it has called it.
    fn admit(&self, views: &[Arc<View>], show: &mut dyn FnMut()) -> hashfold::Result<bool> {
        let is_alone = |view: &View| self.pins.as_ref().is_some_and(|pins| pins.is_alone(view));
        let changing = views.iter().filter(|view| !is_alone(view));
        let _no_puts: Vec<NoPuts<'_>> = changing.map(|view| view.without_puts()).collect();
        for view in views {
            if view.has_key(&self.key)? {
                return Ok(false);
            }
        }
        show();
        Ok(true)
    }

    /// Makes the filter.
    ///
    /// # Errors
    /// The reply: there is one, the key is a string, or none can be made.
    fn make(&self, options: FilterOptions) -> Result<Arc<FilterKey>, String> {
        let views = self.views();
        let admit = |show: &mut dyn FnMut()| self.admit(&views, show);
        let made = self.space.make_filter(&self.key, options, &admit);
        self.keep(made.map_err(making_failed)?, &views)
    }

    /// Makes a new filter durable, after the absence of a string of its key: at once, or with the changes of a transaction.
    ///
    /// # Errors
    /// The reply: that cannot be written, and the filter is removed.
    fn keep(&self, new: NewFilter, views: &[Arc<View>]) -> Result<Arc<FilterKey>, String> {
        let is_changed = views.iter().any(|view| view.has_change(&self.key));
        let filter = new.filter().clone();
        let unkept = UnkeptFilter { filter: new, views: views.to_vec() };
        match self.pins.as_ref().filter(|_| is_changed) {
            Some(pins) => pins.unkept().push(unkept),
            None => _ = unkept.keep().map_err(|error| failed(&error))?,
        }
        Ok(filter)
    }
}

/// Refuses a filter that the configuration does not have any more.
fn check_served(space: &Space, key: &[u8]) -> Result<(), String> {
    match space.filter(key).filter(|filter| filter.is_gone()) {
        None => Ok(()),
        Some(filter) => Err(gone(&format!("filter {}", filter.name()))),
    }
}

/// Returns the reply if a filter cannot be made.
fn making_failed(error: MakeError) -> String {
    match error {
        MakeError::NoHome => {
            "NOPERM filters cannot be made here: that takes `filters.path` and `makes-filters = true` of the \
             user in the configuration file, or `--filters DIR`"
                .into()
        }
        MakeError::Exists => "ERR item exists".into(),
        MakeError::IsString => WRONG_TYPE.into(),
        MakeError::Loading => "ERR a filter of this name is being loaded".into(),
        MakeError::TooMany(max) => {
            format!("OOM there are {max} filters, the largest number that is accepted")
        }
        MakeError::Failed(error) => failed(&error),
    }
}

/// Returns the reply to an error of the library.
fn failed(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Memory { .. } => format!("OOM {error}"),
        _ => format!("ERR {error}"),
    }
}

/// Returns a job that replies with what `work` returns, or with its error.
fn job<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
    write: impl FnOnce(T, &mut Reply<'_>) + Send + 'static,
) -> Work {
    Box::new(move || {
        let done = work();
        Box::new(move |_, reply| match done {
            Ok(done) => write(done, reply),
            Err(error) => reply.error(&error),
        })
    })
}

/// Refuses to change a filter that is open for reading only, or whose last changes could not be made durable.
fn check_writable(filter: &FilterKey, key: &[u8]) -> Result<(), String> {
    if let Some(error) = filter.sync_error() {
        return Err(format!("MISCONF changes cannot be made durable: {error}"));
    }
    match filter.is_writable() {
        true => Ok(()),
        false => Err(format!(
            "NOPERM filter '{}' is open for reading only: another process writes to it, or the \
             configuration says so",
            String::from_utf8_lossy(key)
        )),
    }
}

/// Returns the arguments from one on, as keys of their own.
fn items(call: &Call<'_, '_>, first: usize) -> Vec<Vec<u8>> {
    call.arguments.from(first).map(<[u8]>::to_vec).collect()
}

/// Says for each item whether it may have been added; none was if there is no such filter.
fn contains(target: &Target, items: &[Vec<u8>]) -> Result<Vec<bool>, String> {
    let filter = target.space.filter(&target.key);
    match filter.filter(|filter| filter.duplicates() == target.duplicates) {
        None => Ok(vec![false; items.len()]),
        Some(filter) => filter.contains(items).map_err(|error| failed(&error)),
    }
}

fn exists(call: &mut Call<'_, '_>, duplicates: Duplicates) -> Result<Work, String> {
    let (target, items) = (Target::of(call, duplicates)?, items(call, 2));
    Ok(job(move || contains(&target, &items), |found, reply| reply.boolean(found[0])))
}

fn exist(call: &mut Call<'_, '_>, duplicates: Duplicates) -> Result<Work, String> {
    let (target, items) = (Target::of(call, duplicates)?, items(call, 2));
    Ok(job(
        move || contains(&target, &items),
        |found, reply| {
            reply.array(found.len());
            found.iter().for_each(|is_found| reply.boolean(*is_found));
        },
    ))
}
