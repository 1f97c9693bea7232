package io.onecopy;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** A segment's parts in the order in which they travel: indexes, verdicts, the log last. */
final class SegmentParts implements Closeable {
    private final List<SegmentPart> parts = new ArrayList<>();

    private SegmentParts() {
    }

    static SegmentParts open(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws IOException {
        SegmentParts opened = new SegmentParts();
        try {
            opened.openAll(metadata, data);
            return opened;
        } catch (IOException e) {
            opened.close();
            throw e;
        }
    }

    private void openAll(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws IOException {
        ByteBuffer verdicts = new VerdictCollector(
                data.logSegment().toAbsolutePath().getParent(),
                metadata.startOffset(),
                metadata.endOffset()).collect();
        parts.add(SegmentPart.ofFile("offset_index", data.offsetIndex()));
        parts.add(SegmentPart.ofFile("time_index", data.timeIndex()));
        if (data.transactionIndex().isPresent()) {
            Path transactions = data.transactionIndex().get();
            parts.add(SegmentPart.ofFile("transaction_index", transactions));
        }
        parts.add(SegmentPart.ofFile("producer_snapshot", data.producerSnapshotIndex()));
        parts.add(SegmentPart.ofBytes("leader_epochs", data.leaderEpochIndex()));
        parts.add(SegmentPart.ofBytes("verdicts", verdicts));
        // The size that the broker fixed: a preallocated file is longer than its segment.
        parts.add(SegmentPart.ofFile(
                "log", data.logSegment(), metadata.segmentSizeInBytes()));
    }

    List<SegmentPart> list() {
        return parts;
    }

    @Override
    public void close() {
        for (SegmentPart part : parts) {
            try {
                part.close();
            } catch (IOException e) {
                // only ever read from: nothing is lost when closing fails
            }
        }
    }
}
