"""Sessions: how they start, fail, end, and what they never tell."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.cloudpickle import dumps
from spark_places import SPARK_MARKS, Tier, running_converter, tier_in, topic

from spark_ext import conversion_job
from spark_ext.conversion_job import open_converter
from tiering.errors import BadInput, TransientError

pytestmark = SPARK_MARKS

CANARY = "canary-that-must-not-travel-7f3a"
ACCESS_CANARY = "canary-access-key-91bc"


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return tier_in(tmp_path)


def test_nothing_to_do_starts_nothing() -> None:
    idle = open_converter({"spark.master": "local[1]"})
    assert idle.convert([]) == ()
    idle.close()


def test_no_secret_leaves_the_process_and_nothing_stays(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_CANARY)
    _, task = topic(tier, "quiet")
    log = tmp_path / "events"
    log.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with running_converter(conf) as converter:
        (result,) = converter.convert([task])
        assert result.failure is None
        context = SparkContext._active_spark_context
        assert context is not None
        settings = str(context.getConf().getAll())
        gateway = SparkContext._gateway
        assert gateway is not None
        process = gateway.proc
        command = Path(f"/proc/{gateway.proc.pid}/cmdline").read_bytes()
    assert process.poll() is not None
    assert SparkContext._active_spark_context is None
    assert "SPARK_LOCAL_IP" not in os.environ
    events = b"".join(path.read_bytes() for path in log.rglob("*") if path.is_file())
    assert b"SparkListenerTaskEnd" in events
    sent = pickle.dumps([task, result]) + dumps(conversion_job._convert)
    for canary in (CANARY, ACCESS_CANARY):
        assert canary not in settings
        for what in (events, command, sent):
            assert canary.encode() not in what
    assert len(dumps(conversion_job._convert)) < 200, "the function travels by name"


@pytest.mark.parametrize("name", ["spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword"])
def test_secrets_among_settings_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="environment"):
        open_converter({name: "x"})


def test_settings_that_are_not_sparks_are_refused() -> None:
    with pytest.raises(BadInput, match=r"begin with 'spark\.'"):
        open_converter({"master": "local"})


def test_spark_that_cannot_start_is_transient(tier: Tier) -> None:
    _, task = topic(tier, "never")
    with (
        running_converter(master="local[nonsense]") as converter,
        pytest.raises(TransientError, match="did not start"),
    ):
        converter.convert([task])


def test_a_warm_converter_converts_and_warming_twice_is_harmless() -> None:
    converter = open_converter({"spark.master": "local[2]"})
    try:
        converter.warm_up()
        context = SparkContext._active_spark_context
        converter.warm_up()
        assert SparkContext._active_spark_context is context is not None
        assert converter.convert([]) == ()
    finally:
        converter.close()
    assert SparkContext._active_spark_context is None
