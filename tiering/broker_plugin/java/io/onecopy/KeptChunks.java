package io.onecopy;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;

/**
 * What was pulled lately: the broker takes about a mebibyte of a stream, closes it, and asks for
 * what comes next by a position inside of what was pulled for it.
 *
 * <p>Bounded by size and by age: what changes in the service shows within {@code ageMs}. For
 * several threads; nothing is read or sent under the lock, and byte arrays are shared, not copied.
 */
final class KeptChunks {
    /** Which mark of a chunk to begin at; negative: none. */
    private interface Choice {
        int mark(KeptChunk chunk);
    }

    private final long bytesMax;
    private final long ageNanos;
    /** The one used last is the last. */
    private final List<KeptChunk> chunks = new ArrayList<>();
    private long bytes;
    private long drops;

    KeptChunks(int bytesMax, int ageMs) {
        this.bytesMax = bytesMax;
        this.ageNanos = TimeUnit.MILLISECONDS.toNanos(ageMs);
    }

    /**
     * Batches for a fetch from a served position. They may begin before the one that a pull would
     * begin with: the broker passes over whole batches below the offset that it looks for.
     */
    synchronized Optional<SegmentLog.Pull> at(
            RemoteLogSegmentId segment, long position, OptionalInt endPosition) {
        return used(segment, endPosition, chunk -> chunk.markFor(position));
    }

    /** Batches from a cursor on, from exactly there. */
    synchronized Optional<SegmentLog.Pull> from(
            RemoteLogSegmentId segment, String cursor, OptionalInt endPosition) {
        long start = cursor.matches("\\d{1,18}") ? Long.parseLong(cursor) : -1;
        return used(segment, endPosition, chunk -> chunk.markAt(start));
    }

    /** Keeps a chunk, unless something was dropped since {@code seenDrops}: it may be older. */
    synchronized void put(KeptChunk chunk, long seenDrops) {
        if (seenDrops != drops || chunk.weight() > bytesMax) {
            return;
        }
        forget(old -> old.segment().equals(chunk.segment()) && old.begin() == chunk.begin());
        chunks.add(chunk);
        bytes += chunk.weight();
        while (bytes > bytesMax) {
            bytes -= chunks.remove(0).weight();
        }
    }

    /** What {@link #put} is to be told of a pull that begins now. */
    synchronized long drops() {
        return drops;
    }

    /** Forgets a segment: it is gone. */
    synchronized void drop(RemoteLogSegmentId segment) {
        drops++;
        forget(chunk -> chunk.segment().equals(segment));
    }

    /**
     * How much of a log to pull for who reads on, so that all who do find theirs here again;
     * {@code least} where nothing is kept.
     */
    synchronized int share(int least, int most) {
        Set<TopicIdPartition> readers = new HashSet<>();
        chunks.forEach(chunk -> readers.add(chunk.segment().topicIdPartition()));
        long share = readers.isEmpty() ? 0 : bytesMax / (2L * readers.size());
        return (int) Math.max(least, Math.min(most, share));
    }

    private Optional<SegmentLog.Pull> used(
            RemoteLogSegmentId segment, OptionalInt endPosition, Choice choice) {
        long now = System.nanoTime();
        forget(chunk -> now - chunk.pulledNanos() >= ageNanos);
        for (int i = chunks.size() - 1; i >= 0; i--) {
            KeptChunk chunk = chunks.get(i);
            boolean usable = chunk.segment().equals(segment) && chunk.endsWithin(endPosition);
            int mark = usable ? choice.mark(chunk) : -1;
            if (mark >= 0) {
                chunks.add(chunks.remove(i));
                return Optional.of(chunk.from(mark));
            }
        }
        return Optional.empty();
    }

    private void forget(Predicate<KeptChunk> unwanted) {
        if (chunks.removeIf(unwanted)) {
            bytes = chunks.stream().mapToLong(KeptChunk::weight).sum();
        }
    }
}
