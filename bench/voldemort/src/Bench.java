import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Runs {@code peers nightly} and {@code peers damage} with Voldemort's read-only engine. Prints one JSON
 * object per line for each night, or for each kind of damage; errors end the program.
 */
public final class Bench {
    private static final String PEER = "Voldemort read-only";
    /** As in damage.rs. */
    private static final int DAMAGE_VALUE_SIZE = 100;

    private final Map<String, String> options;
    private final Path folder;

    private Bench(Map<String, String> options) {
        this.options = options;
        folder = Path.of(options.get("dir"));
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>(Map.of("rounds", "1", "sizes", "5000000x100", "changes", "1,10",
                "nights", "5", "seed", "1", "quiet-ms", "1000", "entries", "40000", "flips", "1,100",
                "threads", "" + Runtime.getRuntime().availableProcessors()));
        for (int i = 1; i < arguments.length; i += 2) {
            String name = arguments[i].replaceFirst("^--", "");
            if (i + 1 == arguments.length || !(options.containsKey(name) || name.equals("dir"))) {
                throw new IllegalArgumentException(arguments[i] + ": expected one of " + options.keySet());
            }
            options.put(name, arguments[i + 1]);
        }
        Bench bench = new Bench(options);
        switch (arguments.length == 0 ? "" : arguments[0]) {
            case "nightly" -> bench.nightly();
            case "damage" -> bench.damage();
            default -> throw new IllegalArgumentException("expected nightly or damage, and options");
        }
        // The engine's threads that remove old versions would delay the end of the program.
        System.exit(0);
    }

    private int number(String name) {
        return Integer.parseInt(options.get(name));
    }

    // Nights.

    private void nightly() throws Exception {
        for (String size : options.get("sizes").split(",")) {
            String[] parts = size.split("x");
            Data data = new Data(number("seed"), Integer.parseInt(parts[0]), Integer.parseInt(parts[1]));
            for (int round = 1; round <= number("rounds"); round++) {
                cycle(data);
            }
        }
    }

    private void cycle(Data data) throws Exception {
        Path path = folder.resolve("store");
        Engine engine = new Engine(path);
        byte[] states = new byte[data.count];
        engine.build(data, states, number("threads"), 0);
        engine.open();
        int night = 0;
        long current = 0;
        for (String change : options.get("changes").split(",")) {
            double written = 0;
            double changed = 0;
            for (int nth = 1; nth <= number("nights"); nth++) {
                night++;
                double fraction = Double.parseDouble(change) / 100.0;
                byte[] after = states.clone();
                long changedBytes = 0;
                for (int i = 0; i < data.count; i++) {
                    // A state that no entry has yet shows whether the night changes it.
                    byte state = data.after((byte) -2, i, night, fraction);
                    if (state != -2) {
                        after[i] = state;
                        changedBytes += Data.KEY_SIZE + (state == Data.DELETED ? 0 : data.valueSize);
                    }
                }
                Map<String, Object> line = line(data, change);
                written += update(engine, data, states, after, night, changedBytes, line);
                changed += changedBytes;
                line.put("disk_per_payload", diskBytes(path) / payload(data, after));
                check(engine, data, after);
                if (nth == number("nights")) {
                    line.put("written_per_changed_byte_all_nights", written / changed);
                    rollBack(engine, data, states, after, current, line);
                    check(engine, data, states);
                    removeOld(path);
                } else {
                    states = after;
                    current = night;
                }
                print(line);
            }
        }
        engine.close();
        remove(path);
    }

    private Map<String, Object> line(Data data, String change) {
        Map<String, Object> line = new java.util.LinkedHashMap<>();
        line.put("entries", data.count);
        line.put("value_bytes", data.valueSize);
        line.put("change_percent", Double.parseDouble(change));
        line.put("check", data.check());
        line.put("peer", PEER);
        line.put("note", "format 2, 4 partitions of 4 chunks, binary search; its own builder makes the "
                + "whole state anew; nothing is synced or checksummed; Java 17");
        return line;
    }

