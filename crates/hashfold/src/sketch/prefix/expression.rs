//! Boolean expressions over sets.

use super::SETS_MAX;
use crate::error::{Error, Result};
use std::{
    fmt,
    ops::{BitAnd, BitOr, Not, Sub},
    str::FromStr,
};

/// A boolean expression over numbered sets: which keys are counted.
///
/// `&` is the intersection, `|` the union, `-` the difference, and `!` the keys of all other sets
/// together: a key that is in none of the sets is never counted. As text, sets are letters (`A` is set 0,
/// `Z` is set 25) or numbers from 1 on, and parentheses group.
///
/// ```
/// use hashfold::sketch::Expression;
/// let both: Expression = "A & B & !C".parse()?;
/// assert_eq!(both, Expression::set(0) & Expression::set(1) & !Expression::set(2));
/// assert!(both.contains(0b011) && !both.contains(0b111));
/// assert_eq!("1 & 2".parse::<Expression>()?, "a & b".parse()?);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression(
    /// Operands come before their operator, so that no function calls itself.
    Vec<Step>,
);

/// A set, or an operator on what comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Set(usize),
    Not,
    And,
    Or,
}

/// Knowledge of a key: whether it may be outside and inside of a set.
#[derive(Clone, Copy, Debug)]
struct Possible {
    outside: bool,
    inside: bool,
}

impl Expression {
    /// Returns the keys of one set. Sets are numbered from 0 on.
    ///
    /// # Panics
    /// If the number is [`SETS_MAX`] or more.
    pub fn set(number: usize) -> Expression {
        assert!(number < SETS_MAX, "there are up to {SETS_MAX} sets");
        Expression(vec![Step::Set(number)])
    }

    /// Returns the keys that are in each of the first `count` sets.
    ///
    /// # Panics
    /// If there is no set, or more than [`SETS_MAX`].
    pub fn all(count: usize) -> Expression {
        (1..count).fold(Expression::set(0), |all, number| all & Expression::set(number))
    }

    /// Returns the keys that are in any of the first `count` sets.
    ///
    /// # Panics
    /// If there is no set, or more than [`SETS_MAX`].
    pub fn any(count: usize) -> Expression {
        (1..count).fold(Expression::set(0), |any, number| any | Expression::set(number))
    }

    /// Returns the number of sets that the expression needs: 1 more than the largest number in it.
    pub fn set_count(&self) -> usize {
        let numbers = self.0.iter().map(|step| match step {
            Step::Set(number) => number + 1,
            Step::Not | Step::And | Step::Or => 0,
        });
        numbers.max().unwrap_or_default()
    }

    /// Whether the expression counts a key: bit i of `sets` says whether set i has the key.
    pub fn contains(&self, sets: u64) -> bool {
        let of = |number: usize| {
            let inside = sets >> number & 1 == 1;
            Possible { outside: !inside, inside }
        };
        self.evaluate(of).inside
    }

    /// Whether the answer depends on a set: the expression names it, or counts keys of sets that it does not name, as `!A`
    /// does.
    pub fn depends_on(&self, number: usize) -> bool {
        self.0.contains(&Step::Set(number)) || self.contains(0)
    }

    /// Whether the expression may count a key that none of the `ended` sets has. A contradiction such as
    /// `A & !A` is not noticed.
    pub(super) fn may_contain_without(&self, ended: u64) -> bool {
        self.evaluate(|number| Possible { outside: true, inside: ended >> number & 1 == 0 }).inside
    }

    /// Whether the sets that are known say if the expression counts a key: bit i of `known` says whether set i is known, and
    /// of `sets` whether it has the key. A contradiction such as `A & !A` of an unknown set is not noticed.
    pub(super) fn is_decided(&self, sets: u64, known: u64) -> bool {
        let possible = self.evaluate(|number| {
            let (inside, is_known) = (sets >> number & 1 == 1, known >> number & 1 == 1);
            Possible { outside: !is_known || !inside, inside: !is_known || inside }
        });
        possible.inside != possible.outside
    }

