import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.AbstractLegacyRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/** What Kafka's own classes read from a log: one JSON object per batch and line. */
public final class Dump {
    /** Arguments: log files; each is dumped to a file of the same name with ".json" behind it. */
    public static void main(String[] logs) throws Exception {
        for (String log : logs) {
            dump(Path.of(log));
        }
    }

    static void dump(Path log) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(log));
        int position = 0;
        try (PrintStream out = new PrintStream(log + ".json")) {
            for (RecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                batch.ensureValid();
                out.println(batch(batch, position));
                position += batch.sizeInBytes();
            }
        }
    }

    private static String batch(RecordBatch batch, int position) {
        StringBuilder json = new StringBuilder("{");
        field(json, "position", position);
        field(json, "size", batch.sizeInBytes());
        field(json, "magic", batch.magic());
        field(json, "base_offset", batch.baseOffset());
        field(json, "last_offset", batch.lastOffset());
        field(json, "leader_epoch", batch.partitionLeaderEpoch());
        field(json, "codec", batch.compressionType().id);
        field(json, "timestamp_type", batch.timestampType().id);
        field(json, "max_timestamp", batch.maxTimestamp());
        field(json, "producer_id", batch.producerId());
        field(json, "producer_epoch", batch.producerEpoch());
        field(json, "base_sequence", batch.baseSequence());
        field(json, "count", batch.countOrNull());
        field(json, "transactional", batch.isTransactional());
        field(json, "control", batch.isControlBatch());
        field(json, "delete_horizon", batch instanceof AbstractLegacyRecordBatch
                ? "-1" : Long.toString(batch.deleteHorizonMs().orElse(-1)));
        json.append("\"records\":[");
        String comma = "";
        for (Record record : batch) {
            json.append(comma).append(record(record));
            comma = ",";
        }
        return json.append("]}").toString();
    }

    private static String record(Record record) {
        StringBuilder json = new StringBuilder("[");
        json.append(record.offset()).append(',').append(record.timestamp()).append(',');
        json.append(text(record.key())).append(',').append(text(record.value())).append(",[");
        String comma = "";
        for (Header header : record.headers()) {
            byte[] key = header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8);
            byte[] value = header.value();
            json.append(comma).append('[').append(text(ByteBuffer.wrap(key))).append(',');
            json.append(text(value == null ? null : ByteBuffer.wrap(value))).append(']');
            comma = ",";
        }
        return json.append("]]").toString();
    }

    private static String text(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return '"' + Base64.getEncoder().encodeToString(copy) + '"';
    }

    private static void field(StringBuilder json, String name, Object value) {
        json.append('"').append(name).append("\":").append(value).append(',');
    }
}
