//! Takes the rows of Arrow batches, from Parquet and Arrow files.

use crate::{
    columns,
    failure::{Failure, Result},
    input::{
        COLUMNS_MAX, Format,
        bad_rows::Head,
        selection::{Plan, Selection},
        sink::{Flaw, Sink},
    },
    preview, units,
};
use arrow_array::RecordBatch;
use arrow_json::LineDelimitedWriter;
use arrow_schema::{ArrowError, Field, SchemaRef};
use hashfold_rows::{
    Column, KeyType, Kind,
    arrow::{ArrowColumn, ArrowValues, BatchColumns, BatchRows, key_type, kind},
};

/// Turns the batches of one file into rows.
pub(super) struct Columnar {
    /// Name of the file, for messages.
    file: String,
    pub(super) plan: Plan,
    key_type: KeyType,
    /// Names of the columns with marks.
    markers: Vec<String>,
    /// Number of the next row, from 1.
    row: u64,
}

impl Columnar {
    pub(super) fn new(path: &str, arrow: &SchemaRef, selection: &Selection) -> Result<Columnar> {
        if arrow.fields().len() > COLUMNS_MAX {
            let columns = units::count(arrow.fields().len() as u64);
            let most = units::count(COLUMNS_MAX as u64);
            let what = format!("has {columns} columns, the most accepted is {most}");
            return Err(Failure::input(path, what));
        }
        let found = arrow
            .fields()
            .iter()
            .map(|field| Column { name: field.name().clone(), kind: kind(field) });
        let found: Vec<_> = found.collect();
        let plan = selection.plan(path, &found)?;
        let counted = plan.sources.iter().flatten().filter(|_| plan.values_are_keys);
        for &i in [plan.key].iter().chain(counted) {
            if matches!(found[i].kind, Kind::Json | Kind::List { .. }) {
                return Err(no_key(path, arrow.field(i)));
            }
        }
        let key_type = key_type(arrow.field(plan.key).data_type());
        let markers = plan.markers.iter().map(|(i, _)| found[*i].name.clone()).collect();
        Ok(Columnar { file: path.into(), plan, key_type, markers, row: 1 })
    }

    /// Bad rows are written as JSON Lines.
    pub(super) fn head(&self) -> Head {
        Head { format: Format::Jsonl, header: Vec::new() }
    }

    /// Says which columns all rows have.
    pub(super) fn begin(&self, sink: &mut Sink) {
        sink.keys.add(self.key_type);
        for (column, source) in self.plan.sources.iter().enumerate() {
            source.iter().for_each(|_| sink.fill(column));
        }
    }

    /// Takes all rows of a batch.
    pub(super) fn take(&mut self, batch: &RecordBatch, sink: &mut Sink) -> Result<()> {
        self.take_rows(batch, sink).map_err(|error| match error {
            Stop::Failure(failure) => failure,
            Stop::Arrow(error) => Failure::input(&self.file, super::reason(&error)),
        })?;
        self.row += batch.num_rows() as u64;
        Ok(())
    }

    fn take_rows(&self, batch: &RecordBatch, sink: &mut Sink) -> Result<(), Stop> {
        let columns = BatchColumns::new(&self.plan.schema, batch)?;
        let marked = self.markers.iter().map(|name| {
            let i = batch.schema_ref().index_of(name)?;
            ArrowColumn::new(batch.column(i), &batch.schema_ref().fields()[i])
        });
        let marked: Vec<_> = marked.collect::<Result<_, _>>()?;
        let mut rows = columns.rows()?;
        let mut marks: Vec<_> = marked.iter().map(ArrowColumn::values).collect::<Result<_, _>>()?;
        let mut text = Vec::new();
        for i in 0..batch.num_rows() {
            let outcome = self.take_row(i, &mut rows, &mut marks, &mut text, sink);
            let bad = match &outcome {
                Err(_) if sink.keeps_bad_rows() => json_row(batch, i)?,
                _ => Vec::new(),
            };
            sink.end_row(&self.file, self.row + i as u64, outcome, &bad)?;
        }
        Ok(())
    }

    fn take_row(
        &self,
        i: usize,
        rows: &mut BatchRows<'_>,
        marks: &mut [ArrowValues<'_>],
        text: &mut Vec<u8>,
        sink: &mut Sink,
    ) -> Result<(), Flaw> {
        for ((place, mark), values) in self.plan.markers.iter().zip(marks) {
            text.clear();
            values.value(i).write_text(text);
            if mark.is_in(text).map_err(|flaw| flaw.at(place + 1))? {
                self.put_key(i, rows, text)?;
                return sink.delete(text);
            }
        }
        self.put_key(i, rows, text)?;
        if self.plan.values_are_keys {
            let name = &self.plan.schema.columns[0].name;
            let pushed = sink.push_key(text, (name, rows.value(i, 0)));
            return pushed.map_err(|flaw| match self.plan.sources[0] {
                Some(source) => flaw.at(source + 1),
                None => flaw,
            });
        }
        sink.push(text, |out| {
            rows.put_value(i, out).map_err(|(place, mismatch)| {
                let flaw = Flaw::new(columns::mismatch(&self.plan.schema, place, &mismatch));
                match self.plan.sources[place] {
                    Some(source) => flaw.at(source + 1),
                    None => flaw,
                }
            })
        })
    }

    /// Replaces `text` by the key of a row.
    fn put_key(&self, i: usize, rows: &mut BatchRows<'_>, text: &mut Vec<u8>) -> Result<(), Flaw> {
        text.clear();
        if rows.put_key(i, text) {
            return Ok(());
        }
        let reason = format!("the key \"{}\" is null", preview::name(&self.plan.schema.key));
        Err(Flaw::new(reason).at(self.plan.key + 1))
    }
}

/// Makes the failure for a column whose values cannot be keys.
fn no_key(path: &str, field: &Field) -> Failure {
    Failure::input(
        path,
        format_args!(
            "column \"{}\" is a {}, and a key must be text, bytes or a number",
            preview::name(field.name()),
            preview::reason(field.data_type())
        ),
    )
}

/// The reasons why a batch is not taken.
enum Stop {
    Failure(Failure),
    Arrow(ArrowError),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

impl From<ArrowError> for Stop {
    fn from(error: ArrowError) -> Stop {
        Stop::Arrow(error)
    }
}

/// Returns a row as a JSON object.
fn json_row(batch: &RecordBatch, i: usize) -> Result<Vec<u8>, ArrowError> {
    let mut writer = LineDelimitedWriter::new(Vec::new());
    writer.write(&batch.slice(i, 1))?;
    writer.finish()?;
    let mut json = writer.into_inner();
    json.pop_if(|last| *last == b'\n');
    Ok(json)
}
