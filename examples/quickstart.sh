#!/usr/bin/env bash
# Builds the command, makes a table of 5440 Debian packages, and looks some of them up.
# Usage: examples/quickstart.sh [FOLDER]        (default: target/packages)
set -euo pipefail
cd "$(dirname "$0")/.."
table=${1:-target/packages}

# Without Parquet and Arrow, which take as long to compile as all the rest; `cargo install` has them.
echo "compiling the command: a minute or two, the first time" >&2
cargo build --release --quiet --package hashfold-cli --no-default-features
hashfold=${CARGO_TARGET_DIR:-target}/release/hashfold
show() { printf '\n$ hashfold %s\n' "$*" && "$hashfold" "$@"; }

show build examples/data/packages.csv --key name --out "$table" --replace
show get "$table" bash git sqlite3
show get "$table" no-such-package || echo "(exit code $?: the answer is no)"
show stat "$table"
show verify "$table"
