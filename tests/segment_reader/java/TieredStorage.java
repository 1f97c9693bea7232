import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * Lays out segments as LocalTieredStorage does, logs and indexes written by the broker's classes.
 * Argument: the directory.
 *
 * Topic a-b.c_1 holds three segments of partition 12. Producer 1's transaction begins in the
 * first and is aborted in the second; producer 2's is committed; producer 3's begins in the second
 * and is aborted in the third; producer 4's begins at offset 25 and stays open. Topic "plain" has
 * one segment without transactions.
 */
public final class TieredStorage {
    private static final long T0 = 1_700_000_000_000L;
    private final Path scratch;
    private final ProducerStateManager producers;
    private final ByteArrayOutputStream log = new ByteArrayOutputStream();
    private final List<AbortedTxn> aborted = new ArrayList<>();
    private Path stem;
    private long base;
    private long offset;

    private TieredStorage(Path scratch) throws Exception {
        this.scratch = scratch;
        this.producers = new ProducerStateManager(new TopicPartition("t", 0), scratch.toFile(),
                900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
    }

    public static void main(String[] args) throws Exception {
        Path root = Path.of(args[0]);
        TieredStorage topic = new TieredStorage(Files.createTempDirectory(root, "scratch"));
        Path partition = root.resolve("a-b.c_1-12-9zRY-_0sQlq-_b1nIgSuUw");
        topic.open(partition, 10, "-AAAAAAAAAAAAAAAAAAA-A");
        topic.data(1, 3);
        topic.data(2, 2);
        topic.data(-1, 4);
        topic.end(2, ControlRecordType.COMMIT);
        topic.close("0\n2\n0 0\n7 10\n");
        topic.open(partition, topic.offset, "BBBBBBBBBBBBBBBBBB-1-B");
        topic.data(1, 2);
        topic.end(1, ControlRecordType.ABORT);
        topic.data(3, 2);
        topic.data(4, 1);
        topic.close("0\n2\n0 0\n7 10\n");
        topic.open(partition, topic.offset, "CCCCCCCCCCCCCCCCCCCCCC");
        topic.data(3, 2);
        topic.end(3, ControlRecordType.ABORT);
        topic.data(4, 2);
        topic.data(-1, 2);
        topic.close("0\n2\n0 0\n7 10\n");
        TieredStorage plain = new TieredStorage(Files.createTempDirectory(root, "scratch"));
        plain.open(root.resolve("plain-0-0000000000000000000000"), 0, "DDDDDDDDDDDDDDDDDDDDDD");
        plain.data(-1, 5);
        plain.close("0\n1\n7 0\n");
    }

    private void open(Path directory, long baseOffset, String segmentId) throws Exception {
        Files.createDirectories(directory);
        stem = directory.resolve(String.format("%020d-%s", baseOffset, segmentId));
        base = baseOffset;
        offset = baseOffset;
        log.reset();
        aborted.clear();
    }

    private void data(long producer, int count) throws Exception {
        boolean transactional = producer >= 0;
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(4096),
                (byte) 2, Compression.NONE, TimestampType.CREATE_TIME, offset, -1, producer,
                (short) (transactional ? 0 : -1), transactional ? 0 : -1, transactional, false, 7,
                1 << 20);
        for (int i = 0; i < count; i++) {
            byte[] value = ("p" + producer + "-" + (offset + i)).getBytes(StandardCharsets.UTF_8);
            builder.append(T0 + offset + i, null, value);
        }
        append(builder.build());
    }

    private void end(long producer, ControlRecordType type) throws Exception {
        append(MemoryRecords.withEndTransactionMarker(offset, T0 + offset, 7, producer, (short) 0,
                new EndTransactionMarker(type, 0)));
    }

    private void append(MemoryRecords records) throws Exception {
        RecordBatch batch = records.batches().iterator().next();
        if (batch.producerId() >= 0) {
            ProducerAppendInfo info =
                    producers.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
            Optional<CompletedTxn> done = info.append(batch,
                    Optional.of(new LogOffsetMetadata(batch.baseOffset(), base, log.size())));
            producers.update(info);
            if (done.isPresent()) {
                producers.completeTxn(done.get());
                if (done.get().isAborted()) {
                    aborted.add(new AbortedTxn(done.get(), producers.firstUndecidedOffset()
                            .orElse(batch.lastOffset() + 1)));
                }
            }
        }
        producers.updateMapEndOffset(batch.lastOffset() + 1);
        ByteBuffer bytes = records.buffer();
        log.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        offset = batch.lastOffset() + 1;
    }

    private void close(String epochs) throws Exception {
        Files.write(file(".log").toPath(), log.toByteArray());
        Dump.dump(file(".log").toPath());
        indexes();
        if (!aborted.isEmpty()) {
            try (TransactionIndex index = new TransactionIndex(base, file(".txnindex"))) {
                for (AbortedTxn transaction : aborted) {
                    index.append(transaction);
                }
            }
        }
        producers.takeSnapshot();
        Path snapshot = scratch.resolve(String.format("%020d.snapshot", offset));
        Files.copy(snapshot, file(".snapshot").toPath());
        Files.writeString(file(".leader_epoch_checkpoint").toPath(), epochs);
    }

    private void indexes() throws Exception {
        OffsetIndex offsets = new OffsetIndex(file(".index"), base, 8 * 100);
        TimeIndex times = new TimeIndex(file(".timeindex"), base, 12 * 100);
        int position = 0;
        int number = 0;
        for (RecordBatch batch :
                MemoryRecords.readableRecords(ByteBuffer.wrap(log.toByteArray())).batches()) {
            if (number++ % 2 == 1) {
                offsets.append(batch.lastOffset(), position);
                times.maybeAppend(batch.maxTimestamp(), batch.lastOffset());
            }
            position += batch.sizeInBytes();
        }
        offsets.trimToValidSize();
        offsets.close();
        times.trimToValidSize();
        times.close();
    }

    private File file(String suffix) {
        return new File(stem + suffix);
    }
}
