package io.onecopy;

import java.util.Arrays;
import java.util.Optional;
import java.util.OptionalInt;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * One pull's answer with marks, so that it can be read from the middle.
 *
 * <p>Starts are positions in the original log: four times what the broker asks for.
 *
 * @param starts where some of its batches began in the log, the first one always
 * @param places where these batches lie in {@code bytes}
 * @param next how to go on, if the segment does
 * @param end where the log goes on, or ends
 */
record KeptChunk(RemoteLogSegmentId segment, byte[] bytes, long[] starts, int[] places,
        Optional<String> next, long end, long pulledNanos) {
    /** What the smallest one counts for, so that their number is bounded, too. */
    private static final int OVERHEAD_BYTES = 16 << 10;
    private static final int POSITION_DIVISOR = 4;

    /** By the service's marks, "start:place,start:place"; empty if they make no sense. */
    static Optional<KeptChunk> of(
            RemoteLogSegmentMetadata metadata, SegmentLog.Pull pull, String marks) {
        String[] pairs = marks.split(",");
        long[] starts = new long[pairs.length];
        int[] places = new int[pairs.length];
        try {
            long end = pull.next().map(Long::parseLong)
                    .orElse((long) metadata.segmentSizeInBytes());
            for (int i = 0; i < pairs.length; i++) {
                int colon = pairs[i].indexOf(':');
                starts[i] = Long.parseLong(pairs[i].substring(0, colon));
                places[i] = Integer.parseInt(pairs[i].substring(colon + 1));
            }
            KeptChunk chunk = new KeptChunk(metadata.remoteLogSegmentId(), pull.bytes(), starts,
                    places, pull.next(), end, System.nanoTime());
            return chunk.makesSense() ? Optional.of(chunk) : Optional.empty();
        } catch (IndexOutOfBoundsException | NumberFormatException e) {
            return Optional.empty();
        }
    }

    private boolean makesSense() {
        int last = starts.length - 1;
        boolean sense = starts[0] >= 0 && places[0] == 0
                && starts[last] < end && places[last] < bytes.length;
        for (int i = 1; i <= last; i++) {
            sense &= starts[i - 1] < starts[i] && places[i - 1] < places[i];
        }
        return sense;
    }

    long begin() {
        return starts[0];
    }

    /** What it counts for. */
    long weight() {
        return bytes.length + (long) OVERHEAD_BYTES;
    }

    /** Whether a fetch up to that served position may have all of it, and go on behind it. */
    boolean endsWithin(OptionalInt endPosition) {
        return endPosition.isEmpty() || end / POSITION_DIVISOR <= endPosition.getAsInt();
    }

    /**
     * The last mark at or before the batch that a served position names; negative if that batch
     * is not in here.
     */
    int markFor(long position) {
        boolean covered = starts[0] / POSITION_DIVISOR <= position && (next.isPresent()
                ? position < end / POSITION_DIVISOR : position * POSITION_DIVISOR < end);
        int at = Arrays.binarySearch(starts, (position + 1) * POSITION_DIVISOR - 1);
        return !covered ? -1 : at < 0 ? -at - 2 : at;
    }

    /** The mark exactly at an original position; negative if there is none. */
    int markAt(long start) {
        return Arrays.binarySearch(starts, start);
    }

    /** Its batches from a mark on. */
    SegmentLog.Pull from(int mark) {
        return new SegmentLog.Pull(bytes, places[mark], next);
    }
}
