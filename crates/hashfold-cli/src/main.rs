//! The `hashfold` command. Each verb has a file that parses options, calls the library and prints.
//!
//! Entry points: [`build`], [`get`], [`scan`], [`stat`], [`verify`], [`reindex`] for tables;
//! [`update`], [`delete`], [`merge`], [`publish`], [`rollback`], [`pin`], [`versions`], [`diff`], [`copy`], [`gc`] for
//! stores; [`mod@filter`]; [`mod@map`]; `serve`; `deploy`; [`mod@bench`]. All input goes through [`input`], all output through
//! [`output`].

mod allocator;
mod applied;
mod bench;
mod build;
mod change_output;
#[cfg_attr(not(feature = "columnar"), path = "columnar_output_absent.rs")]
mod columnar_output;
mod columns;
mod copy;
mod delete;
mod delta_file;
#[cfg(feature = "deploy")]
mod deploy;
mod device;
mod diff;
mod failure;
mod filter;
mod folder;
mod gc;
mod get;
mod input;
mod keys;
mod map;
mod merge;
mod new_version;
mod options;
mod output;
mod pin;
mod preview;
mod progress;
mod publish;
mod raw;
mod reindex;
mod release;
mod rollback;
mod rows;
mod scan;
#[cfg(feature = "serve")]
mod serve;
mod sketch;
mod source;
mod stat;
mod stop;
#[cfg(feature = "summarize")]
mod summarize;
mod units;
mod update;
mod verify;
mod versions;
mod wait;

use crate::failure::{Exit, Result};
use clap::{Parser, Subcommand};
use hashfold::cpu::Instructions;
use std::process::ExitCode;

/// Key-value data sets and filters on flash, larger than RAM: one device read per lookup
///
/// A folder holds a table (made by `build`, never changes), a store (made by `update`, has versions),
/// a filter (made by `filter add`, says whether a key was inserted) or a map (made by `map import`,
/// changes key by key).
///
/// Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 bad input, 4 damaged data, 5 I/O failed,
/// 6 busy, 130 stopped; `hashfold help exit-codes` explains them.
#[derive(Parser, Debug)]
#[command(name = "hashfold", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Build(build::BuildArgs),
    Get(get::GetArgs),
    Scan(scan::ScanArgs),
    Stat(stat::StatArgs),
    Verify(verify::VerifyArgs),
    Reindex(reindex::ReindexArgs),
    Update(update::UpdateArgs),
    Delete(delete::DeleteArgs),
    Merge(merge::MergeArgs),
    Versions(versions::VersionsArgs),
    Publish(publish::PublishArgs),
    Rollback(rollback::RollbackArgs),
    Pin(pin::PinArgs),
    Gc(gc::GcArgs),
    Diff(diff::DiffArgs),
    Copy(copy::CopyArgs),
    Filter(filter::FilterArgs),
    Map(map::MapArgs),
    Sketch(sketch::SketchArgs),
    #[cfg(feature = "summarize")]
    Summarize(summarize::SummarizeArgs),
    #[cfg(feature = "deploy")]
    Deploy(deploy::DeployArgs),
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    Bench(bench::BenchArgs),
    #[command(about = "Explain the exit codes", long_about = failure::EXIT_CODES)]
    ExitCodes,
}

impl Verb {
    /// Returns whether the verb bounds its memory by `--memory`.
    fn has_budget(&self) -> bool {
        matches!(
            self,
            Verb::Build(_)
                | Verb::Update(_)
                | Verb::Delete(_)
                | Verb::Merge(_)
                | Verb::Filter(_)
                | Verb::Map(_)
                | Verb::Sketch(_)
        )
    }
}

fn main() -> ExitCode {
    device::raise_open_files();
    let exit = stop::survive_long_files().and_then(|()| run(&Cli::parse().verb));
    let exit = exit.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            output::write_note(format_args!("hashfold: {}", failure.message));
        }
        failure.exit
    });
    ExitCode::from(exit as u8)
}

fn run(verb: &Verb) -> Result<Exit> {
    Instructions::check_environment()?;
    if verb.has_budget() {
        allocator::keep_to_budget();
    }
    match verb {
        Verb::Build(args) => build::run(args),
        Verb::Get(args) => get::run(args),
        Verb::Scan(args) => scan::run(args),
        Verb::Stat(args) => stat::run(args),
        Verb::Verify(args) => verify::run(args),
        Verb::Reindex(args) => reindex::run(args),
        Verb::Update(args) => update::run(args),
        Verb::Delete(args) => delete::run(args),
        Verb::Merge(args) => merge::run(args),
        Verb::Versions(args) => versions::run(args),
        Verb::Publish(args) => publish::run(args),
        Verb::Rollback(args) => rollback::run(args),
        Verb::Pin(args) => pin::run(args),
        Verb::Gc(args) => gc::run(args),
        Verb::Diff(args) => diff::run(args),
        Verb::Copy(args) => copy::run(args),
        Verb::Filter(args) => filter::run(args),
        Verb::Map(args) => map::run(args),
        Verb::Sketch(args) => sketch::run(args),
        #[cfg(feature = "summarize")]
        Verb::Summarize(args) => summarize::run(args),
        #[cfg(feature = "deploy")]
        Verb::Deploy(args) => deploy::run(args),
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::ExitCodes => output::write_line(failure::EXIT_CODES).map(|()| Exit::Done),
    }
}
