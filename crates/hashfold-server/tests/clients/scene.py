"""A store and servers of it, for tests of client libraries."""

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ENTRIES = 2000


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def value(i, version=1):
    return f"value {i} of version {version}".encode()


class Home:
    """A folder with a store, and servers of it."""

    def __init__(self, hashfold):
        self.hashfold = hashfold
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.servers = []
        self.http = []  # Addresses for HTTP of all servers that have one.
        self.publish(1)

    def publish(self, version):
        rows = "".join(f"key-{i},{value(i, version).decode()}\n" for i in range(ENTRIES))
        (self.path / "rows.csv").write_text("key,value\n" + rows)
        self.run("update", "people", "rows.csv", "--key", "key")

    def run(self, *words):
        subprocess.run([self.hashfold, *words], cwd=self.path, check=True, stdout=subprocess.DEVNULL)

    def serve(self, *words):
        """Starts a server, and waits until it listens. Returns its port and its process."""
        command = [self.hashfold, "serve", *words, "--json"]
        process = subprocess.Popen(command, cwd=self.path, stdout=subprocess.PIPE, text=True)
        self.servers.append(process)
        line = json.loads(process.stdout.readline())
        self.http += [f"http://{address}" for address in line["http_addresses"]]
        return int(line["addresses"][0].rsplit(":", 1)[1]), process

    def close(self):
        for process in self.servers:
            process.kill()
            process.wait()
        self.folder.cleanup()


def check(what, got, expected):
    if got != expected:
        sys.exit(f"{what}: expected {expected!r}, got {got!r}")


def topology(home):
    """Two groups of two servers. Returns their ports, and starts them."""
    ports = [free_port() for _ in range(4)]
    node = lambda i: {"id": f"n{i}", "host": "127.0.0.1", "port": ports[i]}
    shards = [
        {"slots": [[0, 8191]], "nodes": [node(0), node(1)]},
        {"slots": [[8192, 16383]], "nodes": [node(2), node(3)]},
    ]
    (home.path / "topology.json").write_text(json.dumps({"epoch": 1, "shards": shards}))
    processes = []
    for i, port in enumerate(ports):
        (home.path / f"n{i}.toml").write_text(
            f"listen = ['127.0.0.1:{port}']\ncluster = 'topology.json'\nnode = 'n{i}'\n"
            "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n"
        )
        processes.append(home.serve("--config", f"n{i}.toml")[1])
    return ports, processes
