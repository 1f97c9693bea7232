"""The table of a topic: its columns, their field ids, and its name."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tiering.segments import check_topic_name

__all__ = [
    "COLUMNS_VERSION",
    "ERROR_CLASS_FIELD",
    "ERROR_PART_FIELD",
    "ERROR_REASON_FIELD",
    "KEY_SCHEMA_ID_FIELD",
    "SCHEMA_ID_FIELD",
    "raw_schema",
    "sort_order",
    "table_name",
]

COLUMNS_VERSION: Final = 1
"""Version of the metadata columns, kept in the table property `onecopy.columns-version`."""

SCHEMA_ID_FIELD: Final = 1001
KEY_SCHEMA_ID_FIELD: Final = 1002
"""Field ids of `kafka_schema_id` and `kafka_key_schema_id`, which a table gets when it becomes
typed: the same in every table, and high enough to be free in tables that are older."""

ERROR_CLASS_FIELD: Final = 901
ERROR_REASON_FIELD: Final = 902
ERROR_PART_FIELD: Final = 903
"""Field ids of what a table of dead letters has beside the records."""

_NAME_LENGTH_MAX: Final = 200
_PLAIN: Final = re.compile(r"[a-z0-9]")


def raw_schema() -> Schema:
    """Columns of a topic without a value schema: flat metadata columns and `value binary`.

    Catalogs number a new table's fields level by level; these ids are the ones that come out, so
    a column can be found by its id in any later schema of the table, whatever its name is then.
    """
    return Schema(
        NestedField(1, "kafka_partition", IntegerType(), required=True),
        NestedField(2, "kafka_offset", LongType(), required=True),
        NestedField(
            3,
            "kafka_timestamp",
            TimestamptzType(),
            doc="null where Kafka's timestamp is -1 or outside the type's range",
        ),
        NestedField(
            4, "kafka_timestamp_type", IntegerType(), doc="0 create time, 1 log append time"
        ),
        NestedField(5, "kafka_leader_epoch", IntegerType()),
        NestedField(6, "kafka_key", BinaryType()),
        NestedField(
            7,
            "kafka_headers",
            ListType(
                element_id=9,
                element_type=StructType(
                    NestedField(10, "key", StringType(), required=True),
                    NestedField(11, "value", BinaryType()),
                ),
                element_required=True,
            ),
        ),
        NestedField(8, "value", BinaryType()),
    )


def sort_order() -> SortOrder:
    """Files are sorted by (kafka_partition, kafka_offset)."""
    return SortOrder(
        SortField(source_id=1, transform=IdentityTransform()),
        SortField(source_id=2, transform=IdentityTransform()),
    )


def table_name(topic: str) -> str:
    """Map a topic name injectively to an identifier of lower-case letters, digits and '_'.

    Lower-case letters, digits and an underscore between two of them stand for themselves; all
    else is `__` and a letter: p '.', m '-', u '_', k capital of what follows, n before a leading
    digit. Names over 200 characters end in `__h` and a hash. No code is a hexadecimal digit, so
    `<name>__dlq` and `<name>__<8 hexadecimal digits>` never meet a topic's own table.
    """
    check_topic_name(topic)
    encoded = "".join(_encode(topic, i) for i in range(len(topic)))
    if topic[0].isdigit():
        encoded = "__n" + encoded
    if len(encoded) > _NAME_LENGTH_MAX:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:32]
        encoded = encoded[: _NAME_LENGTH_MAX - 40].rstrip("_") + "__h" + digest
    return encoded


def _encode(topic: str, i: int) -> str:
    char = topic[i]
    if _PLAIN.fullmatch(char):
        return char
    if char == "_":
        between = 0 < i < len(topic) - 1 and all(
            _PLAIN.fullmatch(c) for c in (topic[i - 1], topic[i + 1])
        )
        return "_" if between else "__u"
    if char in ".-":
        return "__p" if char == "." else "__m"
    return "__k" + char.lower()
