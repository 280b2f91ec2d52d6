"""Client libraries of Go and JavaScript against `hashfold serve`. Usage: others.py HASHFOLD FOLDER, a path of
the command and a folder for what is built. Each program reads from one server, then from a cluster in which a
server is killed, and compares every value. A language whose tools are not here is skipped with a line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from scene import ENTRIES, Home, topology

# For each language: the tools that it needs, how a program is built, and how each client is run.
LANGUAGES = {
    "go": (["go"], ["go", "build", "-o", "clients", "."], {"go-redis": ["./clients"]}),
    "node": (
        ["node", "npm"],
        ["npm", "install", "--silent", "--no-audit", "--no-fund"],
        {"ioredis": ["node", "ioredis.mjs"]},
    ),
}

# Failed calls and the longest call, in seconds, that a killed server may cost.
FAILED_MAX, LONGEST_MAX = 100, 2.5


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
        line = program.stdout.readline()
        if line != "ready\n":
            program.wait()
            sys.exit(f"{name}: expected the line ready, got {line!r}")
        time.sleep(1)
        processes[0].send_signal(signal.SIGKILL)
        result, _ = program.communicate(timeout=60)
        if program.returncode != 0:
            sys.exit(f"{name}: exit code {program.returncode}")
        result = json.loads(result.splitlines()[-1])
        longest = result["longest_ms"] / 1000
        print(f"  {name}: {result['reads']} reads, {result['failed']} failed, the longest took "
              f"{longest * 1000:.0f} ms, none was wrong", flush=True)
        if result["reads"] < 1000 or result["failed"] > FAILED_MAX or longest > LONGEST_MAX:
            sys.exit(f"{name}: the cluster was not there for too long")
    finally:
        home.close()


def main():
    hashfold, built = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    for language, (tools, build, clients) in LANGUAGES.items():
        missing = [tool for tool in tools if shutil.which(tool) is None]
        if missing:
            print(f"skipped: clients of {language}, which need {' and '.join(missing)}")
            continue
        folder = built / language
        shutil.copytree(Path(__file__).parent / language, folder, dirs_exist_ok=True)
        subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for name, command in clients.items():
            run(name, command, folder, hashfold)


main()
