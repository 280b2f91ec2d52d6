import java.io.File;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import voldemort.client.RoutingTier;
import voldemort.cluster.Cluster;
import voldemort.cluster.Node;
import voldemort.routing.RoutingStrategy;
import voldemort.routing.RoutingStrategyFactory;
import voldemort.serialization.SerializerDefinition;
import voldemort.serialization.json.EndOfFileException;
import voldemort.serialization.json.JsonReader;
import voldemort.store.StoreDefinition;
import voldemort.store.StoreDefinitionBuilder;
import voldemort.store.readonly.BinarySearchStrategy;
import voldemort.store.readonly.JsonStoreBuilder;
import voldemort.store.readonly.ReadOnlyStorageEngine;
import voldemort.store.readonly.ReadOnlyStorageFormat;
import voldemort.utils.ByteArray;
import voldemort.versioning.Versioned;

/** A store of Voldemort's read-only engine: one node, four partitions of four chunks. */
final class Engine {
    private static final int CHUNKS = 4;
    /** Number of pairs that are sorted at once; more pairs are merged from files. */
    private static final int SORT_PAIRS = 1_000_000;
    private static final int IO_BUFFER_BYTES = 1_000_000;

    private final Path folder;
    private final Cluster cluster;
    private final StoreDefinition definition;
    private final RoutingStrategy routing;
    private ReadOnlyStorageEngine engine;

    Engine(Path folder) {
        this.folder = folder;
        Node node = new Node(0, "localhost", 8081, 6666, 6667, Arrays.asList(0, 1, 2, 3));
        cluster = new Cluster("bench", List.of(node));
        SerializerDefinition bytes = new SerializerDefinition("identity");
        definition = new StoreDefinitionBuilder().setName("bench").setType("read-only")
                .setKeySerializer(bytes).setValueSerializer(bytes)
                .setRoutingPolicy(RoutingTier.CLIENT).setRoutingStrategyType("consistent-routing")
                .setReplicationFactor(1).setPreferredReads(1).setRequiredReads(1)
                .setPreferredWrites(1).setRequiredWrites(1).build();
        routing = new RoutingStrategyFactory().updateRoutingStrategy(definition, cluster);
    }

    Path version(long number) {
        return folder.resolve("version-" + number);
    }

    /** Builds a version with Voldemort's own builder, from bytes instead of JSON text. */
    void build(Data data, byte[] states, int threads, long number) throws Exception {
        Path out = folder.resolveSibling("built");
        Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
        Files.createDirectories(out);
        Files.createDirectories(folder);
        new JsonStoreBuilder(new Pairs(data, states), cluster, definition, routing, out.toFile(),
                temporary.toFile(), SORT_PAIRS, threads, CHUNKS, IO_BUFFER_BYTES, false)
                .build(ReadOnlyStorageFormat.READONLY_V2);
        Files.move(out.resolve("node-0"), version(number));
    }

    void open() {
        engine = new ReadOnlyStorageEngine("bench", new BinarySearchStrategy(), routing, 0,
                folder.toFile(), 1);
    }

    void swap(long number) {
        engine.swapFiles(version(number).toAbsolutePath().toString());
    }

    void rollBack(long number) {
        engine.rollback(new File(version(number).toAbsolutePath().toString()));
    }

    /** A value, or null. */
    byte[] get(byte[] key) {
        List<Versioned<byte[]>> found = engine.get(new ByteArray(key), null);
        return found.isEmpty() ? null : found.get(0).getValue();
    }

    void close() {
        engine.close();
    }

    /** Alternating keys and values, as the builder reads them from JSON. */
    private static final class Pairs extends JsonReader {
        private final Data data;
        private final byte[] states;
        private int next;
        private byte[] value;

        Pairs(Data data, byte[] states) {
            super(new StringReader(""));
            this.data = data;
            this.states = states;
        }

        @Override
        public Object read() {
            if (value != null) {
                byte[] read = value;
                value = null;
                return read;
            }
            while (next < data.count && states[next] == Data.DELETED) {
                next++;
            }
            if (next == data.count) {
                throw new EndOfFileException();
            }
            value = data.value(next, states[next]);
            return data.key(next++);
        }
    }
}
