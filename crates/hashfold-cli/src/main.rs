//! The `hashfold` command. One file a verb; each parses, calls the library, and prints.
//!
//! Entry points: [`build`], [`get`], [`scan`], [`stat`], [`verify`], [`reindex`],
//! [`mod@bench`]. What comes in
//! goes through [`input`], what goes out through [`output`].

mod bench;
mod build;
mod cell;
mod device;
mod failure;
mod get;
mod input;
mod options;
mod output;
mod progress;
mod reindex;
mod row;
mod scan;
mod schema;
mod stat;
mod stop;
mod units;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Huge key sets on flash with a few bits of RAM a key
///
/// Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 bad input, 4 damaged data, 5 I/O
/// failed, 130 stopped with Ctrl-C.
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
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Build(args) => build::run(&args),
        Verb::Get(args) => get::run(&args),
        Verb::Scan(args) => scan::run(&args),
        Verb::Stat(args) => stat::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Reindex(args) => reindex::run(&args),
        Verb::Bench(args) => bench::run(&args),
    };
    let exit = result.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            eprintln!("hashfold: {}", failure.message);
        }
        failure.exit
    });
    ExitCode::from(exit as u8)
}
