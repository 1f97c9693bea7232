package io.onecopy;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * One named part of an upload: an open file, or bytes in memory; read once, front to back.
 *
 * <p>Files are opened before the first byte is sent, so that a file which is renamed or deleted
 * meanwhile (retention, a deleted topic) is still read whole or not at all.
 */
final class SegmentPart implements Closeable {
    private final String name;
    private final long size;
    private final FileChannel file;
    private final ByteBuffer memory;
    private long position;

    private SegmentPart(String name, long size, FileChannel file, ByteBuffer memory) {
        this.name = name;
        this.size = size;
        this.file = file;
        this.memory = memory;
    }

    static SegmentPart ofBytes(String name, ByteBuffer bytes) {
        return new SegmentPart(name, bytes.remaining(), null, bytes.duplicate());
    }

    static SegmentPart ofFile(String name, Path path) throws IOException {
        FileChannel file = FileChannel.open(path, StandardOpenOption.READ);
        try {
            return new SegmentPart(name, file.size(), file, null);
        } catch (IOException e) {
            file.close();
            throw e;
        }
    }

    /** The first {@code size} bytes of a file, which must have them. */
    static SegmentPart ofFile(String name, Path path, long size) throws IOException {
        SegmentPart whole = ofFile(name, path);
        if (whole.size < size) {
            whole.close();
            throw new EOFException(path + " has " + whole.size + " bytes, the broker said " + size);
        }
        return new SegmentPart(name, size, whole.file, null);
    }

    String name() {
        return name;
    }

    long size() {
        return size;
    }

    long remaining() {
        return size - position;
    }

    /** Moves bytes into {@code target} until it is full or this part is at its end. */
    void fill(ByteBuffer target) throws IOException {
        int limit = target.limit();
        target.limit((int) Math.min(limit, target.position() + remaining()));
        while (target.hasRemaining()) {
            position += file == null ? copy(target) : read(target);
        }
        target.limit(limit);
    }

    private int copy(ByteBuffer target) {
        int count = target.remaining();
        target.put(target.position(), memory, memory.position() + (int) position, count);
        target.position(target.position() + count);
        return count;
    }

    private int read(ByteBuffer target) throws IOException {
        int count = file.read(target, position);
        if (count < 0) {
            throw new EOFException(
                    "part " + name + " ended at byte " + position + " of " + size);
        }
        return count;
    }

    @Override
    public void close() throws IOException {
        if (file != null) {
            file.close();
        }
    }
}
