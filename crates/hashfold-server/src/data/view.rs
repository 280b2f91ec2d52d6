//! A table or a version of a store, and the form in which its values are served.

use super::latency::Latency;
use hashfold::{
    Error, Result,
    io::Access,
    run::Run,
    store::Version,
    table::{Table, VisitValue},
};
use hashfold_rows::{Form, Schema};
use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Bits of a scan's cursor that are the start of a hash.
const PREFIX_BITS: u32 = 50;

/// A data set at one moment. A view never changes, and its files stay as long as it exists.
#[derive(Debug)]
pub(crate) struct View {
    source: Source,
    schema: Schema,
    is_in_memory: AtomicBool,
    /// Whether a read has met damage.
    has_met_damage: AtomicBool,
    /// Number of lookups that could not be answered, and that nobody has counted yet.
    failed_reads: AtomicU64,
    latency: Arc<Latency>,
}

#[derive(Debug)]
enum Source {
    Table(Table),
    Version(Arc<Version>),
}

impl View {
    /// Returns the view of a table.
    ///
    /// # Errors
    /// The table's schema is damaged.
    pub(crate) fn of_table(table: Table) -> Result<View> {
        let schema = Schema::of_table(&table)?;
        let is_in_memory = table.stats().access == Access::Mapped;
        Ok(View::new(Source::Table(table), schema, is_in_memory))
    }

    /// Returns the view of a version of a store.
    ///
    /// # Errors
    /// The version's schema is damaged.
    pub(crate) fn of_version(version: Arc<Version>) -> Result<View> {
        let schema = Schema::of_version(version.info())?;
        let is_in_memory = is_mapped(&version);
        Ok(View::new(Source::Version(version), schema, is_in_memory))
    }

    /// Looks again whether lookups read mapped memory, after more slots were opened.
    pub(crate) fn look_at_access(&self) {
        if let Source::Version(version) = &self.source {
            self.is_in_memory.store(is_mapped(version), Relaxed);
        }
    }

    fn new(source: Source, schema: Schema, is_in_memory: bool) -> View {
        View {
            source,
            schema,
            is_in_memory: is_in_memory.into(),
            has_met_damage: AtomicBool::new(false),
            failed_reads: AtomicU64::new(0),
            latency: Arc::default(),
        }
    }

    /// Returns the view with the times of earlier lookups in the same version.
    pub(crate) fn go_on(self, latency: Option<Arc<Latency>>) -> View {
        let latency = latency.unwrap_or(self.latency);
        View { latency, ..self }
    }

    /// Returns the times of lookups.
    #[inline]
    pub(crate) fn latency(&self) -> &Arc<Latency> {
        &self.latency
    }

    /// Returns the number of the version, if the data set is a store.
    pub(crate) fn number(&self) -> Option<u64> {
        self.version().map(|version| version.info().name.number)
    }

    /// Notes that a read has met damage.
    #[cold]
    pub(crate) fn note_damage(&self) {
        self.has_met_damage.store(true, Relaxed);
    }

    /// Notes a lookup that could not be answered.
    #[cold]
    pub(crate) fn note_failed_read(&self) {
        self.failed_reads.fetch_add(1, Relaxed);
    }

    /// Returns the number of lookups that could not be answered since the last call.
    pub(crate) fn take_failed_reads(&self) -> u64 {
        self.failed_reads.swap(0, Relaxed)
    }

    /// Whether a read has met damage since the view was opened.
    pub(crate) fn has_met_damage(&self) -> bool {
        self.has_met_damage.load(Relaxed)
    }

    /// Returns the damage that was found when the files were opened: of a table, or of an index, without which
    /// lookups take more reads.
    pub(crate) fn damage(&self) -> Option<&Error> {
        match &self.source {
            Source::Table(table) => table.index_damage(),
            Source::Version(version) => {
                version.damage().iter().chain(version.index_damage()).next()
            }
        }
    }

