"""The engine as a process: `python -m spark_ext.engine_process --config FILE`, or under
`spark-submit --master URL .../spark_ext/engine_process.py --config FILE` (client mode).

It lives here because it hands the Spark converter to the engine, which itself knows no Spark.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from spark_ext.conversion_job import open_converter
from spark_ext.submission import end_with_spark_submit
from tiering.config import TierConfig, load_config
from tiering.conversion.splitting import split_by_index
from tiering.crash_points import crash_points
from tiering.engine import CycleReport, Engine, ValueCounts
from tiering.errors import TieringError, TransientError
from tiering.heartbeat import HEARTBEAT_KEY
from tiering.ledger import Ledger
from tiering.schemas.registry import SchemaRegistry
from tiering.schemas.topic_schemas import TopicSchemas
from tiering.store import ObjectStore, open_store
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import Converter
from tiering.upkeep.table_custody import TableCustody

__all__ = ["main"]

_log: Final = logging.getLogger("onecopy.engine")
_HEARTBEAT_MS: Final = 5_000
_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0)
_COUNTED: Final = (
    *("cycles", "commits", "failed_cycles", "rows"),
    *("proven", "proof_faults", "retired", "retired_bytes"),
)


def main(argv: list[str] | None = None) -> int:
    """Run the engine until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="onecopy-engine")
    parser.add_argument(
        "--config", type=Path, required=True, help="configuration: TOML, or TierConfig as JSON"
    )
    parser.add_argument("--ready-file", type=Path, help="written once the engine is at work")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    config = _config(arguments.config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    end_with_spark_submit()
    store = open_store(config.store)
    converter = open_converter(
        {"spark.master": config.engine.spark_master, **config.engine.spark_conf}
    )
    try:
        engine = _engine(config, store, converter)
        try:
            converter.warm_up()
        except TransientError as error:
            _log.warning("%s; the first conversion tries again", error)
        if arguments.ready_file is not None:
            _write_atomically(arguments.ready_file, json.dumps({"pid": os.getpid()}))
        _loop(engine, _Heartbeat(store), stop, config.engine.cycle_interval_ms / 1000)
    finally:
        converter.close()
    return 0


def _config(path: Path) -> TierConfig:
    if path.suffix == ".toml":
        return load_config(path)
    return TierConfig.from_json(path.read_text())


def _engine(config: TierConfig, store: ObjectStore, converter: Converter) -> Engine:
    tables = CatalogTables(config)
    return Engine(
        ledger=Ledger(store),
        tables=tables,
        converter=converter,
        schemas=TopicSchemas(config, tables, _registry(config), clock=time.monotonic),
        custody=TableCustody(store, tables, config, now_ms=_epoch_ms),
        retire_grace_ms=config.engine.retire_grace_ms,
        store_url=config.store,
        bytes_max=config.engine.cycle_bytes_max,
        split=split_by_index(store, config.engine.split_bytes),
        reached=crash_points(os.environ),
    )


def _registry(config: TierConfig) -> SchemaRegistry | None:
    return SchemaRegistry.from_config(config.registry) if config.registry.url else None


def _loop(engine: Engine, heartbeat: _Heartbeat, stop: threading.Event, interval_s: float) -> None:
    failures = 0
    while not stop.is_set():
        try:
            report = engine.run_cycle()
        except (TieringError, OSError) as error:
            _log.warning("cycle failed, trying again: %s", error)
            heartbeat.failed(str(error))
            failures = _back_off(stop, failures)
            continue
        heartbeat.beat(report)
        if report.advanced:
            failures = 0
            _log.info(
                "%d segments, %d rows, %d native bytes, %d commits; %d proven, %d retired",
                report.segments,
                report.rows,
                report.native_bytes,
                report.commits,
                report.proven,
                report.retired,
            )
        elif not report.idle:
            failures = _back_off(stop, failures)
        else:
            stop.wait(interval_s)


def _back_off(stop: threading.Event, failures: int) -> int:
    stop.wait(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
    return failures + 1


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


class _Heartbeat:
    """Writes what the engine did to the store: at once when it changed, else now and then."""

    def __init__(self, store: ObjectStore, clock_ms: Callable[[], int] = _epoch_ms) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._written_at_ms = 0
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._problems: Mapping[str, str] = {}
        self._topics: dict[str, dict[str, int]] = {}
        self._values: dict[str, ValueCounts] = {}

    def beat(self, report: CycleReport) -> None:
        changed = not report.idle or dict(report.problems) != dict(self._problems)
        self._counts["cycles"] += 1
        self._counts["commits"] += report.commits
        self._counts["rows"] += report.rows
        self._counts["proven"] += report.proven
        self._counts["proof_faults"] += report.proof_faults
        self._counts["retired"] += report.retired
        self._counts["retired_bytes"] += report.retired_bytes
        self._problems = report.problems
        for topic, counts in report.values.items():
            self._values[topic] = self._values.get(topic, ValueCounts()) + counts
        self._topics = {topic: asdict(backlog) for topic, backlog in report.backlog.items()}
        if changed or self._clock_ms() - self._written_at_ms >= _HEARTBEAT_MS:
            self._write()

    def failed(self, reason: str) -> None:
        self._counts["failed_cycles"] += 1
        self._problems = {"engine": reason}
        self._write()

    def _write(self) -> None:
        self._written_at_ms = self._clock_ms()
        body: dict[str, Any] = {
            "at_ms": self._written_at_ms,
            "pid": os.getpid(),
            "problems": dict(self._problems),
            "topics": self._topics,
            "values": {topic: asdict(counts) for topic, counts in self._values.items()},
            **self._counts,
        }
        try:
            self._store.put(HEARTBEAT_KEY, json.dumps(body).encode())
        except TieringError as error:
            _log.warning("heartbeat not written: %s", error)


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
