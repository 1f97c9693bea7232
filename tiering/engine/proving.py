"""Converted -> proven: table and side file are read back and compared with the native log.

A proof that fails leaves the native log the authority. Rows that Onecopy itself wrote wrongly are
withdrawn and converted again; where somebody else has changed rows through SQL, nothing is
withdrawn: that is for a person to settle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tiering.engine.ports import Custody, Segments
from tiering.errors import NotFound, TieringError
from tiering.ledger import LedgerEntry, Proof, ProofFault, Quarantine, SegmentState
from tiering.segments import SegmentId
from tiering.table.reading import TableReading
from tiering.tasks import Converter, ProofFailure, ProofResult, ProofTask

__all__ = ["FAULTS_MAX", "ProofStep", "ProvingReport", "by_topic_id"]

_log: Final = logging.getLogger(__name__)

FAULTS_MAX: Final = 3
"""Failed proofs of one segment after which it is left as it is, flagged, until a retry is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvingReport:
    """What one pass proved."""

    segments: int = 0
    faults: int = 0
    native_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    entry: LedgerEntry
    reading: TableReading


class ProofStep:
    """Proves what has been converted, a bounded number of native bytes at a time."""

    def __init__(
        self,
        *,
        ledger: Segments,
        custody: Custody,
        converter: Converter,
        store_url: str,
        bytes_max: int,
        now_ms: Callable[[], int],
        reached: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._custody = custody
        self._converter = converter
        self._store_url = store_url
        self._bytes_max = bytes_max
        self._now_ms = now_ms
        self._reached = reached

    def run(self, entries: Sequence[LedgerEntry], problems: dict[str, str]) -> ProvingReport:
        """One pass. Raises TransientError when store or Spark is out."""
        cases = self._cases(entries, problems)
        tasks, owners = self._tasks(cases)
        if not tasks:
            return ProvingReport()
        results = self._converter.prove(tasks)
        self._reached("proven")
        by_segment: dict[SegmentId, list[ProofResult]] = {}
        for result in results:
            by_segment.setdefault(owners[result.task_id], []).append(result)
        proven = faults = 0
        for case in cases:
            found = by_segment[case.entry.metadata.id]
            try:
                if self._judge(case, found, entries, problems):
                    proven += 1
                else:
                    faults += 1
            except (TieringError, OSError) as error:
                problems[_where(case.entry)] = str(error)
        self._reached("proof_recorded")
        return ProvingReport(
            segments=proven, faults=faults, native_bytes=sum(r.native_bytes for r in results)
        )

    def _cases(self, entries: Sequence[LedgerEntry], problems: dict[str, str]) -> list[_Case]:
        cases: list[_Case] = []
        taken = 0
        for topic_id, group in by_topic_id(e for e in entries if _is_provable(e)).items():
            topic = group[0].metadata.topic
            try:
                reading = self._custody.read(topic, topic_id)
                # Also of tables nothing of which is retired now: metadata files don't last long.
                self._custody.announce(reading, topic_id)
            except (TieringError, OSError) as error:
                problems[topic] = str(error)
                continue
            if reading.state.flagged is not None:
                problems[topic] = reading.state.flagged
                continue
            for entry in sorted(group, key=lambda e: e.metadata.start_offset):
                fault = entry.fault
                if fault is not None and fault.count >= FAULTS_MAX:
                    problems[_where(entry)] = _told(entry, fault)
                elif taken < self._bytes_max:
                    taken += entry.metadata.size_bytes
                    cases.append(_Case(entry=entry, reading=reading))
        return cases

    def _tasks(self, cases: Iterable[_Case]) -> tuple[list[ProofTask], dict[int, SegmentId]]:
        tasks: list[ProofTask] = []
        owners: dict[int, SegmentId] = {}
        for case in cases:
            meta, reading = case.entry.metadata, case.reading
            for part in range(len(case.entry.side)):
                owners[len(tasks)] = meta.id
                tasks.append(
                    ProofTask(
                        task_id=len(tasks),
                        store_url=self._store_url,
                        segment_path=meta.id.path,
                        topic=meta.topic,
                        topic_id=meta.id.topic_id,
                        partition=meta.id.partition,
                        segment_start_offset=meta.start_offset,
                        segment_end_offset=meta.end_offset,
                        leader_epochs=meta.leader_epochs,
                        side_keys=case.entry.side,
                        part=part,
                        metadata_location=reading.metadata_location,
                        table=reading.state.identifier,
                        io_properties=reading.io_properties,
                        rows_may_miss=reading.changed_by_others,
                        accepted=reading.accepted_of(meta.id.partition),
                        dead_letters_location=reading.dead_letters_location,
                    )
                )
        return tasks, owners

    def _judge(
        self,
        case: _Case,
        results: Sequence[ProofResult],
        entries: Sequence[LedgerEntry],
        problems: dict[str, str],
    ) -> bool:
        """Record a proof that held, or see to one that failed; returns which."""
        failures = sorted(
            (r.failure for r in results if r.failure is not None), key=lambda f: f.offset
        )
        if failures:
            problems[_where(case.entry)] = self._failed(case, failures[0], entries)
            return False
        coverage = {r.coverage for r in results}
        if len(coverage) != 1:
            raise NotFound(f"{case.entry.metadata}: its parts were read from different snapshots")
        proof = Proof(
            proven_at_ms=self._now_ms(),
            coverage=coverage.pop(),
            deleted_rows=sum(r.deleted_rows for r in results),
        )

        def prove(entry: LedgerEntry) -> LedgerEntry:
            if entry.state is not SegmentState.CONVERTED or entry.side != case.entry.side:
                return entry  # changed meanwhile: what was proven is not what is there
            return replace(entry, state=SegmentState.PROVEN, proof=proof)

        self._ledger.update(case.entry.metadata.id, prove)
        return True

    def _failed(self, case: _Case, failure: ProofFailure, entries: Sequence[LedgerEntry]) -> str:
        entry, segment = case.entry, case.entry.metadata.id
        _log.warning("%s: proof failed: %s (%s)", entry.metadata, failure.reason, failure.kind)
        told = f"segment {segment.path}: {failure.reason}"
        if failure.kind == "transient":
            return told
        if failure.kind == "corrupt":
            mark = Quarantine(reason=failure.reason, position=0)
            self._ledger.update(segment, lambda found: replace(found, quarantine=mark))
            return told + " (quarantined; its native copy is kept and served)"
        fault = ProofFault(reason=failure.reason, offset=failure.offset)
        if failure.kind == "missing":
            self._ledger.update(segment, partial(_uploaded_again, fault=fault))
            return told
        return told + self._withdraw(case, fault, entries)

    def _withdraw(self, case: _Case, fault: ProofFault, entries: Sequence[LedgerEntry]) -> str:
        """Take the rows out again, where nothing speaks against it; say what was done."""
        meta = case.entry.metadata
        affected = [e for e in entries if _reaches(e, case.entry)]
        retired = any(e.state is SegmentState.RETIRED for e in affected)
        if case.reading.changed_by_others or retired:
            # So that `onecopy accept` has something to write to, and it is known for good.
            self._custody.announce(case.reading, meta.id.topic_id)
            self._ledger.update(meta.id, lambda found: _flagged(found, fault))
            why = (
                "rows above it have no native copy any more"
                if retired
                else "somebody has changed rows of this table through SQL"
            )
            return f" (its native copy stays the authority; nothing was withdrawn, for {why})"
        # First the entries: after a crash in between they get side files below a watermark that
        # stands where it stood, and the proof fails again.
        for entry in affected:
            own = fault if entry.metadata.id == meta.id else None
            self._ledger.update(entry.metadata.id, partial(_uploaded_again, fault=own))
        self._reached("entries_withdrawn")
        reason = f"proof of segment {meta.id.path} failed: {fault.reason}"
        self._custody.withdraw(
            case.reading, meta.topic, meta.id.partition, meta.start_offset, reason
        )
        self._reached("withdrawn")
        return " (its rows were withdrawn and are converted again)"


def by_topic_id(entries: Iterable[LedgerEntry]) -> dict[str, list[LedgerEntry]]:
    """Entries by topic id, in the order given."""
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.metadata.id.topic_id, []).append(entry)
    return groups


