"""Fixtures: a store in a directory, and a service over it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from service_harness import Serve, serving

from tiering.service import DEFAULT_SERVICE_LIMITS, ServiceLimits
from tiering.store import ObjectStore, open_store

# A tier that the engine's tests made, and logs taken apart, which those of history did.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("tiering", "history")]


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
            return stack.enter_context(serving(store, limits))

        yield start


@pytest.fixture
def client(serve: Serve, store: ObjectStore) -> httpx.Client:
    return serve(store)


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One service for all tests of a module that only upload and read."""
    store = open_store(str(tmp_path_factory.mktemp("shared")))
    with serving(store, DEFAULT_SERVICE_LIMITS) as client:
        yield client
