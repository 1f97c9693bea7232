"""What a table becomes by new writers' schemas: planned only, nothing is committed here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.name_mapping import create_mapping_from_schema, parse_mapping_from_json
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    update_table_metadata,
)
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from shaped_codec import NAMES, SHAPES, ShapedCodec, numbered, values

from tiering.errors import FatalError
from tiering.table import evolution
from tiering.table.evolution import Arrival, Evolution, evolve
from tiering.table.schema import raw_schema
from tiering.values.arrow_fields import arrow_field
from tiering.values.projection import ROOT, ColumnBinding
from tiering.values.stored_schema import (
    Framing,
    Part,
    SchemaFormat,
    StoredSchema,
    stored_schemas,
)
from tiering.values.units import MICROS_OF_DAY, MILLIS_OF_DAY

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
RAW_COLUMNS = [f.name for f in raw_schema().fields]


@dataclass
class Table:
    """Metadata that changes as a catalog would change it."""

    metadata: TableMetadata

    @staticmethod
    def made() -> Table:
        return Table(
            new_table_metadata(raw_schema(), PartitionSpec(), UNSORTED_SORT_ORDER, "/w/t", {})
        )

    def take(self, *arrivals: Arrival) -> tuple[StoredSchema, ...]:
        result = evolve(self.metadata, arrivals)
        self.apply(result)
        assert not evolve(self.metadata, arrivals).is_change, "it has landed"
        return result.stored

    def apply(self, result: Evolution) -> None:
        updates: list[Any] = [AddSchemaUpdate(schema=result.schema)] if result.is_new else []
        updates.append(SetCurrentSchemaUpdate(schema_id=result.schema.schema_id))
        if result.properties:
            updates.append(SetPropertiesUpdate(updates=dict(result.properties)))
        self.metadata = update_table_metadata(self.metadata, updates)

    def alter(self) -> Altering:
        return Altering(self)

    @property
    def columns(self) -> dict[str, str]:
        """{path: type} of what writers' fields and others brought."""
        schema = self.metadata.schema()
        names = [f.name for f in schema.fields if f.field_id > 1002]
        return {
            name: str(schema.find_type(name))
            for name in schema._name_to_id
            if any(name == n or name.startswith(n + ".") for n in names)
        }

    def id(self, path: str) -> int:
        return self.metadata.schema().find_field(path).field_id


