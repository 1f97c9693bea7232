import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client, one command per line of stdin, one answer per line of stdout; fields
 * are separated by tabs. Records travel in files, big endian, so that no byte is reinterpreted.
 *
 * <p>Answers: {@code ok <info>} or {@code error <class> <message>}.
 */
public final class StockClient {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long QUIET_NANOS = 30_000_000_000L;
    private static final int SEEK_POLL_RECORDS = 20;
    private static final int HASH_BYTES = 16;
    private static final int COMMIT_EVERY = 20;

    private final String bootstrap;

    private StockClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** The command loop. */
    public static void main(String[] arguments) throws IOException {
        StockClient client = new StockClient(arguments[0]);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok\t" + client.run(line.split("\t", -1));
            } catch (Exception e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                String message = String.valueOf(cause.getMessage()).replaceAll("[\\t\\r\\n]+", " ");
                answer = "error\t" + cause.getClass().getSimpleName() + "\t" + message;
            }
            out.println(answer);
        }
    }

    private String run(String[] c) throws Exception {
        switch (c[0]) {
            case "read":
                return read(partition(c), Long.parseLong(c[3]), Long.parseLong(c[4]), c[5],
                        Integer.parseInt(c[6]), Path.of(c[7]));
            case "seek":
                return seek(partition(c), c[3], c[4].split(","), Path.of(c[5]), Path.of(c[6]));
            case "times":
                return times(partition(c), c[3], Path.of(c[4]), Path.of(c[5]));
            case "offsets":
                return offsets(partition(c));
            case "produce":
                return produce(c[1], c[2], Integer.parseInt(c[3]), Path.of(c[4]), Path.of(c[5]));
            case "transactions":
                return transactions(partition(c), Integer.parseInt(c[3]), Integer.parseInt(c[4]),
                        Path.of(c[5]));
            default:
                throw new IllegalArgumentException("no command is called " + c[0]);
        }
    }

    private static TopicPartition partition(String[] command) {
        return new TopicPartition(command[1], Integer.parseInt(command[2]));
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation, int fetchBytes, int records) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("max.partition.fetch.bytes", fetchBytes);
        settings.put("max.poll.records", records);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", 10);
        return new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Everything from one offset until the position reaches `end`: (offset, hash) each. */
    private String read(
            TopicPartition from, long start, long end, String isolation, int fetchBytes, Path to)
            throws IOException {
        long count = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isolation, fetchBytes, 5_000);
                DataOutputStream out = output(to)) {
            consumer.assign(List.of(from));
            consumer.seek(from, start);
            long quiet = System.nanoTime();
            while (consumer.position(from) < end) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    write(record, out);
                    count++;
                }
                if (!records.isEmpty()) {
                    quiet = System.nanoTime();
                }
                failIfQuiet(quiet, from, consumer.position(from));
            }
        }
        return Long.toString(count);
    }

    private static void failIfQuiet(long since, TopicPartition from, long position) {
        if (System.nanoTime() - since > QUIET_NANOS) {
            throw new IllegalStateException(from + ": nothing comes at offset " + position);
        }
    }

    /**
     * For each target: (target, count, (offset, hash)...) of the first poll with records. One
     * consumer for each fetch size; they take turns with the targets.
     */
    private String seek(
            TopicPartition from, String isolation, String[] fetches, Path targets, Path to)
            throws Exception {
        int threads = fetches.length;
        long[] offsets = longs(targets);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try (DataOutputStream out = output(to)) {
            List<Future<byte[]>> parts = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                int first = thread;
                int fetchBytes = Integer.parseInt(fetches[thread]);
                Callable<byte[]> part =
                        () -> seekEach(from, isolation, fetchBytes, offsets, first, threads);
                parts.add(pool.submit(part));
            }
            for (Future<byte[]> part : parts) {
                out.write(part.get());
            }
        } finally {
            pool.shutdownNow();
        }
        return Integer.toString(offsets.length);
    }

    private byte[] seekEach(
            TopicPartition from, String isolation, int fetchBytes, long[] offsets, int first,
            int step) throws IOException {
        java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
        try (KafkaConsumer<byte[], byte[]> consumer =
                        consumer(isolation, fetchBytes, SEEK_POLL_RECORDS);
                DataOutputStream out = new DataOutputStream(bytes)) {
            consumer.assign(List.of(from));
            for (int i = first; i < offsets.length; i += step) {
                consumer.seek(from, offsets[i]);
                long asked = System.nanoTime();
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                while (records.isEmpty()) {
                    failIfQuiet(asked, from, offsets[i]);
                    records = consumer.poll(POLL);
                }
                out.writeLong(offsets[i]);
                out.writeInt(records.count());
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    write(record, out);
                }
            }
        }
        return bytes.toByteArray();
    }

    /** For each timestamp: (offset or -1, the found record's timestamp or -1). */
    private String times(TopicPartition from, String isolation, Path targets, Path to)
            throws IOException {
        long[] timestamps = longs(targets);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isolation, 1 << 20, 1);
                DataOutputStream out = output(to)) {
            for (long timestamp : timestamps) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(from, timestamp)).get(from);
                out.writeLong(found == null ? -1 : found.offset());
                out.writeLong(found == null ? -1 : found.timestamp());
            }
        }
        return Integer.toString(timestamps.length);
    }

    /** Earliest, earliest local, latest tiered, latest, and that of the highest timestamp. */
    private String offsets(TopicPartition of) throws Exception {
        List<OffsetSpec> asked = List.of(
                OffsetSpec.earliest(), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered(),
                OffsetSpec.latest(), OffsetSpec.maxTimestamp());
        List<String> found = new ArrayList<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (OffsetSpec each : asked) {
                found.add(Long.toString(
                        admin.listOffsets(Map.of(of, each)).partitionResult(of).get().offset()));
            }
        }
        return String.join(" ", found);
    }

    /** Send the records of a file; writes (offset, timestamp) of each acknowledgement. */
    private String produce(String topic, String codec, int batchBytes, Path records, Path to)
            throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("compression.type", codec);
        settings.put("batch.size", batchBytes);
        settings.put("linger.ms", 20);
        settings.put("max.request.size", 8 << 20);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings);
                DataInputStream in = new DataInputStream(
                        new java.io.ByteArrayInputStream(Files.readAllBytes(records)))) {
            while (in.available() > 0) {
                sent.add(producer.send(record(topic, in)));
            }
        }
        try (DataOutputStream out = output(to)) {
            for (Future<RecordMetadata> each : sent) {
                out.writeLong(each.get().offset());
                out.writeLong(each.get().timestamp());
            }
        }
        return Integer.toString(sent.size());
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, DataInputStream in)
            throws IOException {
        int partition = in.readInt();
        long timestamp = in.readLong();
        byte[] key = item(in);
        byte[] value = item(in);
        int count = in.readInt();
        List<Header> headers = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String name = new String(item(in), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, item(in)));
        }
        return new ProducerRecord<>(topic, partition, timestamp, key, value, headers);
    }

    /** One-record transactions, all but every 20th aborted: (offset, ms, thread, n, committed). */
    private String transactions(TopicPartition into, int threads, int count, Path to)
            throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try (DataOutputStream out = output(to)) {
            List<Future<byte[]>> parts = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                int number = thread;
                Callable<byte[]> part = () -> transactionsOf(into, number, count / threads);
                parts.add(pool.submit(part));
            }
            for (Future<byte[]> part : parts) {
                out.write(part.get());
            }
        } finally {
            pool.shutdownNow();
        }
        return Integer.toString(count / threads * threads);
    }

    private byte[] transactionsOf(TopicPartition into, int thread, int count) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("transactional.id", into + "/" + thread);
        java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings);
                DataOutputStream out = new DataOutputStream(bytes)) {
            producer.initTransactions();
            for (int n = 0; n < count; n++) {
                boolean committed = n % COMMIT_EVERY == COMMIT_EVERY - 1;
                byte[] value = (thread + "/" + n).getBytes(StandardCharsets.UTF_8);
                producer.beginTransaction();
                RecordMetadata sent = producer.send(new ProducerRecord<>(
                        into.topic(), into.partition(), null, value)).get();
                if (committed) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                out.writeLong(sent.offset());
                out.writeLong(sent.timestamp());
                out.writeInt(thread);
                out.writeInt(n);
                out.writeByte(committed ? 1 : 0);
            }
        }
        return bytes.toByteArray();
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static DataOutputStream output(Path to) throws IOException {
        return new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(to), 1 << 20));
    }

    private static long[] longs(Path file) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
        long[] values = new long[bytes.remaining() / Long.BYTES];
        bytes.asLongBuffer().get(values);
        return values;
    }

    private static byte[] item(DataInputStream in) throws IOException {
        int length = in.readInt();
        return length < 0 ? null : in.readNBytes(length);
    }

    private static void write(ConsumerRecord<byte[], byte[]> record, DataOutputStream out)
            throws IOException {
        out.writeLong(record.offset());
        out.write(hash(record), 0, HASH_BYTES);
    }

    /** SHA-256 of the encoding that the Python side gives every record. */
    private static byte[] hash(ConsumerRecord<byte[], byte[]> record) {
        MessageDigest digest;
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
        Header[] headers = record.headers().toArray();
        digest.update(ByteBuffer.allocate(20)
                .putLong(record.offset()).putLong(record.timestamp()).putInt(headers.length).flip());
        update(digest, record.key());
        update(digest, record.value());
        for (Header header : headers) {
            update(digest, header.key().getBytes(StandardCharsets.UTF_8));
            update(digest, header.value());
        }
        return digest.digest();
    }

    private static void update(MessageDigest digest, byte[] item) {
        digest.update(ByteBuffer.allocate(4).putInt(item == null ? -1 : item.length).flip());
        if (item != null) {
            digest.update(item);
        }
    }
}
