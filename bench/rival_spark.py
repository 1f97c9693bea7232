"""Starting the rival: a virtual environment with PySpark 4.0.0, and a process in it.

Spark's Kafka source is published for 4.0.0 together with all it needs, so the rival has a PySpark
of its own; it is installed at the first run, below the cache directory of the Java parts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tiering.jars import cache_home, fetch
from tiering.local.child_process import guarded

__all__ = ["RIVAL_VERSION", "SparkRival"]

RIVAL_VERSION: Final = "4.0.0"
_PROGRAM: Final = Path(__file__).with_name("spark_append.py")
_CATALOG: Final = "rival"


class SparkRival:
    """A warm Spark session with two cores, an Iceberg catalog on local disk, and Kafka's source."""

    def __init__(self, directory: Path, bootstrap_servers: str) -> None:
        self._directory = directory
        self._settings = {
            "bootstrap_servers": bootstrap_servers,
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.jars": ",".join(str(jar) for jar in fetch("spark-kafka")),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
            f"spark.sql.catalog.{_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{_CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{_CATALOG}.warehouse": str(directory / "warehouse"),
        }
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        python = _environment()
        with (self._directory / "spark.log").open("wb") as log:
            self._process = subprocess.Popen(
                guarded([str(python), str(_PROGRAM), json.dumps(self._settings)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._directory,
                env={
                    **{k: v for k, v in os.environ.items() if not k.startswith("SPARK_")},
                    "PYSPARK_PYTHON": str(python),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
            )
        self._answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    @property
    def pid(self) -> int:
        """Of the driver's Python; the JVM is its child."""
        assert self._process is not None
        return self._process.pid

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer; AssertionError with the log when it dies."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def table(self, name: str) -> str:
        """A table's full name."""
        return f"{_CATALOG}.bench.{name}"

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        log = self._directory / "spark.log"
        assert line, f"the rival ended:\n{log.read_text(errors='replace')[-4000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment() -> Path:
    """Its Python; made and filled first when it isn't there."""
    directory = cache_home() / "python" / f"pyspark-{RIVAL_VERSION}"
    python, complete = directory / "bin" / "python", directory / ".complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={RIVAL_VERSION}"]
        subprocess.run(install, check=True)
        complete.touch()
    return python
