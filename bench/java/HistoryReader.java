import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own Java consumer, reading partition 0 of a topic as fast as it can.
 *
 * <p>One command per line of stdin: {@code bootstrap topic isolation records fetchBytes digest},
 * separated by tabs; {@code fetchBytes} 0 leaves the client's default, {@code digest} is true or
 * false. Answers: {@code ok records valueBytes firstNanos nanos digest} or {@code error message}.
 * Time counts from the assignment, with the topic's metadata known.
 */
public final class HistoryReader {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long QUIET_NANOS = 60_000_000_000L;
    private static final int POLL_RECORDS = 5_000;

    private HistoryReader() {
    }

    /** The command loop. */
    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok\t" + read(line.split("\t", -1));
            } catch (Exception e) {
                answer = "error\t" + String.valueOf(e).replaceAll("[\\t\\r\\n]+", " ");
            }
            out.println(answer);
        }
    }

    private static String read(String[] command) throws Exception {
        TopicPartition from = new TopicPartition(command[1], 0);
        long wanted = Long.parseLong(command[3]);
        MessageDigest digest =
                Boolean.parseBoolean(command[5]) ? MessageDigest.getInstance("SHA-256") : null;
        long records = 0;
        long valueBytes = 0;
        long first = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                consumer(command[0], command[2], Integer.parseInt(command[4]))) {
            consumer.partitionsFor(from.topic());
            long begun = System.nanoTime();
            consumer.assign(List.of(from));
            consumer.seek(from, 0);
            long quiet = begun;
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> some = consumer.poll(POLL);
                long now = System.nanoTime();
                if (some.isEmpty()) {
                    failIfQuiet(quiet, now, from, records);
                    continue;
                }
                quiet = now;
                first = records == 0 ? now - begun : first;
                records += some.count();
                for (ConsumerRecord<byte[], byte[]> record : some) {
                    valueBytes += record.serializedValueSize();
                    if (digest != null) {
                        update(digest, record);
                    }
                }
            }
            String found = digest == null ? "" : HexFormat.of().formatHex(digest.digest());
            long nanos = System.nanoTime() - begun;
            return records + "\t" + valueBytes + "\t" + first + "\t" + nanos + "\t" + found;
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(
            String bootstrap, String isolation, int fetchBytes) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("max.poll.records", POLL_RECORDS);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        if (fetchBytes > 0) {
            settings.put("max.partition.fetch.bytes", fetchBytes);
        }
        return new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void failIfQuiet(long since, long now, TopicPartition from, long records) {
        if (now - since > QUIET_NANOS) {
            throw new IllegalStateException(from + ": nothing comes after " + records + " records");
        }
    }

    /** The encoding that tiering/demo/digest.py gives every record. */
    private static void update(MessageDigest digest, ConsumerRecord<byte[], byte[]> record) {
        Header[] headers = record.headers().toArray();
        digest.update(ByteBuffer.allocate(20)
                .putLong(record.offset()).putLong(record.timestamp()).putInt(headers.length).flip());
        update(digest, record.key());
        update(digest, record.value());
        for (Header header : headers) {
            update(digest, header.key().getBytes(StandardCharsets.UTF_8));
            update(digest, header.value());
        }
    }

    private static void update(MessageDigest digest, byte[] item) {
        digest.update(ByteBuffer.allocate(4).putInt(item == null ? -1 : item.length).flip());
        if (item != null) {
            digest.update(item);
        }
    }
}
