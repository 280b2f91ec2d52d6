//! The rules of the house, checked on the source files themselves: who may use whom, where `unsafe`
//! may stand, and which words public names and documentation comments use.

mod arrows;
mod circles;
mod sources;
mod tokens;
mod words;
