//! Conditions that are alike for all programs of a comparison.

use crate::Result;
use std::{
    env,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

/// Setting of the allocator with huge pages, which Hashfold asks for by itself.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Returns the settings of the allocator.
pub(crate) fn malloc() -> String {
    env::var("GLIBC_TUNABLES").unwrap_or_default()
}

/// Runs a program with huge pages for malloc: starts it again if it has no settings of the allocator,
/// because the library reads them when a program starts. Errors are printed after the name.
pub fn with_huge_pages(name: &str, main: impl FnOnce() -> Result<()>) -> ExitCode {
    let done = if env::var_os("GLIBC_TUNABLES").is_none() {
        let mut command = Command::new("/proc/self/exe");
        command.args(env::args_os().skip(1)).env("GLIBC_TUNABLES", HUGE_PAGES);
        Err(format!("cannot start with huge pages: {}", command.exec()).into())
    } else {
        main()
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses a comparison in which not all structures have huge pages and the processor's instructions.
///
/// # Errors
/// The condition that is not met.
pub fn check_alike() -> Result<()> {
    if malloc() != HUGE_PAGES {
        return Err(format!("expected GLIBC_TUNABLES={HUGE_PAGES} in the environment").into());
    }
    check_target()
}

/// Refuses a comparison of programs that are compiled for different processors.
///
/// # Errors
/// The processor that the program is compiled for.
pub fn check_target() -> Result<()> {
    let target = env!("RECORD_TARGET_CPU");
    if target == "native" {
        return Ok(());
    }
    let expected =
        "expected a program compiled with -C target-cpu=native, as bench/.cargo/config.toml says";
    Err(format!("{expected}, got {target}").into())
}
