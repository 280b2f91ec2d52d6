#!/usr/bin/env bash
# Serves a store from a cluster, while its versions change: two groups of two servers follow versions in
# object storage, and a Valkey client reads all the time and checks every answer.
#
# A night's version is pushed and published; all servers switch to it at one moment. A server is killed
# (kill -9) and started again. A bad version, with half of the keys, is stopped by a gate where it is
# built. Another one is published and rolled back. At the end, the client says how many answers it got,
# how many calls failed, how long the longest one took, and that no answer was wrong.
#
# Usage: examples/cluster.sh [FOLDER]        (default: target/cluster)
#
# Needs Linux, Rust (https://rustup.rs), a C compiler, curl, and Python 3 with venv. Object storage is
# moto, which speaks the protocol of S3; it and the client are installed into FOLDER/python.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/cluster}
keys=${HASHFOLD_EXAMPLE_KEYS:-200000}

fail() { echo "cluster.sh: $*" >&2; exit 1; }
[[ ! -e $folder ]] || fail "$folder is there already; remove it first"
for tool in cargo cc curl python3; do
    command -v $tool > /dev/null || fail "there is no $tool"
done
cargo build --release --quiet --package hashfold-cli --no-default-features --features deploy,serve
hashfold=$(realpath "${CARGO_TARGET_DIR:-target}/release/hashfold")
reader=$(realpath examples/cluster.py)
mkdir -p "$folder"
cd "$folder"
python3 -m venv python || fail "Python has no venv; on Debian: apt-get install python3-venv"
python/bin/pip install --quiet --disable-pip-version-check valkey==6.2.0 'moto[server]==5.2.5'

trap 'kill $(jobs -p) 2> /dev/null || true; wait 2> /dev/null || true' EXIT
mapfile -t ports < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(9)]
print(*(s.getsockname()[1] for s in sockets), sep="\n")')
step() { printf '\n== %s\n' "$*"; }

step "object storage"
python/bin/moto_server -p "${ports[8]}" > moto.log 2>&1 &
export AWS_ACCESS_KEY_ID=example AWS_SECRET_ACCESS_KEY=example AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:${ports[8]}
curl -sf --retry 50 --retry-delay 1 --retry-connrefused -X PUT "$AWS_ENDPOINT_URL/versions" > bucket.log ||
    fail "moto does not answer; see $folder/moto.log"
remote=s3://versions/shop
echo "$remote at $AWS_ENDPOINT_URL"

# Prints the rows of a night, key,value; of the first keys only, if a number is given.
night() { echo key,value; seq "${2:-$keys}" | sed "s/.*/key-&,night $1 of key-&/"; }
# Says which night clients may see from now on, and since when it is published; `inf` while it is not: a
# publication waits until all servers have the version.
expect() { echo "$1 ${2:-$(date +%s.%N)}" > expected.new; mv expected.new expected; }
# Makes a version with the rows of a night, and sends it to the object storage.
build() {
    night "$1" | "$hashfold" update people - --format csv --key key --mode replace
    "$hashfold" deploy push people $remote
}
publish() {
    expect "$1" inf
    "$hashfold" deploy publish $remote "$1" --reason "night $1"
    expect "$1"
}

step "night 1"
build 1
publish 1

step "two groups of two servers"
node() { printf '{"id": "%s", "host": "127.0.0.1", "port": %s}' "$1" "$2"; }
cat > topology.json << EOF
{"epoch": 1, "shards": [
  {"slots": [[0, 8191]], "nodes": [$(node a1 "${ports[0]}"), $(node a2 "${ports[1]}")]},
  {"slots": [[8192, 16383]], "nodes": [$(node b1 "${ports[2]}"), $(node b2 "${ports[3]}")]}]}
EOF
nodes=(a1 a2 b1 b2)
# Starts a server, by its number. It fetches the current version itself.
serve() {
    cat > "${nodes[$1]}.toml" << EOF
listen = ["127.0.0.1:${ports[$1]}"]
http-listen = ["127.0.0.1:${ports[$1 + 4]}"]
cluster = "topology.json"
node = "${nodes[$1]}"
deploy.remote = "$remote"
[data.people]
path = "${nodes[$1]}/people"
[user.default]
space = "people"
EOF
    "$hashfold" serve --config "${nodes[$1]}.toml" >> "${nodes[$1]}.log" 2>&1 &
    servers[$1]=$!
}
ready() {
    curl -sf --retry 60 --retry-delay 1 --retry-all-errors "http://127.0.0.1:${ports[$1 + 4]}/readyz" > "${nodes[$1]}.ready" ||
        fail "${nodes[$1]} is not ready; see $folder/${nodes[$1]}.log"
}
servers=()
for number in 0 1 2 3; do serve $number; done
for number in 0 1 2 3; do ready $number; done
"$hashfold" deploy status $remote
python/bin/python "$reader" "${ports[0]}" "$keys" > reader.log &
client=$!
sleep 3

step "night 2 is published; all servers switch at one moment"
build 2
publish 2
sleep 5

step "the server a1 is killed, and started again after three seconds"
{ kill -9 "${servers[0]}" && wait "${servers[0]}" || true; } 2> killed.log
sleep 3
serve 0
ready 0

step "a night with half of the keys is stopped by a gate"
night 3 $((keys / 2)) > half.csv
"$hashfold" update people half.csv --key key --mode replace --max-change 10% && fail "the gate was open" ||
    echo "(exit code $?: the version is not published, and not pushed)"

step "night 4 is published, and rolled back"
build 4
publish 4
sleep 5
expect 2 inf
"$hashfold" deploy rollback $remote --reason "wrong prices"
expect 2
sleep 5
"$hashfold" deploy status $remote

step "what the client saw"
touch stop
wait $client || { cat reader.log; fail "the client saw a wrong answer, or none for too long"; }
cat reader.log
