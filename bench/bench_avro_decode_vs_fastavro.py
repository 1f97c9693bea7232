"""Avro payloads to Arrow columns, against fastavro, which makes Python dicts of them.

Both on one core. The rival's dicts would still have to become columns; that is left out. Its
timestamps stay numbers, as ours do. `BENCH_AVRO_MB` is how much is decoded at a time.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable

import fastavro
import pyarrow as pa

from bench.avro_orders import ORDER_SCHEMA, avro_orders, orders
from bench.conftest import Timed
from bench.one_core import one_core
from bench.results import BenchResult
from tiering.conversion.worker_memory import keep_freed_memory
from tiering.values.avro import AvroCodec

MEGABYTES = float(os.environ.get("BENCH_AVRO_MB", "16"))
RUNS = int(os.environ.get("BENCH_RUNS", "5"))
NAME = "avro_decode_vs_fastavro"
RIVAL = "fastavro.schemaless_reader"


def test_avro_decode_vs_fastavro(
    in_turn: Callable[..., tuple[list[Timed], list[Timed]]],
    report: Callable[[BenchResult], None],
) -> None:
    payloads = avro_orders(orders(int(MEGABYTES * 1e6 / 512)))
    codec, array = AvroCodec(json.dumps(ORDER_SCHEMA)), pa.array(payloads, pa.binary())
    plain = json.loads(json.dumps(ORDER_SCHEMA).replace("timestamp-millis", "plain"))
    schema = fastavro.parse_schema(plain)
    keep_freed_memory()  # as Spark's Python workers do

    def ours() -> None:
        assert not codec.decode(array).faults.any()

    def rival() -> None:
        for payload in payloads:
            fastavro.schemaless_reader(io.BytesIO(payload), schema, None)

    with one_core():
        mine, theirs = in_turn(ours, rival, runs=RUNS)
    megabytes = sum(map(len, payloads)) / 1e6
    rates = [[megabytes / run.wall_s for run in runs] for runs in (mine, theirs)]
    report(BenchResult.of_rates(NAME, "MB/s", RIVAL, *rates))
