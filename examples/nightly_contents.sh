#!/usr/bin/env bash
# Updates a store for several nights while a reader checks it: the file lists of Debian, path -> packages.
#
# The first version has all packages but the games. The second night adds the games and removes the
# packages for radio amateurs. Then a bad night has only half of the rows: a gate refuses it, it is
# published by force, and it is rolled back. The last night replaces everything. Meanwhile a reader looks
# up paths all the time, and checks every answer against the version that it has open.
#
# Usage: examples/nightly_contents.sh [FOLDER]       (default: target/nightly-contents)
#
# Needs a Debian or Ubuntu machine with the lists:  apt-get install apt-file && apt-file update
set -euo pipefail
cd "$(dirname "$0")/.."
store=${1:-target/nightly-contents}
export LC_ALL=C

fail() { echo "nightly_contents.sh: $*" >&2; exit 1; }
[[ ! -e $store ]] || fail "$store is there already; remove it first"
apt_helper=/usr/lib/apt/apt-helper
[[ -x $apt_helper ]] || fail "this machine has no apt ($apt_helper); run it on Debian"
mapfile -t lists < <(apt-get indextargets --format '$(FILENAME)' 'Created-By: Contents-deb' |
    while read -r list; do [[ -s $list ]] && echo "$list" || true; done)
[[ ${#lists[@]} -gt 0 ]] ||
    fail "there are no file lists; get them with: apt-get install apt-file && apt-file update"

cargo build --release --quiet --package hashfold-cli
cargo build --release --quiet --package hashfold --example follow_store
target=${CARGO_TARGET_DIR:-target}
hashfold=$target/release/hashfold
work=$(mktemp -d)
reader=
trap 'touch "$work/stop"; [[ -z $reader ]] || wait $reader || true; rm -rf "$work"' EXIT

# Prints the rows of all lists, sorted, one per path: path, tab, packages such as games/chess,math/bc.
rows() {
    for list in "${lists[@]}"; do "$apt_helper" cat-file "$list"; done |
        sed -E 's/[ \t]+([^ \t]+)$/\t\1/' | sort --field-separator=$'\t' --key=1,1 |
        awk -F '\t' -v OFS='\t' '
            $1 != path { if (NR > 1) print path, packages; path = $1; packages = $2; next }
            index("," packages ",", "," $2 ",") == 0 { packages = packages "," $2 }
            END { print path, packages }'
}

# Prints the rows without those whose packages are all in one section.
without() { awk -F '\t' -v all="^(([a-z-]+/)?$1/[^,]+,?)+\$" '$2 !~ all' "$work/rows.tsv"; }

# Writes the answers that the reader expects from a version: random paths of both snapshots.
expect() {
    join -t $'\t' -a 1 "$work/sampled" "$2" > "$work/expected/$1.new"
    mv "$work/expected/$1.new" "$work/expected/$1"
}

number() { "$hashfold" versions "$store" --json | tail -n 1 | sed -E 's/.*"number":([0-9]+).*/\1/'; }
night() { echo; echo "== $*"; }
update() { "$hashfold" update "$store" "$@" --format tsv --no-quotes; }
# Publishes the newest version after the reader got its expected answers.
publish() { expect "$(number)" "$1"; "$hashfold" publish "$store" "$(number)" "${@:2}"; sleep 2; }

night "${#lists[@]} lists: without the games, and without amateur radio"
rows > "$work/rows.tsv"
without games > "$work/one.tsv"
without hamradio > "$work/two.tsv"
rm "$work/rows.tsv"
wc -l "$work/one.tsv" "$work/two.tsv" | sed "s|$work/||"
{ comm -13 "$work/one.tsv" "$work/two.tsv" | cut -f 1 | shuf -n 1000 --random-source=<(yes)
  cat "$work/one.tsv" "$work/two.tsv" | cut -f 1 | shuf -n 4000 --random-source=<(yes)
} | sort -u > "$work/sampled"
mkdir "$work/expected"
header=$'path\tpackages'

night "first night: all but the games"
{ echo "$header"; cat "$work/one.tsv"; } > "$work/night.tsv"
update "$work/night.tsv" --key path --value packages --no-publish
publish "$work/one.tsv"
"$target/release/examples/follow_store" "$store" "$work/expected" "$work/stop" & reader=$!

night "second night: the games come, amateur radio goes"
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
echo "-- published by force:"
tail -n +2 "$work/night.tsv" > "$work/half.tsv"
publish "$work/half.tsv" --force
echo "-- and rolled back:"
"$hashfold" rollback "$store"
sleep 2

night "the next night: everything is replaced"
{ echo "$header"; cat "$work/two.tsv"; } > "$work/night.tsv"
update "$work/night.tsv" --mode replace --max-change 0.1 --no-publish
publish "$work/two.tsv"

night "versions, and removing old ones"
"$hashfold" versions "$store"
"$hashfold" gc "$store" --keep 1
"$hashfold" verify "$store"

night "what the reader saw"
touch "$work/stop"
wait $reader || fail "the reader had a wrong answer"
reader=
