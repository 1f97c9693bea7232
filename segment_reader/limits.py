"""Every bound of the segment reader in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "DEFAULT_SERVING_LIMITS", "Limits", "ServingLimits"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """Bounds on the size of a batch that is served, against that of the original.

    The first is a matter of correctness: positions in the served OFFSET index are a quarter of
    the original ones and must never grow faster than the bytes that are served.

    Attributes:
        shrink_max: no batch is smaller than its original's size divided by this, rounded up.
        growth_max: nor larger than its original's size times this, as far as that can be had...
        growth_free_bytes: ... or than this, whatever the original's size.
        growth_unpacked_max: a batch that grows by no more than this when its records are stored
            in its codec's framing without being compressed is served so.
        unpacked_bytes_max: the same for a batch whose records have at most so many bytes, where
            a compressor mostly pays for its start.
        growth_small_max: the factor for those.
        growth_fast_max: what the fastest level may let a batch grow by before the next one is
            tried, whatever the batch's size; the slow ones are for `growth_max` only.
    """

    shrink_max: int = 4
    growth_max: int = 2
    growth_free_bytes: int = 1024 * 1024
    growth_unpacked_max: float = 1.25
    unpacked_bytes_max: int = 2048
    growth_small_max: float = 1.5
    growth_fast_max: float = 2.0


DEFAULT_SERVING_LIMITS = ServingLimits()
