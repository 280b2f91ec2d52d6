"""The client of cluster.sh: reads random keys of a cluster until the file `stop` exists, and checks every
answer against the file `expected`: the night that is to be seen, and since when it is published. Usage: cluster.py PORT KEYS"""

import random
import sys
import time
from pathlib import Path

from valkey.cluster import ValkeyCluster
from valkey.exceptions import ClusterError, ConnectionError, ResponseError, TimeoutError

SWITCH_S = 5.0  # Time after a publication within which all servers must have switched to the version.
GAP_MAX_S = 2.0  # Longest call that is accepted.


def main():
    port, keys = int(sys.argv[1]), int(sys.argv[2])
    client = ValkeyCluster(host="127.0.0.1", port=port, read_from_replicas=True)
    reads, failed, longest, wrong, nights = 0, 0, 0.0, [], {}
    before, start = None, time.monotonic()
    expected = read_expected()
    while not Path("stop").exists():
        now_expected = read_expected()
        if now_expected[0] != expected[0]:
            before = expected
        expected = now_expected
        for _ in range(200):
            key = f"key-{random.randint(1, keys)}"
            called = time.monotonic()
            try:
                answer = client.get(key)
            except (ClusterError, ConnectionError, ResponseError, TimeoutError, IndexError):
                failed += 1
                continue
            finally:
                longest = max(longest, time.monotonic() - called)
            reads += 1
            night = night_of(answer, key)
            nights[night] = nights.get(night, 0) + 1
            if not is_right(night, before, expected):
                wrong.append((key, answer, expected))
    seconds = time.monotonic() - start
    print(f"answers:        {reads} in {seconds:.0f} s, {reads / seconds:.0f} per second from one client")
    print("of nights:      " + ", ".join(f"{night}: {count}" for night, count in sorted(nights.items())))
    print(f"failed calls:   {failed}")
    print(f"longest call:   {longest * 1000:.0f} ms")
    print(f"wrong answers:  {len(wrong)}")
    for key, answer, expected in wrong[:5]:
        print(f"  {key}: {answer}, expected night {expected[0]}")
    sys.exit(1 if wrong or not reads or longest > GAP_MAX_S or failed > 100 else 0)


def read_expected():
    night, since = Path("expected").read_text().split()
    return int(night), float(since)


def night_of(answer, key):
    """Returns the night of an answer; 0 if it is none, or that of another key."""
    words = (answer or b"").decode().split(" ")
    return int(words[1]) if len(words) == 4 and words[3] == key else 0


def is_right(night, before, expected):
    """Whether an answer is from the night that must be seen, or from the one before, until shortly after the
    publication. The file may have changed since it was read."""
    if night == expected[0]:
        return True
    later = read_expected()
    is_before = before is not None and night == before[0]
    return night == later[0] or (is_before and time.time() - expected[1] < SWITCH_S)


main()
