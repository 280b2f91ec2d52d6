//! Selects the columns of the key and the value, the rows that delete their key, and what happens
//! if the columns of an input differ from those of the data set.

use super::sink::Flaw;
use crate::{
    columns,
    failure::{Failure, Result},
    preview,
};
use clap::ValueEnum;
use hashfold_rows::{Column, Form, Kind, Schema, Value};
#[cfg(feature = "columnar")]
use std::collections::BTreeSet;
use std::collections::{HashMap, HashSet};

/// The columns that the user named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) key: Option<String>,
    /// Columns of the value; empty: all but the key.
    pub(crate) values: Vec<String>,
    /// Whether only keys are read.
    pub(crate) is_of_keys: bool,
    /// Whether the column of the value is read as that of the key is: as bytes. A row where it is null has no value.
    pub(crate) values_are_keys: bool,
    /// Whether kinds are inferred from the first rows.
    pub(crate) infers: bool,
    /// Markers of rows that delete their key.
    pub(crate) markers: Vec<Marker>,
    /// Schema that all inputs must have.
    pub(crate) expected: Option<Expected>,
    /// Changes of the schema that are allowed.
    pub(crate) policy: SchemaPolicy,
}

/// What happens if the columns of an input differ from those of the data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaPolicy {
    /// Refuse new and missing columns
    #[default]
    Strict,
    /// Store null in missing columns; refuse new ones
    Fill,
    /// Add new columns, which are null in older rows; store null in missing ones
    Extend,
}

/// A schema that inputs must have.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) schema: Schema,
    /// Owner of the schema, for messages.
    pub(crate) whose: &'static str,
}

/// A mark in a row that deletes its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) column: String,
    pub(crate) mark: Mark,
}

/// The text in a marker's column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// This text.
    Text(String),
    /// Any of several words for yes; other columns have a word for no, or nothing.
    Yes,
}

const YES: [&str; 5] = ["true", "t", "yes", "y", "1"];
const NO: [&str; 7] = ["", "false", "f", "no", "n", "0", "null"];

impl Mark {
    /// Returns whether a column with this text deletes the key of its row.
    ///
    /// # Errors
    /// Text that is neither yes nor no: a row would be kept that was meant to be deleted.
    pub(super) fn is_in(&self, text: &[u8]) -> Result<bool, Flaw> {
        let is_one_of =
            |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
        match self {
            Mark::Text(mark) => Ok(text == mark.as_bytes()),
            Mark::Yes if is_one_of(&YES) => Ok(true),
            Mark::Yes if is_one_of(&NO) => Ok(false),
            Mark::Yes => Err(Flaw::new(format!(
                "{} in the column of --tombstone is neither yes ({}) nor no ({}, or nothing)",
                preview::key(text),
                YES.join(", "),
                NO[1..].join(", ")
            ))),
        }
    }
}

/// The way from the columns of one input, by position, to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) key: usize,
    /// The schema of the entries.
    pub(crate) schema: Schema,
    /// For each column of the schema, the column of the input; `None` stores null.
    pub(crate) sources: Vec<Option<usize>>,
    /// Columns whose marks delete the key of their row.
    pub(crate) markers: Vec<(usize, Mark)>,
    /// Whether the column of the value is read as that of the key is.
    pub(crate) values_are_keys: bool,
}

