import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * Runs HDFS with one name node and one data node in the folder args[0], and writes its URL to the file args[1], until it is
 * killed.
 */
public class Cluster {
    public static void main(String[] args) throws Exception {
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(new HdfsConfiguration(), new File(args[0]));
        MiniDFSCluster cluster = builder.numDataNodes(1).build();
        cluster.waitActive();
        // The name appears when all of the file is there.
        Path url = Files.writeString(Path.of(args[1] + ".new"), "hdfs://127.0.0.1:" + cluster.getNameNodePort());
        Files.move(url, Path.of(args[1]));
        Thread.currentThread().join();
    }
}
