//! `hashfold verify`: reads every byte of a table or store and reports problems.

mod args;
mod report;
mod run;
mod store;
mod table;

pub(crate) use self::{args::VerifyArgs, report::conclude, run::run};
