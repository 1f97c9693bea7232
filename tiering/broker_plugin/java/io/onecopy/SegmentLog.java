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
    private static final String MARKS = "Onecopy-Batch-Marks";

    /** Whole batches from a place in {@code bytes} on, and how to go on if the segment does. */
    record Pull(byte[] bytes, int from, Optional<String> next) {
    }

    private final ServiceClient client;
    private final KeptChunks kept;
    private final Duration deadline;
    private final RemoteLogSegmentMetadata metadata;
    private final OptionalInt endPosition;
    private final int pullBytes;
    private final String what;
    private final String path;
    private final int answerBytesMax;
    private boolean readsOn;

    SegmentLog(ServiceClient client, KeptChunks kept, PluginConfig config,
            RemoteLogSegmentMetadata metadata, OptionalInt endPosition) {
        this.client = client;
        this.kept = kept;
        this.deadline = config.fetchDeadline();
        this.metadata = metadata;
        this.endPosition = endPosition;
        this.pullBytes = config.pullBytes();
        this.path = SegmentPath.log(metadata);
        this.what = "Fetch of " + path;
        long served = (long) SERVED_FACTOR * metadata.segmentSizeInBytes() + SERVED_SLACK_BYTES;
        this.answerBytesMax = (int) Math.min(Integer.MAX_VALUE - Long.BYTES,
                Math.max(served, PluginConfig.PULL_BYTES_MAX));
    }

    Pull first(int startPosition) throws RemoteStorageException {
        Optional<Pull> known = kept.at(metadata.remoteLogSegmentId(), startPosition, endPosition);
        readsOn = known.isPresent();
        return readsOn ? known.get() : pull("?position=" + startPosition, pullBytes);
    }

    /** Whoever reads on gets as much as can be kept; a first look should cost little. */
    Pull next(String cursor) throws RemoteStorageException {
        Optional<Pull> known = kept.from(metadata.remoteLogSegmentId(), cursor, endPosition);
        if (known.isPresent()) {
            return known.get();
        }
        int most = readsOn ? kept.share(pullBytes, PluginConfig.PULL_BYTES_MAX) : pullBytes;
        readsOn = true;
        return pull("?cursor=" + URLEncoder.encode(cursor, StandardCharsets.US_ASCII), most);
    }

    private Pull pull(String from, int bytesMax) throws RemoteStorageException {
        String bounds = "&max_bytes=" + bytesMax
                + (endPosition.isPresent() ? "&end_position=" + endPosition.getAsInt() : "");
        long drops = kept.drops();
        ServiceAnswer answer;
        try {
            answer = client.get(path + from + bounds, answerBytesMax, Deadline.within(deadline));
        } catch (ServiceFailure e) {
            throw BrokerException.of(what, e);
        }
        if (answer.status() != 200 || !answer.hasLength()) {
            if (BrokerException.isGone(answer)) {
                kept.drop(metadata.remoteLogSegmentId());
            }
            throw BrokerException.of(what, answer);
        }
        Optional<String> next = answer.headers().firstValue(NEXT_CURSOR);
        if (next.isPresent() && answer.body().length == 0) {
            throw new RemoteStorageException(what + ": an empty answer that wants to go on");
        }
        Pull pull = new Pull(answer.body(), 0, next);
        keep(pull, answer.headers().firstValue(MARKS), drops);
        return pull;
    }

    private void keep(Pull pull, Optional<String> marks, long drops) {
        boolean cutAtEnd = endPosition.isPresent() && pull.next().isEmpty();
        if (marks.isPresent() && !cutAtEnd) {
            KeptChunk.of(metadata, pull, marks.get())
                    .ifPresent(chunk -> kept.put(chunk, drops));
        }
    }
}
