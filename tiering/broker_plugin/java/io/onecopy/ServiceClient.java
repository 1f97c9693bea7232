package io.onecopy;

import java.io.IOException;
import java.net.ConnectException;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Requests to the service, each answered whole or failed within its {@link Deadline}.
 *
 * <p>One {@link HttpClient} serves all of the broker's copier threads, another one what is read;
 * connections are kept alive. Their own timeouts end with the response's headers, so every request
 * runs as a future that the calling thread waits for and cancels. A request that may be repeated
 * and whose connection broke is tried once more: after a restart of the service the pool is full of
 * dead connections, and this is how one of them is noticed.
 */
final class ServiceClient {
    private static final int ERROR_BYTES_MAX = 64 << 10;
    private static final int THREADS = 4;
    private static final int THREAD_IDLE_SECONDS = 10;

    private final String base;
    private final ServiceToken token;
    private final HttpClient uploads;
    private final HttpClient others;
    private final Set<CompletableFuture<?>> inFlight = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;

    ServiceClient(PluginConfig config) {
        this.base = config.url() + "/v1/";
        this.token = config.token();
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER) // a token goes to one address only
                .proxy(ProxySelector.of(null))
                .connectTimeout(config.connectTimeout())
                .executor(executor());
        config.trust().map(TrustedCertificates::context).ifPresent(builder::sslContext);
        this.uploads = builder.build();
        // An answer costs half as much where it is received, without a change of threads for each
        // piece. Not so with what must not hold up the others' answers: reading files, TLS.
        this.others = config.url().getScheme().equalsIgnoreCase("http")
                ? builder.executor(Runnable::run).build() : uploads;
    }

    /** Daemon threads that end by themselves when idle: nothing to shut down. */
    private static ThreadPoolExecutor executor() {
        AtomicInteger number = new AtomicInteger();
        ThreadPoolExecutor executor = new ThreadPoolExecutor(
                THREADS, THREADS, THREAD_IDLE_SECONDS, TimeUnit.SECONDS,
                new LinkedBlockingQueue<>(), task -> {
                    Thread thread = new Thread(task, "onecopy-http-" + number.incrementAndGet());
                    thread.setDaemon(true);
                    return thread;
                });
        executor.allowCoreThreadTimeOut(true);
        return executor;
    }

    /** GET; the answer has at most {@code bytesMax} bytes (or is an error). */
    ServiceAnswer get(String path, int bytesMax, Deadline deadline) throws ServiceFailure {
        return repeatable(request(path).GET(), Math.max(bytesMax, ERROR_BYTES_MAX), deadline);
    }

    /** DELETE. */
    ServiceAnswer delete(String path, Deadline deadline) throws ServiceFailure {
        return repeatable(request(path).DELETE(), ERROR_BYTES_MAX, deadline);
    }

    /**
     * PUT with {@code Expect: 100-continue}: a service that refuses (busy, token) or isn't there
     * answers before a single byte of the body has left, and the caller can tell by the upload.
     */
    ServiceAnswer put(String path, Upload upload, Deadline deadline) throws ServiceFailure {
        HttpRequest.Builder request = request(path)
                .header("Content-Type", "application/octet-stream")
                .expectContinue(true)
                .PUT(upload);
        try {
            return send(uploads, request, refusalAtHead(upload), deadline);
        } catch (ServiceFailure e) {
            if (e.kind() != ServiceFailure.Kind.BROKEN || upload.started()) {
                throw e;
            }
            return send(uploads, request, refusalAtHead(upload), deadline);
        }
    }

    /**
     * Takes an answer that comes instead of "100 Continue" from its head alone: the JDK reads the
     * body of such an answer, throws it away and then waits for it (seen with Java 17). Ending
     * the exchange there also closes the connection, on which a body that was announced and never
     * sent would be mistaken for the next request.
     */
    private static Reception refusalAtHead(Upload upload) {
        return answer -> info -> {
            if (!upload.started()) {
                answer.complete(new ServiceAnswer(info.statusCode(), info.headers(), new byte[0]));
            }
            return AnswerBody.atMost(ERROR_BYTES_MAX).apply(info);
        };
    }

    /** Makes the body's handler for one try, given the future of that try's answer. */
    private interface Reception {
        HttpResponse.BodyHandler<byte[]> handler(CompletableFuture<ServiceAnswer> answer);
    }

    /** Ends every request in flight; later ones fail. */
    void close() {
        closed = true;
        inFlight.forEach(future -> future.cancel(true));
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(base + path));
    }

    private ServiceAnswer repeatable(HttpRequest.Builder request, int bytesMax, Deadline deadline)
            throws ServiceFailure {
        Reception whole = answer -> AnswerBody.atMost(bytesMax);
        try {
            return send(others, request, whole, deadline);
        } catch (ServiceFailure e) {
            if (e.kind() != ServiceFailure.Kind.BROKEN) {
                throw e;
            }
            return send(others, request, whole, deadline);
        }
    }

    private ServiceAnswer send(HttpClient http, HttpRequest.Builder builder, Reception reception,
            Deadline deadline) throws ServiceFailure {
        HttpRequest request = builder.setHeader("Authorization", token.authorization()).build();
        CompletableFuture<ServiceAnswer> answer = new CompletableFuture<>();
        CompletableFuture<HttpResponse<byte[]>> exchange =
                http.sendAsync(request, reception.handler(answer));
        exchange.whenComplete((response, failure) -> {
            if (failure == null) {
                answer.complete(new ServiceAnswer(
                        response.statusCode(), response.headers(), response.body()));
            } else {
                answer.completeExceptionally(failure);
            }
        });
        inFlight.add(exchange);
        try {
            if (closed) {
                exchange.cancel(true);
            }
            ServiceAnswer whole = await(answer, deadline, request);
            if (whole.status() == 401) {
                token.changed(); // so that the broker's next try has the new one
            }
            return whole;
        } finally {
            inFlight.remove(exchange);
            exchange.cancel(true); // does nothing to one that has ended
        }
    }

    private ServiceAnswer await(
            CompletableFuture<ServiceAnswer> answer, Deadline deadline, HttpRequest request)
            throws ServiceFailure {
        while (true) {
            long nanos = deadline.remainingNanos();
            if (nanos <= 0) {
                throw failure(ServiceFailure.Kind.EXPIRED, request, deadline.reason(), null);
            }
            try {
                return answer.get(nanos, TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                continue; // progress may have moved the end meanwhile
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw failure(ServiceFailure.Kind.INTERRUPTED, request, "interrupted", e);
            } catch (CancellationException e) {
                throw failure(ServiceFailure.Kind.CLOSED, request, "the plug-in is closed", e);
            } catch (ExecutionException e) {
                throw classified(e.getCause(), request);
            }
        }
    }

    private ServiceFailure classified(Throwable failure, HttpRequest request) {
        Throwable cause = failure;
        while (cause instanceof CompletionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (closed || cause instanceof CancellationException) {
            return failure(ServiceFailure.Kind.CLOSED, request, "the plug-in is closed", cause);
        }
        boolean unreachable =
                cause instanceof ConnectException || cause instanceof HttpConnectTimeoutException;
        String what = cause instanceof IOException && cause.getMessage() != null
                ? cause.getMessage() : cause.toString();
        return unreachable
                ? failure(ServiceFailure.Kind.UNREACHABLE, request,
                        "can't connect (" + cause.getClass().getSimpleName() + ")", cause)
                : failure(ServiceFailure.Kind.BROKEN, request, what, cause);
    }

    private static ServiceFailure failure(
            ServiceFailure.Kind kind, HttpRequest request, String what, Throwable cause) {
        return new ServiceFailure(
                kind, request.method() + " " + request.uri() + ": " + what, cause);
    }
}
