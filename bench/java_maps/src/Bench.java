import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * Puts random keys into one map, and looks up present and absent ones, as {@code peers memory} does. Prints one JSON
 * object; a wrong answer ends the program.
 */
public final class Bench {
    /** Puts between two looks at the clock. */
    private static final int BLOCK = 1000;
    /** Number of keys whose sum shows that the keys are those of the other programs: as in java.rs. */
    private static final int CHECKED = 1000;

    private final Map<String, String> options;
    private final Map<String, Object> line = new LinkedHashMap<>();
    private final long seed;

    private Bench(Map<String, String> options) {
        this.options = options;
        seed = mix(Long.parseLong(options.get("seed")));
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length == 1 && arguments[0].equals("--list")) {
            System.out.println(String.join(" ", Table.kinds().keySet()));
            return;
        }
        Map<String, String> options = new HashMap<>(Map.of("map", "fastutil", "keys", "25000000", "gets", "2500000",
                "part", "1000000", "seconds", "20", "seed", "1"));
        for (int i = 0; i < arguments.length; i += 2) {
            String name = arguments[i].replaceFirst("^--", "");
            if (i + 1 == arguments.length || !options.containsKey(name)) {
                throw new IllegalArgumentException(arguments[i] + ": expected one of " + options.keySet());
            }
            options.put(name, arguments[i + 1]);
        }
        Table.Kind kind = Table.kinds().get(options.get("map"));
        if (kind == null) {
            throw new IllegalArgumentException("expected a map of " + Table.kinds().keySet());
        }
        Bench bench = new Bench(options);
        bench.run(kind);
        bench.print();
    }

    /** As in data.rs. */
    private static long mix(long x) {
        x += 0x9e37_79b9_7f4a_7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58_476d_1ce4_e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d0_49bb_1331_11ebL;
        return x ^ (x >>> 31);
    }

    /** As in puts.rs. */
    private long key(long number) {
        return mix(number + seed);
    }

    /** As in puts.rs. */
    private static long value(long key) {
        return key >>> 16;
    }

    private long number(String name) {
        return Long.parseLong(options.get(name));
    }

    private void run(Table.Kind kind) throws IOException {
        long sum = 0;
        for (int i = 0; i < CHECKED; i++) {
            sum += key(i);
        }
        line.put("keys", number("keys"));
        line.put("check", Long.toUnsignedString(sum));
        line.put("peer", kind.name());
        line.put("note", kind.note() + "; Java " + Runtime.version().feature() + ", its default garbage collector");
        long resident = status("VmRSS:");
        long heap = heapBytes();
        Table table = kind.maker().get();
        long count = put(table);
        double keys = count;
        line.put("bytes_per_key", (status("VmRSS:") - resident) / keys);
        line.put("peak_bytes_per_key", (status("VmHWM:") - resident) / keys);
        line.put("counted_bytes_per_key", (heapBytes() - heap) / keys);
        if (table.size() != count) {
            throw new IllegalStateException("the map has " + table.size() + " of " + count + " keys");
        }
        line.put("get_ns", get(table, 0, count, true));
        line.put("absent_get_ns", get(table, count, count, false));
    }

    /** Returns the number of keys that were put in time. */
    private long put(Table table) {
        long keys = number("keys");
        long part = Math.max(number("part"), BLOCK);
        long deadline = (long) (Double.parseDouble(options.get("seconds")) * 1e9);
        double[] parts = new double[(int) (keys / part)];
        int reached = 0;
        long cpu = processNanoseconds();
        long start = System.nanoTime();
        long before = start;
        long done = 0;
        while (done < keys) {
            long end = Math.min(keys, done + BLOCK);
            for (long i = done; i < end; i++) {
                long key = key(i);
                table.put(key, value(key));
            }
            long now = System.nanoTime();
            if (end / part > done / part) {
                parts[reached++] = (now - before) / 1e9;
                before = now;
            }
            done = end;
            if (now - start >= deadline) {
                break;
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        line.put("put_per_s", done / seconds);
        line.put("million_done", done / 1e6);
        line.put("cpu_ns", (processNanoseconds() - cpu) / (double) done);
        if (reached > 0) {
            double[] sorted = Arrays.copyOf(parts, reached);
            Arrays.sort(sorted);
            line.put("slowest_part_s", sorted[reached - 1]);
            line.put("slowest_by_median", sorted[reached - 1] / sorted[reached / 2]);
        }
        return done;
    }

    /** Returns the CPU time of a lookup in nanoseconds. */
    private double get(Table table, long first, long count, boolean isThere) {
        long gets = number("gets");
        long[] keys = new long[BLOCK];
        long[] values = new long[BLOCK];
        double nanoseconds = 0;
        for (long start = 0; start < gets; start += BLOCK) {
            int size = (int) Math.min(BLOCK, gets - start);
            for (int i = 0; i < size; i++) {
                long choice = Long.remainderUnsigned(mix((start + i) ^ mix(~number("seed"))), count);
                keys[i] = key(first + choice);
            }
            long before = threadNanoseconds();
            for (int i = 0; i < size; i++) {
                values[i] = table.get(keys[i]);
            }
            nanoseconds += threadNanoseconds() - before;
            for (int i = 0; i < size; i++) {
                long expected = isThere ? value(keys[i]) : Table.NONE;
                if (values[i] != expected) {
                    throw new IllegalStateException("key " + keys[i] + " has the value " + values[i]);
                }
            }
        }
        return nanoseconds / gets;
    }

    /** The memory of objects that are used, in bytes. */
    private static long heapBytes() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    private static long threadNanoseconds() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long processNanoseconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    /** Returns a field of the process's status, in bytes. */
    private static long status(String name) throws IOException {
        for (String field : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (field.startsWith(name)) {
                return Long.parseLong(field.replaceAll("\\D", "")) * 1024;
            }
        }
        throw new IOException("/proc/self/status has no field " + name);
    }

    private void print() {
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
