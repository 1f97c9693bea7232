"""A real schema registry for the tests: Apicurio in memory, one per session.

A conftest that wants it imports the fixture. Registered subjects stay for the session: use names
of your own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient

from tiering.local.schema_registry import LocalSchemaRegistry

__all__ = ["RegistryThatComesBack", "schema_registry"]


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[LocalSchemaRegistry]:
    """One that runs; its `url` is for clients."""
    with LocalSchemaRegistry() as registry:
        yield registry


class RegistryThatComesBack:
    """Stops a registry, and starts it again with the schemas and ids that it had.

    It holds them in memory and counts ids from 1 on: each registration takes the next one, and one
    whose text is there already gives that one's id instead.
    """

    def __init__(self, server: LocalSchemaRegistry, client: SchemaRegistryClient) -> None:
        self._server = server
        self._client = client
        self._held: list[RegisteredSchema] = []
        self._next = 1

    @property
    def unknown_id(self) -> int:
        """One that it didn't know when it was stopped, and doesn't come to by itself."""
        return 100 + max(each.schema_id or 0 for each in self._held)

    def stop(self) -> None:
        """End its process."""
        subjects = self._client.get_subjects()
        versions = [(s, v) for s in subjects for v in self._client.get_versions(s)]
        self._held = [self._client.get_version(s, v) for s, v in versions]
        self._server.stop()

    def start(self) -> None:
        """On the same port."""
        self._server.start()
        self._next = 1
        first = {each.schema_id: each for each in reversed(self._held)}
        for _, each in sorted(first.items(), key=lambda item: item[0] or 0):
            self._register(each)
        for each in self._held:
            if each not in first.values():
                self._register(each)

    def register(self, subject: str, schema: Schema, schema_id: int) -> None:
        """A schema of its own under that id, which must be higher than all before."""
        with SchemaRegistryClient({"url": self._server.url}) as client:  # one that knows nothing
            while self._next < schema_id and self._held:
                known = self._held[0].schema
                assert known is not None
                client.register_schema(f"spare-{self._next}", known)
                self._next += 1
            assert client.register_schema(subject, schema) == schema_id, "it counts otherwise now"
            self._next += 1

    def _register(self, held: RegisteredSchema) -> None:
        assert held.subject is not None
        assert held.schema is not None
        assert held.schema_id is not None
        self.register(held.subject, held.schema, held.schema_id)
