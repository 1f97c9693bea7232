package io.onecopy;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Finds the aborted transactions that overlap a segment.
 *
 * <p>The broker copies a segment when all of its transactions are decided, but it writes a
 * transaction's {@code .txnindex} entry into the segment that holds the <em>marker</em>: a later
 * one, perhaps the active one. So every {@code .txnindex} from this segment on is read. An entry
 * is 34 bytes, big endian: i16 version, i64 producer id, i64 first offset, i64 last offset, i64
 * last stable offset. The entries that matter were written before the last stable offset moved,
 * so they are whole; a last one that is being appended right now is not ours and is left out.
 */
final class VerdictCollector {
    private static final Pattern NAME = Pattern.compile("\\d{20}\\.txnindex");
    private static final int NAME_DIGITS = 20;
    private static final int ENTRY_BYTES = 34;
    private static final int FIRST_OFFSET_AT = 10;
    private static final int LAST_OFFSET_AT = 18;
    private static final int READ_ENTRIES = 1024;
    private static final int LISTINGS_MAX = 5;

    private final Path directory;
    private final long startOffset;
    private final long endOffset;

    VerdictCollector(Path directory, long startOffset, long endOffset) {
        this.directory = directory;
        this.startOffset = startOffset;
        this.endOffset = endOffset;
    }

    /** All overlapping entries back to back, oldest file first; fails rather than omits one. */
    ByteBuffer collect() throws IOException {
        NoSuchFileException vanished = null;
        for (int listing = 0; listing < LISTINGS_MAX; listing++) {
            try {
                return collectOnce();
            } catch (NoSuchFileException e) {
                // Deleted or renamed between listing and reading: look again. When it is the
                // directory that is gone, all the listings fail, and so does the copy.
                vanished = e;
            }
        }
        throw new IOException(
                "transaction indexes in " + directory + " vanish while they are read", vanished);
    }

    private ByteBuffer collectOnce() throws IOException {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        for (Path file : list()) {
            readFile(file, found);
        }
        return ByteBuffer.wrap(found.toByteArray());
    }

    private List<Path> list() throws IOException {
        List<Path> files = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(directory)) {
            for (Path entry : entries) {
                String name = entry.getFileName().toString();
                if (NAME.matcher(name).matches() && baseOffset(name) >= startOffset) {
                    files.add(entry);
                }
            }
        } catch (DirectoryIteratorException e) {
            throw e.getCause();
        }
        Collections.sort(files); // twenty digits: by name is by offset
        return files;
    }

    private static long baseOffset(String name) {
        return Long.parseLong(name.substring(0, NAME_DIGITS));
    }

    private void readFile(Path file, ByteArrayOutputStream found) throws IOException {
        if (Files.size(file) < ENTRY_BYTES) {
            return; // most are empty
        }
        ByteBuffer entries = ByteBuffer.allocate(ENTRY_BYTES * READ_ENTRIES);
        try (SeekableByteChannel channel = Files.newByteChannel(file)) {
            while (channel.read(entries) >= 0) {
                entries.flip();
                while (entries.remaining() >= ENTRY_BYTES) {
                    keepOverlapping(entries, found);
                }
                entries.compact();
            }
        }
    }

    private void keepOverlapping(ByteBuffer entries, ByteArrayOutputStream found) {
        int at = entries.position();
        long first = entries.getLong(at + FIRST_OFFSET_AT);
        long last = entries.getLong(at + LAST_OFFSET_AT);
        if (first <= endOffset && last >= startOffset) {
            found.write(entries.array(), at, ENTRY_BYTES);
        }
        entries.position(at + ENTRY_BYTES);
    }
}
