"""A broker's segment file in a local store, as the service would have put it there."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from tiering.config import default_config
from tiering.ledger import Ledger, LedgerEntry
from tiering.segments import SegmentId, SegmentMetadata
from tiering.store import open_store
from tiering.table.catalog import table_target
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import ConversionTask

__all__ = ["stored_task"]


def stored_task(directory: Path, topic: str, log: Path, last_offset: int) -> ConversionTask:
    """Put the log and its ledger object into a store below `directory`; the task over all of it.

    The task's table is made there, too. The segment has no transactions.
    """
    config = default_config(directory)
    store = open_store(config.store)
    meta = SegmentMetadata(
        id=SegmentId(
            topic_id=_kafka_uuid(), partition=0, base_offset=int(log.stem), segment_id=_kafka_uuid()
        ),
        topic=topic,
        start_offset=int(log.stem),
        end_offset=last_offset,
        max_timestamp_ms=0,
        broker_id=1,
        size_bytes=log.stat().st_size,
        leader_epochs=((0, 0),),
    )
    store.put(meta.id.log_key, log.read_bytes())
    store.put(meta.id.indexes_key, b"")
    entry = LedgerEntry(metadata=meta, parts=(("verdicts", 0),), sha256="", uploaded_at_ms=0)
    Ledger(store).create(entry)
    tables = CatalogTables(config)
    tables.ensure(topic, meta.id.topic_id)
    return ConversionTask(
        task_id=0,
        layout="onecopy",
        store_url=config.store,
        segment_path=meta.id.path,
        topic=topic,
        topic_id=meta.id.topic_id,
        partition=0,
        segment_start_offset=meta.start_offset,
        segment_end_offset=last_offset,
        leader_epochs=meta.leader_epochs,
        index_parts=entry.parts,
        from_offset=meta.start_offset,
        to_offset=last_offset + 1,
        start_position=0,
        end_position=None,
        target=table_target(tables.table(topic, meta.id.topic_id)),
    )


def _kafka_uuid() -> str:
    """A random id as Kafka writes it; never beginning with '-'."""
    return base64.urlsafe_b64encode(b"\x10" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
