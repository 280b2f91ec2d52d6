#!/usr/bin/env bash
# Keeps a live index of Debian's files in a map, path -> packages, while it changes from one release to the
# next and back, is killed at random moments, and goes on.
#
# Each night has the differences between the two releases. Eight threads make them in the map, one by one
# or in transactions, each durable at once. Two threads look up paths all the time and check every answer,
# and one publishes a snapshot as a version of a store and compares both. The process is killed at random
# moments; after each start it checks that no durable change is lost, and that no transaction is there in
# part. In the morning, the map is published as the next version of another store, and map and version must
# have the rows of the release. A wrong answer ends the example with an error.
#
# Usage: examples/live_index.sh [--small] [FOLDER]       (default: target/live-index)
#
# --small takes the 5440 packages in examples/data. Otherwise it needs Debian with the lists of its release:
#   apt-get install apt-file && apt-file update
# and fetches those of another release with apt: OTHER (default: bullseye). Takes a quarter of an hour, and 10 GB
# of disk. NIGHTS (default: 2) is the number of nights, KILLS that of kills in each (default: 10). PROGRAMS is a folder with the
# command and `examples/live_index`, if they are compiled already.
set -euo pipefail
cd "$(dirname "$0")/.."
small=
if [[ ${1:-} == --small ]]; then
    small=1
    shift
fi
folder=${1:-target/live-index}
nights=${NIGHTS:-2}
kills=${KILLS:-10}
other=${OTHER:-bullseye}
export LC_ALL=C

fail() { echo "live_index.sh: $*" >&2; exit 1; }
say() { echo; echo "== $*"; }
[[ ! -e $folder ]] || fail "$folder is there already; remove it first"
if [[ -n ${PROGRAMS:-} ]]; then
    programs=$PROGRAMS
elif [[ -n $small ]]; then
    cargo build --quiet --package hashfold-cli --no-default-features
    cargo build --quiet --package hashfold --example live_index
    programs=${CARGO_TARGET_DIR:-target}/debug
else
    cargo build --release --quiet --package hashfold-cli
    cargo build --release --quiet --package hashfold --example live_index
    programs=${CARGO_TARGET_DIR:-target}/release
fi
hashfold=$programs/hashfold
mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXX")
process=
trap '[[ -z $process ]] || kill -KILL "$process" 2> /dev/null || true; rm -rf "$work"' EXIT

# Prints the rows of all packages in examples/data that are in a release: name, tab, version. Every tenth
# package is only in the first release, another tenth only in the second, and every fourth has changed.
packages() {
    tail -n +2 examples/data/packages.csv | cut -d , -f 1,2 | tr , '\t' | sort -u -t $'\t' -k 1,1 |
        awk -F '\t' -v OFS='\t' -v release="$1" '
            NR % 10 == (release == 1 ? 3 : 7) { next }
            release == 2 && NR % 4 == 0 { $2 = $2 "+next" }
            { print }'
}

apt_helper=/usr/lib/apt/apt-helper
# Prints the files with the lists of a release; the other arguments are options of apt.
lists() {
    apt-get "$@" indextargets --format '$(FILENAME)' 'Created-By: Contents-deb' |
        while read -r list; do [[ -s $list ]] && echo "$list" || true; done
}
# Prints the rows of lists, sorted, one per path: path, tab, packages such as games/chess,math/bc.
contents() {
    for list in "$@"; do "$apt_helper" cat-file "$list"; done |
        sed -E 's/[ \t]+([^ \t]+)$/\t\1/' | sort -t $'\t' -k 1,1 -T "$work" |
        awk -F '\t' -v OFS='\t' '
            NF != 2 { next }
            $1 != path { if (path != "") print path, packages; path = $1; packages = $2; next }
            index("," packages ",", "," $2 ",") == 0 { packages = packages "," $2 }
            END { if (path != "") print path, packages }'
}

