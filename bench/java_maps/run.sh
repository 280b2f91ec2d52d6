#!/bin/sh
# Measures maps of Java libraries, each in a process of its own in each round, on the keys of `peers memory`. Prints JSON
# Lines for its option --java.
#
#   bench/java_maps/run.sh --rounds 3 --keys 25000000 > target/java-maps.jsonl
#
# Needs mvn and a JDK (17 or later). JAVA_HEAP is the largest heap; JAVA_MAPS_DIR is the folder for downloads and builds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${JAVA_MAPS_DIR:-$here/../target/java-maps}
mkdir -p "$work" && work=$(cd "$work" && pwd)
rounds=1
if [ "${1:-}" = --rounds ]; then
  rounds=$2
  shift 2
fi
if [ ! -e "$work/lib.done" ] || [ "$here/pom.xml" -nt "$work/lib.done" ]; then
  mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/lib" >&2
  touch "$work/lib.done"
fi
javac -proc:none -Xlint:all -d "$work/classes" -cp "$work/lib/*" "$here"/src/*.java 2> "$work/javac.log" \
  || { cat "$work/javac.log" >&2; exit 1; }
run() { java "-Xmx${JAVA_HEAP:-14g}" -XX:+UseTransparentHugePages -cp "$work/classes:$work/lib/*" Bench "$@"; }
maps=$(run --list)
round=1
while [ "$round" -le "$rounds" ]; do
  for map in $maps; do
    echo "round $round: $map" >&2
    run --map "$map" "$@"
  done
  round=$((round + 1))
done
