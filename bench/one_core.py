"""A stretch of work on one core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

__all__ = ["one_core"]


@contextmanager
def one_core() -> Iterator[None]:
    """This thread and those it starts on one core, Arrow's pools with one thread."""
    cores, threads, io_threads = os.sched_getaffinity(0), pa.cpu_count(), pa.io_thread_count()
    os.sched_setaffinity(0, {max(cores)})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(threads)
        pa.set_io_thread_count(io_threads)
        os.sched_setaffinity(0, cores)
