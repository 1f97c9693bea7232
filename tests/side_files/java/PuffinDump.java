import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.TreeMap;
import org.apache.iceberg.Files;
import org.apache.iceberg.puffin.BlobMetadata;
import org.apache.iceberg.puffin.Puffin;
import org.apache.iceberg.puffin.PuffinReader;
import org.apache.iceberg.util.Pair;

/** What Iceberg's own reader finds in a Puffin file: one line per blob, fields parted by tabs. */
public final class PuffinDump {
  public static void main(String[] arguments) throws Exception {
    try (PuffinReader reader = Puffin.read(Files.localInput(arguments[0])).build()) {
      System.out.println(new TreeMap<>(reader.fileMetadata().properties()));
      for (Pair<BlobMetadata, ByteBuffer> each : reader.readAll(reader.fileMetadata().blobs())) {
        BlobMetadata blob = each.first();
        ByteBuffer payload = each.second().duplicate();
        byte[] bytes = new byte[payload.remaining()];
        payload.get(bytes);
        System.out.println(
            String.join(
                "\t",
                blob.type(),
                blob.inputFields().toString(),
                Long.toString(blob.snapshotId()),
                Long.toString(blob.sequenceNumber()),
                Long.toString(blob.offset()),
                Long.toString(blob.length()),
                String.valueOf(blob.compressionCodec()),
                new TreeMap<>(blob.properties()).toString(),
                HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes))));
      }
    }
  }
}
