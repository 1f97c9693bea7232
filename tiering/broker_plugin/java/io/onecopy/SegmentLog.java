package io.onecopy;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * Bounded pulls of one segment's log, each of whole batches and each answer read to its end.
 *
 * <p>The broker opens a stream for every fetch and closes it early. An answer that is left
 * half-read costs its connection; a small whole one costs only itself, and the next pull goes
 * over the same connection.
 */
final class SegmentLog {
    /** Served batches have at most twice their original size, and small ones up to 1 MiB. */
    private static final int SERVED_FACTOR = 2;
    private static final int SERVED_SLACK_BYTES = 1 << 20;
    private static final String NEXT_CURSOR = "Onecopy-Next-Cursor";

    /** Whole batches, and how to go on if the segment goes on. */
    record Pull(byte[] bytes, Optional<String> next) {
    }

    private final ServiceClient client;
    private final Duration deadline;
    private final String what;
    private final String path;
    private final String bounds;
    private final int answerBytesMax;

    SegmentLog(ServiceClient client, PluginConfig config, RemoteLogSegmentMetadata metadata,
            OptionalInt endPosition) {
        this.client = client;
        this.deadline = config.fetchDeadline();
        this.path = SegmentPath.log(metadata);
        this.what = "Fetch of " + path;
        this.bounds = "&max_bytes=" + config.pullBytes()
                + (endPosition.isPresent() ? "&end_position=" + endPosition.getAsInt() : "");
        long served = (long) SERVED_FACTOR * metadata.segmentSizeInBytes() + SERVED_SLACK_BYTES;
        this.answerBytesMax = (int) Math.min(
                Integer.MAX_VALUE - Long.BYTES, Math.max(served, config.pullBytes()));
    }

    Pull first(int startPosition) throws RemoteStorageException {
        return pull("?position=" + startPosition);
    }

    Pull next(String cursor) throws RemoteStorageException {
        return pull("?cursor=" + URLEncoder.encode(cursor, StandardCharsets.US_ASCII));
    }

    private Pull pull(String from) throws RemoteStorageException {
        ServiceAnswer answer;
        try {
            answer = client.get(path + from + bounds, answerBytesMax, Deadline.within(deadline));
        } catch (ServiceFailure e) {
            throw BrokerException.of(what, e);
        }
        if (answer.status() != 200 || !answer.hasLength()) {
            throw BrokerException.of(what, answer);
        }
        Optional<String> next = answer.headers().firstValue(NEXT_CURSOR);
        if (next.isPresent() && answer.body().length == 0) {
            throw new RemoteStorageException(what + ": an empty answer that wants to go on");
        }
        return new Pull(answer.body(), next);
    }
}
