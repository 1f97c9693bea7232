package io.onecopy;

import java.time.Duration;

/**
 * How long one operation may take as a whole, and how long it may stand still.
 *
 * <p>One thread waits with {@link #remainingNanos()} while others report {@link #progressed()}.
 */
final class Deadline {
    private final long startNanos = System.nanoTime();
    private final Duration whole;
    private final Duration still;
    private volatile long progressNanos = startNanos;

    private Deadline(Duration whole, Duration still) {
        this.whole = whole;
        this.still = still;
    }

    static Deadline within(Duration whole) {
        return new Deadline(whole, whole);
    }

    static Deadline within(Duration whole, Duration withoutProgress) {
        return new Deadline(whole, withoutProgress);
    }

    void progressed() {
        progressNanos = System.nanoTime();
    }

    /** Time left until one of both limits is reached if nothing moves; not positive: expired. */
    long remainingNanos() {
        return Math.min(wholeRemaining(), stillRemaining());
    }

    /** Which limit was reached, for a message. */
    String reason() {
        return wholeRemaining() <= stillRemaining()
                ? "not done within " + whole.toMillis() + " ms"
                : "no progress for " + still.toMillis() + " ms";
    }

    private long wholeRemaining() {
        return whole.toNanos() - (System.nanoTime() - startNanos);
    }

    private long stillRemaining() {
        return still.toNanos() - (System.nanoTime() - progressNanos);
    }
}
