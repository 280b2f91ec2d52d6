import com.carrotsearch.hppc.LongLongHashMap;
import gnu.trove.map.hash.TLongLongHashMap;
import it.unimi.dsi.fastutil.longs.Long2LongOpenHashMap;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;

/** A map from keys of 64 bits to numbers, which are never {@link #NONE}. */
interface Table {
    /** Stands for no value. */
    long NONE = -1;

    void put(long key, long value);

    long get(long key);

    long size();

    /** The maps by their short names, each with its class and configuration. A process makes one of them. */
    static Map<String, Kind> kinds() {
        Map<String, Kind> kinds = new LinkedHashMap<>();
        kinds.put("fastutil", new Kind("fastutil Long2LongOpenHashMap", "8.5.18, load 0.75", Fastutil::new));
        kinds.put("hppc", new Kind("HPPC LongLongHashMap", "0.10.0, load 0.75", Hppc::new));
        kinds.put("trove", new Kind("Trove TLongLongHashMap", "3.1.0 of 2018, load 0.5", Trove::new));
        kinds.put("eclipse", new Kind("Eclipse Collections LongLongHashMap", "13.0.0", Eclipse::new));
        kinds.put("jdk", new Kind("java.util.HashMap", "of Long to Long, load 0.75", Jdk::new));
        return kinds;
    }

    /** A class of maps. */
    record Kind(String name, String note, Supplier<Table> maker) {
    }

    /** fastutil. */
    final class Fastutil implements Table {
        private final Long2LongOpenHashMap map = new Long2LongOpenHashMap();

        Fastutil() {
            map.defaultReturnValue(NONE);
        }

        @Override
        public void put(long key, long value) {
            map.put(key, value);
        }

        @Override
        public long get(long key) {
            return map.get(key);
        }

        @Override
        public long size() {
            return map.size();
        }
    }

    /** HPPC. */
    final class Hppc implements Table {
        private final LongLongHashMap map = new LongLongHashMap();

        @Override
        public void put(long key, long value) {
            map.put(key, value);
        }

        @Override
        public long get(long key) {
            return map.getOrDefault(key, NONE);
        }

        @Override
        public long size() {
            return map.size();
        }
    }

    /** Trove. */
    final class Trove implements Table {
        private final TLongLongHashMap map = new TLongLongHashMap(10, 0.5f, 0, NONE);

        @Override
        public void put(long key, long value) {
            map.put(key, value);
        }

        @Override
        public long get(long key) {
            return map.get(key);
        }

        @Override
        public long size() {
            return map.size();
        }
    }

    /** Eclipse Collections. */
    final class Eclipse implements Table {
        private final org.eclipse.collections.impl.map.mutable.primitive.LongLongHashMap map =
                new org.eclipse.collections.impl.map.mutable.primitive.LongLongHashMap();

        @Override
        public void put(long key, long value) {
            map.put(key, value);
        }

        @Override
        public long get(long key) {
            return map.getIfAbsent(key, NONE);
        }

        @Override
        public long size() {
            return map.size();
        }
    }

    /** The map of the JDK, with an object for each key and each value. */
    final class Jdk implements Table {
        private final HashMap<Long, Long> map = new HashMap<>();

        @Override
        public void put(long key, long value) {
            map.put(key, value);
        }

        @Override
        public long get(long key) {
            Long value = map.get(key);
            return value == null ? NONE : value;
        }

        @Override
        public long size() {
            return map.size();
        }
    }
}
