package io.onecopy;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.StringJoiner;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** The JSON that opens an upload: what the broker says of the segment, and the parts' sizes. */
final class Manifest {
    private static final int VERSION = 1;

    private Manifest() {
    }

    /** UTF-8 JSON of one object. */
    static byte[] encode(RemoteLogSegmentMetadata metadata, List<SegmentPart> parts) {
        TopicIdPartition partition = metadata.topicIdPartition();
        StringJoiner json = new StringJoiner(",", "{", "}");
        json.add("\"version\":" + VERSION);
        json.add("\"topic\":" + quoted(partition.topic()));
        json.add("\"topic_id\":" + quoted(partition.topicId().toString()));
        json.add("\"partition\":" + partition.partition());
        json.add("\"segment_id\":" + quoted(metadata.remoteLogSegmentId().id().toString()));
        json.add("\"start_offset\":" + metadata.startOffset());
        json.add("\"end_offset\":" + metadata.endOffset());
        json.add("\"max_timestamp_ms\":" + metadata.maxTimestampMs());
        json.add("\"broker_id\":" + metadata.brokerId());
        json.add("\"segment_size_bytes\":" + metadata.segmentSizeInBytes());
        json.add("\"leader_epochs\":" + leaderEpochs(metadata));
        json.add("\"parts\":" + parts(parts));
        return json.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static String leaderEpochs(RemoteLogSegmentMetadata metadata) {
        StringJoiner epochs = new StringJoiner(",", "[", "]");
        metadata.segmentLeaderEpochs().forEach(
                (epoch, start) -> epochs.add("[" + epoch + "," + start + "]"));
        return epochs.toString();
    }

    private static String parts(List<SegmentPart> parts) {
        StringJoiner list = new StringJoiner(",", "[", "]");
        for (SegmentPart part : parts) {
            list.add("{\"name\":" + quoted(part.name()) + ",\"size\":" + part.size() + "}");
        }
        return list.toString();
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ') {
                json.append(String.format(Locale.ROOT, "\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
