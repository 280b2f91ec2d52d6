/** Looks up keys continuously, and compares each answer with both states: see nightly/reader.rs. */
final class Reader extends Thread {
    static final int QUIET = 0;
    static final int PREPARE = 1;
    static final int SWITCH = 2;
    static final int SETTLE = 3;
    static final int ROLL_BACK = 4;

    volatile int phase = QUIET;
    private volatile boolean isReading;
    private volatile boolean isOver;
    private volatile Throwable failure;
    private final Engine engine;
    private final Data data;
    private final byte[] before;
    private final byte[] after;
    private final long[] lookups = new long[ROLL_BACK + 1];
    private final long[] nanos = new long[ROLL_BACK + 1];
    private final long[] longest = new long[ROLL_BACK + 1];

    Reader(Engine engine, Data data, byte[] before, byte[] after) {
        this.engine = engine;
        this.data = data;
        this.before = before;
        this.after = after;
    }

    @Override
    public void run() {
        try {
            int phase = QUIET;
            long last = 0;
            for (long n = 0; !isOver; n++) {
                int i = (int) Long.remainderUnsigned(Data.mix(Data.mix(data.seed) ^ n), data.count);
                check(engine, data, i, before, after);
                long now = System.nanoTime();
                int next = this.phase;
                if (n > 0) {
                    long gap = now - last;
                    lookups[next]++;
                    nanos[next] += gap;
                    for (int p = Math.min(phase, next); p <= next; p++) {
                        longest[p] = Math.max(longest[p], gap);
                    }
                }
                last = now;
                phase = next;
                isReading = true;
            }
        } catch (Throwable failure) {
            this.failure = failure;
        } finally {
            isReading = true;
        }
    }

    static void check(Engine engine, Data data, int i, byte[] before, byte[] after) {
        byte[] value = engine.get(data.key(i));
        if (!isState(data, value, i, after[i]) && !isState(data, value, i, before[i])) {
            throw new IllegalStateException("key " + i + " has a wrong value, or none");
        }
    }

    private static boolean isState(Data data, byte[] value, int i, byte state) {
        if (value == null || state == Data.DELETED) {
            return value == null && state == Data.DELETED;
        }
        return data.isValue(value, i, state);
    }

    void awaitFirst() throws InterruptedException {
        while (!isReading) {
            Thread.sleep(1);
        }
    }

    void finish() throws InterruptedException {
        isOver = true;
        join();
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
    }

    double longestMs(int... phases) {
        long max = 0;
        for (int phase : phases) {
            max = Math.max(max, longest[phase]);
        }
        return max / 1e6;
    }

    double perSecond(int... phases) {
        double count = 0;
        double time = 0;
        for (int phase : phases) {
            count += lookups[phase];
            time += nanos[phase] / 1e9;
        }
        return count / time;
    }
}
