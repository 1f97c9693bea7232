"""A real schema registry for the tests: Apicurio in memory, one per session.

A conftest that wants it imports the fixture. Registered subjects stay for the session: use names
of your own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiering.local.schema_registry import LocalSchemaRegistry

__all__ = ["schema_registry"]


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[LocalSchemaRegistry]:
    """One that runs; its `url` is for clients."""
    with LocalSchemaRegistry() as registry:
        yield registry
