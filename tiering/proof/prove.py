"""One proof task, from the store back to the store: what a worker does. No Spark here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from segment_reader import RangeSource, SegmentReader, SegmentReaderError
from tiering.conversion.native_indexes import native_indexes
from tiering.conversion.read_ahead import ReadAhead
from tiering.conversion.task_input import MissingSegment, OpenStore, StoredInput, open_stored
from tiering.conversion.worker_secrets import without_secrets
from tiering.errors import FatalError, NotFound, TransientError
from tiering.history import RecordCursor, Regenerator, TableRecords, coverage
from tiering.offset_reader.parquet_files import MissingFile
from tiering.offset_reader.snapshot_view import SnapshotView
from tiering.proof.comparison import Comparison, Mismatch
from tiering.proof.plain_reads import read_through
from tiering.proof.row_tally import Chunks, RowTally
from tiering.proof.side_part import SidePart
from tiering.proof.table_snapshots import TableSnapshots
from tiering.store import ObjectStore, open_store
from tiering.tasks import ProofFailure, ProofResult, ProofTask

__all__ = ["prove_task"]

_snapshots: Final = TableSnapshots()
"""Of this process: a worker proves many segments of few tables."""


def prove_task(task: ProofTask, *, open_store: OpenStore = open_store) -> ProofResult:
    """Read a part of a segment's side file and its rows back and compare what they give with the
    native log: every header field but length, CRC and codec framing, every record byte, and (with
    the first part) every byte of the indexes.

    Never raises: whatever goes wrong is in the result. Nothing is written. Memory is bounded by
    the readers' limits and the largest batch. Credentials are taken from the process environment.
    """
    try:
        return _prove_surely(task, open_store)
    except Mismatch as error:
        return _failed(task, "mismatch", error.reason, error.offset)
    except FatalError as error:  # the side file or a data file is damaged
        return _failed(task, "mismatch", str(error))
    except SegmentReaderError as error:
        return _failed(task, "corrupt", str(error))
    except MissingSegment as error:
        return _failed(task, "missing", str(error))
    except NotFound as error:
        return _failed(task, "missing", str(error))
    except MissingFile as error:
        return _failed(task, "transient", f"data file {error} is gone: the table has moved on")
    except (TransientError, OSError) as error:
        return _failed(task, "transient", str(error))
    except Exception as error:  # noqa: BLE001 - one task's surprise must not fail the whole job
        return _failed(task, "transient", f"{type(error).__name__}: {error}")


def _prove_surely(task: ProofTask, open_store: OpenStore) -> ProofResult:
    """What looks wrong is read once more, from scratch: bytes may have been changed on their way
    here, while a proof that fails has rows withdrawn, or stops the partition."""
    try:
        return _prove(task, open_store(task.store_url))
    except (Mismatch, FatalError, SegmentReaderError):
        _snapshots.forget(task)
        return _prove(task, open_store(task.store_url))
    except TransientError as error:
        _snapshots.forget(task)
        if not isinstance(error.__cause__, OSError):
            raise
        return _prove_undecodable(task, open_store, str(error))
    except BaseException:
        _snapshots.forget(task)
        raise


def _prove_undecodable(task: ProofTask, open_store: OpenStore, reason: str) -> ProofResult:
    """Once more after an error that is either the store's or that of a damaged data file: it is
    the file's if all of its bytes can be read and the same error comes again."""
    read_through(_view(task), task)
    try:
        return _prove(task, open_store(task.store_url))
    except TransientError as error:
        _snapshots.forget(task)
        if str(error) == reason:
            raise Mismatch(f"a data file of the table is damaged: {reason}") from error
        raise


def _prove(task: ProofTask, store: ObjectStore) -> ProofResult:
    native = open_stored(task, store)
    part = SidePart.open(store, task, native.log)
    view = _view(task)
    if task.part == 0:
        _compare_indexes(part, native_indexes(store, native.entry))
    compared = Comparison(part.side.batches, iter(()))
    if part.start_position < part.end_position:
        compared = _compare(task, native, part, view)
    return ProofResult(
        task_id=task.task_id,
        batches=compared.batches,
        native_bytes=compared.native_bytes,
        coverage=coverage(
            view, task.partition, task.segment_start_offset, task.segment_end_offset + 1
        ),
        deleted_rows=compared.deleted_rows,
    )


def _view(task: ProofTask) -> SnapshotView:
    try:
        return _snapshots.view(task)
    except NotFound as error:  # not a native object: a newer metadata file is there by now
        raise TransientError(str(error)) from error


def _compare_indexes(part: SidePart, indexes: dict[str, bytes]) -> None:
    for name, data in indexes.items():
        kept = part.side.index(name)
        if kept != data:
            size = "no" if kept is None else len(kept)
            raise Mismatch(
                f"index {name}: the side file has {size} bytes of it, which are not the "
                f"{len(data)} bytes of the native object"
            )


def _compare(
    task: ProofTask, native: StoredInput, part: SidePart, view: SnapshotView
) -> Comparison:
    if not native.remote:
        return _compare_log(task, native, native.log, part, view)
    with ReadAhead(native.log, part.end_position) as log:
        return _compare_log(task, native, log, part, view)


def _compare_log(
    task: ProofTask, native: StoredInput, log: RangeSource, part: SidePart, view: SnapshotView
) -> Comparison:
    """Regenerate the part's batches beside the log's; raises Mismatch and what the two raise."""
    records, tally = TableRecords(view), RowTally(part.side.batches, _dead_letters(task, part))

    def rows(_: int) -> Chunks:
        return tally.counted(records.records(task.partition, part.start_offset, part.end_offset))

    # What is read is one range, whatever of it is needed first: rows before that are counted, too.
    with RecordCursor(rows, records.dropped) as cursor:
        regenerator = Regenerator(
            part.side, cursor, rows_may_miss=task.rows_may_miss, accepted=task.accepted
        )
        compared = Comparison(part.side.batches, regenerator.runs(), task.accepted)
        reader = SegmentReader(log, native.bounds)
        for some in reader.payloads(part.start_position, part.end_position):
            compared.add(some)
        compared.finish()
        if not task.rows_may_miss:
            cursor.take(part.end_offset, part.end_offset)  # the rest is only counted
            headers = part.side.batches.headers
            committed = ~headers.control & ~native.verdicts.aborted(headers)
            tally.check(committed, headers.count)
    return compared


def _dead_letters(task: ProofTask, part: SidePart) -> npt.NDArray[np.int64]:
    """Offsets of the part's bad records, which have their rows in a table of their own."""
    if not task.dead_letters_location or task.rows_may_miss:
        return np.empty(0, np.int64)
    view = _view(replace(task, metadata_location=task.dead_letters_location))
    rows = TableRecords(view).records(task.partition, part.start_offset, part.end_offset)
    found = [chunk.column("offset").to_numpy() for chunk in rows]
    return np.concatenate([np.empty(0, np.int64), *found])


def _failed(task: ProofTask, kind: str, reason: str, offset: int = -1) -> ProofResult:
    failure = ProofFailure(
        kind=kind,  # type: ignore[arg-type]
        reason=without_secrets(reason),
        offset=offset,
    )
    return ProofResult(task_id=task.task_id, failure=failure)
