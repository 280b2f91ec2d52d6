"""Makes images of sketches with PostgreSQL, Redis and Apache DataSketches, and checks that these programs
read what Hashfold writes. `run` beside this file calls it.

Each line of a golden file is an image: its parameters, the number of keys, and the bytes in hexadecimal. The
keys are the numbers from 0 on, in decimal (`text`), or as 8 bytes (`bigint`).
"""

import pathlib
import subprocess
import sys
import tempfile

import datasketches
from programs import Postgres, Redis

GOLDEN = pathlib.Path("crates/hashfold/tests/golden/sketch")
HASHFOLD = pathlib.Path("target/debug/hashfold").absolute()

# log2m, regwidth, expthresh, sparseon, and numbers of keys: around the promotions, and far beyond.
POSTGRES = [
    ((11, 5, -1, 1), [0, 1, 2, 3, 50, 160, 161, 400, 720, 800, 900]),
    ((4, 4, -1, 1), [0, 1, 2, 3, 5, 20, 100_000]),
    ((4, 5, 4, 1), [1, 4, 5, 8, 9, 12, 1000]),
    ((8, 5, 0, 1), [0, 1, 10, 200, 5000]),
    ((8, 5, -1, 0), [0, 20, 21, 60]),
    ((8, 3, -1, 1), [1, 12, 13, 40, 20_000]),
    ((8, 6, 1, 1), [1, 2, 300]),
    ((8, 7, 8, 1), [8, 9, 300]),
    ((5, 1, 0, 1), [0, 1, 3, 10, 300]),
    ((10, 5, 128, 1), [127, 128, 129, 3000]),
    ((12, 5, -1, 1), [3000]),
]

# The precision, and numbers of keys.
DATASKETCHES = [
    (4, [0, 1, 7, 8, 9, 40, 1000, 1_000_000]),
    (7, [7, 8, 500]),
    (8, [0, 7, 8, 9, 24, 25, 300]),
    (10, [24, 25, 48, 49, 96, 97, 98, 5000]),
    (11, [200_000]),
    (12, [97, 384, 385]),
]
TARGETS = {
    4: datasketches.tgt_hll_type.HLL_4,
    6: datasketches.tgt_hll_type.HLL_6,
    8: datasketches.tgt_hll_type.HLL_8,
}
# Keys that are added to images here and there.
MORE = range(2_000_000, 2_000_030)
REDIS = [0, 1, 2, 10, 100, 300, 3000]


def postgres_images(postgres):
    for (log2m, regwidth, expthresh, sparseon), counts in POSTGRES:
        parameters = f"{log2m}, {regwidth}, {expthresh}, {sparseon}"
        for count in counts:
            for kind, key in [("text", "hll_hash_text(i::text)"), ("bigint", "hll_hash_bigint(i)")]:
                if kind == "bigint" and count > 20:
                    continue
                image = postgres.ask(
                    f"select coalesce(hll_add_agg({key}, {parameters}), hll_empty({parameters}))"
                    f" from generate_series(0::bigint, {count} - 1) i"
                )
                image = image.removeprefix("\\x")
                yield f"{log2m} {regwidth} {expthresh} {sparseon} {kind} {count} {image}"


def datasketches_of(precision, bits, kind, keys):
    sketch = datasketches.hll_sketch(precision, TARGETS[bits])
    for i in keys:
        sketch.update(str(i) if kind == "text" else i)
    return sketch


