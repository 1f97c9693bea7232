"""Stores, tables and Spark for the tests of the conversion job."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from native_segments import Segment, in_batches, kafka_uuid, rows_of, some_records
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from spark_ext.conversion_job import SparkConverter
from spark_ext.session import SessionOptions
from tiering.store import ObjectStore, open_store
from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.tasks import ConversionResult, ConversionTask

SPARK_MARKS = [
    pytest.mark.spark,
    # Spark's bridge leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@dataclass(frozen=True)
class Tier:
    """A store and a catalog in one directory."""

    directory: Path
    store: ObjectStore
    catalog: Catalog

    @property
    def warehouse(self) -> str:
        return f"{self.directory}/store/warehouse"

    def table(self, topic: str, topic_id: str) -> Table:
        return ensure_table(self.catalog, ("kafka", topic), topic, topic_id, self.warehouse)


def tier_in(directory: Path) -> Tier:
    """An empty tier."""
    uri = f"sqlite:///{directory}/catalog.db"
    config = CatalogConfig(properties={"uri": uri, "warehouse": f"{directory}/store/warehouse"})
    return Tier(directory, open_store(str(directory / "store")), open_catalog(config))


@contextmanager
def running_converter(
    conf: Mapping[str, str] | None = None, master: str = "local[2]"
) -> Iterator[SparkConverter]:
    """A converter that is closed, with all that belongs to it."""
    converter = SparkConverter(SessionOptions(master=master, conf=dict(conf or {})))
    try:
        yield converter
    finally:
        converter.close()
        collect_sockets()


def collect_sockets() -> None:
    """Spark's bridge leaves its sockets to the garbage collector, which warns of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def topic(
    tier: Tier, name: str, start: int = 0, count: int = 200
) -> tuple[Segment, ConversionTask]:
    """A stored segment of a topic of its own, and its task."""
    made = Segment(
        batches=in_batches(some_records(start, count), 20, ("zstd", "none")),
        topic=name,
        topic_id=kafka_uuid(),
    )
    made.store(tier.store)
    return made, made.task(tier.store, table_target(tier.table(name, made.topic_id)))


def written(result: ConversionResult) -> list[dict[str, object]]:
    assert result.failure is None, result.failure
    return rows_of(pa.concat_tables(pq.read_table(e.path) for e in result.entries))


def by_task(results: Iterable[ConversionResult]) -> dict[int, ConversionResult]:
    return {result.task_id: result for result in results}
