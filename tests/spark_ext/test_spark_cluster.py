"""The cluster form: a standalone master, two workers, the store on S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from native_segments import Segment, in_batches, kafka_uuid, rows_of, some_records
from polling import eventually
from s3_server import S3Server
from spark_cluster import LOOPBACK, SparkCluster, run_spark_cluster, spark_submit
from spark_places import SPARK_MARKS, by_task, collect_sockets

from spark_ext import conversion_job, engine_process
from spark_ext.conversion_job import open_converter
from tiering.config import EngineConfig, TierConfig, default_config
from tiering.conversion.convert import convert_task
from tiering.ledger import Ledger, SegmentState
from tiering.store import open_store
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import ConversionResult, ConversionTask

pytestmark = [*SPARK_MARKS, pytest.mark.s3]

PARTITIONS = 6
SOLE_COPY = (SegmentState.RETIRED, True)
WRONG = "canary-not-the-secret-5be1"


@pytest.fixture(scope="module")
def cluster(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with run_spark_cluster(directory, worker_env=s3_server.env) as running:
        yield running


@pytest.fixture
def config(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierConfig:
    """A tier on S3 that this process has the credentials for."""
    if not s3_server.heeds_conditions:
        pytest.skip("this S3 server ignores conditional writes")
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return default_config(
        tmp_path,
        store=s3_server.url(f"cluster-{tmp_path.name}"),
        engine=EngineConfig(retire_grace_ms=0),
    )


def segments(topic: str, partitions: int = PARTITIONS) -> list[Segment]:
    topic_id = kafka_uuid()
    return [
        Segment(
            batches=in_batches(some_records(0, 200, seed=p), 20, ("zstd", "none")),
            topic=topic,
            topic_id=topic_id,
            partition=p,
        )
        for p in range(partitions)
    ]


def rows(made: Iterable[Segment]) -> list[dict[str, object]]:
    return [row for segment in made for row in segment.rows()]


def table_rows(config: TierConfig, made: Segment) -> list[dict[str, object]]:
    table = CatalogTables(config).table(made.topic, made.topic_id)
    return rows_of(table.scan().to_arrow())


@contextmanager
def submitted_engine(
    cluster: SparkCluster, config: TierConfig, directory: Path, conf: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The engine under spark-submit; yields spark-submit's process and the engine's id."""
    config_file, ready, log = directory / "tier.json", directory / "ready", directory / "log"
    config_file.write_text(config.to_json())
    command = [spark_submit(), "--master", cluster.master_url]
    for key, value in {**cluster.conf, **conf}.items():
        command += ["--conf", f"{key}={value}"]
    command += [engine_process.__file__, "--config", str(config_file), "--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(ready.exists, 90, what="a ready engine", details=log.read_text)
        yield process, json.loads(ready.read_text())["pid"]
    finally:
        process.terminate()
        process.wait(30)


def events(directory: Path) -> list[dict[str, Any]]:
    """Spark's event log so far, which ends in the middle of a line while it is written."""
    text = "".join(path.read_text() for path in directory.glob("app-*"))
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def of_kind(found: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in found if event["Event"] == f"SparkListener{kind}"]


def test_the_engine_under_spark_submit(
    cluster: SparkCluster, config: TierConfig, s3_server: S3Server, tmp_path: Path
) -> None:
    """Both workers convert and prove, until nothing native is left; the secret shows nowhere;
    who stops spark-submit stops the engine."""
    history = tmp_path / "events"
    history.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": history.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    made = segments("orders")
    store = open_store(config.store)
    with submitted_engine(cluster, config, tmp_path, conf) as (process, engine):
        eventually(lambda: len(of_kind(events(history), "ExecutorAdded")) == 2, 60)
        warmed = len(of_kind(events(history), "TaskEnd"))
        for segment in made:
            segment.store(store)
        eventually(
            lambda: {(e.state, e.native_gone) for e in Ledger(store).scan()} == {SOLE_COPY},
            180,
            details=lambda: (tmp_path / "log").read_text() + cluster.logs(),
        )
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        eventually(lambda: not Path(f"/proc/{engine}").exists(), 30, what="the engine's end")
    assert table_rows(config, made[0]) == rows(made)
    assert not list(store.list("native/"))
    ended = of_kind(events(history), "TaskEnd")[warmed:]
    by_stage: dict[int, set[str]] = {}
    for event in ended:
        by_stage.setdefault(event["Stage ID"], set()).add(event["Task Info"]["Executor ID"])
    full = [stage for stage, executors in by_stage.items() if executors == {"0", "1"}]
    assert len(full) >= 2, "conversion and proof ran on both"
    places = [
        event["Executor Info"]["Log Urls"]["stdout"]
        for event in of_kind(events(history), "ExecutorAdded")
    ]
    assert len({place.split("/logPage")[0] for place in places}) == 2, "each on a worker of its own"
    said = (tmp_path / "log").read_text() + cluster.logs()
    said += "".join(path.read_text() for path in history.glob("app-*"))
    assert "SparkListenerTaskEnd" in said
    for secret in s3_server.env.values():
        assert secret not in said


def test_workers_use_the_credentials_of_their_own_environment(
    cluster: SparkCluster, config: TierConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(config.store)
    made = segments("own", partitions=2)
    tables = CatalogTables(config)
    target = tables.target(tables.ensure("own", made[0].topic_id))
    for segment in made:
        segment.store(store)
    tasks = [
        replace(segment.task(store, target, task_id=i), store_url=config.store)
        for i, segment in enumerate(made)
    ]
    with monkeypatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, WRONG)
        with driver(cluster) as converter:
            results = by_task(converter.convert(tasks))
    assert [results[i].failure for i in range(2)] == [None, None]
    assert [results[i].rows for i in range(2)] == [200, 200]


@contextmanager
def driver(cluster: SparkCluster) -> Iterator[conversion_job.SparkConverter]:
    """A converter in this process whose master is the cluster's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", LOOPBACK)
        converter = open_converter({"spark.master": cluster.master_url, **cluster.conf})
        try:
            yield converter
        finally:
            converter.close()
            collect_sockets()


def test_a_worker_that_dies_in_a_job(
    config: TierConfig,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its tasks run again elsewhere, and the cycle commits every row once."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    begun.mkdir()

    def gated(tasks: Iterable[ConversionTask]) -> Iterator[ConversionResult]:
        for each in tasks:
            worker = Path.cwd().parts[-4]
            (begun / f"{worker}.{each.task_id}").touch()
            while not gate.exists():  # the workers have none of the tests' modules
                time.sleep(0.05)
            yield convert_task(each)

    monkeypatch.setattr(conversion_job, "_convert", gated)
    made = segments("mortal", partitions=4)
    store = open_store(config.store)
    for segment in made:
        segment.store(store)
    directory = tmp_path / "cluster"
    directory.mkdir()
    with (
        run_spark_cluster(directory, worker_env=s3_server.env) as cluster,
        driver(cluster) as converter,
    ):
        converter.warm_up()
        engine = engine_process._engine(config, store, converter)
        assert engine.run_cycle().rows == 0, "a first look only lists"

        def kill_one() -> None:
            at_work = eventually(lambda: list(begun.glob("worker-1.*")), 60)
            cluster.workers[1].kill()
            gate.touch()
            killed.extend(at_work)

        killed: list[Path] = []
        killer = threading.Thread(target=kill_one)
        killer.start()
        report = engine.run_cycle()
        killer.join()
        assert report.rows == 800, cluster.logs()
        assert report.problems == {}
        while {e.state for e in Ledger(store).scan()} != {SegmentState.RETIRED}:
            assert engine.run_cycle().problems == {}, "the other worker goes on alone"
    assert table_rows(config, made[0]) == rows(made)
    task = killed[0].suffix
    assert (begun / f"worker-0{task}").exists(), "the dead worker's task ran on the other"
