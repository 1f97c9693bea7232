"""The Iceberg catalog: opening it, and the table of a topic in it."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from tiering.errors import BadInput, FatalError, NotFound, TransientError
from tiering.pacing import SYSTEM_PACING, Pacing
from tiering.redaction import is_secret, redact
from tiering.segments import check_topic_name
from tiering.table.loading import load_table
from tiering.table.rewriting import REWRITE_PROPERTIES, make_ready_for_rewrites
from tiering.table.schema import COLUMNS_VERSION, raw_schema, sort_order
from tiering.table.snapshot_policy import snapshot_properties
from tiering.tasks import TableTarget
from tiering.values.stored_schema import schema_properties_of
from tiering.watermarks import (
    COLUMNS_VERSION_PROPERTY,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    WATERMARKS_PROPERTY,
    encode_watermarks,
)

__all__ = [
    "CatalogConfig",
    "ensure_table",
    "former_identifier",
    "open_catalog",
    "table_target",
]

_SQLITE_BUSY_S: Final = 30
_OPENING_TRIES: Final = 5
_METADATA_VERSIONS_KEPT: Final = 20
_REST_CATALOG: Final = "tiering.table.rest_sessions.BoundedRestCatalog"
_SQLITE_CATALOG: Final = "tiering.table.sql_catalog.LeanSqlCatalog"
_DEFAULT_REGION: Final = "us-east-1"
_WORKER_PROPERTIES: Final = ("s3.", "py-io-impl", "downcast-ns-timestamp-to-us-on-write")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogConfig:
    """A catalog's name and its PyIceberg properties (`uri`, `type`, `warehouse`, `s3.*` ...).

    Engines that open the same SQLite file must use the same name. Credentials may stand here,
    or in the environment under the names that PyIceberg (`PYICEBERG_CATALOG__<NAME>__...`) and
    AWS (`AWS_ACCESS_KEY_ID`, ...) give them.
    """

    name: str = "onecopy"
    properties: Mapping[str, str] = field(repr=False)


def open_catalog(config: CatalogConfig, *, pacing: Pacing = SYSTEM_PACING) -> Catalog:
    """Open the catalog: SQLite for `sqlite:///FILE`, REST for an http(s) URL, or by `type`.

    Raises BadInput when the properties can't be right, TransientError when it does not answer.
    """
    properties = {**_s3_defaults(config.properties), **config.properties}
    uri = properties.get("uri", "")
    if not uri and "type" not in properties:
        raise BadInput("catalog.uri: missing; give sqlite:///FILE or a REST catalog's URL")
    file = _sqlite_file(uri)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        properties["uri"] = _patient(make_url(uri)).render_as_string(hide_password=False)
        if properties.get("type", "sql") == "sql":
            properties.pop("type", None)
            properties["py-catalog-impl"] = _SQLITE_CATALOG
    if properties.get("type") == "rest" or uri.startswith(("http://", "https://")):
        properties.pop("type", None)
        properties["py-catalog-impl"] = _REST_CATALOG
    catalog = _opened(config.name, properties, pacing)
    if file is not None and isinstance(catalog, SqlCatalog):
        _open_per_use(catalog, properties["uri"])
    return catalog


def ensure_table(
    catalog: Catalog,
    identifier: tuple[str, ...],
    topic: str,
    topic_id: str,
    warehouse: str,
    *,
    pacing: Pacing = SYSTEM_PACING,
) -> Table:
    """The table of this topic id, made if there is none; safe beside other tierers.

    A table of the same name that belongs to another topic id (the topic was deleted and made
    again) is renamed to `former_identifier`; where the topic id's own table has already been
    renamed so, that one is returned.

    Args:
        identifier: (namespace..., table name) of the topic.
        warehouse: the location below which the table's own directory is made.

    Raises:
        BadInput: a table of that name is not Onecopy's, or newer than this version knows.
        TransientError: the catalog is out.
    """
    check_topic_name(topic)
    former = former_identifier(identifier, topic_id)
    for attempt in range(pacing.loads_max):
        if attempt:
            pacing.pause(attempt)
        table = _found(catalog, identifier, pacing)
        if table is not None and _topic_id(table) == topic_id:
            return _checked(table, topic)
        own = _found(catalog, former, pacing)
        if own is not None and _topic_id(own) == topic_id:
            return _checked(own, topic)
        if table is not None and table.properties.get(TOPIC_PROPERTY) != topic:
            raise BadInput(
                f"table {'.'.join(identifier)} is of topic {table.properties.get(TOPIC_PROPERTY)}: "
                f"set another table for topic {topic}"
            )
        if table is not None:
            _rename(catalog, identifier, former_identifier(identifier, _topic_id(table)))
        table = _created(catalog, identifier, topic, topic_id, warehouse)
        if table is not None:
            return table
    raise TransientError(
        f"table {'.'.join(identifier)} of topic {topic} can't be made: other writers interfere"
    )


def former_identifier(identifier: tuple[str, ...], topic_id: str) -> tuple[str, ...]:
    """The name under which a former topic's table is kept: `<name>__<8 hexadecimal digits>`.

    The digits are the first four bytes of the Kafka Uuid.
    """
    digits = base64.urlsafe_b64decode(topic_id + "==")[:4].hex()
    return (*identifier[:-1], f"{identifier[-1]}__{digits}")


def table_target(table: Table) -> TableTarget:
    """What a worker must know to write files for the table; no secrets."""
    metadata = table.metadata
    return TableTarget(
        identifier=tuple(table.name()),
        location=metadata.location,
        schema_json=table.schema().model_dump_json(),
        spec_json=table.spec().model_dump_json(),
        sort_order_id=_our_sort_order(metadata),
        io_properties={
            key: str(value)
            for key, value in table.io.properties.items()
            if key.startswith(_WORKER_PROPERTIES) and not is_secret(key)
        },
        schemas=schema_properties_of(metadata.properties),
    )


def _our_sort_order(metadata: TableMetadata) -> int:
    """Id of the order that files are written in: somebody may have given the table another one.

    0, the unsorted order, when the table knows ours no more (Iceberg spec, "Sort Orders").
    """
    wanted = sort_order().fields
    orders = (o.order_id for o in metadata.sort_orders if o.fields == wanted)
    return next(orders, UNSORTED_SORT_ORDER_ID)


def _opened(name: str, properties: Mapping[str, str], pacing: Pacing) -> Catalog:
    """Two processes that make the tables of one new SQLite file disturb each other: try again."""
    for attempt in range(1, _OPENING_TRIES + 1):
        try:
            return load_catalog(name, **properties)
        except (ValueError, ImportError) as error:
            text = redact(f"catalog {name}: {error}", properties)
            raise BadInput(text) from None
        except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
            if attempt == _OPENING_TRIES:
                text = f"catalog {name} can't be opened: {type(error).__name__}: {error}"
                raise TransientError(redact(text, properties)) from None
        pacing.pause(attempt)
    raise AssertionError  # pragma: no cover - the loop returns or raises


def _sqlite_file(uri: str) -> Path | None:
    if not uri.startswith("sqlite"):
        return None
    database = make_url(uri).database
    if not database or database == ":memory:" or database.startswith("file:"):
        return None
    return Path(database)


def _patient(url: URL) -> URL:
    """Wait for another process's write instead of failing with `database is locked`."""
    if "timeout" in url.query:
        return url
    return url.update_query_dict({"timeout": str(_SQLITE_BUSY_S)})