class Altering:
    """ALTER TABLE by somebody else, as PyIceberg does it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __enter__(self) -> UpdateSchema:
        self._update = UpdateSchema(_Staged(self._table.metadata))  # type: ignore[arg-type]
        return self._update

    def __exit__(self, *error: object) -> None:
        updates, _ = self._update._commit()
        self._table.metadata = update_table_metadata(self._table.metadata, tuple(updates))


class _Staged:
    """What UpdateSchema asks a transaction for."""

    def __init__(self, metadata: TableMetadata) -> None:
        self.table_metadata = metadata
        self._table = self
        self._requirements: tuple[Any, ...] = ()

    def name_mapping(self) -> None:
        return None


def arrival(
    schema_id: int,
    fields: Mapping[str, Any] | Schema,
    *,
    part: Part = "value",
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> Arrival:
    schema = fields if isinstance(fields, Schema) else numbered(fields)
    by_id = {schema.find_field(k).field_id: tuple(v) for k, v in (aliases or {}).items()}
    return Arrival(
        stored=StoredSchema(
            part=part,
            schema_id=schema_id,
            format=SchemaFormat.AVRO,
            framing=Framing.PREFIX,
            definition=f"{schema.model_dump_json()} {by_id}",
        ),
        schema=schema,
        aliases=by_id,
    )


@pytest.fixture
def table() -> Table:
    return Table.made()


def test_a_raw_table_becomes_typed(table: Table) -> None:
    (stored,) = table.take(arrival(5, {"id": LONG, "name": TEXT}))
    assert [(f.field_id, f.name, f.required) for f in table.metadata.schema().fields[7:]] == [
        (8, "kafka_value", False),
        (1001, "kafka_schema_id", False),
        (1003, "id", False),
        (1004, "name", False),
    ]
    assert table.metadata.last_column_id == 1004
    assert stored.columns == {1: 1003, 2: 1004}
    assert stored_schemas(table.metadata.properties) == {("value", 5): stored}
    assert table.metadata.schema_by_id(0) == raw_schema(), "the first schema stays"


def test_every_level_gets_ids_of_its_own(table: Table) -> None:
    shape = {"s": {"x": INT, "l": [{"y": TEXT}]}, "m": (TEXT, {"z": BooleanType()})}
    (stored,) = table.take(arrival(1, shape))
    assert table.columns["s.l.element.y"] == "string"
    assert table.columns["m.value.z"] == "boolean"
    schema = table.metadata.schema()
    codec = numbered(shape)
    for codec_id, table_id in stored.columns.items():
        assert codec.find_column_name(codec_id) == schema.find_column_name(table_id)
    assert sorted(stored.columns) == list(range(1, 10))
    assert sorted(stored.columns.values()) == sorted(set(stored.columns.values()))


def test_the_same_schema_again_is_no_change(table: Table) -> None:
    first = arrival(1, {"a": INT})
    twice = evolve(table.metadata, [first, first])
    assert twice.stored[0] == twice.stored[1]
    table.apply(twice)
    assert evolve(table.metadata, [first]).properties == {}
    other = replace(first, stored=replace(first.stored, definition="another"))
    with pytest.raises(FatalError, match="schema 1 of values"):
        evolve(table.metadata, [other])


def test_another_schema_id_of_equal_fields_uses_the_same_columns(table: Table) -> None:
    (first,) = table.take(arrival(1, {"a": INT, "s": {"x": INT}}))
    (second,) = table.take(arrival(2, {"a": INT, "s": {"x": INT}}))
    assert first.columns == second.columns
    assert len(table.metadata.schemas) == 2


def test_fields_are_added_dropped_and_reordered(table: Table) -> None:
    (first,) = table.take(arrival(1, {"a": INT, "b": TEXT, "s": {"x": INT, "y": INT}}))
    (second,) = table.take(arrival(2, {"s": {"z": TEXT, "y": INT}, "c": LONG, "a": INT}))
    assert set(table.columns) == {"a", "b", "s", "s.x", "s.y", "s.z", "c"}
    names = [f.name for f in table.metadata.schema().fields]
    assert names[-1] == "c"
    assert second.columns[5] == first.columns[1]
    assert second.columns[3] == first.columns[5]
    assert not table.metadata.schema().find_field("s.z").required


@pytest.mark.parametrize(
    ("before", "after", "becomes"),
    [
        (INT, LONG, "long"),
        (LONG, INT, "long"),
        (FloatType(), DoubleType(), "double"),
        (DoubleType(), FloatType(), "double"),
        (DecimalType(5, 2), DecimalType(9, 2), "decimal(9, 2)"),
        (DecimalType(9, 2), DecimalType(5, 2), "decimal(9, 2)"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda t: t, lambda t: [t], lambda t: {"x": t}, lambda t: (TEXT, [{"x": t}])]
)
def test_columns_widen_and_narrower_writers_go_on(
    table: Table, before: IcebergType, after: IcebergType, becomes: str, wrap: Any
) -> None:
    (first,) = table.take(arrival(1, {"a": wrap(before)}))
    (second,) = table.take(arrival(2, {"a": wrap(after)}))
    assert first.columns == second.columns
    leaf = max(first.columns.values())
    assert str(table.metadata.schema().find_type(leaf)) == becomes
    assert not second.refused


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (INT, TEXT),
        (TEXT, INT),
        (INT, FloatType()),
        (LONG, DoubleType()),
        (DecimalType(5, 2), DecimalType(9, 3)),
        (FixedType(4), FixedType(12)),
        (FixedType(4), BinaryType()),
        (BinaryType(), TEXT),
        (TEXT, UUIDType()),
        ({"x": INT}, [INT]),
        ([INT], {"x": INT}),
        ([INT], (TEXT, INT)),
        (INT, {"x": INT}),
        ({"x": INT}, INT),
        ([INT], [TEXT]),
        ((TEXT, INT), (TEXT, TEXT)),
        ((INT, INT), (LONG, INT)),
    ],
)
def test_other_changes_are_refused_and_leave_the_table_alone(
    table: Table, before: Any, after: Any
) -> None:
    table.take(arrival(1, {"s": {"a": before}, "b": INT}))
    schema = table.metadata.schema()
    result = evolve(table.metadata, [arrival(2, {"b": LONG, "new": INT, "s": {"a": after}})])
    assert result.schema == schema
    assert not result.is_new
    (stored,) = result.stored
    assert "column s.a" in stored.refused
    assert dict(stored.columns) == {}
    table.apply(result)
    assert stored_schemas(table.metadata.properties)["value", 2].refused == stored.refused
    table.take(arrival(3, {"new": TEXT}))
    assert table.columns["new"] == "string", "the refused one has left no name behind"


def test_the_reason_names_the_column_and_both_types(table: Table) -> None:
    table.take(arrival(1, {"a": INT}))
    (stored,) = table.take(arrival(2, {"a": TEXT}))
    assert stored.refused == "column a is int, the schema has string"


def test_uuids_are_fixed_bytes(table: Table) -> None:
    """Spark compares uuids in another order than Parquet's statistics have."""
    (first,) = table.take(arrival(1, {"u": UUIDType(), "m": (UUIDType(), [UUIDType()])}))
    fixed = "fixed[16]"
    assert [table.columns[n] for n in ("u", "m.key", "m.value.element")] == [fixed] * 3
    (second,) = table.take(arrival(2, {"u": FixedType(16), "m": (UUIDType(), [FixedType(16)])}))
    assert first.columns == second.columns


