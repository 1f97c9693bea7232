"""What can be set for one topic. Checked at once, as far as that needs no table and no registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args, get_type_hints

from tiering.errors import BadInput
from tiering.partition_terms import PartitionTerm, parse_terms
from tiering.settings import BadSetting

__all__ = [
    "METADATA_COLUMNS",
    "BadRecordRule",
    "PartMode",
    "SubjectStrategy",
    "TopicConfig",
    "UnknownSchemaRule",
    "check_table_names",
    "retention_ms",
]

PartMode = Literal["auto", "raw", "schema_id_prefix", "schema_latest", "json"]
"""What a record's value or key is made of.

auto: `schema_id_prefix` if the registry has the subject or has had it, else `raw`.
raw: bytes.
schema_id_prefix: the Confluent wire format: each names the id of its writer's schema.
schema_latest: written with the latest schema of the subject, without a prefix.
json: JSON without a schema; a column of text.
"""
SubjectStrategy = Literal["topic", "record", "topic_record"]
"""How a value's subject is called: `<topic>-value`, the record's full name, or both joined."""

BadRecordRule = Literal["dlq", "suspend", "raw"]
"""A record that its schema doesn't describe goes into the table `<name>__dlq`, stops its topic, or
is kept as bytes in the table itself."""

UnknownSchemaRule = Literal["wait", "error"]
"""For a schema id that the registry doesn't know: the topic waits, or it is a bad record."""

METADATA_COLUMNS: Final = (
    "kafka_timestamp",
    "kafka_timestamp_type",
    "kafka_leader_epoch",
    "kafka_key",
    "kafka_headers",
)
"""Those that a table can do without; `kafka_partition` and `kafka_offset` are always there."""

_DURATION: Final = re.compile(r"(?P<count>[1-9]\d{0,5})(?P<unit>[smhd])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TABLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,199}")
_OWN_ENDING: Final = re.compile(r".*__(?:[0-9a-f]{8}|dlq)")
_RECORD_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_NEED_REGISTRY: Final = ("schema_id_prefix", "schema_latest")
_SUBJECT_LENGTH_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What is set for one topic, or for all that have nothing of their own.

    Attributes:
        retention: which rows leave the table. `kafka`: those that the broker deletes; `forever`:
            none; a duration (`12h`, `90d`): those that the broker has deleted and whose
            timestamps are older than that.
        value, key: what they are made of.
        value_subject, key_subject: the registry's subject, where it isn't called as
            `subject_strategy` says.
        subject_strategy: for values; a key's subject is `<topic>-key` or `key_subject`.
        record_name: full name of the value's record, for two of the strategies.
        on_error: what becomes of a record that its schema doesn't describe.
        on_unknown_schema: what is done about a schema id that the registry doesn't know.
        table: the table's name, instead of the topic's encoded one.
        partition_by: the table's partition spec; see `partition_terms`.
        metadata_columns: those of METADATA_COLUMNS that the table has. Leaving one out costs space
            elsewhere: the tier keeps what Kafka's readers need in its side files.
    """

    retention: str = "kafka"
    value: PartMode = "auto"
    key: PartMode = "raw"
    value_subject: str = ""
    key_subject: str = ""
    subject_strategy: SubjectStrategy = "topic"
    record_name: str = ""
    on_error: BadRecordRule = "dlq"
    on_unknown_schema: UnknownSchemaRule = "wait"
    table: str = ""
    partition_by: tuple[str, ...] = ()
    metadata_columns: tuple[str, ...] = METADATA_COLUMNS

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_subjects()
        self._check_table()
        try:
            retention_ms(self.retention)
        except BadInput as error:
            raise BadSetting(("retention",), str(error).removeprefix("retention: ")) from None

    @property
    def partition_terms(self) -> tuple[PartitionTerm, ...]:
        """`partition_by`, parsed."""
        return parse_terms(self.partition_by)

    @property
    def needs_registry(self) -> bool:
        """Whether a part's mode can't do without one."""
        return self.value in _NEED_REGISTRY or self.key in _NEED_REGISTRY

    def _check_choices(self) -> None:
        for name, hint in get_type_hints(TopicConfig).items():
            choices = get_args(hint)
            value = getattr(self, name)
            if isinstance(value, str) and choices and value not in choices:
                raise BadSetting((name,), f"{value!r} is none of {', '.join(choices)}")

    def _check_subjects(self) -> None:
        for name in ("value_subject", "key_subject"):
            subject: str = getattr(self, name)
            if len(subject) > _SUBJECT_LENGTH_MAX or not subject.isprintable():
                raise BadSetting((name,), f"{subject!r:.80} is no subject")
        if self.record_name and not _RECORD_NAME.fullmatch(self.record_name):
            raise BadSetting(
                ("record_name",), f"{self.record_name!r:.80} is no full name such as shop.Order"
            )
        if self.subject_strategy != "topic" and not (self.record_name or self.value_subject):
            raise BadSetting(
                ("subject_strategy",),
                f"{self.subject_strategy} needs record_name, the full name of the value's record",
            )

    def _check_table(self) -> None:
        if self.table and not _TABLE.fullmatch(self.table):
            raise BadSetting(
                ("table",),
                f"{self.table!r:.80} must be up to 200 lower-case letters, digits and '_', not "
                "starting with a digit",
            )
        if _OWN_ENDING.fullmatch(self.table):
            raise BadSetting(
                ("table",),
                f"{self.table!r} ends as the tables of bad records and of former topics do: "
                "choose another name",
            )
        try:
            parse_terms(self.partition_by)
        except BadInput as error:
            raise BadSetting(("partition_by",), str(error)) from None
        for column in self.metadata_columns:
            if column not in METADATA_COLUMNS:
                raise BadSetting(
                    ("metadata_columns",),
                    f"{column!r} is none of {', '.join(METADATA_COLUMNS)} (kafka_partition and "
                    "kafka_offset are always there)",
                )
        if len(set(self.metadata_columns)) < len(self.metadata_columns):
            raise BadSetting(("metadata_columns",), "names a column twice")


def retention_ms(retention: str) -> int | None:
    """A retention as milliseconds that rows outlive the broker's delete; None: forever.

    `kafka` is 0. Raises BadInput for what is none of the three forms.
    """
    if retention in ("kafka", "forever"):
        return 0 if retention == "kafka" else None
    match = _DURATION.fullmatch(retention)
    if match is None:
        raise BadInput(
            f"retention: {retention!r} is neither kafka nor forever nor a duration such as 12h, 90d"
        )
    return int(match["count"]) * _UNIT_MS[match["unit"]]


def check_table_names(topics: Mapping[str, TopicConfig]) -> None:
    """No two topics may have one table. Raises BadSetting, seen from the table of topics."""
    if not any(own.table for own in topics.values()):
        return
    # What a topic's table is called otherwise; it comes with all of Iceberg.
    from tiering.table.schema import table_name

    owners = {table_name(topic): topic for topic in topics}
    for topic, own in topics.items():
        owner = owners.setdefault(own.table, topic) if own.table else topic
        if owner != topic:
            raise BadSetting(
                (topic, "table"), f"{own.table!r} is the table of topic {owner}: choose another"
            )
