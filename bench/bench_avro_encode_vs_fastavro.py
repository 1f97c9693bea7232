"""Arrow columns to Avro payloads, against fastavro, which makes them of Python dicts.

Both on one core. What it takes to make the rival's dicts of columns is left out. Its timestamps are
numbers, as ours are. `BENCH_AVRO_MB` is how much is encoded at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pyarrow as pa

from bench.avro_orders import ORDER_SCHEMA, avro_orders, orders
from bench.conftest import Timed
from bench.one_core import one_core
from bench.results import BenchResult
from tiering.conversion.worker_memory import keep_freed_memory
from tiering.values.avro import AvroCodec

MEGABYTES = float(os.environ.get("BENCH_AVRO_MB", "16"))
RUNS = int(os.environ.get("BENCH_RUNS", "5"))
NAME = "avro_encode_vs_fastavro"
RIVAL = "fastavro.schemaless_writer"


def test_avro_encode_vs_fastavro(
    in_turn: Callable[..., tuple[list[Timed], list[Timed]]],
    report: Callable[[BenchResult], None],
) -> None:
    rows = orders(int(MEGABYTES * 1e6 / 512))
    payloads, codec = avro_orders(rows), AvroCodec(json.dumps(ORDER_SCHEMA))
    expected = pa.array(payloads, pa.binary())
    columns = codec.decode(expected).columns
    keep_freed_memory()  # as Spark's Python workers do
    assert codec.encode(columns).equals(expected)

    with one_core():
        mine, theirs = in_turn(lambda: codec.encode(columns), lambda: avro_orders(rows), runs=RUNS)
    megabytes = sum(map(len, payloads)) / 1e6
    rates = [[megabytes / run.wall_s for run in runs] for runs in (mine, theirs)]
    report(BenchResult.of_rates(NAME, "MB/s", RIVAL, *rates))
