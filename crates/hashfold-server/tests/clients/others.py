"""Client libraries of Go, JavaScript and Java against `hashfold serve`. Usage: others.py HASHFOLD FOLDER, a path of
the command and a folder for what is built. Each program reads from one server, then from a cluster, also from
replicas, in which a server is killed, and compares every value. A language whose tools are not here, or whose
libraries cannot be installed, is skipped with a line."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from scene import ENTRIES, Home, topology

JAVA = ["java", "-cp", "classes:dependency/*"]

# For each language: the tools that it needs, how libraries are installed, how programs are built, and how each
# client is run.
LANGUAGES = {
    "Go": ("go", ["go"], ["go", "mod", "download"], ["go", "build", "-o", "clients", "."], {"go-redis": ["./clients"]}),
    "JavaScript": (
        "node",
        ["node", "npm"],
        ["npm", "install", "--silent", "--no-audit", "--no-fund"],
        [],
        {"ioredis": ["node", "ioredis.mjs"], "node-redis": ["node", "node-redis.mjs"]},
    ),
    "Java": (
        "java",
        ["java", "javac", "mvn"],
        ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=dependency"],
        ["javac", "-d", "classes", "-cp", "dependency/*", "Check.java", "JedisClient.java"],
        {"Jedis": [*JAVA, "JedisClient"]},
    ),
}

# Failed calls, and the longest time between two right answers, in seconds, that a killed server may cost.
FAILED_MAX, GAP_MAX = 100, 2.5

# Time that an installation, a build and a program may take, in seconds.
INSTALL_MAX, BUILD_MAX, RUN_MAX = 600, 300, 60


def lookups(port):
    """Returns the number of GETs that a server has answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"INFO commandstats\r\nQUIT\r\n")
        reply = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    counts = [line.split("calls=")[1].split(",")[0] for line in reply.splitlines() if line.startswith("cmdstat_get:")]
    return int(counts[0]) if counts else 0


def run(name, command, folder, hashfold):
    """Runs the program of one client library."""
    home = Home(hashfold)
    try:
        port, _ = home.serve("people", "--listen", "127.0.0.1:0")
        ports, processes = topology(home)
        time.sleep(1)  # Each server has seen the others.
        environment = {
            **os.environ,
            "PORT": str(port),
            "CLUSTER_PORTS": ",".join(map(str, ports)),
            "ENTRIES": str(ENTRIES),
        }
        program = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        watchdog = threading.Timer(RUN_MAX, program.kill)
        watchdog.start()
        try:
            line = program.stdout.readline()
            if line != "ready\n":
                program.wait()
                sys.exit(f"{name}: expected the line ready, got {line!r}, exit code {program.returncode}")
            replicas = [lookups(ports[1]), lookups(ports[3])]
            time.sleep(1)
            processes[0].send_signal(signal.SIGKILL)
            result, _ = program.communicate()
        finally:
            watchdog.cancel()
            program.kill()
        if program.returncode != 0:
            sys.exit(f"{name}: exit code {program.returncode} (after {RUN_MAX} s it is killed)")
        result = json.loads(result.splitlines()[-1])
        gap = result["gap_ms"] / 1000
        print(f"  {name}: {result['reads']} reads, {result['failed']} failed, the longest gap was {gap * 1000:.0f} ms, "
              f"none was wrong; replicas answered {sum(replicas)} reads before", flush=True)
        if min(replicas) == 0:
            sys.exit(f"{name}: a replica has answered no read")
        if result["reads"] < 1000 or result["failed"] > FAILED_MAX or gap > GAP_MAX:
            sys.exit(f"{name}: the cluster was not there for too long")
    finally:
        home.close()


def is_installed(language, tools, install, folder):
    """Installs the libraries of a language, or says why it is skipped."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        print(f"skipped: clients of {language}, which need {' and '.join(missing)}", flush=True)
        return False
    try:
        subprocess.run(install, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=INSTALL_MAX)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"skipped: clients of {language}, which could not be installed: {error}", flush=True)
        return False
    return True


def main():
    hashfold, built = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    passed = 0
    for language, (name, tools, install, build, clients) in LANGUAGES.items():
        folder = built / name
        shutil.copytree(Path(__file__).parent / name, folder, dirs_exist_ok=True)
        if not is_installed(language, tools, install, folder):
            continue
        if build:
            subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=BUILD_MAX)
        for client, command in clients.items():
            run(client, command, folder, hashfold)
            passed += 1
    print(f"{passed} passed, 0 failed")


main()
