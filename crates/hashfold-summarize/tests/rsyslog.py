"""Debian's rsyslog as the sender of `hashfold summarize`. Usage: rsyslog.py HASHFOLD FOLDER, a path of the command and
a folder that is made anew. rsyslogd reads a file of CSV events and one of JSON events, and sends them as messages of
RFC 5424 with counted octets (RFC 6587) to two streams; the tables of all windows are compared with counts of the files."""

import csv
import io
import json
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from pathlib import Path

# Events of each format, and of one window, which is a minute.
EVENTS = {"v1": 200_000, "v2": 50_000}
EVENTS_A_WINDOW = 20_000

# The start of the first window, in milliseconds since 1970.
START_MS = 28_333_333 * 60_000

# Time until all events are summarised, and until a process ends, in seconds.
WAIT_MAX, END_MAX = 300, 30

CONFIG = """
out = "out"
rejected = "rejected"
memory = "256MiB"
metrics-listen = "127.0.0.1:0"

[stream.v1]
format = "csv"
columns = ["time", "user", "page", "ms", "agent"]
framing = "octets"
envelope = "syslog"
listen = ["127.0.0.1:0"]
time = { from = "time", format = "ms" }
[stream.v1.fields]
user = { type = "text" }
page = { type = "text" }
ms = { type = "int" }

[stream.v2]
format = "json"
framing = "octets"
envelope = "syslog"
listen = ["127.0.0.1:0"]
time = { from = "time", format = "ms" }
[stream.v2.fields]
user = { from = "user.id", type = "text" }
page = { from = "request.page", type = "text" }
ms = { from = "request.ms", type = "int" }

[summary.v1-pages]
stream = "v1"
group-by = ["page"]
window = "1m"
columns = [{ name = "n", count = true }, { name = "ms", sum = "ms" }]

[summary.v2-pages]
stream = "v2"
group-by = ["page"]
window = "1m"
columns = [{ name = "n", count = true }, { name = "ms", sum = "ms" }]
"""

# One worker for each queue, so that events stay in the order of the file.
RSYSLOG = """
global(workDirectory="{folder}/state" maxMessageSize="64k")
module(load="imfile")
{inputs}
"""

INPUT = """
ruleset(name="{name}" queue.type="FixedArray" queue.size="50000" queue.dequeueBatchSize="4096"
        queue.workerThreads="1") {{
    action(type="omfwd" Target="127.0.0.1" Port="{port}" Protocol="tcp" TCP_Framing="octet-counted"
           Template="RSYSLOG_SyslogProtocol23Format" action.resumeRetryCount="-1")
}}
input(type="imfile" File="{folder}/{name}.events" Tag="{name}" Facility="local0" Severity="info"
      freshStartTail="off" ruleset="{name}")
"""


def write_events(folder, name, count):
    """Writes a file of events; returns the number and the sum of milliseconds by window and page."""
    numbers = random.Random(name)
    counts = defaultdict(lambda: [0, 0])
    with open(folder / f"{name}.events", "w") as out:
        for i in range(count):
            window, user = i // EVENTS_A_WINDOW, f"user{numbers.randrange(5000)}"
            page, ms = f"/page/{numbers.randrange(300)}", numbers.randrange(1000)
            moment = START_MS + i * 60_000 // EVENTS_A_WINDOW
            if name == "v1":
                out.write(f'{moment},{user},{page},{ms},"Mozilla, ""5.0"" (X11; Linux x86_64)"\n')
            else:
                request = {"page": page, "ms": ms, "headers": {"agent": "Mozilla/5.0"}}
                parts = [{"id": 4711 + i, "price": 19.5, "name": "a thing"}] * 14
                event = {"time": moment, "user": {"id": user}, "request": request, "parts": parts}
                out.write(json.dumps(event) + "\n")
            counts[window, page][0] += 1
            counts[window, page][1] += ms
    return dict(counts)


def start_summarize(hashfold, folder):
    """Starts the command; returns its process, the address of its figures, and the ports of its streams."""
    (folder / "config.toml").write_text(CONFIG)
    command = [hashfold, "summarize", "config.toml", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    metrics, ports = None, {}
    while len(ports) < 2:
        line = json.loads(process.stdout.readline())
        if line["event"] == "metrics":
            metrics = line["address"]
        if line["event"] == "listening":
            ports[line["stream"]] = line["address"].rsplit(":", 1)[1]
    return process, metrics, ports


def start_rsyslog(folder, ports):
    """Starts rsyslogd; returns its process."""
    (folder / "state").mkdir()
    inputs = "".join(INPUT.format(folder=folder, name=name, port=port) for name, port in ports.items())
    (folder / "rsyslog.conf").write_text(RSYSLOG.format(folder=folder, inputs=inputs))
    command = ["rsyslogd", "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "rsyslog.pid")]
    return subprocess.Popen(command, cwd=folder)


def frames(metrics):
    """Returns the number of frames of each stream."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    found = [line.split(" ") for line in lines if line.startswith("hashfold_summarize_frames_total{")]
    return {name.split('"')[1]: int(value) for name, value in found}


def results(hashfold, folder, name):
    """Returns the rows of all windows, as `write_events` counts them."""
    rows = {}
    for window, path in enumerate(sorted((folder / "out" / f"{name}-pages").iterdir())):
        command = [hashfold, "scan", str(path), "--format", "csv"]
        scan = subprocess.run(command, capture_output=True, text=True, check=True)
        for row in csv.DictReader(io.StringIO(scan.stdout)):
            rows[window, row["page"]] = [int(row["n"]), int(row["ms"])]
    return rows


def stop(process):
    """Ends a process, and returns its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=END_MAX)


def main():
    hashfold, folder = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected = {name: write_events(folder, name, count) for name, count in EVENTS.items()}
    summarize, metrics, ports = start_summarize(hashfold, folder)
    rsyslog = start_rsyslog(folder, ports)
    try:
        deadline = time.monotonic() + WAIT_MAX
        while frames(metrics) != EVENTS:
            assert rsyslog.poll() is None and summarize.poll() is None, "a process has ended"
            assert time.monotonic() < deadline, f"after {WAIT_MAX} s: {frames(metrics)}"
            time.sleep(0.1)
        assert stop(summarize) == 0, "the command was stopped, which is its end"
        ends = [json.loads(line) for line in summarize.stdout]
        counts = [(line["events"], line["rejected"]) for line in ends]
        assert counts == [(count, 0) for count in EVENTS.values()], ends
        for name in EVENTS:
            assert results(hashfold, folder, name) == expected[name], f"the tables of {name} are wrong"
    finally:
        for process in [rsyslog, summarize]:
            if process.poll() is None:
                stop(process)
    shutil.rmtree(folder)
    print("rsyslog: {v1} CSV and {v2} JSON events, all summarised once".format(**EVENTS))


main()