def test_two_units_never_share_a_column(table: Table) -> None:
    def time(kind: IcebergType, unit: str) -> Schema:
        return Schema(NestedField(1, "t", kind, required=False, doc=unit))

    table.take(arrival(1, time(INT, MILLIS_OF_DAY)))
    assert table.metadata.schema().find_field("t").doc == MILLIS_OF_DAY
    (stored,) = table.take(arrival(2, time(LONG, MICROS_OF_DAY)))
    assert stored.refused == f"column t has {MILLIS_OF_DAY}, the schema {MICROS_OF_DAY}"
    (stored,) = table.take(arrival(3, time(INT, MILLIS_OF_DAY)))
    assert stored.columns == {1: 1003}


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["kafka_offset"], ["kafka_offset_2"]),
        (["KAFKA_offset"], ["KAFKA_offset_2"]),
        (["kafka_value"], ["kafka_value_2"]),
        (["value"], ["value"]),
        (["kafka_schema_id"], ["kafka_schema_id_2"]),
        (["kafka_key_schema_id"], ["kafka_key_schema_id_2"]),
        (["name", "Name", "NAME"], ["name", "Name_2", "NAME_3"]),
        (["a.b", "a_b", "A.B"], ["a_b", "a_b_2", "A_B_3"]),
        (["🐟", "größe", "GRÖSSE"], ["🐟", "größe", "GRÖSSE_2"]),
        (["_file", "_pos"], ["_file_2", "_pos_2"]),
        (["key"], ["key"]),
    ],
)  # fmt: skip
def test_names_that_are_taken_get_a_number(
    table: Table, names: list[str], columns: list[str]
) -> None:
    (first,) = table.take(arrival(1, dict.fromkeys(names, TEXT)))
    assert list(table.columns) == columns
    (again,) = table.take(arrival(2, {**dict.fromkeys(reversed(names), TEXT), "more": INT}))
    by_name = {n: 1003 + i for i, n in enumerate(names)}
    assert [again.columns[i + 1] for i in range(len(names))] == [
        by_name[n] for n in reversed(names)
    ], "the writer's names, not the columns', say which is which"
    assert first.columns == {i + 1: 1003 + i for i in range(len(names))}


