"""How each topic's values and keys become columns: settings, registry and tables put together."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

from tiering.config import TierConfig
from tiering.errors import BadInput, NotFound, TransientError
from tiering.schemas.registry import RegisteredSchema
from tiering.schemas.sources import PartSource, part_source
from tiering.table.evolution import Arrival
from tiering.table.state import TableState
from tiering.table.topic_tables import CatalogTables
from tiering.tasks import PartPlan, TypedValues
from tiering.values.codec import UnsupportedSchema
from tiering.values.codecs import codec_for
from tiering.values.stored_schema import (
    Framing,
    Part,
    SchemaFormat,
    StoredSchema,
    stored_schemas,
)

__all__ = ["Registry", "TopicSchemas"]

_PARTS: Final[tuple[Part, Part]] = ("value", "key")
_JSON_SCHEMA: Final = 0
"""Schema id of JSON text without a schema; registries count from 1."""
_UNKNOWN_S: Final = 60.0
"""So long records of an unknown schema are bad ones, where they don't wait: then it is asked for
again."""


class Registry(Protocol):
    """What is asked of a registry here; raises TransientError while it can't answer."""

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """A schema; NotFound, UnsupportedSchema."""

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest schema of a subject; NotFound, UnsupportedSchema."""

    def has_subject(self, subject: str) -> bool:
        """Whether a subject has a version."""


class TopicSchemas:
    """Plans topics and brings their schemas into their tables. For one thread."""

    def __init__(
        self,
        config: TierConfig,
        tables: CatalogTables,
        registry: Registry | None,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives seconds; `registry` is None where none is configured."""
        self._config = config
        self._tables = tables
        self._registry = registry
        self._clock = clock
        self._unknown: dict[tuple[str, Part, int], float] = {}

    def plan(self, topic: str, state: TableState) -> TypedValues | None:
        """How a topic's values and keys become columns, but for where its bad records go; None
        where they are kept as they are.

        Raises TransientError while the registry can't say, BadInput where the settings can't be
        followed: the topic waits.
        """
        sources = {part: self._source(topic, part, state) for part in _PARTS}
        if all(source.mode == "raw" for source in sources.values()):
            return None
        plans = {part: self._part_plan(part, source, state) for part, source in sources.items()}
        return TypedValues(
            value=plans["value"],
            key=plans["key"],
            on_error=self._config.topic(topic).on_error,
            unknown=self._known_to_be_unknown(state.topic_id),
        )

    def learn(self, topic: str, state: TableState, schemas: Collection[tuple[Part, int]]) -> None:
        """Bring schemas that values were written with into the topic's table.

        Raises TransientError where the registry can't give one: the topic waits.
        """
        arrivals = []
        for part, schema_id in schemas:
            try:
                registered = self._asked(schema_id)
            except NotFound as error:
                if self._config.topic(topic).on_unknown_schema == "wait":
                    raise TransientError(
                        f"its {part}s name schema {schema_id}, which the registry doesn't know: "
                        "conversion waits (register it, or set on_unknown_schema = 'error')"
                    ) from error
                key = (state.topic_id, part, schema_id)
                self._unknown[key] = self._clock() + _UNKNOWN_S
                continue
            arrivals.append(_arrival(part, schema_id, registered, Framing.PREFIX))
        if arrivals:
            self._tables.evolve(state, arrivals)

    def bury(self, topic: str, state: TableState) -> TableState:
        """The table of the topic's bad records, made if there is none."""
        return self._tables.ensure_dead_letters(topic, state.topic_id)

    def buried(self, topic: str, state: TableState) -> TableState | None:
        """The table of the topic's bad records, if there is one."""
        return self._tables.dead_letters(topic, state.topic_id)

    def _source(self, topic: str, part: Part, state: TableState) -> PartSource:
        """What a part is made of.

        Once a table has schemas that values name in front, nobody is asked any more whether they
        do: a registry that is away, or has lost a subject, doesn't turn a topic back into bytes.
        """
        config = self._config.topic(topic)
        mode = config.value if part == "value" else config.key
        if mode == "auto":
            known = stored_schemas(self._tables.loaded(state).properties).values()
            if any(each.part == part and each.framing is Framing.PREFIX for each in known):
                return PartSource(mode="schema_id_prefix")
        return part_source(topic, part, config, self._registry)

    def _part_plan(self, part: Part, source: PartSource, state: TableState) -> PartPlan:
        if source.mode == "json":
            stored = StoredSchema(
                part=part,
                schema_id=_JSON_SCHEMA,
                format=SchemaFormat.JSON,
                framing=Framing.NONE,
                definition="",
            )
            self._take_in(state, _arrival_of(stored))
            return PartPlan(mode="json", schema_id=_JSON_SCHEMA)
        if source.mode != "schema_latest":
            return PartPlan(mode=source.mode)
        if self._registry is None:
            raise BadInput(f"{part} = schema_latest needs a registry: set registry.url")
        try:
            registered = self._registry.latest(source.subject)
        except NotFound as error:
            raise TransientError(f"the registry has no subject {source.subject}") from error
        except UnsupportedSchema as error:
            raise BadInput(f"subject {source.subject}: {error}") from error
        self._take_in(state, _arrival(part, registered.schema_id, registered, Framing.NONE))
        return PartPlan(mode="schema_latest", schema_id=registered.schema_id)

    def _take_in(self, state: TableState, arrival: Arrival) -> None:
        known = stored_schemas(self._tables.loaded(state).properties)
        if (arrival.stored.part, arrival.stored.schema_id) not in known:
            self._tables.evolve(state, [arrival])

    def _asked(self, schema_id: int) -> RegisteredSchema | str:
        """A schema, or why it is of no use."""
        if self._registry is None:
            raise TransientError("there is no registry to ask for schemas: set registry.url")
        try:
            return self._registry.by_id(schema_id)
        except UnsupportedSchema as error:
            return str(error)

    def _known_to_be_unknown(self, topic_id: str) -> tuple[tuple[Part, int], ...]:
        now = self._clock()
        self._unknown = {key: until for key, until in self._unknown.items() if until > now}
        return tuple((part, number) for topic, part, number in self._unknown if topic == topic_id)


def _arrival(
    part: Part, schema_id: int, registered: RegisteredSchema | str, framing: Framing
) -> Arrival:
    if isinstance(registered, str):
        kept = StoredSchema(
            part=part,
            schema_id=schema_id,
            format=SchemaFormat.AVRO,
            framing=framing,
            definition="",
            kept_raw=registered,
        )
        return Arrival(stored=kept)
    return _arrival_of(
        StoredSchema(
            part=part,
            schema_id=schema_id,
            format=registered.format,
            framing=framing,
            definition=registered.definition,
            references=registered.references,
        )
    )


def _arrival_of(stored: StoredSchema) -> Arrival:
    try:
        codec = codec_for(stored)
    except UnsupportedSchema as error:
        return Arrival(stored=replace(stored, kept_raw=str(error)))
    except ImportError as error:
        raise BadInput(f"schema {stored.schema_id}: {error}") from error
    except ValueError as error:
        reason = f"not a schema that can be read: {error}"
        return Arrival(stored=replace(stored, kept_raw=reason))
    return Arrival(stored=stored, schema=codec.schema, aliases=codec.aliases)
