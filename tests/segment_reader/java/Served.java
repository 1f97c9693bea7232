import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/** Reads logs in each of the ways in which brokers and consumers do, then dumps them. */
public final class Served {
    /** Arguments: log files. */
    public static void main(String[] logs) throws Exception {
        BufferSupplier buffers = BufferSupplier.create();
        for (String log : logs) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(log)));
            int read = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                batch.ensureValid();
                read += batch.sizeInBytes();
                compare((DefaultRecordBatch) batch, buffers);
            }
            if (read != bytes.capacity()) {
                throw new AssertionError(log + ": " + read + " of " + bytes.capacity() + " bytes");
            }
            Dump.dump(Path.of(log));
        }
    }

    private static void compare(DefaultRecordBatch batch, BufferSupplier buffers) {
        List<Record> whole = list(batch.iterator());
        if (whole.size() != batch.countOrNull()) {
            throw new AssertionError(batch + ": " + whole.size() + " records");
        }
        try (CloseableIterator<Record> consumers = batch.streamingIterator(buffers)) {
            if (!whole.equals(list(consumers))) {
                throw new AssertionError(batch + ": consumers see other records");
            }
        }
        List<Record> timestamps;
        try (CloseableIterator<Record> brokers = batch.skipKeyValueIterator(buffers)) {
            timestamps = list(brokers);
        }
        for (int i = 0; i < whole.size(); i++) {
            if (timestamps.get(i).offset() != whole.get(i).offset()
                    || timestamps.get(i).timestamp() != whole.get(i).timestamp()) {
                throw new AssertionError(batch + ": brokers see other timestamps");
            }
        }
        if (timestamps.size() != whole.size()) {
            throw new AssertionError(batch + ": brokers see " + timestamps.size() + " records");
        }
    }

    private static List<Record> list(Iterator<? extends Record> records) {
        List<Record> all = new ArrayList<>();
        records.forEachRemaining(all::add);
        return all;
    }
}