def test_nested_names_too(table: Table) -> None:
    table.take(arrival(1, {"s": {"a.b": INT, "A_B": INT, "kafka_offset": INT}}))
    assert set(table.columns) == {"s", "s.a_b", "s.A_B_2", "s.kafka_offset"}


def test_a_field_called_like_anothers_second_name_is_another(table: Table) -> None:
    table.take(arrival(1, {"kafka_offset": INT}))
    (stored,) = table.take(arrival(2, {"kafka_offset_2": TEXT}))
    assert not stored.refused
    assert table.columns == {"kafka_offset_2": "int", "kafka_offset_2_2": "string"}


def test_an_alias_renames_the_column_and_old_records_find_it(table: Table) -> None:
    table.take(arrival(1, {"a": INT}))
    (second,) = table.take(arrival(2, {"b": INT}, aliases={"b": ["x", "a"]}))
    assert table.columns == {"b": "int"}
    (third,) = table.take(arrival(3, {"a": INT, "c": INT}))
    assert second.columns[1] == third.columns[1] == 1003
    assert set(table.columns) == {"b", "c"}


def test_aliases_that_go_back_use_the_former_schema_again(table: Table) -> None:
    table.take(arrival(1, {"a": INT}))
    before = table.metadata.current_schema_id
    table.take(arrival(2, {"b": INT}, aliases={"b": ["a"]}))
    with table.alter() as alter:
        alter.rename_column("b", "a")
    assert table.columns == {"a": "int"}
    table.take(arrival(3, {"b": INT}, aliases={"b": ["c"]}))
    table.take(arrival(4, {"z": INT}, aliases={"z": ["b"]}))
    assert table.columns == {"z": "int"}
    count = len(table.metadata.schemas)
    table.take(arrival(5, {"y": INT}, aliases={"y": ["z"]}))
    assert len(table.metadata.schemas) == count + 1
    assert before != table.metadata.current_schema_id


def test_records_from_before_a_rename_that_come_late(table: Table) -> None:
    (first,) = table.take(arrival(2, {"b": INT}, aliases={"b": ["a"]}))
    (late,) = table.take(arrival(1, {"a": INT}))
    assert first.columns == late.columns
    assert table.columns == {"b": "int"}


def test_a_new_field_of_a_name_that_was_renamed_away(table: Table) -> None:
    table.take(arrival(1, {"a": INT}))
    table.take(arrival(2, {"b": INT}, aliases={"b": ["a"]}))
    (third,) = table.take(arrival(3, {"b": INT, "a": TEXT}))
    assert third.columns[1] == 1003
    assert table.columns == {"b": "int", "a": "string"}
    (fourth,) = table.take(arrival(4, {"a": TEXT}))
    assert fourth.columns == {1: third.columns[2]}, "the newest that was called so"


def test_a_column_that_somebody_renamed_is_found_by_both_names(table: Table) -> None:
    table.take(arrival(1, {"a": INT, "s": {"x": INT}}))
    with table.alter() as alter:
        alter.rename_column("a", "mine")
        alter.rename_column("s.x", "y")
    (old,) = table.take(arrival(2, {"a": INT, "s": {"x": INT}, "n": INT}))
    assert [old.columns[i] for i in (1, 2, 3)] == [1003, 1004, 1005]
    (alias,) = table.take(arrival(4, {"c": INT}, aliases={"c": ["a"]}))
    assert alias.columns == {1: 1003}
    assert set(table.columns) == {"mine", "s", "s.y", "n"}, "somebody's name stays"
    (new,) = table.take(arrival(5, {"mine": INT, "s": {"y": INT}}))
    assert [new.columns[i] for i in (1, 2, 3)] == [1003, 1004, 1005]


