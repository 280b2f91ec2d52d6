#!/usr/bin/env bash
# Finds the distinct lines among the paths of all files in Debian, repeated several times and shuffled.
# `hashfold filter add --unique` and `sort -u`, with the same small memory, must give the same lines.
#
# Usage: examples/unique_paths.sh [FOLDER] [MEMORY] [PASSES]   (default: target/unique-paths 128MiB 4)
#
# Needs a Debian or Ubuntu machine with the lists, and GNU time:
#   apt-get install time apt-file && apt-file update
# Takes some minutes, and temporarily 2 GB of disk for the lines and as much for sort.
set -euo pipefail
cd "$(dirname "$0")/.."
filter=${1:-target/unique-paths}
memory=${2:-128MiB}
passes=${3:-4}
export LC_ALL=C

fail() { echo "unique_paths.sh: $*" >&2; exit 1; }
[[ ! -e $filter ]] || fail "$filter is there already; remove it first"
[[ -x /usr/bin/time ]] || fail "this machine has no /usr/bin/time; get it with: apt-get install time"
apt_helper=/usr/lib/apt/apt-helper
[[ -x $apt_helper ]] || fail "this machine has no apt ($apt_helper); run it on Debian or Ubuntu"
mapfile -t lists < <(apt-get indextargets --format '$(FILENAME)' 'Created-By: Contents-deb' |
    while read -r list; do [[ -s $list ]] && echo "$list" || true; done)
[[ ${#lists[@]} -gt 0 ]] ||
    fail "there are no file lists; get them with: apt-get install apt-file && apt-file update"

cargo build --release --quiet --package hashfold-cli
hashfold=${CARGO_TARGET_DIR:-target}/release/hashfold
mkdir -p "$(dirname "$filter")"
work=$(mktemp -d "$filter.work.XXXX")
trap 'rm -rf "$work"' EXIT

size() { du -h --apparent-size --summarize "$1" | cut -f 1; }
# Runs a command and prints its time and peak memory.
measured() {
    /usr/bin/time --format '%e %M' --output "$work/took" "$@"
    awk '{ printf "   %s s, at most %.1f MiB of memory\n", $1, $2 / 1024 }' "$work/took" >&2
}

echo "== ${#lists[@]} lists, $passes times over, shuffled"
for list in "${lists[@]}"; do "$apt_helper" cat-file "$list"; done |
    sed -E 's/[ \t]+[^ \t]+$//' > "$work/paths"
for ((pass = 1; pass <= passes; pass++)); do
    shuf --random-source=<(yes "$pass") "$work/paths" >> "$work/lines"
done
echo "$(wc -l < "$work/lines") lines, $(size "$work/lines")"

echo; echo "== hashfold filter add --exact --unique, in $memory"
measured "$hashfold" filter add "$filter" --exact --unique --memory "$memory" \
    < "$work/lines" > "$work/new"
echo "$(wc -l < "$work/new") lines come for the first time; the filter takes $(size "$filter")"

echo; echo "== sort -u, in $memory"
measured sort --unique --buffer-size="${memory%iB}" --temporary-directory="$work" "$work/lines" \
    > "$work/sorted"
rm "$work/lines"

echo; echo "== are they the same?"
sort --temporary-directory="$work" "$work/new" | cmp - "$work/sorted" || fail "the lines differ"
echo "all $(wc -l < "$work/sorted") lines are"
[[ $(head -n 1 "$work/new") == "$(shuf --random-source=<(yes 1) "$work/paths" | head -n 1)" ]] ||
    fail "the order of the lines changed"

echo; echo "== the next day, two lines are new"
{ cat "$work/paths"; echo new/one; echo new/two; echo new/one; } |
    measured "$hashfold" filter add "$filter" --unique --memory "$memory" > "$work/new"
[[ $(cat "$work/new") == $'new/one\nnew/two' ]] || fail "$(wc -l < "$work/new") lines are new"

echo; echo "== merge, describe and verify the filter"
"$hashfold" filter merge "$filter" --memory "$memory"
"$hashfold" filter stat "$filter"
"$hashfold" filter verify "$filter"
"$hashfold" filter contains "$filter" bin/bash usr/bin/gcc
"$hashfold" filter contains "$filter" no/such/path || echo "(exit code $?: the answer is no)"