    /** Returns the number of bytes written. */
    private long update(Engine engine, Data data, byte[] before, byte[] after, int night,
            long changedBytes, Map<String, Object> line) throws Exception {
        Reader reader = new Reader(engine, data, before, after);
        reader.start();
        reader.awaitFirst();
        Thread.sleep(number("quiet-ms"));
        long written = writtenBytes();
        long start = System.nanoTime();
        reader.phase = Reader.PREPARE;
        engine.build(data, after, number("threads"), night);
        long prepared = System.nanoTime();
        reader.phase = Reader.SWITCH;
        engine.swap(night);
        long switched = System.nanoTime();
        reader.phase = Reader.SETTLE;
        awaitDeletion(night);
        long settled = System.nanoTime();
        written = writtenBytes() - written;
        reader.finish();
        line.put("seconds_until_live", (switched - start) / 1e9);
        line.put("seconds_until_settled", (settled - start) / 1e9);
        line.put("written_per_changed_byte", (double) written / changedBytes);
        line.put("switch_ms", (switched - prepared) / 1e6);
        line.put("stall_ms_switch", reader.longestMs(Reader.SWITCH));
        line.put("stall_ms_update", reader.longestMs(Reader.PREPARE, Reader.SWITCH, Reader.SETTLE));
        line.put("stall_ms_quiet", reader.longestMs(Reader.QUIET));
        line.put("lookups_per_s_update",
                reader.perSecond(Reader.PREPARE, Reader.SWITCH, Reader.SETTLE));
        line.put("lookups_per_s_quiet", reader.perSecond(Reader.QUIET));
        return written;
    }

    private void rollBack(Engine engine, Data data, byte[] before, byte[] after, long version,
            Map<String, Object> line) throws Exception {
        Reader reader = new Reader(engine, data, before, after);
        reader.start();
        reader.awaitFirst();
        Thread.sleep(number("quiet-ms"));
        long start = System.nanoTime();
        reader.phase = Reader.ROLL_BACK;
        engine.rollBack(version);
        long end = System.nanoTime();
        reader.finish();
        line.put("seconds_to_roll_back", (end - start) / 1e9);
        line.put("stall_ms_roll_back", reader.longestMs(Reader.ROLL_BACK));
    }

    /** The engine removes versions older than one backup in a separate thread. */
    private void awaitDeletion(int night) throws Exception {
        while (true) {
            try (Stream<Path> list = Files.list(folder.resolve("store"))) {
                if (list.filter(path -> path.getFileName().toString().matches("version-\\d+")).count() <= 2) {
                    return;
                }
            }
            Thread.sleep(1);
        }
    }

    /** Removes the version that was rolled back. */
    private static void removeOld(Path store) throws IOException {
        try (Stream<Path> list = Files.list(store)) {
            for (Path path : list.filter(p -> p.toString().endsWith(".bak")).toList()) {
                remove(path);
            }
        }
    }

    private static void check(Engine engine, Data data, byte[] states) {
        int step = Math.max(1, data.count / 10_000);
        for (int i = 0; i < data.count; i += step) {
            Reader.check(engine, data, i, states, states);
        }
    }

    private static double payload(Data data, byte[] states) {
        double bytes = 0;
        for (byte state : states) {
            bytes += state == Data.DELETED ? 0 : Data.KEY_SIZE + data.valueSize;
        }
        return bytes;
    }

    // Damage.

    private void damage() throws Exception {
        String[] flips = options.get("flips").split(",");
        for (int round = 0; round < number("rounds"); round++) {
            Data data = new Data(number("seed") + round, number("entries"), DAMAGE_VALUE_SIZE);
            damage(data, "a chunk deleted", true, 0);
            for (String count : flips) {
                damage(data, "flipped bytes: " + count, false, Integer.parseInt(count));
            }
            String last = flips[flips.length - 1];
            damage(data, "a chunk deleted and flipped bytes: " + last, true, Integer.parseInt(last));
        }
    }

