//! Which columns of an input are the key and the value.

use crate::{
    failure::{Failure, Result},
    schema::{Form, Schema},
};
use std::collections::HashSet;

/// The columns that the user asked for, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) key: Option<String>,
    /// All others, if it is empty.
    pub(crate) values: Vec<String>,
    /// The schema of the first input, which those after it must have too.
    pub(crate) first: Option<Schema>,
}

/// The columns of one input, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) key: usize,
    pub(crate) values: Vec<usize>,
}

impl Selection {
    /// The name of the key's column.
    pub(crate) fn key(&self, file: &str) -> Result<&str> {
        self.key.as_deref().ok_or_else(|| {
            Failure::usage(format!("{file}: which column is the key? Name it with --key COL"))
        })
    }

    /// Refuses a column that is asked for twice: the key is part of each entry anyway.
    pub(crate) fn check_distinct(&self) -> Result<()> {
        let mut seen = HashSet::new();
        match self.key.iter().chain(&self.values).find(|&name| !seen.insert(name)) {
            Some(name) => Err(Failure::usage(format!("column \"{name}\" is asked for twice"))),
            None => Ok(()),
        }
    }

    /// Finds the columns among the `names` that a file has.
    pub(crate) fn pick(&self, file: &str, names: &[String]) -> Result<Picked> {
        let key = position(file, names, self.key(file)?)?;
        let values: Vec<usize> = match &self.first {
            _ if !self.values.is_empty() => {
                let values = self.values.iter().map(|name| position(file, names, name));
                values.collect::<Result<_>>()?
            }
            Some(first) if names.len() == first.columns.len() + 1 => {
                let columns = first.columns.iter();
                columns.map(|column| position(file, names, &column.name)).collect::<Result<_>>()?
            }
            _ => {
                let others = names.iter().enumerate().filter(|&(i, _)| i != key);
                others.map(|(_, name)| position(file, names, name)).collect::<Result<_>>()?
            }
        };
        Ok(Picked { key, values })
    }

    /// Refuses an input whose columns are not those of the first.
    pub(crate) fn check(&self, file: &str, schema: &Schema) -> Result<()> {
        match &self.first {
            Some(first) if first != schema => Err(Failure::input(
                file,
                format_args!(
                    "has the columns {}; those of the first input are {}",
                    schema.describe(),
                    first.describe()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The schema of JSON Lines: of the columns asked for, or of whole objects.
    pub(crate) fn is_of_objects(&self) -> bool {
        match &self.first {
            _ if !self.values.is_empty() => false,
            Some(first) => first.form == Form::Object,
            None => true,
        }
    }
}

fn position(file: &str, names: &[String], name: &str) -> Result<usize> {
    let mut places = (0..names.len()).filter(|&i| names[i] == name);
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => {
            Err(Failure::input(file, format_args!("has several columns \"{name}\"")))
        }
        (None, _) => Err(Failure::input(
            file,
            format_args!("has no column \"{name}\"; its columns are {}", names.join(", ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, values: &[&str], expected: Result<(usize, &[usize]), &str>) {
        let names = ["a", "b", "c", "d", "c"].map(String::from);
        let values = values.iter().map(ToString::to_string).collect();
        let selection = Selection { key: Some(key.into()), values, first: None };
        match (selection.pick("f", &names), expected) {
            (Ok(picked), Ok((key, values))) => {
                assert_eq!(picked, Picked { key, values: values.into() });
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
}
