package io.onecopy;

import java.io.IOException;
import java.net.http.HttpRequest;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The body of a copy, read from the parts only as fast as the connection takes it, hashed on the
 * way: u32 manifest length | manifest | parts | SHA-256 of everything before.
 *
 * <p>Can be sent once. Memory: the buffers that the HTTP client holds, one or two at a time.
 */
final class Upload implements HttpRequest.BodyPublisher {
    private static final int BUFFER_BYTES = 128 << 10;
    private static final int DIGEST_BYTES = 32;

    private final Deque<SegmentPart> parts = new ArrayDeque<>();
    private final MessageDigest digest = sha256();
    private final Deadline deadline;
    private final long contentLength;
    private final AtomicBoolean subscribed = new AtomicBoolean();
    private long remaining;
    private ByteBuffer trailer;
    private volatile boolean started;
    private volatile boolean finished;
    private volatile IOException readFailure;

    Upload(byte[] manifest, List<SegmentPart> parts, Deadline deadline) {
        ByteBuffer head = ByteBuffer.allocate(Integer.BYTES + manifest.length);
        head.putInt(manifest.length).put(manifest).flip();
        this.parts.add(SegmentPart.ofBytes("manifest", head));
        this.parts.addAll(parts);
        this.deadline = deadline;
        this.contentLength =
                this.parts.stream().mapToLong(SegmentPart::size).sum() + DIGEST_BYTES;
        this.remaining = contentLength;
    }

    @Override
    public long contentLength() {
        return contentLength;
    }

    /** Whether a first byte was handed to the connection: from then on the outcome is unknown. */
    boolean started() {
        return started;
    }

    /** Whether the last byte, and with it the whole digest, was handed to the connection. */
    boolean finished() {
        return finished;
    }

    /** The local file's failure that ended this upload, if that is what ended it. */
    IOException readFailure() {
        return readFailure;
    }

    /** Hex of the digest; only after the last byte was handed out. */
    String sha256Hex() {
        return HexFormat.of().formatHex(trailer.array());
    }

    @Override
    public void subscribe(Flow.Subscriber<? super ByteBuffer> subscriber) {
        Pump pump = new Pump(subscriber);
        subscriber.onSubscribe(pump);
        if (!subscribed.compareAndSet(false, true)) {
            pump.fail(new IOException("a segment's upload can't be sent twice"));
        }
    }

    /** The next full buffer; only the last one may be short. */
    private ByteBuffer next() throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate((int) Math.min(BUFFER_BYTES, remaining));
        while (buffer.hasRemaining() && !parts.isEmpty()) {
            parts.peek().fill(buffer);
            if (parts.peek().remaining() == 0) {
                parts.remove();
            }
        }
        digest.update(buffer.array(), 0, buffer.position());
        if (buffer.hasRemaining()) {
            fillTrailer(buffer);
        }
        remaining -= buffer.position();
        finished = remaining == 0; // before the buffer leaves: the answer may be quick
        return buffer.flip();
    }

    private void fillTrailer(ByteBuffer buffer) {
        if (trailer == null) {
            trailer = ByteBuffer.wrap(digest.digest());
        }
        while (buffer.hasRemaining()) {
            buffer.put(trailer.get());
        }
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-256", e);
        }
    }

    /**
     * Hands out one buffer for each one asked for. {@code request} may be called from within
     * {@code onNext} and from several threads: the first caller works, the others only count.
     */
    private final class Pump implements Flow.Subscription {
        private final Flow.Subscriber<? super ByteBuffer> subscriber;
        private final AtomicLong demand = new AtomicLong();
        private final AtomicInteger calls = new AtomicInteger();
        private volatile boolean done;

        private Pump(Flow.Subscriber<? super ByteBuffer> subscriber) {
            this.subscriber = subscriber;
        }

        @Override
        public void request(long count) {
            if (count <= 0) {
                fail(new IllegalArgumentException("request(" + count + ")"));
                return;
            }
            demand.accumulateAndGet(count, (a, b) -> a + b < 0 ? Long.MAX_VALUE : a + b);
            if (calls.getAndIncrement() > 0) {
                return;
            }
            int handled = 1;
            do {
                handOut();
                handled = calls.addAndGet(-handled);
            } while (handled > 0);
        }

        @Override
        public void cancel() {
            done = true;
        }

        private void handOut() {
            while (!done && demand.get() > 0) {
                demand.decrementAndGet();
                try {
                    emit(next());
                } catch (IOException e) {
                    readFailure = e;
                    fail(e);
                }
            }
        }

        private void emit(ByteBuffer buffer) {
            started = true;
            deadline.progressed();
            subscriber.onNext(buffer);
            if (remaining == 0 && !done) {
                done = true;
                subscriber.onComplete();
            }
        }

        private void fail(Throwable failure) {
            if (!done) {
                done = true;
                subscriber.onError(failure);
            }
        }
    }
}