def _open_per_use(catalog: SqlCatalog, uri: str) -> None:
    """Open the file anew for each transaction.

    A pooled SQLite connection must not cross a fork, and opening costs less than a millisecond.
    The rollback journal is kept: one file to copy or mount, and every statement that PyIceberg
    sends takes its lock at once, so the busy timeout always applies.
    """
    catalog.engine.dispose()
    catalog.engine = create_engine(uri, poolclass=NullPool)


def _s3_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Without a region PyIceberg asks AWS for the bucket's, also when the endpoint is elsewhere."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and "s3.endpoint" in properties:
        region = _DEFAULT_REGION
    return {} if region is None else {"s3.region": region}


def _found(catalog: Catalog, identifier: tuple[str, ...], pacing: Pacing) -> Table | None:
    try:
        return load_table(catalog, identifier, pacing=pacing)
    except NotFound:
        return None


def _topic_id(table: Table) -> str:
    topic_id = table.properties.get(TOPIC_ID_PROPERTY)
    if topic_id is None:
        raise BadInput(
            f"table {'.'.join(table.name())} exists and has no property {TOPIC_ID_PROPERTY}, so it "
            "isn't Onecopy's: rename or drop it, or choose another namespace"
        )
    return topic_id


def _checked(table: Table, topic: str) -> Table:
    name = ".".join(table.name())
    version = table.properties.get(COLUMNS_VERSION_PROPERTY)
    if version != str(COLUMNS_VERSION):
        raise BadInput(
            f"table {name}: property {COLUMNS_VERSION_PROPERTY} is {version}, this version of "
            f"Onecopy writes {COLUMNS_VERSION}: use the version that made the table"
        )
    if table.properties.get(TOPIC_PROPERTY) != topic:
        raise FatalError(
            f"table {name}: property {TOPIC_PROPERTY} is {table.properties.get(TOPIC_PROPERTY)}, "
            f"not {topic}, though the topic id is the same: set it right"
        )
    return table


def _rename(catalog: Catalog, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Rename, or leave it to another tierer who was faster: the caller looks again.

    Whoever comes too late finds `new` taken, so a table that was just made isn't renamed.
    """
    try:
        catalog.rename_table(old, new)
    except (NoSuchTableError, TableAlreadyExistsError):
        return
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        text = f"table {'.'.join(old)} can't be renamed to {new[-1]}: {error}"
        raise TransientError(redact(text, catalog.properties)) from None


def _created(
    catalog: Catalog, identifier: tuple[str, ...], topic: str, topic_id: str, warehouse: str
) -> Table | None:
    """Make the table; None when it is there by now.

    Its directory carries the topic id, so that a former topic's table and this one never share
    one: other engines' removal of orphan files lists everything below a table's location.
    """
    try:
        # Somebody else may make the namespace between PyIceberg's look and its insert.
        with suppress(Exception):
            catalog.create_namespace_if_not_exists(identifier[:-1])
        table = catalog.create_table(
            identifier,
            raw_schema(),
            location=f"{warehouse.rstrip('/')}/{identifier[-1]}-{topic_id}",
            sort_order=sort_order(),
            properties=_table_properties(topic, topic_id),
        )
        make_ready_for_rewrites(table)
        return table
    except TableAlreadyExistsError:
        return None
    except Exception as error:  # noqa: BLE001 - each catalog has errors of its own
        text = f"table {'.'.join(identifier)} can't be made: {type(error).__name__}: {error}"
        raise TransientError(redact(text, catalog.properties)) from None


def _table_properties(topic: str, topic_id: str) -> dict[str, str]:
    return {
        "format-version": "2",
        TOPIC_PROPERTY: topic,
        TOPIC_ID_PROPERTY: topic_id,
        COLUMNS_VERSION_PROPERTY: str(COLUMNS_VERSION),
        WATERMARKS_PROPERTY: encode_watermarks({}),
        **REWRITE_PROPERTIES,
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(_METADATA_VERSIONS_KEPT),
        **snapshot_properties(),
    }
