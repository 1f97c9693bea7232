"""Writers' schemas from a registry with Confluent's API."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar
from urllib.parse import quote

from tiering.config import RegistryConfig
from tiering.errors import NotFound, TransientError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.schemas.answers import Credentials, RegistryHttp
from tiering.values.codec import UnsupportedSchema
from tiering.values.stored_schema import SchemaFormat

__all__ = ["RegisteredSchema", "SchemaRegistry"]

_SCHEMAS_MAX: Final = 2_000
_SUBJECTS_MAX: Final = 10_000
_REFERENCES_MAX: Final = 400
"""Of one schema, those of its references among them."""

_UNKNOWN_S: Final = 5.0
"""So long an unknown id isn't asked for again: values with garbage in front name many."""

_SUBJECT_S: Final = 15.0
"""So long a subject is taken to be as it was: it may be registered, or get another version."""

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """One schema, with all that it refers to.

    Attributes:
        definition: its text.
        references: (name, text) of the schemas that it refers to, directly or through others;
            those that others need come first.
    """

    schema_id: int
    format: SchemaFormat
    definition: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A schema as the registry answers with it, its references by name only."""

    format: str
    definition: str
    references: tuple[_Reference, ...]


class SchemaRegistry:
    """Asks a registry, and remembers: what an id means never changes.

    All methods raise TransientError while the registry is down, slow or refuses; see
    `RegistryHttp`. Safe for several threads.
    """

    def __init__(self, http: RegistryHttp, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Asks nothing yet."""
        self.url = http.url
        self._http = http
        self._by_id: _Recent[int, RegisteredSchema | str] = _Recent(_SCHEMAS_MAX, clock)
        self._unknown: _Recent[int, str] = _Recent(_SCHEMAS_MAX, clock, _UNKNOWN_S)
        self._versions: _Recent[tuple[str, int], _Version] = _Recent(_SCHEMAS_MAX, clock)
        self._latest: _Recent[str, int] = _Recent(_SUBJECTS_MAX, clock, _SUBJECT_S)
        self._subjects: _Recent[str, bool] = _Recent(_SUBJECTS_MAX, clock, _SUBJECT_S)

    @classmethod
    def from_config(
        cls,
        config: RegistryConfig,
        *,
        environment: Mapping[str, str] = os.environ,
        pacing: Pacing = SYSTEM_PACING,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """With the credentials that the environment has. BadInput."""
        credentials = Credentials.from_environment(config, environment)
        http = RegistryHttp(config, credentials, pacing=pacing, clock=clock)
        return cls(http, clock=clock)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema that an id in the wire format names.

        Raises NotFound where the registry doesn't know the id, UnsupportedSchema where the schema
        is of a kind that this version doesn't know.
        """
        known = self._by_id.get(schema_id)
        if known is None:
            known = self._asked_by_id(schema_id)
            self._by_id.put(schema_id, known)
        if isinstance(known, str):
            raise UnsupportedSchema(known)
        return known

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest schema of a subject, as of some seconds ago. NotFound, UnsupportedSchema."""
        schema_id = self._latest.get(subject)
        if schema_id is None:
            raw = _table(self._http.get(f"/subjects/{_quoted(subject)}/versions/latest"))
            schema_id = _integer(raw, "id")
            self._latest.put(subject, schema_id)
        return self.by_id(schema_id)

    def has_subject(self, subject: str) -> bool:
        """Whether a subject has a version, as of some seconds ago."""
        known = self._subjects.get(subject)
        if known is None:
            try:
                known = bool(self._http.get(f"/subjects/{_quoted(subject)}/versions"))
            except NotFound:
                known = False
            self._subjects.put(subject, known)
        return known

    def _asked_by_id(self, schema_id: int) -> RegisteredSchema | str:
        """The schema, or why it is of no use."""
        unknown = self._unknown.get(schema_id)
        if unknown is not None:
            raise NotFound(unknown)
        try:
            own = _version(self._http.get(f"/schemas/ids/{schema_id}"))
        except NotFound as error:
            told = f"schema id {schema_id}: {error}"
            self._unknown.put(schema_id, told)
            raise NotFound(told) from None
        try:
            kind = SchemaFormat(own.format)
        except ValueError:
            return f"schema id {schema_id} is of the unknown kind {own.format!r:.40}"
        try:
            references = self._resolved(own)
        except UnsupportedSchema as error:
            return f"schema id {schema_id}: {error}"
        except NotFound as error:
            raise TransientError(
                f"schema id {schema_id} refers to what isn't there: {error}"
            ) from None
        return RegisteredSchema(
            schema_id=schema_id, format=kind, definition=own.definition, references=references
        )

    def _resolved(self, own: _Version) -> tuple[tuple[str, str], ...]:
        """All references, each behind those that it needs."""
        found: dict[tuple[str, str, int], str] = {}
        open_places: set[tuple[str, str, int]] = set()

        def visit(version: _Version) -> None:
            for each in version.references:
                place = (each.name, each.subject, each.version)
                if place in found:
                    continue
                if place in open_places:
                    raise UnsupportedSchema(f"its reference {each.name!r:.80} refers to itself")
                open_places.add(place)
                if len(open_places) > _REFERENCES_MAX:
                    raise UnsupportedSchema(f"it has over {_REFERENCES_MAX} references")
                inner = self._referenced(each)
                visit(inner)
                found[place] = inner.definition

        visit(own)
        return tuple(dict.fromkeys((name, text) for (name, _, _), text in found.items()))

    def _referenced(self, reference: _Reference) -> _Version:
        place = (reference.subject, reference.version)
        known = self._versions.get(place)
        if known is None:
            path = f"/subjects/{_quoted(reference.subject)}/versions/{reference.version}"
            # A version that was deleted (softly) is still what others refer to.
            known = _version(self._http.get(path, deleted="true"))
            self._versions.put(place, known)
        return known


class _Recent(Generic[_K, _V]):
    """The last entries used, up to a number and, where it is given, an age in seconds."""

    def __init__(
        self, count_max: int, clock: Callable[[], float], age_max: float = float("inf")
    ) -> None:
        self._count_max = count_max
        self._clock = clock
        self._age_max = age_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[_K, tuple[float, _V]] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._clock() - entry[0] >= self._age_max:
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def put(self, key: _K, value: _V) -> None:
        with self._lock:
            self._entries[key] = (self._clock(), value)
            self._entries.move_to_end(key)
            if len(self._entries) > self._count_max:
                self._entries.popitem(last=False)


def _version(answer: object) -> _Version:
    raw = _table(answer)
    references = raw.get("references") or []
    if not isinstance(references, list):
        raise _unexpected("references")
    return _Version(
        format=_text(raw, "schemaType") if raw.get("schemaType") else SchemaFormat.AVRO,
        definition=_text(raw, "schema"),
        references=tuple(
            _Reference(
                name=_text(each, "name"),
                subject=_text(each, "subject"),
                version=_integer(each, "version"),
            )
            for each in map(_table, references)
        ),
    )


def _table(answer: object) -> Mapping[str, object]:
    if not isinstance(answer, dict):
        raise _unexpected("an object")
    return answer


def _text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str):
        raise _unexpected(key)
    return value


def _integer(raw: Mapping[str, object], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int):
        raise _unexpected(key)
    return value


def _unexpected(what: str) -> TransientError:
    return TransientError(
        f"the schema registry's answer lacks {what!r}, or it has another type: check registry.url"
    )


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
