import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.ToIntFunction;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** What the programs of client libraries share: the values, and a loop of reads during a failure. */
final class Check {
    static final int ENTRIES = Integer.parseInt(System.getenv("ENTRIES"));
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final List<Integer> CLUSTER_PORTS =
            List.of(System.getenv("CLUSTER_PORTS").split(",")).stream().map(Integer::valueOf).toList();

    private Check() {}

    static String key(int i) {
        return "key-" + i;
    }

    static String value(int i) {
        return "value " + i + " of version 1";
    }

    static List<String> values(int count) {
        return IntStream.range(0, count).mapToObj(Check::value).toList();
    }

    static void check(String what, Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            System.err.println(what + ": expected " + expected + ", got " + got);
            System.exit(1);
        }
    }

    /** Returns the keys of some slot that has two or more of them. */
    static String[] ofOneSlot(ToIntFunction<String> slotOf) {
        Map<Integer, List<String>> bySlot = IntStream.range(0, ENTRIES)
                .mapToObj(Check::key)
                .collect(Collectors.groupingBy(slotOf::applyAsInt, TreeMap::new, Collectors.toList()));
        return bySlot.values().stream().filter(keys -> keys.size() > 1).findFirst().get().toArray(String[]::new);
    }

    /** Returns the value of a key. */
    static String valueOf(String key) {
        return value(Integer.parseInt(key.substring("key-".length())));
    }

    /** Checks that a write is refused. */
    static void checkRefused(Runnable write) {
        try {
            write.run();
        } catch (RuntimeException error) {
            check("a write", error.getMessage().split(" ")[0], "NOPERM");
            return;
        }
        check("a write", "accepted", "refused");
    }

    /**
     * Reads from a cluster for five seconds, in which a server is killed, and prints how many calls failed, and the
     * longest time between two right answers.
     */
    static void readOn(UnaryOperator<String> get) {
        for (int i = 0; i < ENTRIES; i++) {
            check("cluster get", get.apply(key(i)), value(i));
        }
        System.out.println("ready");
        int reads = 0;
        int failed = 0;
        long gap = 0;
        long last = System.nanoTime();
        for (long end = last + 5_000_000_000L; System.nanoTime() < end; reads++) {
            int i = reads % ENTRIES;
            try {
                check("get during a failure", get.apply(key(i)), value(i));
                gap = Math.max(gap, System.nanoTime() - last);
                last = System.nanoTime();
            } catch (RuntimeException error) {
                failed++;
                System.err.println("  failed: " + error.getMessage());
            }
        }
        gap = Math.max(gap, System.nanoTime() - last);
        System.out.printf("{\"reads\": %d, \"failed\": %d, \"gap_ms\": %d}%n", reads, failed, gap / 1_000_000);
        System.exit(0);
    }
}
