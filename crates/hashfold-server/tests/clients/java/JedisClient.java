import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import redis.clients.jedis.ClusterCommandObjects;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Response;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.util.JedisClusterCRC16;

/** Reads from one server and from a cluster with Jedis, and compares every value. */
public final class JedisClient {
    private JedisClient() {}

    public static void main(String[] arguments) {
        HostAndPort address = new HostAndPort("127.0.0.1", Check.PORT);
        try (JedisPooled client = new JedisPooled(address.getHost(), address.getPort())) {
            Check.check("get", client.get(Check.key(7)), Check.value(7));
            Check.check("absent", client.get("nope"), null);
            List<String> expected = Arrays.asList(Check.value(1), null, Check.value(2));
            Check.check("mget", client.mget(Check.key(1), "nope", Check.key(2)), expected);
            var pipeline = client.pipelined();
            List<Response<String>> replies =
                    IntStream.range(0, 500).mapToObj(i -> pipeline.get(Check.key(i))).toList();
            pipeline.sync();
            Check.check("pipeline", replies.stream().map(Response::get).toList(), Check.values(500));
            Check.check("exists", client.exists(Check.key(1), "nope"), 1L);
            Check.check("dbsize", client.dbSize(), (long) Check.ENTRIES);
            Set<String> seen = new HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                var scanned = client.scan(cursor, new ScanParams().count(300));
                seen.addAll(scanned.getResult());
                cursor = scanned.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            Check.check("scan", seen.size(), Check.ENTRIES);
            Check.checkRefused(() -> client.set("a", "b"));
        }
        var fixed = DefaultJedisClientConfig.builder().user("people@1").password("x").build();
        try (JedisPooled client = new JedisPooled(address, fixed)) {
            Check.check("a version", client.get(Check.key(7)), Check.value(7));
        }
        cluster();
    }

    private static void cluster() {
        Set<HostAndPort> nodes = Check.CLUSTER_PORTS.stream()
                .map(port -> new HostAndPort("127.0.0.1", port))
                .collect(Collectors.toSet());
        var config = DefaultJedisClientConfig.builder()
                .timeoutMillis(1000)
                .readOnlyForRedisClusterReplicas()
                .build();
        JedisCluster cluster = new JedisCluster(nodes, config, 5, Duration.ofSeconds(2));
        String[] keys = Check.ofOneSlot(JedisClusterCRC16::getSlot);
        Check.check("mget of one slot", cluster.mget(keys), Arrays.stream(keys).map(Check::valueOf).toList());
        try (var pipeline = cluster.pipelined()) {
            List<Response<String>> replies =
                    IntStream.range(0, 500).mapToObj(i -> pipeline.get(Check.key(i))).toList();
            pipeline.sync();
            Check.check("cluster pipeline", replies.stream().map(Response::get).toList(), Check.values(500));
        }
        var commands = new ClusterCommandObjects();
        for (int i = 0; i < Check.ENTRIES; i++) {
            String got = cluster.executeCommandToReplica(commands.get(Check.key(i)));
            Check.check("get from a replica", got, Check.value(i));
        }
        Check.readOn(cluster::get);
    }
}
