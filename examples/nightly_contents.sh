#!/usr/bin/env bash
# Nights of a data set that changes under its readers: the file lists of Debian, path -> packages.
#
# A store is made of one suite's lists. The next night brings what another suite changes; then a
# bad night brings half of the rows, is refused, is published all the same and taken back; and the
# last night brings everything anew. Meanwhile a reader looks paths up all the time, and checks
# every answer against what the version that it holds must say.
#
# Usage: examples/nightly_contents.sh [FOLDER]       (default: target/nightly-contents)
#
# Needs a Debian machine with the lists of a suite and its updates:
#     apt-get install apt-file && apt-file update
set -euo pipefail
cd "$(dirname "$0")/.."
store=${1:-target/nightly-contents}
export LC_ALL=C

fail() { echo "nightly_contents.sh: $*" >&2; exit 1; }
[[ ! -e $store ]] || fail "$store is there already; remove it first"
apt_helper=/usr/lib/apt/apt-helper
[[ -x $apt_helper ]] || fail "this machine has no apt ($apt_helper); run it on Debian"
# Release and file of each list.
lists() {
    apt-get indextargets --format '$(RELEASE) $(FILENAME)' 'Created-By: Contents-deb' |
        while read -r release list; do [[ ! -s $list ]] || echo "$release $list"; done
}
suite=$(lists | awk '$1 !~ /-/ { print $1; exit }')
[[ -n $suite ]] && lists | grep -q "^$suite-updates " ||
    fail "there are no lists of a suite and its updates; get them with: apt-file update"

cargo build --release --quiet --package hashfold-cli
cargo build --release --quiet --package hashfold --example follow_store
target=${CARGO_TARGET_DIR:-target}
hashfold=$target/release/hashfold
work=$(mktemp -d)
reader=
trap 'touch "$work/stop"; [[ -z $reader ]] || wait $reader || true; rm -rf "$work"' EXIT

# The rows of all lists whose release matches, sorted, one a path.
snapshot() {
    lists | awk -v pattern="$1" '$1 ~ pattern { print $2 }' |
        while read -r list; do "$apt_helper" cat-file "$list"; done |
        sed -E 's/[ \t]+([^ \t]+)$/\t\1/' | sort --field-separator=$'\t' --key=1,1 |
        awk -F '\t' -v OFS='\t' '
            $1 == path { packages = packages "," $2; next }
            { if (NR > 1) print path, packages; path = $1; packages = $2 }
            END { print path, packages }'
}

# What the reader will expect of a version: random paths of both snapshots, with their packages.
expect() {
    join -t $'\t' -a 1 "$work/sampled" "$2" > "$work/expected/$1.new"
    mv "$work/expected/$1.new" "$work/expected/$1"
}

number() { "$hashfold" versions "$store" --json | tail -n 1 | sed -E 's/.*"number":([0-9]+).*/\1/'; }
night() { echo; echo "== $*"; }
update() { "$hashfold" update "$store" "$@" --format tsv --no-quotes; }
# Makes a version current once the reader knows what to expect of it.
publish() { expect "$(number)" "$1"; "$hashfold" publish "$store" "$(number)"; sleep 2; }

night "the lists of $suite, and those with its updates"
snapshot "^$suite\$" > "$work/one.tsv"
snapshot "^$suite(-updates)?\$" > "$work/two.tsv"
wc -l "$work/one.tsv" "$work/two.tsv" | sed "s|$work/||"
{ comm -13 "$work/one.tsv" "$work/two.tsv" | cut -f 1 | shuf -n 1000 --random-source=<(yes)
  cat "$work/one.tsv" "$work/two.tsv" | cut -f 1 | shuf -n 4000 --random-source=<(yes)
} | sort -u > "$work/sampled"
mkdir "$work/expected"
header=$'path\tpackages'

night "first night: all of $suite"
{ echo "$header"; cat "$work/one.tsv"; } > "$work/night.tsv"
update "$work/night.tsv" --key path --value packages --no-publish
publish "$work/one.tsv"
"$target/release/examples/follow_store" "$store" "$work/expected" "$work/stop" & reader=$!

night "second night: only what the updates change"
{ printf 'path\tpackages\tgone\n'
  comm -13 "$work/one.tsv" "$work/two.tsv" | sed 's/$/\tno/'
  join -t $'\t' -v 1 "$work/one.tsv" "$work/two.tsv" | sed 's/$/\tyes/'
} > "$work/night.tsv"
update "$work/night.tsv" --tombstone gone --no-publish
publish "$work/two.tsv"

night "a bad night: half of the rows"
{ echo "$header"; head -n $(($(wc -l < "$work/two.tsv") / 2)) "$work/two.tsv"; } > "$work/night.tsv"
status=0
update "$work/night.tsv" --mode replace --max-change 0.1 || status=$?
[[ $status -eq 1 ]] || fail "the bad night was not refused (exit code $status)"
echo "-- published all the same:"
tail -n +2 "$work/night.tsv" > "$work/half.tsv"
publish "$work/half.tsv"
echo "-- and taken back:"
"$hashfold" rollback "$store"
sleep 2

night "the next night: everything anew"
{ echo "$header"; cat "$work/two.tsv"; } > "$work/night.tsv"
update "$work/night.tsv" --mode replace --max-change 0.1 --no-publish
publish "$work/two.tsv"

night "what is there, and what can go"
"$hashfold" versions "$store"
"$hashfold" gc "$store" --keep 1
"$hashfold" verify "$store"

night "what the reader saw"
touch "$work/stop"
wait $reader || fail "the reader had a wrong answer"
reader=
