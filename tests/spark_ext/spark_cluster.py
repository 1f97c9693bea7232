"""A real standalone Spark cluster on loopback: one master and its workers, from PySpark's jars."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polling import eventually
from s3_server import free_port

from tiering.jars import java_command

LOOPBACK = "127.0.0.1"
EXECUTOR_MEMORY = "512m"
_INHERITED = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR", "ONECOPY_HOME", "PYTHONPATH")
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, kw_only=True)
class SparkWorker:
    """One worker: a process group, its executors among it."""

    process: subprocess.Popen[bytes]
    directory: Path

    def kill(self) -> None:
        """As when its machine loses power."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(frozen=True, kw_only=True)
class SparkCluster:
    """A running cluster; `workers` have one core each."""

    master_url: str
    status_url: str
    directory: Path
    workers: Sequence[SparkWorker]

    @property
    def conf(self) -> dict[str, str]:
        """What a driver on this machine has to set beside the master."""
        return {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.pyspark.python": sys.executable,
        }

    def status(self) -> dict[str, Any]:
        """What the master says of itself."""
        with urllib.request.urlopen(self.status_url, timeout=5) as answer:  # noqa: S310 - loopback
            told: dict[str, Any] = json.load(answer)
        return told

    def logs(self) -> str:
        """All that master, workers and executors have said."""
        found = sorted(p for p in self.directory.rglob("*") if p.name in _LOGS and p.is_file())
        return "\n".join(f"--- {p}\n{p.read_text(errors='replace')}" for p in found)


_LOGS = ("master.log", "worker.log", "stdout", "stderr")


@contextmanager
def run_spark_cluster(
    directory: Path, *, workers: int = 2, worker_env: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Start a cluster; all of it is stopped at the end.

    Args:
        worker_env: what the workers have in their environment, and the executors from them:
            nothing else is inherited from this process but where programs are.
    """
    port, status_port = free_port(), free_port()
    with ExitStack() as running:
        _start(
            running,
            directory / "master.log",
            "master.Master",
            ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(status_port)),
            {},
            directory,
        )
        cluster = SparkCluster(
            master_url=f"spark://{LOOPBACK}:{port}",
            status_url=f"http://{LOOPBACK}:{status_port}/json/",
            directory=directory,
            workers=[
                _worker(running, directory / f"worker-{n}", port, worker_env or {})
                for n in range(workers)
            ],
        )
        eventually(lambda: _is_up(cluster), 60, what="workers at the master", details=cluster.logs)
        yield cluster


def _worker(
    running: ExitStack, directory: Path, port: int, environment: Mapping[str, str]
) -> SparkWorker:
    directory.mkdir()
    arguments = ("--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--webui-port", "0")
    arguments += ("--work-dir", str(directory / "work"), f"spark://{LOOPBACK}:{port}")
    process = _start(
        running, directory / "worker.log", "worker.Worker", arguments, environment, directory
    )
    return SparkWorker(process=process, directory=directory)


def _start(
    running: ExitStack,
    log: Path,
    part: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    scratch: Path,
) -> subprocess.Popen[bytes]:
    home = spark_home()
    command = [java_command(), *_JVM, "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{part}"]
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_SCALA_VERSION": scala_version(),  # as Spark's own start scripts set it
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, *arguments],
            env={**env, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that a worker's executors can be ended with it
        )
    running.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_up(cluster: SparkCluster) -> bool:
    try:
        return int(cluster.status()["aliveworkers"]) == len(cluster.workers)
    except OSError:
        return False


def spark_home() -> Path:
    """PySpark's own directory: jars and scripts."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def scala_version() -> str:
    """The one that PySpark's jars were built with."""
    (core,) = (spark_home() / "jars").glob("spark-core_*.jar")
    return core.name.removeprefix("spark-core_").partition("-")[0]


def spark_submit() -> str:
    """PySpark's `spark-submit`."""
    return str(spark_home() / "bin" / "spark-submit")
