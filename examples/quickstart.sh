#!/usr/bin/env bash
# Builds the command, makes a table of 5440 Debian packages, and looks up some of them.
# Usage: examples/quickstart.sh [FOLDER]        (default: target/packages)
#
# PROGRAMS is a folder with a command that is compiled already.
# Needs Linux, Rust (https://rustup.rs) and a C compiler. Takes one to four minutes on two cores the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
table=${1:-target/packages}

fail() { echo "quickstart.sh: $*" >&2; exit 1; }
command -v cargo > /dev/null || fail "there is no Rust (cargo); install it from https://rustup.rs"
command -v cc > /dev/null || fail "there is no C compiler (cc); on Debian: apt-get install build-essential"

if [[ -z ${PROGRAMS:-} ]]; then
    # Leaves out servers, streams of events, Parquet and Arrow, which take most of the time; `cargo install --locked` includes them.
    echo "compiling the command: one to four minutes on two cores, the first time" >&2
    # Shows progress to people, and not in logs.
    [[ -t 2 ]] && quiet= || quiet=--quiet
    cargo build --release $quiet --package hashfold-cli --no-default-features
fi
hashfold=${PROGRAMS:-${CARGO_TARGET_DIR:-target}/release}/hashfold
show() { printf '\n$ hashfold %s\n' "$*" && "$hashfold" "$@"; }

show build examples/data/packages.csv --key name --out "$table" --replace
show get "$table" bash git sqlite3
show get "$table" no-such-package || echo "(exit code $?: the answer is no)"
show stat "$table"
show verify "$table"
