//! Selects the columns of the key and the value, and the rows that delete their key.

use crate::{
    failure::{Failure, Result},
    preview,
    schema::{Column, Form, Schema},
};
use std::collections::{HashMap, HashSet};

/// The columns that the user named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) key: Option<String>,
    /// Columns of the value; empty: all but the key.
    pub(crate) values: Vec<String>,
    /// Whether only keys are read.
    pub(crate) is_of_keys: bool,
    /// Markers of rows that delete their key.
    pub(crate) markers: Vec<Marker>,
    /// Schema that all inputs must have.
    pub(crate) expected: Option<Expected>,
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
    /// Any of several words for yes.
    Yes,
}

impl Mark {
    /// Returns whether a column with this text deletes the key of its row.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        match self {
            Mark::Text(mark) => text == mark.as_bytes(),
            Mark::Yes => ["true", "1", "t", "yes"]
                .iter()
                .any(|yes| text.eq_ignore_ascii_case(yes.as_bytes())),
        }
    }
}

/// The columns of one input, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) key: usize,
    pub(crate) values: Vec<usize>,
    /// Columns whose marks delete the key of their row.
    pub(crate) markers: Vec<(usize, Mark)>,
}

impl Picked {
    /// Returns whether a row with these columns deletes its key.
    #[inline]
    pub(super) fn deletes<'a>(&self, text: impl Fn(usize) -> &'a [u8]) -> bool {
        self.markers.iter().any(|(i, mark)| mark.is_in(text(*i)))
    }
}

impl Selection {
    /// Uses the columns of a store for those that the user did not name.
    pub(crate) fn follow(&mut self, schema: &Schema) {
        if *schema != Schema::unnamed() {
            self.key.get_or_insert_with(|| schema.key.clone());
            if self.values.is_empty() && self.key.as_ref() == Some(&schema.key) {
                self.values.extend(schema.columns.iter().map(|column| column.name.clone()));
            }
        }
        self.expected = Some(Expected { schema: schema.clone(), whose: "the store" });
    }

    fn expected_columns(&self) -> &[Column] {
        self.expected.as_ref().map_or(&[], |expected| &expected.schema.columns)
    }

    /// Returns whether a column only marks deletions.
    pub(super) fn is_marker_alone(&self, name: &str) -> bool {
        self.markers.iter().any(|marker| marker.column == name)
            && !self.values.iter().any(|value| value == name)
            && !self.expected_columns().iter().any(|column| column.name == name)
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
                "column \"{}\" is asked for twice",
                preview::name(name)
            ))),
            None => Ok(()),
        }
    }

    /// Finds the columns among the `names` that a file has.
    pub(crate) fn pick(&self, file: &str, names: &[String]) -> Result<Picked> {
        let places = Places::new(file, names);
        let key = places.find(self.key(file)?)?;
        let others = names.iter().enumerate();
        let others = others.filter(|&(i, name)| i != key && !self.is_marker_alone(name));
        let others: Vec<&String> = others.map(|(_, name)| name).collect();
        let expected = self.expected_columns();
        let wanted: Vec<&String> = match &self.expected {
            _ if self.is_of_keys || !self.values.is_empty() => self.values.iter().collect(),
            Some(_) if others.len() == expected.len() => {
                expected.iter().map(|column| &column.name).collect()
            }
            _ => others,
        };
        let values = wanted.into_iter().map(|name| places.find(name));
        let markers = self
            .markers
            .iter()
            .map(|Marker { column, mark }| Ok((places.find(column)?, mark.clone())));
        Ok(Picked {
            key,
            values: values.collect::<Result<_>>()?,
            markers: markers.collect::<Result<_>>()?,
        })
    }

    /// Refuses an input whose columns differ from the expected ones.
    pub(crate) fn check(&self, file: &str, schema: &Schema) -> Result<()> {
        match &self.expected {
            Some(expected) if expected.schema != *schema => Err(Failure::input(
                file,
                format_args!(
                    "has the columns {}; those of {} are {}{}",
                    schema.preview(),
                    expected.whose,
                    expected.schema.preview(),
                    schema.late_difference(&expected.schema)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the schema of JSON Lines: the named columns, or whole objects.
    pub(crate) fn is_of_objects(&self) -> bool {
        match &self.expected {
            _ if self.is_of_keys || !self.values.is_empty() => false,
            Some(expected) => expected.schema.form == Form::Object,
            None => true,
        }
    }
}

/// Positions of the columns of a file.
struct Places<'a> {
    /// For messages.
    file: &'a str,
    names: &'a [String],
    /// Position by name; `None` if several columns have the name.
    by_name: HashMap<&'a str, Option<usize>>,
}

impl<'a> Places<'a> {
    fn new(file: &'a str, names: &'a [String]) -> Places<'a> {
        let mut by_name = HashMap::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            by_name.entry(name.as_str()).and_modify(|place| *place = None).or_insert(Some(i));
        }
        Places { file, names, by_name }
    }

    fn find(&self, name: &str) -> Result<usize> {
        let shown = preview::name(name);
        let what = match self.by_name.get(name) {
            Some(Some(place)) => return Ok(*place),
            Some(None) => format!("has several columns \"{shown}\""),
            None => format!(
                "has no column \"{shown}\"; its columns are {}",
                preview::list(self.names.iter())
            ),
        };
        Err(Failure::input(self.file, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, values: &[&str], expected: Result<(usize, &[usize]), &str>) {
        let names = ["a", "b", "c", "d", "c"].map(String::from);
        let values = values.iter().map(ToString::to_string).collect();
        let selection = Selection { key: Some(key.into()), values, ..Selection::default() };
        match (selection.pick("f", &names), expected) {
            (Ok(picked), Ok((key, values))) => {
                assert_eq!(picked, Picked { key, values: values.into(), markers: Vec::new() });
            }
            (Err(failure), Err(message)) => assert_eq!(failure.message, message),
            (picked, _) => panic!("{picked:?}"),
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
        let names = ["k", "v", "gone"].map(String::from);
        let marker = Marker { column: "gone".into(), mark: Mark::Yes };
        let mut selection =
            Selection { key: Some("k".into()), markers: vec![marker], ..Selection::default() };
        let picked = selection.pick("f", &names).unwrap();
        assert_eq!((picked.values, picked.markers), (vec![1], vec![(2, Mark::Yes)]));
        let column = |name: &str| Column { name: name.into(), kind: crate::schema::Kind::Text };
        selection.follow(&Schema::new("k", vec![column("gone"), column("v")]));
        assert_eq!(selection.pick("f", &names).unwrap().values, [2, 1]);
    }

    #[test]
    fn marks_are_texts_or_words_for_yes() {
        let check = |mark: &Mark, text: &str, expected| {
            assert_eq!(mark.is_in(text.as_bytes()), expected, "{text}");
        };
        for (text, is_yes) in
            [("true", true), ("1", true), ("T", true), ("Yes", true), ("", false), ("no", false)]
        {
            check(&Mark::Yes, text, is_yes);
        }
        check(&Mark::Text("D".into()), "D", true);
        check(&Mark::Text("D".into()), "d", false);
        check(&Mark::Text(String::new()), "", true);
    }
}
