#!/bin/sh
# Fetches Voldemort 1.10.26 and the libraries it names, makes it compile on Java 17, and runs it on the
# data of `peers nightly` or `peers damage`. Prints JSON Lines for their option --voldemort.
#
#   bench/voldemort/run.sh nightly --sizes 5000000x100 > target/voldemort-nightly.jsonl
#   bench/voldemort/run.sh damage > target/voldemort-damage.jsonl
#
# Needs git, mvn and a JDK (17 or later). VOLDEMORT_GIT is another repository to clone; VOLDEMORT_DIR is
# the folder for all downloads and builds.
set -eu
commit=99127eab3078eed90faa66cc671259a85cb89464
git_url=${VOLDEMORT_GIT:-https://github.com/voldemort/voldemort.git}
here=$(cd "$(dirname "$0")" && pwd)
work=${VOLDEMORT_DIR:-$here/../target/voldemort}
mkdir -p "$work" && work=$(cd "$work" && pwd)

if [ ! -e "$work/source.done" ]; then
  rm -rf "$work/source"
  git init -q "$work/source"
  git -C "$work/source" fetch -q --depth 1 "$git_url" "$commit"
  git -C "$work/source" -c advice.detachedHead=false checkout -q FETCH_HEAD
  # The class of the JDK moved, and the version of je that is on Maven Central lacks a constant, which
  # only Voldemort's other storage engine uses.
  sed -i 's/^.*sun\.misc\.Cleaner cl = .*$/        jdk.internal.ref.Cleaner cl = ((sun.nio.ch.DirectBuffer) buff).cleaner();/' \
    "$work/source/src/java/voldemort/store/readonly/io/ByteBufferCloser.java"
  sed -i 's/EnvironmentConfig\.CLEANER_ADJUST_UTILIZATION/"je.cleaner.adjustUtilization"/' \
    "$work/source/src/java/voldemort/store/bdb/BdbStorageConfiguration.java"
  touch "$work/source.done"
fi
if [ ! -e "$work/lib.done" ]; then
  mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/lib" >&2
  touch "$work/lib.done"
fi
internals="java.base/sun.nio.ch java.base/jdk.internal.ref"
exports=
for package in $internals; do exports="$exports --add-exports=$package=ALL-UNNAMED"; done
# Compiles only the sources that the harness uses.
javac -nowarn -proc:none -Xlint:none $exports -d "$work/classes" -cp "$work/lib/*" \
  -sourcepath "$here/src:$work/source/src/java" "$here"/src/*.java 2> "$work/javac.log" \
  || { cat "$work/javac.log" >&2; exit 1; }
cp "$here/log4j.properties" "$work/classes/"

data="$work/data"
rm -rf "$data" && mkdir -p "$data/tmp"
opens="--add-opens=java.base/java.nio=ALL-UNNAMED"
for package in $internals; do opens="$opens --add-opens=$package=ALL-UNNAMED"; done
status=0
java -Xmx${JAVA_HEAP:-3g} $opens $exports -Djava.io.tmpdir="$data/tmp" -cp "$work/classes:$work/lib/*" \
  Bench "$@" --dir "$data" || status=$?
rm -rf "$data"
exit $status
