package io.onecopy;

import java.io.IOException;
import java.io.InputStream;
import java.util.Objects;
import java.util.Optional;

import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * A segment's log from one position on, pulled as it is read.
 *
 * <p>There is no read-ahead: the broker usually takes a part of what is there and closes. Nothing
 * is in flight between reads, and closing is free. Used by one thread at a time, like every stream.
 */
final class PullInputStream extends InputStream {
    private final SegmentLog log;
    private byte[] bytes;
    private int at;
    private Optional<String> next;
    private boolean closed;

    PullInputStream(SegmentLog log, SegmentLog.Pull first) {
        this.log = log;
        take(first);
    }

    @Override
    public int read() throws IOException {
        return more() ? bytes[at++] & 0xff : -1;
    }

    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, target.length);
        if (length == 0) {
            return 0;
        }
        if (!more()) {
            return -1;
        }
        int count = Math.min(length, bytes.length - at);
        System.arraycopy(bytes, at, target, offset, count);
        at += count;
        return count;
    }

    @Override
    public long skip(long count) throws IOException {
        long skipped = 0;
        while (skipped < count && more()) {
            int step = (int) Math.min(count - skipped, bytes.length - at);
            at += step;
            skipped += step;
        }
        return skipped;
    }

    @Override
    public int available() {
        return closed ? 0 : bytes.length - at;
    }

    @Override
    public void close() {
        closed = true;
        bytes = new byte[0];
        at = 0;
        next = Optional.empty();
    }

    /** Makes sure that a byte is there to be read; false at the end of the segment. */
    private boolean more() throws IOException {
        if (closed) {
            throw new IOException("the stream is closed");
        }
        while (at == bytes.length && next.isPresent()) {
            try {
                take(log.next(next.get()));
            } catch (RemoteStorageException e) {
                throw new IOException(e.getMessage(), e);
            }
        }
        return at < bytes.length;
    }

    private void take(SegmentLog.Pull pull) {
        bytes = pull.bytes();
        at = pull.from();
        next = pull.next();
    }
}