def test_a_name_that_only_the_table_once_had(table: Table) -> None:
    table.take(arrival(1, {"s": {"a": INT, "b": INT}}))
    for name, former in (("a", "x"), ("b", "y")):
        with table.alter() as alter:
            alter.rename_column(f"s.{name}", former)
    with table.alter() as alter:
        alter.rename_column("s.x", "z")
        alter.delete_column("s.y")
    (stored,) = table.take(arrival(2, {"s": {"x": INT, "y": INT}}))
    assert stored.columns == {1: 1003, 2: 1004}
    assert set(table.columns) == {"s", "s.z"}


def test_columns_that_somebody_dropped_are_not_added_again(table: Table) -> None:
    table.take(arrival(1, {"a": INT, "s": {"x": INT, "y": INT}, "b": INT}))
    with table.alter() as alter:
        alter.delete_column("a")
        alter.delete_column("s.x")
    (stored,) = table.take(arrival(2, {"a": INT, "s": {"x": INT, "y": INT}, "n": TEXT}))
    assert set(table.columns) == {"s", "s.y", "b", "n"}
    assert set(stored.columns) == {2, 4, 5}
    with table.alter() as alter:
        alter.add_column("a", TEXT)
    (stored,) = table.take(arrival(3, {"a": INT, "b": INT}))
    assert set(stored.columns) == {2}, "somebody's column of that name isn't the writer's"
    assert table.columns["a"] == "string"


def test_columns_of_somebody_else_are_not_used(table: Table) -> None:
    table.take(arrival(1, {"s": {"x": INT}}))
    with table.alter() as alter:
        alter.add_column("a", INT)
        alter.add_column(("s", "y"), INT)
    theirs = (table.id("a"), table.id("s.y"))
    (stored,) = table.take(arrival(2, {"a": INT, "s": {"x": INT, "y": INT}}))
    assert set(table.columns) == {"s", "s.x", "s.y", "a", "a_2", "s.y_2"}
    assert not set(theirs) & set(stored.columns.values())
    assert (table.id("a"), table.id("s.y")) == theirs


def test_a_column_that_somebody_widened(table: Table) -> None:
    table.take(arrival(1, {"a": INT}))
    with table.alter() as alter:
        alter.update_column("a", LONG)
    (stored,) = table.take(arrival(2, {"a": INT, "b": INT}))
    assert stored.columns[1] == 1003
    assert table.columns == {"a": "long", "b": "int"}


def test_a_value_column_that_somebody_renamed_keeps_that_name(table: Table) -> None:
    with table.alter() as alter:
        alter.rename_column("value", "payload")
    table.take(arrival(1, {"value": TEXT, "Payload": TEXT}))
    assert table.id("payload") == 8
    assert set(table.columns) == {"value", "Payload_2"}


def test_a_taken_name_for_kept_values(table: Table) -> None:
    with table.alter() as alter:
        alter.add_column("Kafka_Value", INT)
        alter.add_column("kafka_schema_id", INT)
    table.take(arrival(1, {"a": TEXT}))
    schema = table.metadata.schema()
    assert schema.find_column_name(8) == "kafka_value_2"
    assert schema.find_column_name(1001) == "kafka_schema_id_2"


def test_a_dropped_value_column_stays_dropped(table: Table) -> None:
    with table.alter() as alter:
        alter.delete_column("value")
    table.take(arrival(1, {"a": TEXT}))
    assert 8 not in table.metadata.schema().field_ids


