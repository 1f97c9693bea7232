"""Native objects that were damaged, or swapped, after their upload: each stops its partition only.

One topic, one fault in the third segment of each partition but the last.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard
from acknowledged import READ_COMMITTED, WrittenTopic
from google_crc32c import value as crc32c
from native_batches import Batch, batches_of
from native_copies import NativeCopy
from polling import eventually
from pyiceberg.catalog import Catalog
from real_tier import RealTier
from retirement import kept_log
from table_rows import assert_same, catalog_of, compared, reader_at

from tiering.ledger import Ledger, LedgerEntry
from tiering.local.tier_stack import CONFIG_FILE
from tiering.segments import CHECKSUMS_PART
from tiering.table.schema import table_name

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

TOPIC = "small-segments"
OTHER = "log-append-time"
DAMAGED = 2
CRC_AT, ATTRIBUTES_AT, BASE_OFFSET_AT, LENGTH_AT, EPOCH_AT = 17, 21, 0, 8, 12
HEADER_BYTES = 61
SKIPPABLE_FRAME = 0x184D2A50  # of the zstd format: readers step over it
BOMB_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is done to a log, and the batch at which it must be noticed."""

    name: str
    damage: Callable[[bytes, list[Batch]], bytes]
    noticed: Callable[[list[Batch]], int] = lambda batches: batches[1].position


def _with(log: bytes, at: int, data: bytes) -> bytes:
    return log[:at] + data + log[at + len(data) :]


def _flipped(log: bytes, at: int) -> bytes:
    return _with(log, at, bytes([log[at] ^ 0x10]))


def _resealed(batch: bytes) -> bytes:
    """With the checksum that fits: damage that only its content gives away."""
    return _with(batch, CRC_AT, struct.pack(">I", crc32c(batch[ATTRIBUTES_AT:])))


def _bomb(log: bytes, batches: list[Batch]) -> bytes:
    """The second batch takes the rest of the log, and is megabytes of zeros when unpacked."""
    at = batches[1].position
    header = bytearray(log[at : at + HEADER_BYTES])
    header[ATTRIBUTES_AT + 1] = header[ATTRIBUTES_AT + 1] & ~7 | 4
    packed = zstandard.ZstdCompressor().compress(bytes(BOMB_BYTES))
    padding = len(log) - at - HEADER_BYTES - len(packed) - 8
    packed += struct.pack("<II", SKIPPABLE_FRAME, padding) + bytes(padding)
    batch = _with(bytes(header) + packed, LENGTH_AT, struct.pack(">i", len(log) - at - 12))
    return log[:at] + _resealed(batch)


FAULTS = (
    Fault(
        name="cut in its last batch",
        damage=lambda log, batches: log[:-7],
        noticed=lambda batches: batches[-1].position + batches[-1].size - 7,
    ),
    Fault(
        name="a bit in a record",
        damage=lambda log, batches: _flipped(log, batches[1].position + 70),
    ),
    Fault(
        name="a bit in a base offset",
        damage=lambda log, batches: _flipped(log, batches[1].position + BASE_OFFSET_AT + 7),
        noticed=lambda batches: batches[2].position,  # which it no longer lies below
    ),
    Fault(
        name="a bit in a base offset's high byte",
        damage=lambda log, batches: _flipped(log, batches[1].position + BASE_OFFSET_AT + 2),
    ),
    Fault(
        name="a bit in a leader epoch",
        damage=lambda log, batches: _flipped(log, batches[1].position + EPOCH_AT + 3),
    ),
    Fault(
        name="a length beyond everything",
        damage=lambda log, batches: _with(
            log, batches[1].position + LENGTH_AT, b"\x7f\xff\xff\xff"
        ),
    ),
    Fault(name="a decompression bomb", damage=_bomb),
    Fault(
        name="another topic's object of the same size",
        damage=lambda log, batches: log,  # replaced by the fixture
        noticed=lambda batches: 0,
    ),
)
WHOLE = len(FAULTS)


@pytest.fixture(scope="module")
def catalog(damaged: NativeCopy) -> Catalog:
    return catalog_of(damaged.tier)


