import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Writes logs of every kind with Kafka's own classes. Argument: the directory for them. */
public final class Segments {
    private static final long T0 = 1_700_000_000_000L;
    private final Random random = new Random(42);
    private final Path directory;

    private Segments(Path directory) {
        this.directory = directory;
    }

    public static void main(String[] args) throws Exception {
        Segments segments = new Segments(Path.of(args[0]));
        for (CompressionType codec : CompressionType.values()) {
            segments.write("codec-" + codec.name, segments.codec(codec));
        }
        segments.write("mixed-codecs", segments.mixedCodecs());
        segments.write("append-time", segments.appendTime());
        segments.write("transactions", segments.transactions());
        segments.write("empty-batches", segments.emptyBatches());
        segments.write("compacted", segments.compacted());
        segments.write("tiny-batches", segments.tinyBatches());
        segments.write("odd-timestamps", segments.oddTimestamps());
        segments.write("large-records", segments.largeRecords());
        for (byte magic = 0; magic < 2; magic++) {
            segments.write("magic-" + magic, segments.old(magic));
        }
    }

    private void write(String name, ByteArrayOutputStream log) throws Exception {
        Path path = directory.resolve(name + ".log");
        Files.write(path, log.toByteArray());
        Dump.dump(path);
    }

    private ByteArrayOutputStream codec(CompressionType codec) throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        long offset = 7;
        for (int i = 0; i < 40; i++) {
            offset = varied(log, codec, offset, 1 + random.nextInt(60), i < 20 ? 3 : 5);
        }
        return log;
    }

    private ByteArrayOutputStream mixedCodecs() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        CompressionType[] codecs = CompressionType.values();
        long offset = 0;
        for (int i = 0; i < 60; i++) {
            CompressionType codec = codecs[random.nextInt(codecs.length)];
            offset = varied(log, codec, offset, 1 + random.nextInt(40), 0) + random.nextInt(3);
        }
        return log;
    }

    /** Nulls, empty and repeated things, gaps, timestamps that go back. */
    private long varied(
            ByteArrayOutputStream log, CompressionType codec, long offset, int count, int epoch)
            throws Exception {
        MemoryRecordsBuilder builder = builder(codec, TimestampType.CREATE_TIME, offset, -1, false,
                epoch, RecordBatch.NO_TIMESTAMP, RecordBatch.NO_TIMESTAMP);
        for (int i = 0; i < count; i++) {
            long timestamp = T0 + random.nextInt(100_000) - 50_000;
            builder.appendWithOffset(offset, timestamp, bytes(40), bytes(600), headers());
            offset += random.nextInt(4) == 0 ? 1 + random.nextInt(200) : 1;
        }
        return append(log, builder);
    }

    private ByteArrayOutputStream appendTime() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        for (int i = 0; i < 10; i++) {
            MemoryRecordsBuilder builder = builder(
                    i % 2 == 0 ? CompressionType.NONE : CompressionType.LZ4,
                    TimestampType.LOG_APPEND_TIME, i * 5L, -1, false, 0, T0 + i, -1);
            for (int j = 0; j < 5; j++) {
                builder.append(T0 - 1000 * j, bytes(10), bytes(50), headers());
            }
            append(log, builder);
        }
        return log;
    }

    /** Producers 1 to 4 in turn; odd transactions are aborted; producer 9 stays open. */
    private ByteArrayOutputStream transactions() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        long offset = data(log, 100, 9, true);
        for (int i = 0; i < 40; i++) {
            for (int producer = 1; producer <= 4; producer++) {
                offset = data(log, offset, producer, true);
                offset = data(log, offset, producer, false);
                if (i % 3 == producer % 3) {
                    ControlRecordType type =
                            i % 2 == 1 ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
                    EndTransactionMarker marker = new EndTransactionMarker(type, 5);
                    log.write(array(MemoryRecords.withEndTransactionMarker(offset++, T0 + i, 2,
                            producer, (short) 1, marker)));
                }
            }
        }
        return log;
    }

    private long data(ByteArrayOutputStream log, long offset, long producer, boolean transactional)
            throws Exception {
        MemoryRecordsBuilder builder = builder(
                random.nextBoolean() ? CompressionType.NONE : CompressionType.ZSTD,
                TimestampType.CREATE_TIME, offset, producer, transactional, 2, -1, -1);
        int count = 1 + random.nextInt(5);
        for (int i = 0; i < count; i++) {
            builder.append(T0 + offset, bytes(10), bytes(50), headers());
        }
        return append(log, builder);
    }

    private ByteArrayOutputStream emptyBatches() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        long offset = 0;
        for (int i = 0; i < 12; i++) {
            ByteBuffer header = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
            DefaultRecordBatch.writeEmptyHeader(header, (byte) 2, 17, (short) 1, i, offset,
                    offset + 4, 0, TimestampType.CREATE_TIME, T0, i % 3 == 0, i % 4 == 0);
            log.write(header.array());
            offset += 5;
            if (i % 5 == 1) {
                offset = varied(log, i % 2 == 0 ? CompressionType.NONE : CompressionType.GZIP,
                        offset, 3, 0);
            }
        }
        return log;
    }

    /** What Kafka's log cleaner leaves over: gaps, empty batches, delete horizons. */
    private ByteArrayOutputStream compacted() throws Exception {
        ByteArrayOutputStream dirty = new ByteArrayOutputStream();
        dirty.write(transactions().toByteArray());
        ByteBuffer cleaned = ByteBuffer.allocate(4 << 20);
        MemoryRecords.readableRecords(ByteBuffer.wrap(dirty.toByteArray())).filterTo(
                new MemoryRecords.RecordFilter(T0 + 60_000, 5_000) {
                    @Override
                    protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                        return new BatchRetentionResult(
                                batch.baseOffset() % 7 == 0
                                        ? BatchRetention.DELETE : BatchRetention.RETAIN_EMPTY,
                                false);
                    }

                    @Override
                    protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                        return record.offset() % 3 == 0;
                    }
                }, cleaned, BufferSupplier.NO_CACHING);
        cleaned.flip();
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        log.write(cleaned.array(), 0, cleaned.limit());
        MemoryRecordsBuilder builder = builder(CompressionType.NONE, TimestampType.CREATE_TIME,
                100_000, -1, false, 2, -1, T0 + 99);
        builder.append(T0, bytes(5), null, headers());
        builder.append(T0 + 5, bytes(5), null, headers());
        append(log, builder);
        return log;
    }

    private ByteArrayOutputStream tinyBatches() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        for (int i = 0; i < 3_000; i++) {
            CompressionType codec = i % 10 == 0 ? CompressionType.SNAPPY : CompressionType.NONE;
            MemoryRecordsBuilder builder =
                    builder(codec, TimestampType.CREATE_TIME, i, -1, false, 0, -1, -1);
            builder.append(T0 + i, null, ("v" + i).getBytes(StandardCharsets.UTF_8));
            append(log, builder);
        }
        return log;
    }

    private ByteArrayOutputStream oddTimestamps() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        long[] odd = {-1, 0, 1, T0, Long.MAX_VALUE, Long.MAX_VALUE - 1, 1L << 40, 0, -1};
        MemoryRecordsBuilder builder =
                builder(CompressionType.NONE, TimestampType.CREATE_TIME, 0, -1, false, 0, -1, -1);
        for (long timestamp : odd) {
            builder.append(timestamp, bytes(5), bytes(5));
        }
        append(log, builder);
        return log;
    }

    private ByteArrayOutputStream largeRecords() throws Exception {
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        long offset = 0;
        for (CompressionType codec : CompressionType.values()) {
            MemoryRecordsBuilder builder =
                    builder(codec, TimestampType.CREATE_TIME, offset, -1, false, 0, -1, -1);
            for (int size : new int[] {10, 700_000, 100, 900_000}) {
                byte[] value = new byte[size];
                random.nextBytes(value);
                java.util.Arrays.fill(value, size / 3, size, (byte) 'x');
                builder.append(T0, bytes(5), value, headers());
            }
            offset = append(log, builder);
        }
        return log;
    }

    private ByteArrayOutputStream old(byte magic) throws Exception {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), magic,
                Compression.NONE, TimestampType.CREATE_TIME, 0);
        builder.append(magic == 0 ? -1 : T0, bytes(5), bytes(5));
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        append(log, builder);
        return log;
    }

    private MemoryRecordsBuilder builder(CompressionType codec, TimestampType type, long offset,
            long producer, boolean transactional, int epoch, long appendTime, long horizon) {
        boolean idempotent = producer >= 0;
        return new MemoryRecordsBuilder(new ByteBufferOutputStream(1 << 16), (byte) 2,
                Compression.of(codec).build(), type, offset, appendTime, producer,
                (short) (idempotent ? 1 : -1), idempotent ? (int) offset : -1, transactional, false,
                epoch, 64 << 20, horizon);
    }

    private static long append(ByteArrayOutputStream log, MemoryRecordsBuilder builder)
            throws Exception {
        MemoryRecords records = builder.build();
        log.write(array(records));
        return records.batches().iterator().next().lastOffset() + 1;
    }

    private static byte[] array(MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        byte[] copy = new byte[buffer.remaining()];
        buffer.get(copy);
        return copy;
    }

    private byte[] bytes(int most) {
        int kind = random.nextInt(8);
        if (kind == 0) {
            return null;
        }
        byte[] made = new byte[kind == 1 ? 0 : random.nextInt(most + 1)];
        random.nextBytes(made);
        return kind < 5 ? new String(made, StandardCharsets.ISO_8859_1).toLowerCase()
                .getBytes(StandardCharsets.UTF_8) : made;
    }

    private Header[] headers() {
        String[] keys = {"a", "a", "", "trace-id", "grüße-\uD83D\uDE00", "z"};
        Header[] made = new Header[random.nextInt(4) == 0 ? random.nextInt(5) : 0];
        for (int i = 0; i < made.length; i++) {
            made[i] = new RecordHeader(keys[random.nextInt(keys.length)], bytes(20));
        }
        return made;
    }
}
