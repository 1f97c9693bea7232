package io.onecopy;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;

import org.apache.kafka.common.config.ConfigException;

/**
 * The plug-in's settings, read once when the broker configures it.
 *
 * <p>The broker passes every property below {@code rsm.config.} without that prefix and adds its
 * own {@code broker.id}; only keys that begin with {@code onecopy.} are ours, and among those an
 * unknown one is an error. Nothing here touches the network.
 *
 * @param url base of the service, without a trailing slash
 * @param token where the bearer token comes from
 * @param trust PEM file with the certificates to trust instead of the JVM's own, if any
 * @param connectTimeout for one TCP connect
 * @param copyDeadline for a whole copy, however steadily it moves
 * @param progressDeadline for a copy in which no byte moves
 * @param fetchDeadline for one pull, one index or one delete
 * @param pullBytes most log bytes asked for at a time by who doesn't read on
 * @param keepBytes memory for what was pulled, until the broker asks for the rest of it; 0: none
 * @param keepMs how long it is kept: what changes in the service shows after that
 */
record PluginConfig(
        URI url,
        ServiceToken token,
        Optional<Path> trust,
        Duration connectTimeout,
        Duration copyDeadline,
        Duration progressDeadline,
        Duration fetchDeadline,
        int pullBytes,
        int keepBytes,
        int keepMs) {

    static final String PREFIX = "onecopy.";
    static final String URL = "onecopy.url";
    static final String TOKEN = "onecopy.token";
    static final String TOKEN_FILE = "onecopy.token.file";
    static final String ALLOW_PLAINTEXT = "onecopy.allow.plaintext";
    static final String TLS_TRUST = "onecopy.tls.trust";
    static final String CONNECT_TIMEOUT = "onecopy.connect.timeout.ms";
    static final String COPY_DEADLINE = "onecopy.copy.deadline.ms";
    static final String PROGRESS_DEADLINE = "onecopy.progress.deadline.ms";
    static final String FETCH_DEADLINE = "onecopy.fetch.deadline.ms";
    static final String PULL_BYTES = "onecopy.pull.bytes";
    static final String KEEP_BYTES = "onecopy.keep.bytes";
    static final String KEEP = "onecopy.keep.ms";

    /** Most log bytes asked for at a time. */
    static final int PULL_BYTES_MAX = 4 << 20;

    private static final Set<String> KEYS = new TreeSet<>(Set.of(
            URL, TOKEN, TOKEN_FILE, ALLOW_PLAINTEXT, TLS_TRUST, CONNECT_TIMEOUT, COPY_DEADLINE,
            PROGRESS_DEADLINE, FETCH_DEADLINE, PULL_BYTES, KEEP_BYTES, KEEP));

    private static final int CONNECT_TIMEOUT_MS_DEFAULT = 5_000;
    private static final int COPY_DEADLINE_MS_DEFAULT = 600_000;
    private static final int PROGRESS_DEADLINE_MS_DEFAULT = 60_000;
    private static final int FETCH_DEADLINE_MS_DEFAULT = 30_000;
    private static final int DEADLINE_MS_MAX = 24 * 3_600_000;

    /** A consumer's usual fetch (1 MiB) plus the batches cut off at both of its ends. */
    private static final int PULL_BYTES_DEFAULT = 1_310_720;
    private static final int PULL_BYTES_MIN = 1 << 20;
    private static final int KEEP_BYTES_DEFAULT = 32 << 20;
    private static final int KEEP_BYTES_MAX = 1 << 30;
    private static final int KEEP_MS_DEFAULT = 30_000;

    /** Literal loopback addresses: a name would have to be resolved, and could change. */
    private static final Pattern LOOPBACK =
            Pattern.compile("localhost|127(\\.\\d{1,3}){3}|\\[::1]|\\[0:0:0:0:0:0:0:1]");

    /** Reads the broker's map; every ConfigException names the key and what to do. */
    static PluginConfig parse(Map<String, ?> configs) {
        refuseUnknownKeys(configs);
        URI url = url(text(configs, URL).orElseThrow(() -> new ConfigException(
                "rsm.config." + URL + " is missing: set it to the address of the Onecopy service, "
                        + "for example http://127.0.0.1:8090")));
        ServiceToken token = token(configs);
        refuseTokenInTheClear(url, configs);
        return new PluginConfig(
                url,
                token,
                trust(url, configs),
                millis(configs, CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS_DEFAULT),
                millis(configs, COPY_DEADLINE, COPY_DEADLINE_MS_DEFAULT),
                millis(configs, PROGRESS_DEADLINE, PROGRESS_DEADLINE_MS_DEFAULT),
                millis(configs, FETCH_DEADLINE, FETCH_DEADLINE_MS_DEFAULT),
                number(configs, PULL_BYTES, PULL_BYTES_DEFAULT, PULL_BYTES_MIN, PULL_BYTES_MAX),
                number(configs, KEEP_BYTES, KEEP_BYTES_DEFAULT, 0, KEEP_BYTES_MAX),
                number(configs, KEEP, KEEP_MS_DEFAULT, 1, DEADLINE_MS_MAX));
    }

    private static void refuseUnknownKeys(Map<String, ?> configs) {
        for (String key : configs.keySet()) {
            if (key.startsWith(PREFIX) && !KEYS.contains(key)) {
                throw new ConfigException("rsm.config." + key + " is not a setting of Onecopy: "
                        + "remove it or correct its name; the settings are " + KEYS);
            }
        }
    }

    private static Optional<String> text(Map<String, ?> configs, String key) {
        Object value = configs.get(key);
        return value == null ? Optional.empty() : Optional.of(value.toString().strip());
    }

    private static URI url(String text) {
        ConfigException bad = new ConfigException("rsm.config." + URL + " is not usable: give it "
                + "as http://HOST:PORT or https://HOST:PORT, with an optional path and without "
                + "user, query or fragment");
        try {
            URI uri = new URI(text);
            boolean http = "http".equalsIgnoreCase(uri.getScheme())
                    || "https".equalsIgnoreCase(uri.getScheme());
            if (!http || uri.getHost() == null || uri.getUserInfo() != null
                    || uri.getQuery() != null || uri.getFragment() != null) {
                throw bad;
            }
            return new URI(text.replaceAll("/+$", ""));
        } catch (URISyntaxException e) {
            throw bad; // without the cause: its text repeats the value, which may hold a password
        }
    }

    private static ServiceToken token(Map<String, ?> configs) {
        Optional<String> inline = text(configs, TOKEN);
        Optional<String> file = text(configs, TOKEN_FILE);
        if (inline.isPresent() == file.isPresent()) {
            throw new ConfigException("Set either rsm.config." + TOKEN + " or rsm.config."
                    + TOKEN_FILE + " (" + (inline.isPresent() ? "both are" : "neither is")
                    + " set): the service takes no request without its token");
        }
        return inline.map(ServiceToken::inline)
                .orElseGet(() -> ServiceToken.fromFile(Path.of(file.orElseThrow())));
    }

    private static void refuseTokenInTheClear(URI url, Map<String, ?> configs) {
        boolean allowed = flag(configs, ALLOW_PLAINTEXT);
        boolean clear = "http".equalsIgnoreCase(url.getScheme())
                && !LOOPBACK.matcher(url.getHost()).matches();
        if (clear && !allowed) {
            throw new ConfigException("rsm.config." + URL + " would send the token unencrypted to "
                    + url.getHost() + ": use https://, or set rsm.config." + ALLOW_PLAINTEXT
                    + "=true if the network between broker and service is trusted");
        }
    }

    private static Optional<Path> trust(URI url, Map<String, ?> configs) {
        Optional<Path> file = text(configs, TLS_TRUST).map(Path::of);
        if (file.isPresent() && !"https".equalsIgnoreCase(url.getScheme())) {
            throw new ConfigException("rsm.config." + TLS_TRUST + " is set, but rsm.config." + URL
                    + " is not https://: change the address, or remove the setting");
        }
        file.filter(path -> !Files.isReadable(path)).ifPresent(path -> {
            throw new ConfigException("rsm.config." + TLS_TRUST + ": the broker can't read " + path
                    + ": name a PEM file with the certificates to trust");
        });
        return file;
    }

    private static boolean flag(Map<String, ?> configs, String key) {
        String value = text(configs, key).orElse("false");
        if (!value.equals("true") && !value.equals("false")) {
            throw new ConfigException("rsm.config." + key + " must be true or false, not " + value);
        }
        return value.equals("true");
    }

    private static Duration millis(Map<String, ?> configs, String key, int fallback) {
        return Duration.ofMillis(number(configs, key, fallback, 1, DEADLINE_MS_MAX));
    }

    private static int number(Map<String, ?> configs, String key, int fallback, int min, int max) {
        Optional<String> value = text(configs, key);
        if (value.isEmpty()) {
            return fallback;
        }
        try {
            int number = Integer.parseInt(value.get());
            if (number >= min && number <= max) {
                return number;
            }
        } catch (NumberFormatException e) {
            // falls through to the one message for both mistakes
        }
        throw new ConfigException("rsm.config." + key + " is " + value.get()
                + ": set a whole number from " + min + " to " + max);
    }
}
