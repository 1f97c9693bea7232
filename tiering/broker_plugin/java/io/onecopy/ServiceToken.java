package io.onecopy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;

import org.apache.kafka.common.config.ConfigException;

/**
 * The bearer token, given in the configuration or kept in a file.
 *
 * <p>A file is read again after the service refused the token, so that a token can be changed
 * without a restart of the broker. The token appears in no message and no {@code toString}.
 */
final class ServiceToken {
    /** What may stand in a header without quoting; RFC 6750 allows less than this. */
    private static final Pattern LEGAL = Pattern.compile("[\\x21-\\x7e]{1,4096}");

    private final Path file;
    private volatile String token;

    private ServiceToken(Path file, String token) {
        this.file = file;
        this.token = token;
    }

    static ServiceToken inline(String token) {
        if (!LEGAL.matcher(token).matches()) {
            throw new ConfigException("rsm.config." + PluginConfig.TOKEN
                    + " must be visible ASCII characters without spaces");
        }
        return new ServiceToken(null, token);
    }

    static ServiceToken fromFile(Path file) {
        try {
            return new ServiceToken(file, read(file));
        } catch (IOException e) {
            throw new ConfigException("rsm.config." + PluginConfig.TOKEN_FILE + ": " + file
                    + " holds no token the broker can read (" + e.getClass().getSimpleName()
                    + "): put the service's token into it, alone on its one line");
        }
    }

    /** Value of the {@code Authorization} header. */
    String authorization() {
        return "Bearer " + token;
    }

    /** Reads the file again; true if it holds another token now. */
    boolean changed() {
        if (file == null) {
            return false;
        }
        try {
            String now = read(file);
            boolean other = !now.equals(token);
            token = now;
            return other;
        } catch (IOException e) {
            return false; // being replaced right now, or gone: the old one stays
        }
    }

    private static String read(Path file) throws IOException {
        String text = Files.readString(file).strip();
        if (!LEGAL.matcher(text).matches()) {
            throw new IOException("not a token");
        }
        return text;
    }

    @Override
    public String toString() {
        return "ServiceToken[hidden]";
    }
}
