"""One task, native segment to Parquet file, against writing its columns from memory.

Both run in one process that is bound to one core, with Arrow's pools set to one thread and freed
memory kept for its next use (as in a worker), and write to the same local disk. Ours is the task as
workers run it: read, check, decode, shape, encode, compress, make durable. The rival is
`pyarrow.parquet.write_table` of the table that comes out of it, in memory in one piece, with the
same writer's settings and rows per row group, and no fsync.
Segments come from a real broker, filled by librdkafka.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker_starting import StartKafka

from bench.conftest import Timed
from bench.one_core import one_core
from bench.production import produce, rolled_segments
from bench.records import LARGE, SMALL, RecordForm
from bench.results import BenchResult
from bench.stored_segment import stored_task
from tiering.conversion.convert import convert_task
from tiering.conversion.parquet_files import writer_options
from tiering.conversion.record_columns import TableColumns
from tiering.conversion.worker_memory import keep_freed_memory
from tiering.local.kafka import LocalKafka
from tiering.tasks import ConversionTask

SEGMENT_BYTES = 96 * 1024 * 1024
RUNS = int(os.environ.get("BENCH_RUNS", "7"))
RIVAL = "pyarrow.parquet.write_table"

CASES = [
    pytest.param("convert_raw_vs_arrow_write", LARGE, "none", id="none-512b"),
    pytest.param("convert_raw_vs_arrow_write_120b", SMALL, "none", id="none-120b"),
    pytest.param("convert_raw_vs_arrow_write_zstd", LARGE, "zstd", id="zstd-512b"),
    pytest.param("convert_raw_vs_arrow_write_lz4", LARGE, "lz4", id="lz4-512b"),
]


@pytest.fixture(scope="module")
def kafka(module_kafka: StartKafka) -> LocalKafka:
    return module_kafka()


@pytest.mark.parametrize(("name", "form", "codec"), CASES)
def test_convert_raw_vs_arrow_write(
    name: str,
    form: RecordForm,
    codec: str,
    kafka: LocalKafka,
    tmp_path: Path,
    in_turn: Callable[..., tuple[list[Timed], list[Timed]]],
    report: Callable[[BenchResult], None],
) -> None:
    log, last_offset = _segment(kafka, form, codec)
    task = stored_task(tmp_path / "tier", "bench", log, last_offset)
    keep_freed_memory()  # as Spark's Python workers do
    with one_core():
        table, group_rows = _columns(task)
        options = writer_options(TableColumns.of(task.target.schema_json))
        rival_file = tmp_path / "rival.parquet"

        def ours() -> None:
            _convert(task).unlink()

        def rival() -> None:
            pq.write_table(table, rival_file, row_group_size=group_rows, **options)

        mine, theirs = in_turn(ours, rival, runs=RUNS)
    megabytes = sum(table.column(c).nbytes for c in ("kafka_key", "value")) / 1e6
    wall = [[megabytes / t.wall_s for t in runs] for runs in (mine, theirs)]
    cpu = [[megabytes / t.cpu_s for t in runs] for runs in (mine, theirs)]
    report(BenchResult.of_rates(name, "MB/s", RIVAL, *wall))
    report(BenchResult.of_rates(f"{name}_cpu", "MB/CPU s", RIVAL, *cpu))


def _segment(kafka: LocalKafka, form: RecordForm, codec: str) -> tuple[Path, int]:
    """A whole segment of the form's records: the first that the broker has closed."""
    topic = f"records-{form.value_bytes}-{codec}"
    kafka.create_topic(topic, configs={"segment.bytes": str(SEGMENT_BYTES)})
    enough = SEGMENT_BYTES * (1.2 if codec == "none" else 2.7)
    produce(kafka, topic, form, int(enough / form.value_bytes), codec=codec)
    return rolled_segments(kafka, topic)[0]


def _convert(task: ConversionTask) -> Path:
    result = convert_task(task)
    assert result.failure is None, result.failure
    assert result.rows == task.to_offset - task.from_offset
    (entry,) = result.entries
    return Path(entry.path.removeprefix("file://"))


def _columns(task: ConversionTask) -> tuple[pa.Table, int]:
    """What our file holds, in one piece per column, and the rows of its first row group."""
    path = _convert(task)
    file = pq.ParquetFile(path)
    table = file.read().cast(TableColumns.of(task.target.schema_json).arrow).combine_chunks()
    group_rows = file.metadata.row_group(0).num_rows
    path.unlink()
    return table, group_rows
