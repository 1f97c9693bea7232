"""Makes one uploaded segment durable: native objects first, the ledger object last.

The indexes object gets one part more than the broker sent: checksums of the log's blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tiering.block_checksums import BlockChecksums
from tiering.crash_points import crash_points
from tiering.errors import FatalError, NotFound, TieringError, TransientError
from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import CHECKSUMS_PART, LOG_PART, SegmentId
from tiering.service.limits import ServiceLimits
from tiering.service.manifest import Manifest
from tiering.service.refusals import Refusal
from tiering.service.upload_body import UploadBody
from tiering.store.objects import ObjectStore, Upload

__all__ = ["SegmentUpload", "UploadReceipt", "check_not_deleted"]

_reached: Final = crash_points(os.environ)
"""Lets a test kill the process between two steps; does nothing without its variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadReceipt:
    """What an upload is acknowledged with; `created` is False for a repeat."""

    sha256: str
    created: bool


class SegmentUpload:
    """Streams one body into the store. Blocking: its methods run in worker threads.

    Until `finish` has written the ledger object, no reader sees anything of it. One id must
    not be uploaded twice at the same time (the service keeps a register of ids under way).
    """

    def __init__(
        self,
        store: ObjectStore,
        segment: SegmentId,
        content_length: int,
        *,
        limits: ServiceLimits,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._segment = segment
        self._body = UploadBody(content_length, segment, limits)
        self._now_ms = now_ms
        self._existing: LedgerEntry | None = None
        self._indexes: Upload | None = None
        self._log: Upload | None = None
        self._checksums = BlockChecksums()
        self._committing = False
        self._receipt: UploadReceipt | None = None

    def open(self) -> None:
        """Look whether the id is there already; raises Refusal when its delete was asked."""
        with suppress(NotFound):
            self._existing = check_not_deleted(self._ledger.load(self._segment))

    def feed(self, chunks: Sequence[bytes]) -> None:
        """Hash and store the next bytes of the body."""
        pieces = self._body.feed(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self._existing is not None or self._body.manifest is None:
            return
        if self._log is None:
            self._indexes = self._store.open_upload(self._segment.indexes_key)
            self._log = self._store.open_upload(self._segment.log_key)
        for piece in pieces:
            upload = self._indexes
            if piece.part == LOG_PART:
                upload = self._log
                self._checksums.update(piece.data)
            assert upload is not None  # noqa: S101 - set together with the log's
            upload.write(piece.data)

    @property
    def receipt(self) -> UploadReceipt:
        """What to acknowledge with, after `finish`."""
        if self._receipt is None:
            raise FatalError(f"segment {self._segment.path}: acknowledged before it was durable")
        return self._receipt

    def finish(self) -> None:
        """Check the digest, then make everything durable and visible."""
        sha256 = self._body.finish()
        if self._existing is not None:
            self._receipt = _repeat(self._existing, sha256)
        else:
            self._receipt = self._make_durable(sha256)

    def _make_durable(self, sha256: str) -> UploadReceipt:
        manifest = self._body.manifest
        if manifest is None or self._log is None or self._indexes is None:
            raise TransientError(f"segment {self._segment.path}: nothing was received")
        self._committing = True
        _reached("body_received")
        checksums = self._checksums.finish()
        self._indexes.write(checksums)
        self._indexes.commit()
        _reached("indexes_stored")
        self._log.commit()
        _reached("log_stored")
        parts = (*manifest.index_parts, (CHECKSUMS_PART, len(checksums)))
        receipt = self._write_ledger(manifest, parts, sha256)
        _reached("ledger_stored")
        return receipt

    def abort(self) -> None:
        """Remove what was written; never raises. Not called once `finish` has returned."""
        for upload in (self._indexes, self._log):
            if upload is not None:
                upload.abort()
        if not self._committing:
            return
        with suppress(TieringError):
            if self._nobody_sees():
                self._store.delete(self._segment.log_key)
                self._store.delete(self._segment.indexes_key)

    def _nobody_sees(self) -> bool:
        """True when it is known for sure that no live entry speaks of this id's objects."""
        try:
            return self._ledger.load(self._segment).delete_requested
        except NotFound:
            return True

    def _write_ledger(
        self, manifest: Manifest, parts: tuple[tuple[str, int], ...], sha256: str
    ) -> UploadReceipt:
        entry = LedgerEntry(
            metadata=manifest.metadata,
            parts=parts,
            sha256=sha256,
            uploaded_at_ms=self._now_ms(),
        )
        try:
            found = self._ledger.create(entry)
        except TransientError:
            # It may have landed, or land yet: the objects it would speak of must stay. The
            # broker deletes this try, and the delete removes them with or without an entry.
            self._committing = False
            found = self._ledger_if_landed()
        if found is entry or found == entry:
            return UploadReceipt(sha256=sha256, created=True)
        return _repeat(check_not_deleted(found), sha256)

    def _ledger_if_landed(self) -> LedgerEntry:
        try:
            return self._ledger.load(self._segment)
        except NotFound as error:
            raise TransientError(f"segment {self._segment.path}: ledger not written") from error


def check_not_deleted(entry: LedgerEntry) -> LedgerEntry:
    """Return `entry`, or raise Refusal 410: an id whose delete was asked never comes back."""
    if entry.delete_requested:
        raise Refusal(410, "segment_deleted", f"{entry.metadata}: its delete was asked")
    return entry


def _repeat(existing: LedgerEntry, sha256: str) -> UploadReceipt:
    if existing.sha256 != sha256:
        raise Refusal(409, "segment_exists", f"{existing.metadata}: stored with other bytes")
    return UploadReceipt(sha256=sha256, created=False)