@pytest.fixture(scope="module")
def damaged(
    tier: RealTier,
    first_written: Mapping[str, WrittenTopic],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[NativeCopy]:
    """All damage is done before the engine starts for the first time."""
    made = NativeCopy(tier, tmp_path_factory.mktemp("damaged"), (TOPIC, OTHER))
    for partition, fault in enumerate(FAULTS):
        entry = made.entry(TOPIC, partition, DAMAGED)
        log = made.log(entry)
        if partition == WHOLE - 1:
            log = made.log(made.entry(OTHER, 0, 0))[: len(log)]
        made.replace_log(entry, fault.damage(log, batches_of(log)))
    # Checksums of the log's blocks would notice all of it at once, and at the block's start.
    made.reveal(without_checksums(entry) for entry in made.entries)
    made.tier.engine.start()
    try:
        _wait_settled(made)
        yield made
    finally:
        made.tier.close()


def without_checksums(entry: LedgerEntry) -> LedgerEntry:
    """As of a service that did not make any yet; they are the last part."""
    assert entry.parts[-1][0] == CHECKSUMS_PART
    return replace(entry, parts=entry.parts[:-1])


def _wait_settled(copy: NativeCopy) -> None:
    def settled() -> bool:
        problems = copy.tier.heartbeat().get("problems", {})
        return all(f"{TOPIC}-{p}" in problems for p in range(len(FAULTS)))

    eventually(
        settled, 90, what="all faults are reported", details=lambda: str(copy.tier.heartbeat())
    )


def original(tier: RealTier, entry: LedgerEntry) -> bytes:
    return kept_log(tier, entry)


@pytest.mark.parametrize("partition", range(len(FAULTS)), ids=[f.name for f in FAULTS])
def test_the_segment_is_quarantined_by_name_and_byte(
    tier: RealTier, damaged: NativeCopy, partition: int
) -> None:
    entry = damaged.entry(TOPIC, partition, DAMAGED)
    found = Ledger(damaged.tier.store).load(entry.metadata.id)
    assert found.quarantine is not None
    assert found.quarantine.reason
    expected = FAULTS[partition].noticed(batches_of(original(tier, entry)))
    assert found.quarantine.position == expected, found.quarantine
    said = damaged.tier.heartbeat()["problems"][f"{TOPIC}-{partition}"]
    assert entry.metadata.id.path in said
    assert f"byte {expected}" in said


@pytest.mark.parametrize("partition", range(len(FAULTS)), ids=[f.name for f in FAULTS])
def test_its_native_copy_stays_as_it_is(
    tier: RealTier, damaged: NativeCopy, partition: int
) -> None:
    entry = damaged.entry(TOPIC, partition, DAMAGED)
    kept = damaged.log(entry)
    log = original(tier, entry)
    if partition == WHOLE - 1:
        log = damaged.log(damaged.entry(OTHER, 0, 0))[: len(log)]
    assert kept == FAULTS[partition].damage(log, batches_of(log))


@pytest.mark.parametrize("partition", range(len(FAULTS)), ids=[f.name for f in FAULTS])
def test_rows_before_it_are_there_and_none_behind(
    damaged: NativeCopy,
    catalog: Catalog,
    first_written: Mapping[str, WrittenTopic],
    partition: int,
) -> None:
    stop = damaged.entry(TOPIC, partition, DAMAGED).metadata.start_offset
    rows = _rows(damaged, catalog, TOPIC, partition)
    wanted = first_written[TOPIC].partitions[partition].expected(READ_COMMITTED).table(stop)
    assert wanted.num_rows > 0
    assert_same(compared(rows), wanted, f"partition {partition}")


def test_other_partitions_and_topics_go_on(
    damaged: NativeCopy, catalog: Catalog, first_written: Mapping[str, WrittenTopic]
) -> None:
    for topic, partition in ((TOPIC, WHOLE), (OTHER, 0)):
        rows = _rows(damaged, catalog, topic, partition)
        wanted = first_written[topic].partitions[partition].expected(READ_COMMITTED).table()
        assert_same(compared(rows), wanted, f"{topic}-{partition}")


def test_status_names_segment_and_byte(damaged: NativeCopy) -> None:
    config = damaged.tier.directory / CONFIG_FILE
    config.write_text(damaged.tier.config.to_json())
    command = [sys.executable, "-m", "tiering.cli", "status", "--json"]
    done = subprocess.run(
        [*command, "--dir", str(damaged.tier.directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    status = json.loads(done.stdout)
    topic = next(t for t in status["topics"] if t["topic"] == TOPIC)
    for partition in topic["partitions"][:WHOLE]:
        (reason,) = partition["quarantined"]
        assert damaged.entry(TOPIC, partition["partition"], DAMAGED).metadata.id.path in reason
        assert "byte " in reason
    assert topic["partitions"][WHOLE]["quarantined"] == []


def test_another_copy_of_the_segment_heals_it(
    tier: RealTier,
    damaged: NativeCopy,
    catalog: Catalog,
    first_written: Mapping[str, WrittenTopic],
) -> None:
    """The broker copies under a new id: from there the partition goes on to its end."""
    partition = 1
    bad = damaged.entry(TOPIC, partition, DAMAGED)
    identity = replace(bad.metadata.id, segment_id="A" * 21 + "Q")
    good = replace(bad, metadata=replace(bad.metadata, id=identity))
    damaged.tier.path_of(identity.log_key).write_bytes(original(tier, bad))
    os.link(
        damaged.tier.path_of(bad.metadata.id.indexes_key),
        damaged.tier.path_of(identity.indexes_key),
    )
    damaged.reveal([good])
    ends = {partition: first_written[TOPIC].partitions[partition].end_offset}
    eventually(
        lambda: reader_at(damaged.tier, catalog, TOPIC, ends),
        60,
        what="the partition goes on",
        details=damaged.tier.engine.tail,
    )
    wanted = first_written[TOPIC].partitions[partition].expected(READ_COMMITTED).table()
    assert_same(compared(_rows(damaged, catalog, TOPIC, partition)), wanted, "healed")


def _rows(copy: NativeCopy, catalog: Catalog, topic: str, partition: int) -> pa.Table:
    table = catalog.load_table((copy.tier.config.namespace, table_name(topic)))
    rows = table.scan().to_arrow().sort_by("kafka_offset")
    return rows.filter(pc.field("kafka_partition") == partition)