# Writes the rows of both releases.
releases() {
    if [[ -n $small ]]; then
        packages 1 > "$work/1.tsv"
        packages 2 > "$work/2.tsv"
        return
    fi
    [[ -x $apt_helper ]] || fail "this machine has no apt ($apt_helper); run it on Debian"
    local this theirs options
    mapfile -t this < <(lists)
    [[ ${#this[@]} -gt 0 ]] ||
        fail "there are no file lists; get them with: apt-get install apt-file && apt-file update"
    mkdir -p "$work/lists/partial"
    echo "deb http://deb.debian.org/debian $other main" > "$work/sources.list"
    options=(-o "Dir::Etc::SourceList=$PWD/$work/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$PWD/$work/lists" -o APT::Sandbox::User=root)
    [[ $work != /* ]] || options=("${options[@]//"$PWD/$work"/"$work"}")
    apt-get "${options[@]}" update > /dev/null || fail "apt cannot fetch the lists of $other"
    mapfile -t theirs < <(lists "${options[@]}")
    [[ ${#theirs[@]} -gt 0 ]] || fail "there are no file lists of $other"
    contents "${theirs[@]}" > "$work/1.tsv"
    contents "${this[@]}" > "$work/2.tsv"
    rm -rf "$work/lists"
}

# Prints the paths that differ between two releases, and one in a hundred of the others, in random order:
# path, and its packages in both.
differences() {
    join -t $'\t' -a 1 -a 2 -e '' -o 0,1.2,2.2 "$work/$1.tsv" "$work/$2.tsv" |
        awk -F '\t' '$2 != $3 || NR % 100 == 0' | shuf --random-source=<(yes "$1")
}

# Prints a random time, shorter than this number of milliseconds.
moment() { printf '0.%03d' $((RANDOM % $1)); }

# Makes all changes of a night; the process is killed and goes on.
night() {
    local killed=0 status longest=1000
    [[ -z $small ]] || longest=300
    rm -rf "$work/progress"
    mkdir "$work/progress"
    while true; do
        "$programs/examples/live_index" "$folder/index" "$folder/snapshots" "$work/changes" \
            "$work/progress" > "$work/said" & process=$!
        if ((killed < kills)); then
            sleep "$(moment $longest)"
            # Every third time the process has long enough to publish a snapshot.
            ((killed % 3 != 2)) || sleep $((longest / 300))
            kill -KILL "$process" 2> /dev/null || true
        fi
        status=0
        # The shell would name each killed process.
        { wait "$process"; } 2> /dev/null || status=$?
        process=
        sed 's/^/   /' "$work/said"
        case $status in
            0) break ;;
            137) killed=$((killed + 1)) ;;
            *) fail "the index had a wrong answer, or failed (exit code $status)" ;;
        esac
    done
    echo "   killed $killed times"
}

# Prints a checksum of all rows of a data set.
checksum() { "$hashfold" scan "$1" | sort -T "$work" | sha256sum; }

# Compares the map and the last version with a release.
compare() {
    local expected
    "$hashfold" build "$work/$1.rows" --format tsv --no-quotes --key path --value packages \
        --out "$work/expected" --replace > /dev/null
    expected=$(checksum "$work/expected")
    [[ $(checksum "$folder/index") == "$expected" ]] || fail "the map has not the rows of release $1"
    [[ $(checksum "$folder/nights") == "$expected" ]] || fail "the version has not the rows of release $1"
    echo "the map and the version have the $(wc -l < "$work/$1.tsv") rows of release $1"
}

say "two releases"
releases
for release in 1 2; do
    { printf 'path\tpackages\n'; cat "$work/$release.tsv"; } > "$work/$release.rows"
done
wc -l "$work/1.tsv" "$work/2.tsv" | sed "s|$work/||"

say "import"
"$hashfold" map import "$folder/index" "$work/1.rows" --format tsv --no-quotes --key path --value packages
"$hashfold" map export "$folder/index" --store "$folder/nights"

for ((number = 1; number <= nights; number++)); do
    from=$((2 - number % 2)) to=$((1 + number % 2))
    differences $from $to > "$work/changes"
    say "night $number: $(wc -l < "$work/changes") paths, from release $from to release $to"
    night
    "$hashfold" map verify "$folder/index"
    "$hashfold" map export "$folder/index" --store "$folder/nights"
    compare $to
    for store in nights snapshots; do "$hashfold" gc "$folder/$store" --keep 1; done
done

say "the index"
"$hashfold" map compact "$folder/index"
"$hashfold" map stat "$folder/index"
echo
echo "0 wrong answers"
