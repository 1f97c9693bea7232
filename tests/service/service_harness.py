"""A real service on a free port, in a thread, and clients for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
from service_samples import TOKEN, wait_until

from tiering.service import ServiceLimits, ServiceServer
from tiering.store import ObjectStore

Serve = Callable[..., httpx.Client]


@contextmanager
def running(store: ObjectStore, limits: ServiceLimits) -> Iterator[ServiceServer]:
    server = ServiceServer(store, TOKEN, limits=limits)
    thread = threading.Thread(target=server.serve_until_stopped)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        yield server
    finally:
        server.stop()
        thread.join(20)


@contextmanager
def serving(store: ObjectStore, limits: ServiceLimits) -> Iterator[httpx.Client]:
    with (
        running(store, limits) as server,
        httpx.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=20,
            trust_env=False,
        ) as client,
    ):
        yield client
