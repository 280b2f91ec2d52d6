#!/usr/bin/env bash
# Counts the distinct paths, packages and base names in the file lists of several architectures of Debian,
# and those that any two or three of them have in common: by sketches of 12 KiB, by samples of filters on
# disk, and exactly.
#
# Two sketches are compared by maximum likelihood and by inclusion-exclusion. Samples read the front of
# exact filters until the interval is within 5 % of the estimate. The merge of whole filters is exact, and
# must find what `sort` and `comm` find. The chart has all estimates, their intervals of 95 %, and the truth:
# FOLDER/shared-files.svg. Where few keys are shared, a sketch knows little, and its interval says so.
#
# Usage: examples/shared_files.sh [--small] [FOLDER]      (default: target/shared-files)
#
# Fetches the lists of RELEASE (default: bookworm) from MIRROR (default: http://deb.debian.org/debian) with
# curl: 70 MB for ARCHITECTURES (default: amd64 arm64 s390x all). Takes some minutes, and 4 GB of disk.
# --small makes lists of three architectures from the 5440 packages in examples/data. PROGRAMS is a folder with a command that is
# compiled already.
set -euo pipefail
cd "$(dirname "$0")/.."
small=
if [[ ${1:-} == --small ]]; then
    small=1
    shift
fi
folder=${1:-target/shared-files}
release=${RELEASE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
read -ra architectures <<< "${ARCHITECTURES:-amd64 arm64 s390x all}"
[[ -z $small ]] || architectures=(amd64 arm64 all)
kinds=(paths packages basenames)
export LC_ALL=C

fail() { echo "shared_files.sh: $*" >&2; exit 1; }
say() { echo; echo "== $*"; }
[[ ! -e $folder ]] || fail "$folder is there already; remove it first"
if [[ -n $small ]]; then
    profile=()
    programs=${CARGO_TARGET_DIR:-target}/debug
else
    command -v curl > /dev/null || fail "there is no curl"
    profile=(--release)
    programs=${CARGO_TARGET_DIR:-target}/release
fi
[[ -n ${PROGRAMS:-} ]] || cargo build "${profile[@]}" --quiet --package hashfold-cli --no-default-features
hashfold=${PROGRAMS:-$programs}/hashfold
mkdir -p "$folder"
trap 'rm -f "$folder"/*.list "$folder"/*.keys' EXIT

# Prints the list of an architecture: lines of a path, spaces, and the packages with that file, such as
# games/chess,math/bc.
contents() {
    if [[ -z $small ]]; then
        local url=$mirror/dists/$release/main/Contents-$1.gz
        curl -sSfL --retry 3 "$url" | gzip -dc || fail "$url cannot be fetched"
        return
    fi
    # Each architecture is without one package in six; `all` has other packages, which share few names.
    tail -n +2 examples/data/packages.csv | awk -F , -v name="$1" '
        NR % 6 == (name == "amd64" ? 1 : 4) { next }
        name == "all" { print "usr/share/doc/" $1 "-data/copyright " $3 "/" $1 "-data" }
        name == "all" && NR % 6 == 2 { print "usr/share/" $1 "/" $1 " " $3 "/" $1 "-data" }
        name != "all" { print "usr/bin/" $1 " " $3 "/" $1; print "usr/lib/" name "/" $1 ".so " $3 "/" $1 }'
}

# Prints the keys of a kind in a list.
keys() {
    case $1 in
        paths) sed -E 's/[ \t]+[^ \t]+$//' "$2" ;;
        packages) awk '{ print $NF }' "$2" | tr , '\n' | sed 's|.*/||' ;;
        basenames) sed -E 's/[ \t]+[^ \t]+$//; s|.*/||' "$2" ;;
    esac
}

# Prints how many keys are in all of one to three sorted files.
shared() {
    case $# in
        1) wc -l < "$1" ;;
        2) comm -12 "$1" "$2" | wc -l ;;
        3) comm -12 "$1" "$2" | comm -12 - "$3" | wc -l ;;
    esac
}

# Prints a line of answers for the chart: how many keys of a kind are in all of some architectures.
answer() {
    local kind=$1 names sketch=null sample exact truth verb=(intersect)
    names=$(printf ' and %s' "${@:2}")
    local sets=("${@/#/$folder/$kind-}")
    sets=("${sets[@]:1}")
    truth=$(shared "${sets[@]/%/.keys}")
    [[ ${#sets[@]} -gt 1 ]] || verb=(count)
    case ${#sets[@]} in
        1) sketch=$("$hashfold" sketch count "${sets[0]}.hll" --json) ;;
        2) sketch=$("$hashfold" sketch intersect "${sets[@]/%/.hll}" --force --json) ;;
    esac
    sample=$("$hashfold" sketch "${verb[@]}" "${sets[@]}" --error 0.05 --json)
    # No sample is as precise, so the filters are read to their ends.
    exact=$("$hashfold" sketch "${verb[@]}" "${sets[@]}" --error 1e-9 --json)
    [[ $exact =~ \"count\":${truth}(\.0)?, ]] ||
        fail "$kind in${names# and}: comm finds $truth, and the merge $exact"
    printf '{"of":"%s","sets":"%s","truth":%s,"sketch":%s,"sample":%s}\n' \
        "$kind" "${names# and }" "$truth" "$sketch" "$sample"
}

# Prints the combinations of one to three architectures, one a line.
combinations() {
    local i j k all=("$@")
    printf '%s\n' "$@"
    for ((i = 0; i < $#; i++)); do
        for ((j = i + 1; j < $#; j++)); do echo "${all[i]} ${all[j]}"; done
    done
    for ((i = 0; i < $#; i++)); do
        for ((j = i + 1; j < $#; j++)); do
            for ((k = j + 1; k < $#; k++)); do echo "${all[i]} ${all[j]} ${all[k]}"; done
        done
    done
}

say "sketches and filters"
for name in "${architectures[@]}"; do
    contents "$name" > "$folder/$name.list"
    for kind in "${kinds[@]}"; do
        set=$folder/$kind-$name
        keys "$kind" "$folder/$name.list" | "$hashfold" sketch add "$set.hll"
        keys "$kind" "$folder/$name.list" | sort -u -T "$folder" > "$set.keys"
        "$hashfold" filter add "$set" --exact --seed 1 < "$set.keys" > "$folder/filters.log"
    done
    rm "$folder/$name.list"
done
du -ch "$folder"/*.hll | tail -n 1 | sed 's/total/of sketches/'
du -ch "$folder"/*/ | tail -n 1 | sed 's/total/of filters/'

say "answers"
for kind in "${kinds[@]}"; do
    while read -ra names; do
        answer "$kind" "${names[@]}"
    done < <(combinations "${architectures[@]}")
done > "$folder/answers.jsonl"
answers=$(realpath "$folder/answers.jsonl")
(cd bench && cargo run "${profile[@]}" --quiet --package record --example shared_files -- \
    "$answers" "${answers%/*}/shared-files.svg")
echo
echo "the merge of whole filters and comm agree; the chart is $folder/shared-files.svg"
