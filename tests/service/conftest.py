"""A real service on a free port, in a thread, and clients for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from samples import TOKEN, wait_until

from tiering.service import DEFAULT_SERVICE_LIMITS, ServiceLimits, ServiceServer
from tiering.store import ObjectStore, open_store

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


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a service over a store; gives a client that carries the token."""
    with ExitStack() as stack:

        def start(
            store: ObjectStore, limits: ServiceLimits = DEFAULT_SERVICE_LIMITS
        ) -> httpx.Client:
            server = stack.enter_context(running(store, limits))
            return stack.enter_context(
                httpx.Client(
                    base_url=server.url,
                    headers={"Authorization": f"Bearer {TOKEN}"},
                    timeout=20,
                    trust_env=False,
                )
            )

        yield start


@pytest.fixture
def client(serve: Serve, store: ObjectStore) -> httpx.Client:
    return serve(store)