impl Plan {
    /// Returns whether a row with these columns deletes its key.
    #[inline]
    pub(super) fn deletes<'a>(&self, text: impl Fn(usize) -> &'a [u8]) -> Result<bool, Flaw> {
        for (i, mark) in &self.markers {
            if mark.is_in(text(*i)).map_err(|flaw| Flaw { source: Some(*i), ..flaw })? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the columns of the input that are needed, in order.
    #[cfg(feature = "columnar")]
    pub(super) fn needed(&self) -> Vec<usize> {
        let markers = self.markers.iter().map(|(i, _)| *i);
        let all = self.sources.iter().flatten().copied().chain([self.key]).chain(markers);
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Appends the value of a row.
    #[inline]
    pub(super) fn encode<'a>(
        &self,
        value: impl Fn(usize) -> Value<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(), Flaw> {
        let values = self.sources.iter().map(|source| source.map_or(Value::Null, &value));
        self.schema.encode(values, out).map_err(|(i, mismatch)| {
            let flaw = columns::mismatch(&self.schema, i, &mismatch);
            self.sources[i]
                .map_or_else(|| Flaw::new(&flaw), |source| Flaw::of_column(source, &flaw))
        })
    }
}

impl Selection {
    /// Uses the schema of a data set; `whose` is for messages: "the store".
    pub(crate) fn follow(&mut self, schema: &Schema, whose: &'static str) {
        self.key.get_or_insert_with(|| schema.key.clone());
        self.expected = Some(Expected { schema: schema.clone(), whose });
    }

    /// Returns whether a column only marks deletions.
    pub(super) fn is_marker_alone(&self, name: &str) -> bool {
        let expected = self.expected.as_ref();
        self.markers.iter().any(|marker| marker.column == name)
            && !self.values.iter().any(|value| value == name)
            && !expected.is_some_and(|expected| has(&expected.schema, name))
    }

    /// Returns the name of the column with the keys.
    pub(crate) fn key(&self, file: &str) -> Result<&str> {
        self.key.as_deref().ok_or_else(|| {
            Failure::usage(format!("{file}: which column is the key? Name it with --key COL"))
        })
    }

    /// Refuses a column that is named twice; the key is part of each entry anyway.
    pub(crate) fn check_distinct(&self) -> Result<()> {
        let mut seen = HashSet::new();
        match self.key.iter().chain(&self.values).find(|&name| !seen.insert(name)) {
            Some(name) => Err(Failure::usage(format!(
                "--key and --value name the column \"{}\" twice",
                preview::name(name)
            ))),
            None => Ok(()),
        }
    }

    /// Finds the columns among those that a file has.
    pub(crate) fn plan(&self, file: &str, found: &[Column]) -> Result<Plan> {
        let places = Places::new(file, found);
        let key = places.find(self.key(file)?)?;
        let others = found.iter().enumerate();
        let others = others.filter(|&(i, it)| i != key && !self.is_marker_alone(&it.name));
        let wanted: Vec<&str> = match self.is_of_keys || !self.values.is_empty() {
            true => self.values.iter().map(String::as_str).collect(),
            false => others.map(|(_, column)| &column.name[..]).collect(),
        };
        let kind = |name: &str| Ok(found[places.find(name)?].kind);
        let schema = self.target(file, &wanted, kind)?;
        let is_wanted: HashSet<&str> = wanted.iter().copied().collect();
        let source = |column: &Column| match &column.name[..] {
            name if !is_wanted.contains(name) => Ok(None),
            name => places.find(name).map(Some),
        };
        let markers = self.markers.iter();
        let markers =
            markers.map(|Marker { column, mark }| Ok((places.find(column)?, mark.clone())));
        Ok(Plan {
            key,
            sources: schema.columns.iter().map(source).collect::<Result<_>>()?,
            schema,
            markers: markers.collect::<Result<_>>()?,
            values_are_keys: self.values_are_keys,
        })
    }

    /// Returns the schema of entries from a file with these columns of the value: the expected one,
    /// with the changes that are allowed.
    pub(super) fn target(
        &self,
        file: &str,
        wanted: &[impl AsRef<str>],
        kind: impl Fn(&str) -> Result<Kind>,
    ) -> Result<Schema> {
        let key = self.key(file)?;
        if self.is_of_keys {
            // The columns beside the key differ from file to file.
            return Ok(Schema::new(key, Vec::new()));
        }
        let kind = |name: &str| if self.values_are_keys { Ok(Kind::Text) } else { kind(name) };
        let column = |name: &str| Ok(Column { name: name.into(), kind: kind(name)? });
        let Some(Expected { schema: expected, whose }) = &self.expected else {
            let columns = wanted.iter().map(|name| column(name.as_ref()));
            let columns = columns.collect::<Result<_>>()?;
            let mut schema = Schema::new(key, columns);
            // A plain value has no place for further columns.
            if self.policy == SchemaPolicy::Extend {
                schema.form = Form::Row;
            }
            return Ok(schema);
        };
        check_key(file, key, &expected.key, whose)?;
        if expected.form == Form::Object {
            let what =
                format!("has columns; the values of {whose} are JSON objects, expected JSON Lines");
            return Err(Failure::input(file, what));
        }
        let mut schema = expected.clone();
        let names: HashSet<&str> = wanted.iter().map(AsRef::as_ref).collect();
        let missing = schema.columns.iter().find(|column| !names.contains(&column.name[..]));
        if let Some(column) = missing.filter(|_| self.policy == SchemaPolicy::Strict) {
            return Err(lacks(file, wanted, column, (whose, expected)));
        }
        let known: HashSet<&str> = expected.columns.iter().map(|it| &it.name[..]).collect();
        for name in wanted.iter().map(AsRef::as_ref).filter(|name| !known.contains(name)) {
            if self.policy != SchemaPolicy::Extend {
                return Err(Failure::input(
                    file,
                    format_args!(
                        "has the column \"{}\"; those of {whose} are {}; --schema extend adds it, \
                         --value names the columns to read",
                        preview::name(name),
                        columns::preview(&schema),
                    ),
                ));
            }
            schema.columns.push(column(name)?);
            schema.form = Form::Row;
        }
        Ok(schema)
    }

    /// Returns the schema of entries from a file whose values are JSON objects as a whole.
    pub(super) fn target_objects(&self, file: &str) -> Result<Schema> {
        let key = self.key(file)?;
        let schema = match &self.expected {
            None => Schema::objects(key),
            Some(Expected { schema, whose }) => {
                check_key(file, key, &schema.key, whose)?;
                schema.clone()
            }
        };
        if schema.form != Form::Object || !self.values.is_empty() || !self.markers.is_empty() {
            let what = "has JSON objects as values, of which no columns can be taken; give them as \
                        JSON Lines, which `hashfold scan` writes";
            return Err(Failure::input(file, what));
        }
        Ok(schema)
    }

    /// Refuses an input without names whose columns differ from the expected ones.
    pub(crate) fn check_unnamed(&self, file: &str) -> Result<()> {
        match &self.expected {
            Some(Expected { schema, whose })
                if !self.is_of_keys && schema.columns != Schema::unnamed().columns =>
            {
                let columns = columns::preview(schema);
                let what = format!(
                    "has keys and values without names; the columns of {whose} are {columns}"
                );
                Err(Failure::input(file, what))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether values from JSON Lines are whole objects.
    pub(crate) fn is_of_objects(&self) -> bool {
        match &self.expected {
            _ if self.is_of_keys || !self.values.is_empty() => false,
            Some(expected) => expected.schema.form == Form::Object,
            None => !self.infers,
        }
    }
}

/// Returns the failure for a file without a column of the data set, whose owner is `whose`.
fn lacks(
    file: &str,
    has: &[impl AsRef<str>],
    column: &Column,
    (whose, expected): (&str, &Schema),
) -> Failure {
    let (name, all) = (preview::name(&column.name), columns::preview(expected));
    let (found, other) = match has.is_empty() {
        true => ("it has only the key".to_owned(), ", and `hashfold delete` deletes keys"),
        false => {
            let found = preview::list(has.iter().map(AsRef::as_ref));
            (format!("its columns are {found}"), "")
        }
    };
    Failure::input(
        file,
        format_args!(
            "has no column \"{name}\"; {found}; those of {whose} are {all}; --schema fill stores \
             null in place of missing ones{other}"
        ),
    )
}

/// Refuses an input with another key column than the data set, whose owner is `whose`.
fn check_key(file: &str, key: &str, expected: &str, whose: &str) -> Result<()> {
    if expected == key {
        return Ok(());
    }
    let (key, expected) = (preview::name(key), preview::name(expected));
    let what = format!("has the key \"{key}\"; that of {whose} is \"{expected}\"");
    Err(Failure::input(file, what))
}

fn has(schema: &Schema, name: &str) -> bool {
    schema.columns.iter().any(|column| column.name == name)
}

/// Positions of the columns of a file.
struct Places<'a> {
    /// For messages.
    file: &'a str,
    found: &'a [Column],
    /// Position by name; `None` if several columns have the name.
    by_name: HashMap<&'a str, Option<usize>>,
}

impl<'a> Places<'a> {
    fn new(file: &'a str, found: &'a [Column]) -> Places<'a> {
        let mut by_name = HashMap::with_capacity(found.len());
        for (i, column) in found.iter().enumerate() {
            let place = by_name.entry(column.name.as_str());
            place.and_modify(|place| *place = None).or_insert(Some(i));
        }
        Places { file, found, by_name }
    }

    fn find(&self, name: &str) -> Result<usize> {
        let shown = preview::name(name);
        let what = match self.by_name.get(name) {
            Some(Some(place)) => return Ok(*place),
            Some(None) => format!("has several columns \"{shown}\""),
            None => format!(
                "has no column \"{shown}\"; its columns are {}",
                preview::list(self.found.iter().map(|column| &column.name))
            ),
        };
        Err(Failure::input(self.file, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<Column> {
        names.iter().map(|name| Column { name: (*name).into(), kind: Kind::Text }).collect()
    }

    #[track_caller]
    fn check(key: &str, values: &[&str], expected: Result<(usize, &[usize]), &str>) {
        let found = texts(&["a", "b", "c", "d", "c"]);
        let values = values.iter().map(ToString::to_string).collect();
        let selection = Selection { key: Some(key.into()), values, ..Selection::default() };
        match (selection.plan("f", &found), expected) {
            (Ok(plan), Ok((key, values))) => {
                let sources: Vec<_> = values.iter().copied().map(Some).collect();
                assert_eq!((plan.key, plan.sources), (key, sources));
            }
            (Err(failure), Err(message)) => assert_eq!(failure.message, message),
            (plan, _) => panic!("{plan:?}"),
        }
    }

    #[test]
    fn columns_are_found_by_name() {
        check("b", &["a"], Ok((1, &[0])));
        check("a", &["d", "b"], Ok((0, &[3, 1])));
        check("e", &[], Err("f: has no column \"e\"; its columns are a, b, c, d, c"));
        check("a", &[], Err("f: has several columns \"c\""));
        check("a", &["c"], Err("f: has several columns \"c\""));
    }

    #[test]
    fn a_marker_is_no_part_of_the_value_unless_the_store_has_it() {
        let found = texts(&["k", "v", "gone"]);
        let marker = Marker { column: "gone".into(), mark: Mark::Yes };
        let mut selection =
            Selection { key: Some("k".into()), markers: vec![marker], ..Selection::default() };
        let plan = selection.plan("f", &found).unwrap();
        assert_eq!((plan.sources, plan.markers), (vec![Some(1)], vec![(2, Mark::Yes)]));
        selection.follow(&Schema::new("k", texts(&["gone", "v"])), "the store");
        assert_eq!(selection.plan("f", &found).unwrap().sources, [Some(2), Some(1)]);
    }

    #[test]
    fn columns_may_be_added_and_may_be_missing_as_the_policy_says() {
        let found = texts(&["k", "w", "v"]);
        let mut selection = Selection { key: Some("k".into()), ..Selection::default() };
        selection.follow(&Schema::new("k", texts(&["u", "v"])), "the store");
        let mut plan = |policy| {
            selection.policy = policy;
            selection.plan("f", &found).map_err(|failure| failure.message)
        };
        assert!(plan(SchemaPolicy::Strict).unwrap_err().contains("no column \"u\""));
        assert!(plan(SchemaPolicy::Fill).unwrap_err().contains("has the column \"w\""));
        let extended = plan(SchemaPolicy::Extend).unwrap();
        assert_eq!(extended.sources, [None, Some(2), Some(1)]);
        assert_eq!(extended.schema.columns, texts(&["u", "v", "w"]));
    }

    #[test]
    fn marks_are_texts_or_words_for_yes() {
        let check = |mark: &Mark, text: &str, expected| {
            assert_eq!(mark.is_in(text.as_bytes()).ok(), expected, "{text}");
        };
        for text in ["true", "1", "T", "Yes", "Y"] {
            check(&Mark::Yes, text, Some(true));
        }
        for text in ["", "no", "False", "0", "null"] {
            check(&Mark::Yes, text, Some(false));
        }
        for text in ["deleted", "2", " 1"] {
            check(&Mark::Yes, text, None);
        }
        check(&Mark::Text("D".into()), "D", Some(true));
        check(&Mark::Text("D".into()), "d", Some(false));
        check(&Mark::Text(String::new()), "", Some(true));
    }
}
