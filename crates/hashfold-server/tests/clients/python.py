"""Python clients of Redis and Valkey against `hashfold serve`: reads, pipelines, versions, filters, clusters,
and a server that is killed. Usage: python.py HASHFOLD, a path of the command."""

import importlib
import signal
import sys
import time
from pathlib import Path

from scene import ENTRIES, Home, check, topology, value


def reads(library, home):
    port, _ = home.serve("people", "--listen", "127.0.0.1:0", "--filters", "made")
    kind = library.Redis if hasattr(library, "Redis") else library.Valkey
    errors = library.exceptions
    for protocol in (2, 3):
        client = kind(port=port, protocol=protocol)
        check("get", client.get("key-7"), value(7))
        check("absent", client.get("nope"), None)
        check("mget", client.mget("key-1", "nope", "key-2"), [value(1), None, value(2)])
        for transaction in (False, True):
            pipeline = client.pipeline(transaction=transaction)
            for i in range(500):
                pipeline.get(f"key-{i}")
            check("pipeline", pipeline.execute(), [value(i) for i in range(500)])
        check("scan", len(set(client.scan_iter(count=300))), ENTRIES + 2 * (protocol == 3))
        check("exists", client.exists("key-1", "nope"), 1)
        check("ttl", client.ttl("key-1"), -1)
        check("dbsize", client.dbsize(), ENTRIES + 2 * (protocol == 3))
        check("info", client.info("server")["redis_version"], "7.2.4")
        try:
            client.set("a", "b")
            sys.exit("a write was accepted")
        except errors.NoPermissionError:
            pass
        added = client.execute_command("BF.ADD", "seen", f"item {protocol}")
        check("bf.add", int(added), 1)
        with client.pipeline() as pipeline:
            pipeline.watch("key-1", "watched")
            check("read while watching", pipeline.get("key-1"), value(1))
            pipeline.multi()
            pipeline.get("key-2")
            client.execute_command("BF.ADD", "watched", f"item {protocol}")
            try:
                pipeline.execute()
                sys.exit("a transaction ran after a watched key had changed")
            except errors.WatchError:
                pass
        fixed = kind(port=port, protocol=protocol, username="people@1", password="x")
        check("a version", fixed.get("key-7"), value(7))


def cluster(library, home):
    ports, processes = topology(home)
    time.sleep(1)  # Each server has seen the others.
    kind = getattr(library, "RedisCluster", None) or library.ValkeyCluster
    client = kind(host="127.0.0.1", port=ports[0], read_from_replicas=True)
    for i in range(ENTRIES):
        check("cluster get", client.get(f"key-{i}"), value(i))
    check("multi-get", client.mget_nonatomic(*[f"key-{i}" for i in range(200)]), [value(i) for i in range(200)])
    failed, longest, start, i = 0, 0.0, time.monotonic(), 0
    while time.monotonic() - start < 4:
        if i == 500:
            processes[0].send_signal(signal.SIGKILL)
        i += 1
        before = time.monotonic()
        try:
            check("get during a failure", client.get(f"key-{i % ENTRIES}"), value(i % ENTRIES))
        except (library.exceptions.ConnectionError, library.exceptions.ClusterError, IndexError):
            failed += 1
        longest = max(longest, time.monotonic() - before)
    if i <= 500:
        sys.exit(f"only {i} reads in 4 s")
    print(f"  a killed server: {i} reads, {failed} failed, the longest took {longest * 1000:.0f} ms, none was wrong")
    if failed > 100 or longest > 2:
        sys.exit("the cluster was not there for too long")


def main():
    hashfold = str(Path(sys.argv[1]).resolve())
    for name in ("redis", "valkey"):
        library = importlib.import_module(name)
        print(f"{name}-py {library.__version__}", flush=True)
        home = Home(hashfold)
        try:
            reads(library, home)
            cluster(library, home)
        finally:
            home.close()
    print("2 passed, 0 failed")


main()
