//! Rules checked on the source files: which module may use which, where `unsafe` is allowed, and
//! the words of public names and documentation comments.

mod arrows;
mod circles;
mod sources;
mod tokens;
mod words;
