package io.onecopy;

import java.util.Locale;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/** Where a segment and its parts are below the service's address. */
final class SegmentPath {
    private SegmentPath() {
    }

    /** {@code segments/<topic id>/<partition>/<base, 20 digits>-<segment id>}. */
    static String segment(RemoteLogSegmentMetadata metadata) {
        TopicIdPartition partition = metadata.topicIdPartition();
        return String.format(Locale.ROOT, "segments/%s/%d/%020d-%s", partition.topicId(),
                partition.partition(), metadata.startOffset(), metadata.remoteLogSegmentId().id());
    }

    static String index(RemoteLogSegmentMetadata metadata, IndexType type) {
        return segment(metadata) + "/indexes/" + name(type);
    }

    static String log(RemoteLogSegmentMetadata metadata) {
        return segment(metadata) + "/log";
    }

    private static String name(IndexType type) {
        return switch (type) {
            case OFFSET -> "offset";
            case TIMESTAMP -> "timestamp";
            case PRODUCER_SNAPSHOT -> "producer_snapshot";
            case TRANSACTION -> "transaction";
            case LEADER_EPOCH -> "leader_epoch";
        };
    }
}
