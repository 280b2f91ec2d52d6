import io.lettuce.core.KeyValue;
import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** Reads from one server and from a cluster with Lettuce, and compares every value. */
public final class LettuceClient {
    private LettuceClient() {}

    public static void main(String[] arguments) throws Exception {
        RedisURI uri = RedisURI.create("127.0.0.1", Check.PORT);
        var connection = RedisClient.create(uri).connect();
        RedisCommands<String, String> client = connection.sync();
        Check.check("get", client.get(Check.key(7)), Check.value(7));
        Check.check("absent", client.get("nope"), null);
        List<String> many = client.mget(Check.key(1), "nope", Check.key(2)).stream()
                .map(pair -> ((KeyValue<String, String>) pair).getValueOrElse(null))
                .toList();
        Check.check("mget", many, Arrays.asList(Check.value(1), null, Check.value(2)));
        List<RedisFuture<String>> replies = IntStream.range(0, 500)
                .mapToObj(i -> connection.async().get(Check.key(i)))
                .toList();
        for (int i = 0; i < replies.size(); i++) {
            Check.check("pipeline", replies.get(i).get(), Check.value(i));
        }
        Check.check("exists", client.exists(Check.key(1), "nope"), 1L);
        Check.check("dbsize", client.dbsize(), (long) Check.ENTRIES);
        long seen = ScanIterator.scan(client, ScanArgs.Builder.limit(300)).stream().distinct().count();
        Check.check("scan", seen, (long) Check.ENTRIES);
        Check.checkRefused(() -> client.set("a", "b"));
        RedisURI fixed = RedisURI.builder(uri).withAuthentication("people@1", "x").build();
        Check.check("a version", RedisClient.create(fixed).connect().sync().get(Check.key(7)), Check.value(7));

        List<RedisURI> nodes =
                Check.CLUSTER_PORTS.stream().map(port -> RedisURI.create("127.0.0.1", port)).toList();
        nodes.forEach(node -> node.setTimeout(Duration.ofSeconds(1)));
        RedisClusterClient cluster = RedisClusterClient.create(nodes);
        cluster.setOptions(ClusterClientOptions.builder()
                .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                        .enableAllAdaptiveRefreshTriggers()
                        .enablePeriodicRefresh(Duration.ofSeconds(1))
                        .build())
                .build());
        var clusterConnection = cluster.connect();
        clusterConnection.setReadFrom(ReadFrom.ANY);
        Check.readOn(clusterConnection.sync()::get);
    }
}