def test_keys_of_records_are_one_struct(table: Table) -> None:
    (stored,) = table.take(arrival(1, {"id": LONG, "at": {"x": INT}}, part="key"))
    assert set(table.columns) == {"key", "key.id", "key.at", "key.at.x"}
    assert stored.columns == {ROOT: 1003, 1: 1004, 2: 1005, 3: 1006}
    assert table.metadata.schema().find_column_name(1001) == "kafka_schema_id"
    assert table.metadata.schema().find_column_name(1002) == "kafka_key_schema_id"
    (more,) = table.take(arrival(2, {"id": LONG, "n": INT}, part="key"))
    assert more.columns[ROOT] == 1003
    assert table.columns["key.n"] == "int"
    # One field called `value` alone is taken for a whole key, unless keys are records already.
    (one,) = table.take(arrival(3, {"value": TEXT}, part="key"))
    assert one.columns[ROOT] == 1003
    assert table.columns["key.value"] == "string"


def test_keys_that_are_no_records_are_one_plain_column(table: Table) -> None:
    table.take(arrival(1, {"key": INT, "id": TEXT}))
    (stored,) = table.take(arrival(1, {"value": INT}, part="key"))
    assert stored.columns == {1: table.id("key_2")}
    assert table.columns == {"key": "int", "id": "string", "key_2": "int"}
    (wider,) = table.take(arrival(2, {"value": LONG}, part="key"))
    assert wider.columns == stored.columns
    assert table.columns["key_2"] == "long"
    (refused,) = table.take(arrival(3, {"id": INT}, part="key"))
    assert "column key_2 is long, the schema has struct" in refused.refused


def test_the_key_schemas_column_comes_with_the_first_key(table: Table) -> None:
    table.take(arrival(1, {"a": INT}))
    assert 1002 not in table.metadata.schema().field_ids
    table.take(arrival(1, {"value": TEXT}, part="key"))
    assert table.metadata.schema().find_column_name(1002) == "kafka_key_schema_id"
    assert table.id("key") == 1004


def test_values_kept_raw_make_a_table_typed_too(table: Table) -> None:
    raw = arrival(9, {"a": INT}).stored
    kept = Arrival(stored=replace(raw, kept_raw="recursive"))
    (stored,) = table.take(kept)
    assert stored == kept.stored
    names = [f.name for f in table.metadata.schema().fields]
    assert names == [*RAW_COLUMNS[:-1], "kafka_value", "kafka_schema_id"]
    table.take(arrival(10, {"a": INT}))
    assert table.id("a") == 1003


def test_a_record_without_columns(table: Table) -> None:
    (stored,) = table.take(
        arrival(1, {}),
    )
    (key,) = table.take(arrival(1, {}, part="key"))
    assert dict(stored.columns) == dict(key.columns) == {}
    assert not stored.refused
    assert table.columns == {}


def test_ids_that_are_taken_stop_it(table: Table) -> None:
    with table.alter() as alter:
        alter.add_column("theirs", INT)
    high = table.metadata.model_copy(update={"last_column_id": 1001})
    with pytest.raises(FatalError, match="1001 for kafka_schema_id"):
        evolve(high, [arrival(1, {"a": INT})])
    kept = Arrival(stored=replace(arrival(9, {"a": INT}).stored, kept_raw="recursive"))
    table.take(kept)
    with table.alter() as alter:
        alter.add_column("next", INT)
    assert table.id("next") == 1002
    table.take(arrival(1, {"a": INT}))
    assert table.id("a") == 1003
    with pytest.raises(FatalError, match="1002"):
        evolve(table.metadata, [arrival(1, {"a": INT}, part="key")])


def test_names_of_partition_fields_are_taken(table: Table) -> None:
    field = PartitionField(
        source_id=1, field_id=1000, transform=IdentityTransform(), name="ts_hour"
    )
    added = AddPartitionSpecUpdate(spec=PartitionSpec(field, spec_id=1))
    table.metadata = update_table_metadata(table.metadata, (added,))
    table.take(arrival(1, {"TS_hour": INT}))
    assert list(table.columns) == ["TS_hour_2"]


