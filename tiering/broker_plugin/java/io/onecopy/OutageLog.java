package io.onecopy;

import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RetriableRemoteStorageException;

/**
 * Tells the operator when copies begin to fail retriably and when they go through again.
 *
 * <p>The broker logs a plain failure with its reason, but of a retriable one not even the reason:
 * without this, a service that is down is silent. Once per outage, not once per try.
 */
final class OutageLog {
    private static final System.Logger LOG = System.getLogger("io.onecopy");

    private final AtomicBoolean failing = new AtomicBoolean();

    void failed(RemoteStorageException failure) {
        boolean silent = failure instanceof RetriableRemoteStorageException;
        if (silent && failing.compareAndSet(false, true)) {
            LOG.log(System.Logger.Level.WARNING,
                    "No segment can be copied now, the broker will try again: "
                            + failure.getMessage());
        }
    }

    void ended() {
        if (failing.compareAndSet(true, false)) {
            LOG.log(System.Logger.Level.INFO, "Segments are copied again");
        }
    }
}
