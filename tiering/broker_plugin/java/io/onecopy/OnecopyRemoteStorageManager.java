package io.onecopy;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Kafka's tier (KIP-405) kept by the Onecopy service, spoken to over HTTP.
 *
 * <p>It holds no state but its settings, a connection pool and what it pulled a moment ago: what is
 * stored, and what of it is still in Kafka's own format, is the service's matter. Every call ends
 * within its deadline.
 */
public final class OnecopyRemoteStorageManager implements RemoteStorageManager {
    /** Far above {@code segment.index.bytes} in use (10 MiB by default). */
    private static final int INDEX_BYTES_MAX = 512 << 20;

    private volatile PluginConfig config;
    private volatile ServiceClient client;
    private volatile KeptChunks kept;
    private final OutageLog outage = new OutageLog();

    @Override
    public void configure(Map<String, ?> configs) {
        PluginConfig parsed = PluginConfig.parse(configs);
        client = new ServiceClient(parsed);
        kept = new KeptChunks(parsed.keepBytes(), parsed.keepMs());
        config = parsed;
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata metadata, LogSegmentData data) throws RemoteStorageException {
        String segment = SegmentPath.segment(metadata);
        Deadline deadline =
                Deadline.within(config.copyDeadline(), config.progressDeadline());
        try (SegmentParts parts = SegmentParts.open(metadata, data)) {
            byte[] manifest = Manifest.encode(metadata, parts.list());
            send(segment, new Upload(manifest, parts.list(), deadline), deadline);
            outage.ended();
            return Optional.empty();
        } catch (IOException e) {
            throw new RemoteStorageException("Copy of " + segment + ": can't read the segment's "
                    + "files beside " + data.logSegment() + ": " + e, e);
        } catch (RemoteStorageException e) {
            outage.failed(e);
            throw e;
        }
    }

    private void send(String segment, Upload upload, Deadline deadline)
            throws RemoteStorageException {
        ServiceAnswer answer;
        try {
            answer = client.put(segment, upload, deadline);
        } catch (ServiceFailure e) {
            throw BrokerException.ofCopy(segment, e, upload);
        }
        if (answer.status() != 201 && answer.status() != 200) {
            throw BrokerException.ofCopy(segment, answer, upload);
        }
        if (!upload.finished() || !answer.sha256().equals(Optional.of(upload.sha256Hex()))) {
            throw new RemoteStorageException("Copy of " + segment + " was acknowledged with "
                    + answer.sha256().map(hex -> "SHA-256 " + hex).orElse("no SHA-256")
                    + ", which is not that of what was sent");
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition)
            throws RemoteStorageException {
        return fetch(metadata, startPosition, OptionalInt.empty());
    }

    @Override
    public InputStream fetchLogSegment(
            RemoteLogSegmentMetadata metadata, int startPosition, int endPosition)
            throws RemoteStorageException {
        if (endPosition < startPosition) {
            throw new IllegalArgumentException(
                    "end position " + endPosition + " lies before start position " + startPosition);
        }
        return fetch(metadata, startPosition, OptionalInt.of(endPosition));
    }

    private InputStream fetch(
            RemoteLogSegmentMetadata metadata, int startPosition, OptionalInt endPosition)
            throws RemoteStorageException {
        if (startPosition < 0) {
            throw new IllegalArgumentException("start position " + startPosition + " is negative");
        }
        SegmentLog log = new SegmentLog(client, kept, config, metadata, endPosition);
        return new PullInputStream(log, log.first(startPosition));
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType type)
            throws RemoteStorageException {
        String path = SegmentPath.index(metadata, type);
        String what = "Fetch of " + path;
        ServiceAnswer answer;
        try {
            answer = client.get(path, INDEX_BYTES_MAX, Deadline.within(config.fetchDeadline()));
        } catch (ServiceFailure e) {
            throw BrokerException.of(what, e);
        }
        if (answer.status() != 200 || !answer.hasLength()) {
            if (BrokerException.isGone(answer)) {
                kept.drop(metadata.remoteLogSegmentId());
            }
            throw BrokerException.of(what, answer);
        }
        return new ByteArrayInputStream(answer.body());
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata)
            throws RemoteStorageException {
        String path = SegmentPath.segment(metadata);
        String what = "Delete of " + path;
        ServiceAnswer answer;
        try {
            answer = client.delete(path, Deadline.within(config.fetchDeadline()));
        } catch (ServiceFailure e) {
            throw BrokerException.of(what, e);
        } finally {
            kept.drop(metadata.remoteLogSegmentId());
        }
        boolean gone = answer.status() == 204 || BrokerException.isMissing(answer);
        if (!gone) {
            throw BrokerException.of(what, answer);
        }
    }

    @Override
    public void close() {
        ServiceClient open = client;
        if (open != null) {
            open.close();
        }
    }
}
