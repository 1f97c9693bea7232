"""Which metadata file a topic's table was last read at: one small object per topic id in the store.

Readers of the history start from it, so that reading needs the store alone and goes on while the
catalog is down. The engine writes it before a segment's native log goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from tiering.errors import BadInput, NotFound, StoreConflict, TransientError
from tiering.store import ObjectStore

__all__ = ["TablePointer", "open_at_metadata"]

_PREFIX = "tables/"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePointer:
    """Where a topic id's table was, when the engine last read it.

    Attributes:
        metadata_location: its metadata file.
        identifier: (namespace..., table name), for messages and for the catalog.
        io_properties: FileIO properties without secrets.
        rows_may_miss: somebody has deleted or rewritten rows through SQL, ever: rows that are
            missing are then deleted ones.
        accepted: (partition, first offset, offset after the last) of rows whose changed content
            an operator has accepted.
    """

    topic: str
    topic_id: str
    metadata_location: str
    identifier: tuple[str, ...]
    io_properties: Mapping[str, str] = field(default_factory=dict)
    rows_may_miss: bool = False
    accepted: tuple[tuple[int, int, int], ...] = ()

    @staticmethod
    def key(topic_id: str) -> str:
        """Key of the topic id's pointer object."""
        return f"{_PREFIX}{topic_id}.json"

    @classmethod
    def load(cls, store: ObjectStore, topic_id: str) -> TablePointer:
        """Read it. Raises NotFound, TransientError, and BadInput for an object that is none."""
        key = cls.key(topic_id)
        return cls._decode(key, store.get(key).data)

    @classmethod
    def update(
        cls,
        store: ObjectStore,
        topic_id: str,
        change: Callable[[TablePointer | None], TablePointer],
    ) -> TablePointer:
        """Write what `change` makes of the present one, by compare-and-set, again on a conflict.

        `change` is given None where there is none, or one that can't be read.
        """
        key = cls.key(topic_id)
        while True:
            stored, before = None, None
            with suppress(NotFound):
                stored = store.get(key)
            if stored is not None:
                with suppress(BadInput):
                    before = cls._decode(key, stored.data)
            after = change(before)
            if after == before:
                return after
            try:
                version = None if stored is None else stored.version
                store.put_if(key, after._encode(), expected=version)
            except StoreConflict:
                continue
            return after

    @classmethod
    def _decode(cls, key: str, data: bytes) -> TablePointer:
        try:
            raw = json.loads(data)
            if raw.pop("version") != _VERSION:
                raise BadInput(f"{key}: not a pointer of version {_VERSION}")
            raw["identifier"] = tuple(raw["identifier"])
            raw["accepted"] = tuple((int(p), int(a), int(b)) for p, a, b in raw["accepted"])
            return cls(**raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{key}: not a table's pointer: {error!r}") from error

    def _encode(self) -> bytes:
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()


def open_at_metadata(
    metadata_location: str, identifier: tuple[str, ...], io_properties: Mapping[str, str]
) -> Table:
    """The table as one metadata file has it, without a catalog. Credentials: the environment's.

    Raises NotFound when the file is gone (newer ones have pushed it out), TransientError.
    """
    try:
        io = load_file_io(properties=dict(io_properties), location=metadata_location)
        metadata = FromInputFile.table_metadata(io.new_input(metadata_location))
    except FileNotFoundError as error:
        raise NotFound(f"table {'.'.join(identifier)}: {metadata_location} is gone") from error
    except OSError as error:
        raise TransientError(
            f"table {'.'.join(identifier)}: {metadata_location} can't be read: {error}"
        ) from error
    return Table(identifier, metadata, metadata_location, io, NoopCatalog("onecopy"))
