"""Building Spark sessions: small and quiet ones, on loopback unless told otherwise."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_ext.submission import is_submitted, submitted_settings
from tiering.errors import BadInput, TransientError
from tiering.jars import iceberg_jars

__all__ = ["SessionOptions", "first_line", "open_context", "open_session", "stop_spark"]

_LOOPBACK: Final = "127.0.0.1"
_SECRET_KEY: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
_LOCAL_IP: Final = "SPARK_LOCAL_IP"
_PYTHON: Final = "spark.pyspark.python"
_STOP_S: Final = 10.0
_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What to start Spark with. Under spark-submit the master is the submitted one, and `conf` wins
    over what else was submitted, as with any Spark program.

    Attributes:
        master: `local[N]`, or a cluster's URL. On a cluster, drivers and executors talk over
            the network: give `spark.driver.host` in `conf` if the default doesn't do.
        app_name: how the application calls itself.
        conf: further Spark settings, which win over the defaults here. No secrets: they would
            be seen in the process list and the event log. Raises BadInput for names like one.
        with_iceberg: put Iceberg's Spark runtime and an SQLite driver on the class path (SQL on
            tables). The conversion job itself needs neither.
        jars: further jars for the class path.
    """

    master: str = "local[*]"
    app_name: str = "onecopy"
    conf: Mapping[str, str] = field(default_factory=dict)
    with_iceberg: bool = False
    jars: Sequence[Path] = ()

    def __post_init__(self) -> None:
        for key in self.conf:
            if not key.startswith("spark."):
                raise BadInput(f"Spark setting {key!r}: their names begin with 'spark.'")
            if _SECRET_KEY.search(key):
                raise BadInput(
                    f"Spark setting {key}: secrets don't belong here; give them to the workers by "
                    "their environment (AWS_ACCESS_KEY_ID, ...)"
                )

    @property
    def is_local(self) -> bool:
        """Whether driver and workers are one process tree on this host."""
        return self.master.startswith("local")


def open_context(options: SessionOptions) -> SparkContext:
    """Start Spark without SQL. One context per process: raises TransientError when it can't.

    Close it with `stop_spark`.
    """
    if SparkContext._active_spark_context is not None:
        raise TransientError("this process has a Spark context already: stop that one first")
    try:
        conf = SparkConf(loadDefaults=False)
        for key, value in _all_settings(options).items():
            conf.set(key, value)
        with _on_loopback(options):
            context = SparkContext(conf=conf)
    except (Py4JError, PySparkException, OSError) as error:
        reason = first_line(error)  # while there is still a JVM to ask
        stop_spark()
        raise TransientError(f"Spark did not start: {reason}") from error
    context.pythonExec = conf.get(_PYTHON, None) or context.pythonExec
    return context


def open_session(options: SessionOptions) -> SparkSession:
    """Start Spark with SQL; as `open_context`. The session's context is the process's one."""
    return SparkSession(open_context(options))


def stop_spark() -> None:
    """Stop the process's context and its JVM, whatever state they are in; never raises.

    PySpark leaves the JVM running behind a stopped context; here it ends, so that nothing of
    Spark is left, and a new context starts with a new JVM. One that isn't ours (spark-submit's)
    is kept: there will be no other.
    """
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a JVM that is gone is what we want
            _quietly(context.stop)
    SparkSession._instantiatedSession = None
    SparkContext._active_spark_context = None
    if is_submitted():
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    _quietly(gateway.shutdown)
    if process is not None:
        _quietly(process.stdin.close)  # the JVM ends with its standard input
        try:
            process.wait(_STOP_S)
        except Exception:  # noqa: BLE001 - a time-out: it doesn't end by itself
            process.kill()
            process.wait()


@contextmanager
def _on_loopback(options: SessionOptions) -> Iterator[None]:
    """SPARK_LOCAL_IP for the JVM about to start: it looks there before it reads any setting."""
    if not options.is_local or _LOCAL_IP in os.environ:
        yield
        return
    os.environ[_LOCAL_IP] = _LOOPBACK
    try:
        yield
    finally:
        del os.environ[_LOCAL_IP]


def _all_settings(options: SessionOptions) -> dict[str, str]:
    if not is_submitted():
        return _settings(options)
    submitted = submitted_settings()
    defaults = _settings(replace(options, master=submitted["spark.master"], conf={}))
    return {**defaults, **submitted, **options.conf}


def _settings(options: SessionOptions) -> dict[str, str]:
    settings = {
        "spark.master": options.master,
        "spark.app.name": options.app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": _java_options(options),
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "spark_ext.worker_daemon",
        "spark.python.use.daemon": "true",
        "spark.locality.wait": "0s",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": _nowhere(),
    }
    if options.is_local:
        settings |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            _PYTHON: sys.executable,
        }
    jars = [*options.jars, *(iceberg_jars() if options.with_iceberg else ())]
    if jars:
        settings["spark.jars"] = ",".join(path.absolute().as_uri() for path in jars)
    if options.with_iceberg:
        settings["spark.sql.extensions"] = _EXTENSIONS
    return {**settings, **options.conf}


def _java_options(options: SessionOptions) -> str:
    """A driver that only schedules tasks needs neither a parallel collector nor the compiler that
    pays off after minutes; one that runs SQL needs the compiler."""
    log_settings = Path(str(files("spark_ext") / "log4j2.properties")).as_uri()
    quick_start = "" if options.with_iceberg else " -XX:TieredStopAtLevel=1"
    return f"-Dlog4j2.configurationFile={log_settings} -XX:+UseSerialGC{quick_start}"


def _nowhere() -> str:
    """Spark makes a directory for tables of its own, of which there are none: not in our cwd."""
    return str(Path(tempfile.gettempdir()) / "onecopy-spark-warehouse")


def _quietly(action: Callable[[], object]) -> None:
    with suppress(Exception):
        action()


def first_line(error: BaseException) -> str:
    """The first telling line of an error, be it from Java (asked of a JVM that may be gone)."""
    try:
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):
        text = ""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), type(error).__name__)