    fn evaluate(&self, of: impl Fn(usize) -> Possible) -> Possible {
        let nothing = Possible { outside: true, inside: false };
        let mut stack: Vec<Possible> = Vec::new();
        for step in &self.0 {
            let next = match step {
                Step::Set(number) => of(*number),
                Step::Not => {
                    let Possible { outside, inside } = stack.pop().unwrap_or(nothing);
                    Possible { outside: inside, inside: outside }
                }
                Step::And | Step::Or => {
                    let (b, a) = (stack.pop(), stack.pop());
                    let (a, b) = (a.unwrap_or(nothing), b.unwrap_or(nothing));
                    match step {
                        Step::And => {
                            Possible { outside: a.outside | b.outside, inside: a.inside & b.inside }
                        }
                        _ => {
                            Possible { outside: a.outside & b.outside, inside: a.inside | b.inside }
                        }
                    }
                }
            };
            stack.push(next);
        }
        stack.pop().unwrap_or(nothing)
    }

    fn joined(mut self, other: Expression, step: Step) -> Expression {
        self.0.extend(other.0);
        self.0.push(step);
        self
    }
}

impl BitAnd for Expression {
    type Output = Expression;

    fn bitand(self, other: Expression) -> Expression {
        self.joined(other, Step::And)
    }
}

impl BitOr for Expression {
    type Output = Expression;

    fn bitor(self, other: Expression) -> Expression {
        self.joined(other, Step::Or)
    }
}

impl Not for Expression {
    type Output = Expression;

    fn not(mut self) -> Expression {
        self.0.push(Step::Not);
        self
    }
}

impl Sub for Expression {
    type Output = Expression;

    fn sub(self, other: Expression) -> Expression {
        self & !other
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut stack: Vec<String> = Vec::new();
        for step in &self.0 {
            let last = |stack: &mut Vec<String>| stack.pop().unwrap_or_default();
            let text = match step {
                Step::Set(number) => name(*number),
                Step::Not => format!("!{}", last(&mut stack)),
                Step::And | Step::Or => {
                    let (b, a) = (last(&mut stack), last(&mut stack));
                    format!("({a} {} {b})", if *step == Step::And { '&' } else { '|' })
                }
            };
            stack.push(text);
        }
        let text = stack.pop().unwrap_or_default();
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        f.write_str(inner.filter(|_| self.0.last() != Some(&Step::Not)).unwrap_or(&text))
    }
}

/// Returns the letter of a set, or its number counted from 1 on.
fn name(number: usize) -> String {
    match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => (number + 1).to_string(),
    }
}

/// Number of characters that messages show before and after the place of an error.
const SHOWN_MAX: usize = 40;

/// An operator, or an open parenthesis, that waits for its second operand. The later ones bind more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    Parenthesis,
    Or,
    And,
    Minus,
    Not,
}

/// A reader of expressions, by Dijkstra's two stacks.
struct Parser<'a> {
    text: &'a str,
    /// Offset of the token that is read, in bytes.
    at: usize,
    steps: Vec<Step>,
    waiting: Vec<Waiting>,
    /// Offsets of the parentheses that are open.
    open: Vec<usize>,
    /// Whether an operand comes next.
    wants_operand: bool,
}

impl FromStr for Expression {
    type Err = Error;

    /// Reads an expression. `!` binds more than `-`, which binds more than `&`, and that more than `|`.
    ///
    /// # Errors
    /// `Argument` if the text is not an expression, or names more than [`SETS_MAX`] sets. The message says at which
    /// character, and what was expected there.
    fn from_str(text: &str) -> Result<Expression> {
        let (steps, waiting, open) = (Vec::new(), Vec::new(), Vec::new());
        let mut parser = Parser { text, at: 0, steps, waiting, open, wants_operand: true };
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (token, next) = rest.split_at(digits.max(first.len_utf8()));
            parser.at = text.len() - rest.len();
            parser.take(first, token)?;
            rest = next.trim_start();
        }
        parser.end()
    }
}

