package io.onecopy;

import java.io.IOException;
import java.util.Set;

import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RetriableRemoteStorageException;

/**
 * Which exception tells the broker what, in one place.
 *
 * <p>Copy: the retriable one leaves the segment id as it is, the plain one makes the broker delete
 * that id and copy again under a new one. So a copy is retriable only when not one byte of it was
 * sent and the reason may pass by itself; everything else, above all an unknown outcome, is plain.
 * Reads: "not found" only on the service's own word, never for an outage or a proxy's 404.
 */
final class BrokerException {
    /** Unauthorized (a token being changed), too many requests, and what stands for "not now". */
    private static final Set<Integer> PASSING = Set.of(401, 408, 429, 502, 503, 504);
    private static final Set<String> MISSING =
            Set.of("segment_not_found", "index_not_found", "segment_deleted");

    private BrokerException() {
    }

    /** For a copy that got no whole answer. */
    static RemoteStorageException ofCopy(String segment, ServiceFailure failure, Upload upload) {
        IOException local = upload.readFailure();
        String message = "Copy of " + segment + " failed: "
                + (local == null ? failure.getMessage() : local.toString());
        boolean passing = failure.kind() != ServiceFailure.Kind.INTERRUPTED
                && failure.kind() != ServiceFailure.Kind.CLOSED;
        return !upload.started() && local == null && passing
                ? new RetriableRemoteStorageException(message, failure)
                : new RemoteStorageException(message, failure);
    }

    /** For a copy that was answered with anything but success. */
    static RemoteStorageException ofCopy(String segment, ServiceAnswer answer, Upload upload) {
        String message = "Copy of " + segment + " was refused with " + answer.describe();
        return !upload.started() && PASSING.contains(answer.status())
                ? new RetriableRemoteStorageException(message)
                : new RemoteStorageException(message);
    }

    /** For a fetch or a delete that got no whole answer. */
    static RemoteStorageException of(String what, ServiceFailure failure) {
        return new RemoteStorageException(what + " failed: " + failure.getMessage(), failure);
    }

    /** For a fetch or a delete that was answered with anything but success. */
    static RemoteStorageException of(String what, ServiceAnswer answer) {
        String message = what + (answer.status() == 200
                ? " got no Onecopy answer (no Content-Length): check rsm.config.onecopy.url"
                : " was refused with " + answer.describe());
        return isMissing(answer)
                ? new RemoteResourceNotFoundException(message)
                : new RemoteStorageException(message);
    }

    /** Whether the service says that the whole segment isn't there. */
    static boolean isGone(ServiceAnswer answer) {
        return isMissing(answer) && !answer.errorCode().equals("index_not_found");
    }

    static boolean isMissing(ServiceAnswer answer) {
        return (answer.status() == 404 || answer.status() == 410)
                && MISSING.contains(answer.errorCode());
    }
}