    /// Whether lookups read mapped memory, so that they need not wait for the device.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory.load(Relaxed)
    }

    /// Returns the version, if the data set is a store.
    pub(crate) fn version(&self) -> Option<&Arc<Version>> {
        match &self.source {
            Source::Table(_) => None,
            Source::Version(version) => Some(version),
        }
    }

    /// Returns the number of entries, as bounds: keys of pending deltas may be in the base too.
    pub(crate) fn entries(&self) -> RangeInclusive<u64> {
        match &self.source {
            Source::Table(table) => table.stats().entries..=table.stats().entries,
            Source::Version(version) => version.info().entries(),
        }
    }

    /// Returns the memory of all indexes, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        match &self.source {
            Source::Table(table) => table.stats().index_bytes,
            Source::Version(version) => version.index_bytes(),
        }
    }

    /// Returns the size of all data files, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.source {
            Source::Table(table) => table.stats().data_bytes,
            Source::Version(version) => version.info().bytes(),
        }
    }

    /// Looks up many keys. `visit` is called once for each key, in any order, with its stored value.
    ///
    /// # Errors
    /// Damage, after the keys of all undamaged tables were visited.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        visit: &mut VisitValue<'_>,
    ) -> Result<()> {
        match &self.source {
            Source::Table(table) => table.get_many(keys, visit),
            Source::Version(version) => version.get_many(keys, visit),
        }
    }

    /// Calls `visit` once, with the stored value of a key.
    ///
    /// # Errors
    /// Damage of the block that the key is in.
    pub(crate) fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        match &self.source {
            Source::Table(table) => table.get_with(key, visit),
            Source::Version(version) => version.get_with(key, visit),
        }
    }

    /// Returns all entries as a run.
    pub(crate) fn scan(&self) -> Box<dyn Run> {
        match &self.source {
            Source::Table(table) => Box::new(table.scan()),
            Source::Version(version) => version.scan_all(),
        }
    }

    /// Calls `visit` with the keys after a cursor, at least `count` if there are so many, and returns the
    /// cursor after them: 0 at the end, as at the start.
    ///
    /// A cursor is a chunk in its high 14 bits, and the start of a hash. A key that is there during a
    /// whole scan is visited once, also if versions change meanwhile.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn scan_some(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<u64> {
        let mut chunk = (cursor >> PREFIX_BITS) as u32;
        let mut from = cursor << (64 - PREFIX_BITS);
        let chunks = self.chunks();
        let mut left = count;
        while chunk < chunks {
            let mut run = self.scan_chunk(chunk, from)?;
            let mut last = None;
            while run.advance()? {
                let entry = run.entry();
                let prefix = entry.hash.high() >> (64 - PREFIX_BITS);
                // Keys that share a prefix come together.
                if left == 0 && last != Some(prefix) {
                    return Ok(u64::from(chunk) << PREFIX_BITS | prefix);
                }
                visit(entry.key);
                last = Some(prefix);
                left = left.saturating_sub(1);
            }
            (chunk, from) = (chunk + 1, 0);
            if left == 0 && chunk < chunks {
                return Ok(u64::from(chunk) << PREFIX_BITS);
            }
        }
        Ok(0)
    }

    fn chunks(&self) -> u32 {
        match &self.source {
            Source::Table(_) => 1,
            Source::Version(version) => version.info().shape.slots.chunks(),
        }
    }

    fn scan_chunk(&self, chunk: u32, from: u64) -> Result<Box<dyn Run>> {
        Ok(match &self.source {
            Source::Table(table) => Box::new(table.scan_from(from)?),
            Source::Version(version) => version.scan_chunks_from(chunk..chunk + 1, from),
        })
    }

    /// Calls `visit` with about `count` evenly spread keys.
    ///
    /// # Errors
    /// Damage, and errors of `visit`.
    pub(crate) fn sample(
        &self,
        count: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match &self.source {
            Source::Table(table) => table.sample(count, visit),
            Source::Version(version) => version.sample(count, visit),
        }
    }

    /// Appends a stored value as clients get it: the bytes of a single column, or several columns as a
    /// JSON object.
    ///
    /// # Errors
    /// The stored bytes are no row of the data set's columns.
    #[inline]
    pub(crate) fn show(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self.schema.form {
            Form::Plain => out.extend_from_slice(stored),
            _ => self.show_row(stored, out)?,
        }
        Ok(())
    }

    fn show_row(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let row = self.schema.row(stored)?;
        match (self.schema.form, row.iter().next()) {
            (Form::Row, Some((_, value))) if self.schema.columns.len() == 1 => {
                value.write_text(out);
            }
            _ => row.write_json(out),
        }
        Ok(())
    }
}

/// Whether all open tables of a version are mapped.
fn is_mapped(version: &Version) -> bool {
    version.table_stats().all(|table| table.access == Access::Mapped)
}