def datasketches_union(precision, bits, count):
    """Returns the union of the first `count` keys and as many others from the middle of these on."""
    union = datasketches.hll_union(precision)
    union.update(datasketches_of(precision, bits, "text", range(count)))
    union.update(datasketches_of(precision, bits, "text", range(count // 2, count // 2 + count)))
    return union.get_result(TARGETS[bits])


def datasketches_images():
    for precision, counts in DATASKETCHES:
        for count in counts:
            for bits in TARGETS:
                # Lists and sets differ in one byte only.
                if bits != 4 and (precision > 8 or count == 1) and count < 100:
                    continue
                line = lambda form, kind, image: f"{precision} {bits} {form} {kind} {count} {image.hex()}"
                sketch = datasketches_of(precision, bits, "text", range(count))
                yield line("compact", "text", sketch.serialize_compact())
                if precision < 12:
                    yield line("updatable", "text", sketch.serialize_updatable())
                if count in [1, 25]:
                    sketch = datasketches_of(precision, bits, "bigint", range(count))
                    yield line("compact", "bigint", sketch.serialize_compact())
                if 6 < count < 2000 and precision < 11:
                    union = datasketches_union(precision, bits, count)
                    yield line("compact", "union", union.serialize_compact())


def redis_images(redis):
    for count in REDIS:
        redis.ask("del", "image")
        redis.ask("pfadd", "image")
        for i in range(count):
            redis.ask("pfadd", "image", i)
        yield f"{count} {redis.ask('get', 'image').hex()}"


def hashfold(*arguments, keys=None):
    lines = None if keys is None else "".join(f"{key}\n" for key in keys).encode()
    command = [HASHFOLD, "sketch", *map(str, arguments)]
    subprocess.run(command, check=True, input=lines, stdout=subprocess.DEVNULL)


def check_way_back(line, folder, program):
    """Lets Hashfold read the image of a line, write it anew and go on with it, as the program does; and
    make one of its registers alone, which the program takes."""
    image, copy, registers, anew = (folder / name for name in ["image", "copy", "registers", "anew"])
    image.write_bytes(bytes.fromhex(line.split()[-1]))
    form = program.form(line)
    hashfold("convert", image, copy, "--to", form)
    assert copy.read_bytes() == program.written(line, image.read_bytes()), line
    # Sets of DataSketches may have their coupons in other places once they were read.
    copy.write_bytes(image.read_bytes())
    hashfold("add", copy, keys=MORE)
    assert copy.read_bytes() == program.continued(line, image.read_bytes()), line
    hashfold("convert", image, registers)
    hashfold("convert", registers, anew, "--to", form)
    hashfold("add", anew, keys=MORE)
    program.check_anew(line, copy.read_bytes(), anew.read_bytes())


class FromPostgres:
    def __init__(self, postgres):
        self.postgres = postgres

    def form(self, line):
        return "postgres"

    def _ask_image(self, sql):
        return bytes.fromhex(self.postgres.ask(f"select {sql}").removeprefix("\\x"))

    def _literal(self, image):
        return f"'\\x{image.hex()}'::hll"

    def _more(self, parameters):
        numbers = f"generate_series({MORE.start}, {MORE.stop} - 1) i"
        return f"(select hll_add_agg(hll_hash_text(i::text), {parameters}) from {numbers})"

    def written(self, line, image):
        return self._ask_image(self._literal(image))

    def continued(self, line, image):
        parameters = ", ".join(line.split()[:4])
        return self._ask_image(f"hll_union({self._literal(image)}, {self._more(parameters)})")

    def check_anew(self, line, copy, anew):
        """A sketch made of registers has no hashes: it is that of the same keys without any."""
        log2m, regwidth, _, _, kind, count, _ = line.split()
        key = "hll_hash_text(i::text)" if kind == "text" else "hll_hash_bigint(i)"
        parameters = f"{log2m}, {regwidth}, {-1 if count == '0' else 0}, 1"
        numbers = f"generate_series(0::bigint, {count} - 1) i"
        all_keys = f"(select hll_add_agg({key}, {parameters}) from {numbers})"
        expected = f"hll_union(coalesce({all_keys}, hll_empty({parameters})), {self._more(parameters)})"
        image = self._ask_image(expected)
        # All but the threshold of explicit sketches.
        assert anew[:2] + anew[3:] == image[:2] + image[3:], line
        counts = f"hll_cardinality({expected}), hll_cardinality({self._literal(anew)})"
        result = self.postgres.ask(f"select a = b from (select {counts}) as counts(a, b)")
        assert result == "t", line


class FromRedis:
    def __init__(self, redis):
        self.redis = redis

    def form(self, line):
        return "redis"

    def written(self, line, image):
        return image

    def continued(self, line, image):
        self.redis.ask("set", "image", image)
        for i in MORE:
            self.redis.ask("pfadd", "image", i)
        return self.redis.ask("get", "image")

    def check_anew(self, line, copy, anew):
        self.redis.ask("set", "copy", copy)
        self.redis.ask("set", "anew", anew)
        self.redis.ask("del", "union")
        self.redis.ask("pfmerge", "union", "copy", "anew")
        counts = [self.redis.ask("pfcount", name) for name in ["copy", "anew", "union"]]
        assert len(set(counts)) == 1, f"{line}: {counts}"


class FromDataSketches:
    def form(self, line):
        return f"datasketches-hll{line.split()[1]}"

    def written(self, line, image):
        return datasketches.hll_sketch.deserialize(image).serialize_compact()

    def continued(self, line, image):
        sketch = datasketches.hll_sketch.deserialize(image)
        for i in MORE:
            sketch.update(str(i))
        return sketch.serialize_compact()

    def check_anew(self, line, copy, anew):
        """Both have the same registers, and so has their union."""
        precision = int(line.split()[0])
        copy, anew = datasketches.hll_sketch.deserialize(copy), datasketches.hll_sketch.deserialize(anew)
        registers = []
        for sketches in [[copy], [anew], [copy, anew], [anew, copy]]:
            union = datasketches.hll_union(precision)
            # Something with registers, so that coupons become registers, too.
            union.update(datasketches_of(precision, 8, "text", range(3_000_000, 3_001_000)))
            for sketch in sketches:
                union.update(sketch)
            registers.append(union.get_result(TARGETS[8]).serialize_compact()[40:])
        assert all(other == registers[0] for other in registers), line
        assert abs(anew.get_estimate() / copy.get_estimate() - 1) < 6 / 2 ** (precision / 2), line


def main():
    is_check = sys.argv[1:] == ["--check"]
    with Postgres() as postgres, Redis() as redis, tempfile.TemporaryDirectory() as folder:
        files = {
            "postgres.txt": (list(postgres_images(postgres)), FromPostgres(postgres)),
            "datasketches.txt": (list(datasketches_images()), FromDataSketches()),
            "redis.txt": (list(redis_images(redis)), FromRedis(redis)),
        }
        for name, (lines, read) in files.items():
            text = "".join(f"{line}\n" for line in lines)
            if is_check:
                assert (GOLDEN / name).read_text() == text, f"{name} differs"
            (GOLDEN / name).write_text(text)
            for line in lines:
                check_way_back(line, pathlib.Path(folder), read)
            print(f"{name}: {len(lines)} images, {len(text)} bytes; Hashfold's are read")


if __name__ == "__main__":
    main()