impl Parser<'_> {
    fn take(&mut self, first: char, token: &str) -> Result<()> {
        match (first, self.wants_operand) {
            ('!', true) => self.waiting.push(Waiting::Not),
            ('(', true) => {
                self.waiting.push(Waiting::Parenthesis);
                self.open.push(self.at);
            }
            ('a'..='z' | 'A'..='Z', true) => {
                self.operand((first.to_ascii_uppercase() as usize) - ('A' as usize));
            }
            ('0'..='9', true) => match token.parse::<usize>() {
                Ok(number @ 1..=SETS_MAX) => self.operand(number - 1),
                _ => return Err(self.unexpected(token)),
            },
            ('|', false) => self.operator(Waiting::Or),
            ('&', false) => self.operator(Waiting::And),
            ('-' | '\\', false) => self.operator(Waiting::Minus),
            (')', false) if !self.open.is_empty() => {
                self.settle(Waiting::Or);
                self.waiting.pop();
                self.open.pop();
            }
            _ => return Err(self.unexpected(token)),
        }
        Ok(())
    }

    fn operand(&mut self, number: usize) {
        self.steps.push(Step::Set(number));
        self.wants_operand = false;
    }

    fn operator(&mut self, operator: Waiting) {
        self.settle(operator);
        self.waiting.push(operator);
        self.wants_operand = true;
    }

    /// Applies the operators that bind as much as `least` or more.
    fn settle(&mut self, least: Waiting) {
        while let Some(operator) = self.waiting.pop_if(|operator| *operator >= least) {
            match operator {
                Waiting::Or => self.steps.push(Step::Or),
                Waiting::And => self.steps.push(Step::And),
                Waiting::Minus => self.steps.extend([Step::Not, Step::And]),
                Waiting::Not => self.steps.push(Step::Not),
                Waiting::Parenthesis => {}
            }
        }
    }

    fn end(mut self) -> Result<Expression> {
        self.at = self.text.trim_end().len();
        if self.wants_operand || !self.open.is_empty() {
            return Err(self.ended());
        }
        self.settle(Waiting::Or);
        Ok(Expression(self.steps))
    }

    /// Makes the error for a token that is no part of an expression where it is.
    fn unexpected(&self, token: &str) -> Error {
        let (text, place) = (self.shown(), self.characters(self.at) + 1);
        let token = token.escape_debug();
        self.wrong(format!("\"{text}\", with \"{token}\" at character {place}"))
    }

    /// Makes the error for a text that ends too early.
    fn ended(&self) -> Error {
        match self.characters(self.at) {
            0 => self.wrong("empty".into()),
            last => self.wrong(format!("\"{}\", which ends after character {last}", self.shown())),
        }
    }

    fn wrong(&self, got: String) -> Error {
        let expected = match (self.wants_operand, self.open.last()) {
            (true, _) => format!("a set (A to Z, or 1 to {SETS_MAX}), ! or ( there"),
            (false, None) => "&, |, - or the end there".into(),
            (false, Some(open)) => {
                let place = self.characters(*open) + 1;
                format!("&, |, - or ) there; the ( at character {place} is open")
            }
        };
        Error::argument("expression", expected, got)
    }

    /// Returns the number of characters before an offset.
    fn characters(&self, end: usize) -> usize {
        self.text[..end].chars().count()
    }

    /// Returns the text, or its part around the current offset if it is long.
    fn shown(&self) -> String {
        let (before, after) = self.text.trim_end().split_at(self.at);
        let skipped = before.chars().count().saturating_sub(SHOWN_MAX);
        let first: String = before.chars().skip(skipped).collect();
        let last: String = after.chars().take(SHOWN_MAX).collect();
        let cut = |is_cut: bool| if is_cut { "..." } else { "" };
        let is_cut_after = last.len() < after.len();
        let part = format!("{first}{last}");
        format!("{}{}{}", cut(skipped > 0), part.escape_debug(), cut(is_cut_after))
    }
}
