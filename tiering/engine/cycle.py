"""The engine: observe -> plan -> apply, in one loop that may be stopped and started anywhere.

It holds no state that matters: the ledger says which segments there are and how far each has
come, the tables say how far each partition has come. Everything it does is either repeatable or
atomic.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tiering.backlog import Backlog, backlog_by_topic
from tiering.engine.conversion import ConversionStep, ValueCounts
from tiering.engine.mending import UpkeepStep
from tiering.engine.ports import Custody, Schemas, Segments, Tables
from tiering.engine.proving import ProofStep, ProvingReport
from tiering.engine.rescuing import RescueStep
from tiering.engine.retiring import RetireStep, RetiringReport
from tiering.ledger import LedgerEntry
from tiering.segments import SegmentMetadata
from tiering.tasks import ConversionTask, Converter, Layout

__all__ = ["CycleReport", "Engine"]

_log: Final = logging.getLogger(__name__)
_PROOF_BYTES_MAX: Final = 512 * 1024 * 1024
"""Native bytes that one cycle proves at most: fresh segments must not wait long behind proofs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """What one cycle did.

    `settled` counts segments that were found to lie wholly below their watermark, `proven` and
    `retired` segments, `withdrawn` partitions that lost dead rows, `expelled` data files that
    retention took, `rescued` segments that were saved from a dropped column; `problems` maps a
    topic or `topic-partition` to what stops it, `values` a topic to what became of its values.
    """

    segments: int = 0
    settled: int = 0
    rows: int = 0
    native_bytes: int = 0
    side_bytes: int = 0
    commits: int = 0
    proven: int = 0
    proof_faults: int = 0
    retired: int = 0
    retired_bytes: int = 0
    withdrawn: int = 0
    expelled: int = 0
    rescued: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    values: Mapping[str, ValueCounts] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.segments or self.settled or self.proof_faults or self.advanced)

    @property
    def advanced(self) -> bool:
        """Whether anything was brought further."""
        moved = self.commits + self.proven + self.retired + self.withdrawn
        return bool(moved + self.expelled + self.rescued)


class Engine:
    """Runs cycles. Time, randomness and every effect come in from outside.

    Args:
        layout, path_of: how the segments lie below `store_url`, and the path of one of them.
        schemas: says how values and keys become columns; None where they are kept as they are.
        custody: proves, retires and tends what was converted; None for a foreign tier's
            segments, which are only converted.
        retire_grace_ms: how long a proven segment's native log is kept.
        reached: called with the name of each step as it is passed; a crash test kills the
            process there.
        split: turns a task over a large segment into several.
        bytes_max: native bytes that one cycle takes, shared by the partitions that have some to
            convert; but of each at least one segment.
    """

    def __init__(
        self,
        *,
        ledger: Segments,
        tables: Tables,
        converter: Converter,
        store_url: str,
        bytes_max: int,
        split: Callable[[ConversionTask, LedgerEntry], Sequence[ConversionTask]],
        schemas: Schemas | None = None,
        custody: Custody | None = None,
        retire_grace_ms: int = 0,
        layout: Layout = "onecopy",
        path_of: Callable[[SegmentMetadata], str] = lambda meta: meta.id.path,
        new_cycle_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._ledger = ledger
        self._conversion = ConversionStep(
            ledger=ledger,
            tables=tables,
            converter=converter,
            schemas=schemas,
            store_url=store_url,
            bytes_max=bytes_max,
            split=split,
            layout=layout,
            path_of=path_of,
            new_cycle_id=new_cycle_id,
            reached=reached,
        )
        self._rescuing: RescueStep | None = None
        self._proving: ProofStep | None = None
        self._retiring: RetireStep | None = None
        self._upkeep: UpkeepStep | None = None
        if custody is not None:
            self._rescuing = RescueStep(
                ledger=ledger,
                custody=custody,
                converter=converter,
                store_url=store_url,
                bytes_max=min(bytes_max, _PROOF_BYTES_MAX),
                now_ms=now_ms,
                reached=reached,
            )
            self._proving = ProofStep(
                ledger=ledger,
                custody=custody,
                converter=converter,
                store_url=store_url,
                bytes_max=min(bytes_max, _PROOF_BYTES_MAX),
                now_ms=now_ms,
                reached=reached,
            )
            self._retiring = RetireStep(
                ledger=ledger,
                custody=custody,
                grace_ms=retire_grace_ms,
                now_ms=now_ms,
                reached=reached,
            )
            self._upkeep = UpkeepStep(
                ledger=ledger, custody=custody, now_ms=now_ms, reached=reached
            )

    def run_cycle(self) -> CycleReport:
        """One cycle over all topics. Raises TransientError when store or Spark is out."""
        entries = list(self._ledger.scan())
        problems: dict[str, str] = dict(self._ledger.damaged)
        converted = self._conversion.run(entries, problems)
        withdrawn = expelled = rescued = 0
        if self._upkeep is not None:
            withdrawn = self._upkeep.withdraw(converted.withdrawals, entries, problems)
        else:
            for due in converted.withdrawals:
                where = f"{due.topic}-{due.withdrawal.partition}"
                problems[where] = due.withdrawal.reason
        proven, retired = ProvingReport(), RetiringReport()
        if self._proving is not None and self._retiring is not None and self._upkeep is not None:
            # What was just converted is proven in the same cycle, what was proven retired.
            if converted.segments or converted.settled or withdrawn:
                entries = list(self._ledger.scan())
            if self._rescuing is not None:
                rescued = self._rescuing.run(entries, problems)
            if rescued:
                entries = list(self._ledger.scan())
            proven = self._proving.run(entries, problems)
            if proven.segments or proven.faults:
                entries = list(self._ledger.scan())
            retired = self._retiring.run(entries, problems)
            expelled = self._upkeep.expel(entries, problems)
        return CycleReport(
            segments=converted.segments,
            settled=converted.settled,
            rows=converted.rows,
            native_bytes=converted.native_bytes,
            side_bytes=converted.side_bytes,
            commits=converted.commits,
            proven=proven.segments,
            proof_faults=proven.faults,
            retired=retired.segments,
            retired_bytes=retired.native_bytes,
            withdrawn=withdrawn,
            expelled=expelled,
            rescued=rescued,
            problems=problems,
            backlog=backlog_by_topic(entries),
            values=converted.values,
        )
