//! Conditions that are alike for all programs of a comparison.

use crate::Result;
use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

/// Setting of the allocator with huge pages, which Hashfold asks for by itself.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// The system's own setting of huge pages, with the chosen word in brackets.
const SYSTEM_HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

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
    let got = malloc();
    if got != HUGE_PAGES {
        let expected = format!("expected GLIBC_TUNABLES={HUGE_PAGES} in the environment");
        return Err(format!("{expected}, got {got:?}; unset it").into());
    }
    let chosen = fs::read_to_string(SYSTEM_HUGE_PAGES).unwrap_or_default();
    if !gives_huge_pages(&chosen) {
        let expected = format!("expected [madvise] or [always] in {SYSTEM_HUGE_PAGES}");
        return Err(format!("{expected}, got {:?}; write madvise to it", chosen.trim()).into());
    }
    check_target()
}

/// Whether programs that ask for huge pages get some.
fn gives_huge_pages(chosen: &str) -> bool {
    chosen.contains("[madvise]") || chosen.contains("[always]")
}

/// Refuses a comparison of programs that are compiled for different processors.
fn check_target() -> Result<()> {
    let target = env!("RECORD_TARGET_CPU");
    if target == "native" {
        return Ok(());
    }
    let expected =
        "expected a program compiled with -C target-cpu=native, as bench/.cargo/config.toml says";
    Err(format!("{expected}, got {target}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_huge_pages_is_refused() {
        assert!(gives_huge_pages("always [madvise] never\n"));
        assert!(gives_huge_pages("[always] madvise never\n"));
        assert!(!gives_huge_pages("always madvise [never]\n"));
        assert!(!gives_huge_pages(""));
    }

    #[test]
    fn a_comparison_with_another_setting_of_the_allocator_is_refused() {
        // Tests usually run without the setting.
        if malloc() != HUGE_PAGES {
            let error = check_alike().unwrap_err().to_string();
            assert!(error.contains(HUGE_PAGES), "{error}");
        }
    }
}