    private void damage(Data data, String name, boolean isDeleted, int flips) throws Exception {
        Path path = folder.resolve("store");
        Engine engine = new Engine(path);
        byte[] states = new byte[data.count];
        engine.build(data, states, number("threads"), 0);
        Path version = engine.version(0);
        int places = 0;
        if (isDeleted) {
            Files.delete(version.resolve("1_0_0.index"));
            Files.delete(version.resolve("1_0_0.data"));
            places++;
        }
        if (flips > 0) {
            List<Path> files = List.of(version.resolve("2_0_1.index"), version.resolve("2_0_1.data"));
            places += flip(files, data.seed, flips);
        }
        int[] counts = new int[4];
        double opens = 1;
        try {
            engine.open();
            for (int i = 0; i < data.count; i++) {
                counts[outcome(engine, data, i)]++;
            }
            engine.close();
        } catch (RuntimeException error) {
            System.err.println(error);
            opens = 0;
            counts[3] = data.count;
        }
        Map<String, Object> line = new java.util.LinkedHashMap<>();
        line.put("damage", name);
        line.put("peer", PEER);
        line.put("note", "format 2, 4 partitions of 4 chunks; it has no means to name what is damaged");
        line.put("opens", opens);
        line.put("lookups", data.count);
        line.put("right_values", counts[0]);
        line.put("silent_misses", counts[1]);
        line.put("wrong_values", counts[2]);
        line.put("errors", counts[3]);
        line.put("damaged_places", places);
        line.put("damaged_places_named", 0);
        print(line);
        remove(path);
    }

    /** 0: right, 1: a miss, 2: wrong, 3: an error. */
    private static int outcome(Engine engine, Data data, int i) {
        try {
            byte[] value = engine.get(data.key(i));
            return value == null ? 1 : data.isValue(value, i, 0) ? 0 : 2;
        } catch (RuntimeException | OutOfMemoryError error) {
            return 3;
        }
    }

    /** Works as flip() in damage.rs. Returns the number of changed files. */
    private static int flip(List<Path> files, long seed, int count) throws IOException {
        List<byte[]> all = new ArrayList<>();
        long total = 0;
        for (Path file : files) {
            all.add(Files.readAllBytes(file));
            total += all.get(all.size() - 1).length;
        }
        java.util.Set<Long> places = new java.util.HashSet<>();
        for (long n = 0; places.size() < Math.min(count, total); n++) {
            places.add(Long.remainderUnsigned(Data.mix(Data.mix(seed) ^ n), total));
        }
        java.util.Set<Integer> damaged = new java.util.HashSet<>();
        for (long place : places) {
            for (int file = 0; file < all.size(); file++) {
                byte[] bytes = all.get(file);
                if (place < bytes.length) {
                    bytes[(int) place] ^= (byte) (1 << Long.remainderUnsigned(Data.mix(place), 8));
                    damaged.add(file);
                    break;
                }
                place -= bytes.length;
            }
        }
        for (int file = 0; file < all.size(); file++) {
            Files.write(files.get(file), all.get(file));
        }
        return damaged.size();
    }

    // Files, counters, output.

    private static long writtenBytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/io"))) {
            if (line.startsWith("write_bytes:")) {
                return Long.parseLong(line.substring(12).trim());
            }
        }
        throw new IOException("/proc/self/io has no field write_bytes");
    }

    private static double diskBytes(Path folder) throws IOException {
        double sum = 0;
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                sum += (Files.size(file) + 4095) / 4096 * 4096;
            }
        }
        return sum;
    }

    private static void remove(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        }
    }

    private static void print(Map<String, Object> line) {
        StringBuilder out = new StringBuilder("{");
        line.forEach((name, value) -> {
            out.append(out.length() > 1 ? ", " : "").append('"').append(name).append("\": ");
            if (value instanceof Double number) {
                out.append(String.format(Locale.ROOT, "%.6f", number));
            } else if (value instanceof String text) {
                out.append('"').append(text).append('"');
            } else {
                out.append(value);
            }
        });
        System.out.println(out.append('}'));
    }
}
