package io.onecopy;

/** A request that got no whole answer. What it means is for the operation to say. */
final class ServiceFailure extends Exception {
    private static final long serialVersionUID = 1L;

    /** Why there is no answer. */
    enum Kind {
        /** No connection: refused, unknown host, connect timeout. */
        UNREACHABLE,
        /** The connection or the answer broke off, or was not HTTP. */
        BROKEN,
        /** A limit of the {@link Deadline} was reached; the request was cancelled. */
        EXPIRED,
        /** The waiting thread was interrupted; its flag is set again. */
        INTERRUPTED,
        /** The plug-in was closed. */
        CLOSED
    }

    private final Kind kind;

    ServiceFailure(Kind kind, String message, Throwable cause) {
        super(message, cause);
        this.kind = kind;
    }

    Kind kind() {
        return kind;
    }
}
