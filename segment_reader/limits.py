"""Every bound of the segment reader in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what a reader takes into memory, in bytes unless the name says otherwise.

    Attributes:
        chunk_bytes: how much of a log is read at once; one larger batch is read whole.
        piece_bytes: how much of what was read is decoded at a time: about a processor's cache.
        batch_bytes_max: largest batch accepted (Kafka's own cap is the int32 length field).
        decompressed_batch_bytes_max: largest record section of one batch after decompression.
        decompression_ratio_max: output over input of one batch; above it only outputs up to
            `ratio_free_bytes` are taken.
        ratio_free_bytes: outputs up to this size are exempt from the ratio.
        large_record_ratio_max: a compressed record larger than `arrow_batch_bytes` has to lie in
            memory whole: it may be this many times as large as its batch's compressed bytes.
        arrow_batch_bytes: decoded bytes after which a record batch is handed on.
        arrow_batch_rows_max: rows after which a record batch is handed on.
    """

    chunk_bytes: int = 4 * 1024 * 1024
    piece_bytes: int = 2 * 1024 * 1024
    batch_bytes_max: int = 256 * 1024 * 1024
    decompressed_batch_bytes_max: int = 512 * 1024 * 1024
    decompression_ratio_max: int = 2048
    ratio_free_bytes: int = 16 * 1024 * 1024
    large_record_ratio_max: int = 4
    arrow_batch_bytes: int = 16 * 1024 * 1024
    arrow_batch_rows_max: int = 256 * 1024


DEFAULT_LIMITS = Limits()
