import io.onecopy.OnecopyRemoteStorageManager;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/**
 * Drives the plug-in as the broker would, one command per line of stdin, one answer per line of
 * stdout; fields are separated by tabs.
 *
 * <p>Answers: {@code ok <ms> <info>} or {@code error <ms> <class> <message> <interrupted>}.
 */
public final class Harness {
    private static final int READ_BYTES = 8192;

    private OnecopyRemoteStorageManager manager = new OnecopyRemoteStorageManager();
    private RemoteLogSegmentMetadata metadata;
    private LogSegmentData data;

    private Harness() {
    }

    /** The command loop. */
    public static void main(String[] arguments) throws IOException {
        Harness harness = new Harness();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(harness.answer(line.split("\t", -1)));
        }
    }

    private String answer(String[] command) {
        long start = System.nanoTime();
        String result;
        try {
            String info = run(command);
            result = String.join("\t", "ok", millisSince(start), info);
        } catch (Exception e) {
            String message = String.valueOf(e.getMessage()).replaceAll("[\\t\\r\\n]+", " ");
            result = String.join("\t", "error", millisSince(start), e.getClass().getSimpleName(),
                    message, String.valueOf(Thread.interrupted()));
        }
        return result;
    }

    private static String millisSince(long start) {
        return String.valueOf((System.nanoTime() - start) / 1_000_000);
    }

    private String run(String[] command) throws Exception {
        return switch (command[0]) {
            case "configure" -> configure(command);
            case "segment" -> segment(command);
            case "copy" -> copy(Integer.parseInt(command[1]));
            case "fetch" -> fetch(command);
            case "race" -> race(command);
            case "index" -> index(IndexType.valueOf(command[1]), Path.of(command[2]));
            case "delete" -> delete();
            case "close" -> close();
            case "threads" -> threads();
            default -> throw new IllegalArgumentException("unknown command " + command[0]);
        };
    }

    private String configure(String[] command) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("broker.id", 1);
        for (int i = 1; i < command.length; i++) {
            int equals = command[i].indexOf('=');
            configs.put(command[i].substring(0, equals), command[i].substring(equals + 1));
        }
        manager.close();
        manager = new OnecopyRemoteStorageManager();
        manager.configure(configs);
        return "";
    }

    /** segment TOPIC TOPIC_ID PARTITION SEGMENT_ID START END SIZE DIRECTORY EPOCHS(e:s,e:s). */
    private String segment(String[] f) throws IOException {
        TopicIdPartition partition = new TopicIdPartition(
                Uuid.fromString(f[2]), new TopicPartition(f[1], Integer.parseInt(f[3])));
        long start = Long.parseLong(f[5]);
        long end = Long.parseLong(f[6]);
        Map<Integer, Long> epochs = new TreeMap<>();
        for (String epoch : f[9].split(",")) {
            String[] pair = epoch.split(":");
            epochs.put(Integer.valueOf(pair[0]), Long.valueOf(pair[1]));
        }
        metadata = new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.fromString(f[4])), start, end, 1234567L, 1,
                7654321L, Integer.parseInt(f[7]), epochs);
        Path directory = Path.of(f[8]);
        String base = String.format("%020d", start);
        Path transactions = directory.resolve(base + ".txnindex");
        data = new LogSegmentData(
                directory.resolve(base + ".log"), directory.resolve(base + ".index"),
                directory.resolve(base + ".timeindex"),
                Files.exists(transactions) ? Optional.of(transactions) : Optional.empty(),
                directory.resolve(String.format("%020d.snapshot", end + 1)),
                ByteBuffer.wrap(Files.readAllBytes(directory.resolve("leader-epochs"))));
        return "";
    }

    private String copy(int interruptAfterMs) throws Exception {
        Thread broker = Thread.currentThread();
        Thread canceller = new Thread(() -> {
            try {
                Thread.sleep(interruptAfterMs);
                broker.interrupt();
            } catch (InterruptedException e) {
                // the copy ended first
            }
        });
        if (interruptAfterMs >= 0) {
            canceller.start();
        }
        try {
            return manager.copyLogSegmentData(metadata, data).isPresent() ? "custom" : "";
        } finally {
            canceller.interrupt();
        }
    }

    /** fetch START END|- (all | byte | head:N) FILE: what was read goes into FILE. */
    private String fetch(String[] f) throws Exception {
        int start = Integer.parseInt(f[1]);
        InputStream stream = f[2].equals("-")
                ? manager.fetchLogSegment(metadata, start)
                : manager.fetchLogSegment(metadata, start, Integer.parseInt(f[2]));
        try (stream; OutputStream file = Files.newOutputStream(Path.of(f[4]))) {
            if (f[3].equals("all")) {
                return String.valueOf(copyAll(stream, file));
            }
            if (f[3].equals("byte")) {
                return String.valueOf(copyByByte(stream, file));
            }
            byte[] head = stream.readNBytes(Integer.parseInt(f[3].substring("head:".length())));
            file.write(head);
            return String.valueOf(head.length);
        }
    }

    /** race THREADS HEAD POSITION...: fetches in threads; SHA-256 of what each begins with. */
    private String race(String[] f) throws Exception {
        int head = Integer.parseInt(f[2]);
        ExecutorService threads = Executors.newFixedThreadPool(Integer.parseInt(f[1]));
        List<Future<String>> digests = new ArrayList<>();
        for (int i = 3; i < f.length; i++) {
            int position = Integer.parseInt(f[i]);
            digests.add(threads.submit(() -> {
                try (InputStream stream = manager.fetchLogSegment(metadata, position)) {
                    byte[] bytes = stream.readNBytes(head);
                    MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
                    return HexFormat.of().formatHex(sha256.digest(bytes));
                }
            }));
        }
        List<String> found = new ArrayList<>();
        for (Future<String> digest : digests) {
            found.add(digest.get());
        }
        threads.shutdown();
        return String.join(" ", found);
    }

    private static long copyAll(InputStream stream, OutputStream file) throws IOException {
        byte[] buffer = new byte[READ_BYTES];
        long total = 0;
        for (int n = stream.read(buffer); n >= 0; n = stream.read(buffer)) {
            file.write(buffer, 0, n);
            total += n;
        }
        return total;
    }

    private static long copyByByte(InputStream stream, OutputStream file) throws IOException {
        long total = 0;
        for (int b = stream.read(); b >= 0; b = stream.read()) {
            file.write(b);
            total++;
        }
        return total;
    }

    private String index(IndexType type, Path target) throws Exception {
        try (InputStream stream = manager.fetchIndex(metadata, type)) {
            return String.valueOf(Files.copy(stream, target));
        }
    }

    private String delete() throws Exception {
        manager.deleteLogSegmentData(metadata);
        return "";
    }

    private String close() {
        manager.close();
        return "";
    }

    /** Names of the threads that would keep the broker's JVM from ending. */
    private static String threads() {
        StringBuilder names = new StringBuilder();
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (!thread.isDaemon() && !thread.equals(Thread.currentThread())) {
                names.append(thread.getName()).append(' ');
            }
        }
        return names.toString().strip();
    }
}
