//! The conditions of `where`, `touch` and `conversion` in a configuration.

use hashfold::pipeline::{Field, FieldKind, Rule, Test};
use serde::Deserialize;

/// A condition as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RuleEntry {
    field: String,
    r#in: Option<Vec<String>>,
    not_in: Option<Vec<String>>,
    present: Option<bool>,
    at_least: Option<i64>,
}

impl RuleEntry {
    /// Returns the condition; `field` returns the number of one of the `fields`, `place` is the key of the list, for
    /// errors.
    pub(crate) fn rule(
        self,
        place: &str,
        field: &impl Fn(&str) -> Result<usize, String>,
        fields: &[Field],
    ) -> Result<Rule, String> {
        let number = field(&self.field)?;
        if self.at_least.is_some() && fields[number].kind == FieldKind::Text {
            return Err(format!(
                "{place}, field \"{}\": `at-least` expected a field of numbers, got one of text",
                self.field
            ));
        }
        Ok(Rule { field: number, test: self.test(place)? })
    }

    fn test(self, place: &str) -> Result<Test, String> {
        let bytes = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
        match (self.r#in, self.not_in, self.present, self.at_least) {
            (Some(texts), None, None, None) => Ok(Test::In(bytes(texts))),
            (None, Some(texts), None, None) => Ok(Test::NotIn(bytes(texts))),
            (None, None, Some(true), None) => Ok(Test::Present),
            (None, None, None, Some(least)) => Ok(Test::AtLeast(least)),
            _ => Err(format!(
                "{place}, field \"{}\": expected one of `in`, `not-in`, `present = true` and `at-least`",
                self.field
            )),
        }
    }
}
