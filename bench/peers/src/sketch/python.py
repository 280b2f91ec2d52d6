"""Sketches of Apache DataSketches, the C++ code behind its Python package: one request a line, one answer a line.

["time", start, end, passes] → [CPU seconds, seconds, estimate, bytes]
["growth", start, [size, ...]] → [estimate, ...]
["intersection", [start, end], [start, end]] → [|A| + |B| − |A ∪ B|]
"""

import collections
import json
import sys
import time

import numpy
from datasketches import hll_sketch, hll_union, tgt_hll_type

PRECISION = 14


def words(start, end):
    """Returns the keys of some numbers, as `data::mix` makes them."""
    x = numpy.arange(start, end, dtype=numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    # The package takes signed integers; the bytes that it hashes are the same.
    return (x ^ (x >> numpy.uint64(31))).view(numpy.int64).tolist()


def new():
    return hll_sketch(PRECISION, tgt_hll_type.HLL_8)


def insert(sketch, keys):
    """Calls `update` for each key, without a loop in Python."""
    collections.deque(map(sketch.update, keys), maxlen=0)


def sketch_of(start, end):
    sketch = new()
    insert(sketch, words(start, end))
    return sketch


def timed(start, end, passes):
    keys, best = words(start, end), [float("inf")] * 2
    for _ in range(passes):
        sketch = new()
        before = time.process_time(), time.perf_counter()
        insert(sketch, keys)
        after = time.process_time(), time.perf_counter()
        best = [min(best[i], after[i] - before[i]) for i in range(2)]
    return [*best, sketch.get_estimate(), len(sketch.serialize_compact())]


def growth(start, sizes):
    sketch, known, estimates = new(), 0, []
    for size in sizes:
        insert(sketch, words(start + known, start + size))
        known = size
        estimates.append(sketch.get_estimate())
    return estimates


def intersection(a, b):
    a, b = sketch_of(*a), sketch_of(*b)
    union = hll_union(PRECISION)
    union.update(a)
    union.update(b)
    return [a.get_estimate() + b.get_estimate() - union.get_estimate()]


for line in sys.stdin:
    request, *arguments = json.loads(line)
    answer = {"time": timed, "growth": growth, "intersection": intersection}[request](*arguments)
    print(json.dumps(answer), flush=True)
