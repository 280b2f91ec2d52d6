/** The keys and values of bench/peers (data.rs, nightly/book.rs), number for number. */
final class Data {
    static final int KEY_SIZE = 16;
    /** The state of an absent entry. */
    static final byte DELETED = -1;
    private static final int NOISE_BYTES = 1 << 18;
    private static final int NIGHT_SHIFT = 40;

    final long seed;
    final int count;
    final int valueSize;
    private final byte[] noise = new byte[NOISE_BYTES];

    Data(long seed, int count, int valueSize) {
        this.seed = seed;
        this.count = count;
        this.valueSize = valueSize;
        for (int i = 0; i < NOISE_BYTES / 8; i++) {
            little(noise, i * 8, mix(mix(seed ^ 0x6e6f_6973L) ^ i));
        }
    }

    static long mix(long x) {
        x += 0x9e37_79b9_7f4a_7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58_476d_1ce4_e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d0_49bb_1331_11ebL;
        return x ^ (x >>> 31);
    }

    byte[] key(long i) {
        long high = mix(i + mix(seed));
        long low = mix(high ^ seed);
        byte[] key = new byte[KEY_SIZE];
        little(key, 0, Long.reverseBytes(high));
        little(key, 8, Long.reverseBytes(low));
        return key;
    }

    /** The value that an entry got in a night; night 0 is the initial state. */
    byte[] value(long i, int night) {
        long number = i | (long) night << NIGHT_SHIFT;
        int start = start(number);
        byte[] value = new byte[valueSize];
        System.arraycopy(noise, start, value, 0, valueSize);
        if (valueSize >= 8) {
            little(value, 0, number);
        }
        return value;
    }

    boolean isValue(byte[] value, long i, int night) {
        return java.util.Arrays.equals(value, value(i, night));
    }

    private int start(long number) {
        return (int) Long.remainderUnsigned(mix(number), NOISE_BYTES - valueSize);
    }

    /** The state of an entry after a night: the night's number, {@link #DELETED}, or the old state. */
    byte after(byte before, long i, int night, double fraction) {
        long hash = mix(mix((seed ^ 0x6e69_6768L) + night) ^ i);
        if (part(hash) >= fraction) {
            return before;
        }
        return part(mix(hash)) < 0.1 ? DELETED : (byte) night;
    }

    /** Returns a checksum that is equal for programs with the same data. */
    String check() {
        long sum = 0;
        for (int i = 0; i < Math.min(count, 1000); i++) {
            byte state = after((byte) 0, i, 1, 0.5);
            byte[] value = state == DELETED ? new byte[valueSize] : value(i, state);
            for (byte b : key(i)) {
                sum = mix(sum ^ (b & 0xff));
            }
            for (byte b : value) {
                sum = mix(sum ^ (b & 0xff));
            }
        }
        return String.format("%016x", sum);
    }

    private static double part(long hash) {
        return (hash >>> 11) * 0x1p-53;
    }

    private static void little(byte[] to, int at, long word) {
        for (int i = 0; i < 8; i++) {
            to[at + i] = (byte) (word >>> 8 * i);
        }
    }
}
