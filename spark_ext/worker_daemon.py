"""The process that Spark forks its Python workers from (`spark.python.daemon.module`).

It imports what every conversion needs before the first fork, so a new worker has its libraries
and compiled kernels in memory at once: a warm job of two tasks takes tenths of a second instead
of seconds. Nothing here may start a thread or open a connection: neither survives a fork.
"""

import gc

import pyspark.daemon

import spark_ext.conversion_job  # noqa: F401 - wanted warm
import tiering.store.s3  # noqa: F401 - imported lazily by open_store, wanted warm
from tiering.conversion.worker_memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()
    # Workers collect after every task: not what was there before the fork, again and again.
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]
