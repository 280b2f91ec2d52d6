#!/usr/bin/env bash
# Builds a table from the file lists of all packages in Debian: path -> packages, millions of rows.
# Then looks up paths, and checks a random sample of rows against the lists.
#
# Usage: examples/debian_contents.sh [FOLDER]        (default: target/debian-contents)
#
# Needs a Debian or Ubuntu machine with the lists:  apt-get install apt-file && apt-file update
set -euo pipefail
cd "$(dirname "$0")/.."
table=${1:-target/debian-contents}
export LC_ALL=C

fail() { echo "debian_contents.sh: $*" >&2; exit 1; }
apt_helper=/usr/lib/apt/apt-helper
[[ -x $apt_helper ]] || fail "this machine has no apt ($apt_helper); run it on Debian or Ubuntu"
mapfile -t lists < <(apt-get indextargets --format '$(FILENAME)' 'Created-By: Contents-deb' |
    while read -r list; do [[ -s $list ]] && echo "$list" || true; done)
[[ ${#lists[@]} -gt 0 ]] ||
    fail "there are no file lists; get them with: apt-get install apt-file && apt-file update"

cargo build --release --quiet --package hashfold-cli
hashfold=${CARGO_TARGET_DIR:-target}/release/hashfold
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A line of a list is a path, spaces, and the packages with that file, separated by commas. Paths may
# contain spaces, packages can't, so the last gap separates them. A list that can't be read to its end
# leaves an invalid row.
rows() { "$apt_helper" cat-file "$1" | sed -E 's/[ \t]+([^ \t]+)$/\t\1/' || echo "broken: $1"; }

# Merges the sorted lists, so that rows of the same path are neighbours.
merged() {
    local inputs=() i
    for i in "${!lists[@]}"; do
        mkfifo "$work/list-$i"
        rows "${lists[$i]}" > "$work/list-$i" &
        inputs+=("$work/list-$i")
    done
    sort --merge --field-separator=$'\t' --key=1,1 "${inputs[@]}"
}

# Prints one row per path, with each of its packages once. Keeps one row in 1000 for the check.
united() {
    awk -F '\t' -v OFS='\t' -v sample="$work/sample.tsv" '
        function flush() {
            if (NR > 1) { print path, packages; if (rand() < 0.001) print path, packages > sample }
        }
        BEGIN { srand(); print "path", "packages" }
        NF != 2 { print "not a row: " $0 > "/dev/stderr"; exit 1 }
        NR > 1 && $1 == path {
            count = split($2, more, ",")
            for (i = 1; i <= count; i++)
                if (index("," packages ",", "," more[i] ",") == 0) packages = packages "," more[i]
            next
        }
        { flush(); path = $1; packages = $2 }
        END { NR++; flush() }'
}

echo "== ${#lists[@]} lists -> $table"
merged | united |
    "$hashfold" build - --format tsv --no-quotes --key path --value packages \
        --unique --out "$table" --replace
du -h --apparent-size "$table"/*

echo; echo "== what it is"
"$hashfold" stat "$table"

echo; echo "== which package has ...?"
"$hashfold" get "$table" usr/bin/gcc bin/bash usr/share/man/man1/git.1.gz || fail "a path is absent"

# Prints CSV as `hashfold get` writes it.
csv() {
    awk -F '\t' '
        function field(text) {
            if (text !~ /[",\r]/) return text
            gsub(/"/, "\"\"", text)
            return "\"" text "\""
        }
        BEGIN { print "path,packages" } { print field($1) "," field($2) }'
}

echo; echo "== $(wc -l < "$work/sample.tsv") random rows against the lists"
csv < "$work/sample.tsv" > "$work/expected.csv"
cut -f 1 "$work/sample.tsv" > "$work/keys"
"$hashfold" get "$table" --keys "$work/keys" --format csv > "$work/found.csv" || fail "a row is absent"
cmp "$work/expected.csv" "$work/found.csv" || fail "a row differs"
echo "all are found with the right value"

sed 's/$/ (absent)/' "$work/keys" > "$work/absent"
status=0
"$hashfold" get "$table" --keys "$work/absent" --format csv \
    > "$work/found.csv" 2> "$work/message" || status=$?
[[ $status -eq 1 && $(wc -l < "$work/found.csv") -eq 1 ]] || fail "an absent path was found"
echo "and as many absent paths are not found"
