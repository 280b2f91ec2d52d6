"""Servers that run while images are made: PostgreSQL with the extension hll, and Redis."""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

POSTGRES = pathlib.Path("/usr/lib/postgresql/15/bin")


class Postgres:
    """A new cluster in a folder of its own, on a Unix socket only."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="sketch-postgres-")
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
        self._run("initdb", "-D", f"{self.folder}/data", "-A", "trust", "-U", "postgres")
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", f"{self.folder}/log", "-o", options, "start")
        self.ask("create extension hll")
        return self

    def __exit__(self, *_):
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "stop")
        shutil.rmtree(self.folder)

    def _run(self, program, *arguments):
        # The server does not run as root.
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        command = (user if os.getuid() == 0 else []) + [str(POSTGRES / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def ask(self, sql):
        """Returns the only value of a query's result, as text."""
        command = ["psql", "-h", self.folder, "-U", "postgres", "-AtqX", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        return subprocess.run(command, check=True, input=sql, stdout=subprocess.PIPE, text=True).stdout.strip()


class Redis:
    """A new server without files, on a Unix socket only."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="sketch-redis-")
        path = f"{self.folder}/socket"
        command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", self.folder]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not os.path.exists(path):
            if self.server.poll() is not None:
                raise RuntimeError("redis-server ended")
            time.sleep(0.05)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.replies = self.socket.makefile("rb")
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.folder)

    def ask(self, *words):
        """Sends a command. Returns a number, or bytes."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(parts))
        kind, rest = self.replies.read(1), self.replies.readline()[:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return self.replies.read(int(rest) + 2)[:-2]
        return int(rest) if kind == b":" else rest