def test_the_name_mapping_follows(table: Table) -> None:
    text = create_mapping_from_schema(table.metadata.schema()).model_dump_json()
    table.metadata = update_table_metadata(
        table.metadata, (SetPropertiesUpdate(updates={"schema.name-mapping.default": text}),)
    )
    table.take(arrival(1, {"s": {"x": INT}, "l": [{"y": INT}], "value": INT}))
    table.take(
        arrival(
            2, {"s": {"x2": INT, "z": INT}, "l": [{"y": INT, "q": INT}]}, aliases={"s.x2": ["x"]}
        )
    )
    mapping = json.loads(table.metadata.properties["schema.name-mapping.default"])
    parse_mapping_from_json(json.dumps(mapping))
    ids = _mapped(mapping)
    for path in ("s", "s.x2", "s.z", "l", "l.element", "l.element.y", "l.element.q", "value"):
        assert ids[path] == table.id(path), path
    assert ids["s.x"] == ids["s.x2"], "files from before a rename"
    assert ids["kafka_value"] == 8


def _mapped(fields: list[dict[str, Any]], path: str = "") -> dict[str, int]:
    found = {}
    for each in fields:
        for name in each["names"]:
            found[path + name] = each["field-id"]
            found |= _mapped(each.get("fields", []), f"{path}{name}.")
    return found


def test_schemas_without_end_are_stopped(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution, "SCHEMAS_BYTES_MAX", 3000)
    table.take(*(arrival(i, {"a": INT}) for i in range(3)))
    with pytest.raises(FatalError, match="limit is 3000"):
        evolve(table.metadata, [arrival(100 + i, {"a": INT}) for i in range(20)])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sequence_of_schemas_keeps_ids_and_values(data: Any) -> None:
    """Whatever comes: a name keeps its column as long as the columns are there, no column is
    given away, and the values of every schema come back from the columns of the last table."""
    table = Table.made()
    schemas: dict[int, tuple[ShapedCodec, StoredSchema]] = {}
    before: Schema = table.metadata.schema()
    for schema_id in range(1, data.draw(st.integers(2, 5))):
        codec = ShapedCodec(numbered(data.draw(st.dictionaries(NAMES, SHAPES, max_size=4))))
        (stored,) = table.take(arrival(schema_id, codec.schema))
        schemas[schema_id] = (codec, stored)
        after = table.metadata.schema()
        _check_grown(before, after)
        before = after
    fields = [arrow_field(f) for f in before.fields]
    bound_names: dict[str, int] = {}
    for codec, stored in schemas.values():
        if stored.refused:
            continue
        assert sorted(stored.columns) == sorted(codec.schema.field_ids)
        for field in codec.schema.fields:
            table_id = stored.columns[field.field_id]
            assert bound_names.setdefault(field.name, table_id) == table_id
            assert table_id > 1002
        binding = ColumnBinding(codec=codec, columns=stored.columns)
        rows = data.draw(st.lists(values(codec.schema.as_struct()), min_size=1, max_size=3))
        columns = codec.rows(rows)
        again = binding.from_table(binding.to_table(columns, fields), fields)
        nothing = {f.name: None for f in codec.schema.fields}
        assert again.to_pylist() == [nothing if row is None else row for row in rows]
    assert len(set(bound_names.values())) == len(bound_names)


def _check_grown(before: Schema, after: Schema) -> None:
    """Every column is still there, with its name, below its parent, and no narrower."""
    folded: set[str] = set()
    for field in after.fields:
        assert field.name.casefold() not in folded
        folded.add(field.name.casefold())
    for field_id in before.field_ids:
        name = before.find_column_name(field_id)
        if field_id != 8:
            assert after.find_column_name(field_id) == name
        old, new = before.find_type(field_id), after.find_type(field_id)
        if not isinstance(old, StructType | ListType | MapType) and old != new:
            assert (str(old), str(new)) in {
                ("int", "long"),
                ("float", "double"),
                ("decimal(9, 2)", "decimal(20, 2)"),
            }