def _is_provable(entry: LedgerEntry) -> bool:
    converted = entry.state is SegmentState.CONVERTED and bool(entry.side)
    return converted and not entry.delete_requested and entry.quarantine is None


def _reaches(entry: LedgerEntry, failed: LedgerEntry) -> bool:
    """Whether rows of `entry` go when all from the start of `failed` on are withdrawn."""
    mine, other = entry.metadata, failed.metadata
    same = (mine.id.topic_id, mine.id.partition) == (other.id.topic_id, other.id.partition)
    done = entry.state is not SegmentState.UPLOADED and not entry.delete_requested
    return same and done and mine.end_offset >= other.start_offset


def _uploaded_again(entry: LedgerEntry, fault: ProofFault | None) -> LedgerEntry:
    if entry.state in (SegmentState.UPLOADED, SegmentState.RETIRED):
        return entry
    return entry.withdrawn(fault)


def _flagged(entry: LedgerEntry, fault: ProofFault) -> LedgerEntry:
    count = entry.fault.count + 1 if entry.fault is not None else 1
    return replace(entry, fault=replace(fault, count=max(count, FAULTS_MAX)))


def _told(entry: LedgerEntry, fault: ProofFault) -> str:
    return (
        f"segment {entry.metadata.id.path}: offset {fault.offset}: {fault.reason} "
        f"(its native copy stays the authority; `onecopy retry {entry.metadata.topic}` tries again)"
    )


def _where(entry: LedgerEntry) -> str:
    return f"{entry.metadata.topic}-{entry.metadata.id.partition}"
