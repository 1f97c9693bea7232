"""Under `spark-submit` (client mode) the JVM is there first, and this process is its child.

Master and settings are then those that were submitted; there is one JVM for this process's whole
life, and without it there is nothing left to do here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

from pyspark import SparkConf, SparkContext

__all__ = ["end_with_spark_submit", "is_submitted", "submitted_settings"]

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"  # set by Spark's PythonRunner for the script it starts


def is_submitted() -> bool:
    """Whether spark-submit started this process."""
    return _GATEWAY in os.environ


def submitted_settings() -> dict[str, str]:
    """The settings that spark-submit was given, spark-defaults.conf's among them.

    Raises what Py4J raises when the JVM is gone.
    """
    SparkContext._ensure_initialized()
    return dict(SparkConf(loadDefaults=True).getAll())


def end_with_spark_submit() -> None:
    """See to it that this process gets SIGTERM when the JVM above it ends, whatever ended it.

    Whoever stops spark-submit stops the JVM, which neither hands signals on nor waits; but it
    holds the other end of our standard input. Does nothing without spark-submit.
    """
    if is_submitted():
        threading.Thread(target=_await_end_of_input, name="spark-submit", daemon=True).start()


def _await_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
