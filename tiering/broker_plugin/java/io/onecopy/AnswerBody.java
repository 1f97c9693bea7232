package io.onecopy;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/**
 * Collects an answer's body into one array of at most {@code bytesMax} bytes.
 *
 * <p>A longer body fails the request at once instead of filling the broker's memory. Up to the size
 * of a usual pull the array is made as the length is announced; beyond, it grows with what comes.
 */
final class AnswerBody implements HttpResponse.BodySubscriber<byte[]> {
    private static final int START_BYTES = 8 << 10;
    private static final int START_BYTES_MAX = 8 << 20;

    private final CompletableFuture<byte[]> whole = new CompletableFuture<>();
    private final long announced;
    private final long bytesMax;
    private byte[] bytes;
    private int size;
    private Flow.Subscription subscription;

    private AnswerBody(long announced, long bytesMax) {
        this.announced = announced;
        this.bytesMax = bytesMax;
        long expected = announced < 0 ? START_BYTES : Math.min(announced, START_BYTES_MAX);
        this.bytes = new byte[(int) Math.min(expected, bytesMax)];
    }

    static HttpResponse.BodyHandler<byte[]> atMost(int bytesMax) {
        return info -> new AnswerBody(
                info.headers().firstValueAsLong("Content-Length").orElse(-1), bytesMax);
    }

    @Override
    public CompletionStage<byte[]> getBody() {
        return whole;
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
        this.subscription = subscription;
        if (announced > bytesMax) {
            refuse();
        } else {
            subscription.request(Long.MAX_VALUE);
        }
    }

    @Override
    public void onNext(List<ByteBuffer> buffers) {
        for (ByteBuffer buffer : buffers) {
            if (!append(buffer)) {
                return;
            }
        }
    }

    private boolean append(ByteBuffer buffer) {
        int count = buffer.remaining();
        if (size + (long) count > bytesMax) {
            refuse();
            return false;
        }
        if (size + count > bytes.length) {
            bytes = Arrays.copyOf(bytes, (int) Math.min(bytesMax, 2L * (size + count)));
        }
        buffer.get(bytes, size, count);
        size += count;
        return true;
    }

    private void refuse() {
        subscription.cancel();
        onError(new IOException("the answer is longer than " + bytesMax + " bytes"));
    }

    @Override
    public void onError(Throwable failure) {
        whole.completeExceptionally(failure);
    }

    @Override
    public void onComplete() {
        whole.complete(size == bytes.length ? bytes : Arrays.copyOf(bytes, size));
    }
}
