package io.onecopy;

import java.net.http.HttpHeaders;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One whole answer of the service: status, headers, body (bounded by what was asked).
 *
 * <p>Errors carry {@code {"error": code, "message": text}}. The code is what tells the service's
 * own "not found" from that of a proxy or of a wrong address.
 */
record ServiceAnswer(int status, HttpHeaders headers, byte[] body) {
    private static final Pattern ERROR = Pattern.compile("\"error\"\\s*:\\s*\"([a-z_]{1,64})\"");
    private static final Pattern SHA256 = Pattern.compile("\"sha256\"\\s*:\\s*\"([0-9a-f]{64})\"");
    private static final int SEARCHED_BYTES_MAX = 64 << 10;
    private static final int SHOWN_BYTES_MAX = 300;

    /** The service's error code, or empty if this answer isn't one of its errors. */
    String errorCode() {
        return status < 400 ? "" : first(ERROR).orElse("");
    }

    /** The digest that the service computed over the body of a copy. */
    Optional<String> sha256() {
        return first(SHA256);
    }

    boolean hasLength() {
        return headers.firstValue("Content-Length").isPresent();
    }

    /** Status and the beginning of the body, on one line, for messages. */
    String describe() {
        String text = head(SHOWN_BYTES_MAX).replaceAll("[^\\x20-\\x7e]+", " ").strip();
        if (text.isEmpty() && status == 401) {
            text = "the service has another token than this broker"; // a body is not waited for
        }
        return "status " + status + (text.isEmpty() ? "" : ": " + text);
    }

    private Optional<String> first(Pattern pattern) {
        Matcher matcher = pattern.matcher(head(SEARCHED_BYTES_MAX));
        return matcher.find() ? Optional.of(matcher.group(1)) : Optional.empty();
    }

    private String head(int bytesMax) {
        return new String(body, 0, Math.min(body.length, bytesMax), StandardCharsets.UTF_8);
    }
}
