"""A topic's table with typed columns: schemas come, rows are written with them, others read."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from shaped_codec import ShapedCodec, numbered

from tiering.table.catalog import CatalogConfig, ensure_table, open_catalog, table_target
from tiering.table.commit import TableAppend, append, load_state
from tiering.table.data_files import entry_from_parquet
from tiering.table.evolution import Arrival
from tiering.table.evolve import evolve_table
from tiering.values.arrow_fields import arrow_field, field_id
from tiering.values.projection import ColumnBinding
from tiering.values.stored_schema import (
    Framing,
    Part,
    SchemaFormat,
    StoredSchema,
    stored_schemas,
)
from tiering.watermarks import Watermark

TOPIC = "orders"
TOPIC_ID = "q9k1xkZkQ1Sg3nXxF2m4Ag"
IDENTIFIER = ("kafka", "orders")
NAME = ".".join(IDENTIFIER)


def arrival(
    schema_id: int,
    fields: Mapping[str, Any] | Schema,
    *,
    part: Part = "value",
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> Arrival:
    """A schema of these fields (`numbered`), with aliases by a field's path."""
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


@dataclass
class TypedTable:
    """One table in a catalog, and which rows went into it."""

    catalog: Catalog
    warehouse: str
    codecs: dict[tuple[Part, int], ShapedCodec] = field(default_factory=dict)

    @staticmethod
    def in_directory(directory: Path) -> TypedTable:
        """A new one on the SQLite catalog there."""
        uri = f"sqlite:///{directory}/catalog.db"
        warehouse = f"{directory}/store/warehouse"
        config = CatalogConfig(properties={"uri": uri, "warehouse": warehouse})
        made = TypedTable(open_catalog(config), warehouse)
        ensure_table(made.catalog, IDENTIFIER, TOPIC, TOPIC_ID, warehouse)
        return made

    def table(self) -> Table:
        return self.catalog.load_table(IDENTIFIER)

    def take(self, *arrivals: Arrival) -> Table:
        for each in arrivals:
            assert each.schema is not None
            codec = ShapedCodec(each.schema)
            self.codecs[each.stored.part, each.stored.schema_id] = codec
        return evolve_table(self.catalog, IDENTIFIER, TOPIC_ID, arrivals)

    def columns(self, schema_id: int, part: Part = "value") -> Mapping[int, int]:
        return stored_schemas(self.table().properties)[part, schema_id].columns

    def binding(self, schema_id: int, part: Part = "value") -> ColumnBinding:
        return ColumnBinding(
            codec=self.codecs[part, schema_id], columns=self.columns(schema_id, part)
        )

    def write(
        self, schema_id: int, rows: list[dict[str, Any] | None], part: Part = "value"
    ) -> None:
        """Append rows of one schema at the next offsets of partition 0, in one data file."""
        table = self.table()
        binding = self.binding(schema_id, part)
        ours = {1, 2, 1001, *binding.columns.values()}
        fields = [arrow_field(f) for f in table.schema().fields if f.field_id in ours]
        state = load_state(self.catalog, IDENTIFIER)
        mark = state.watermarks.get(0)
        start = 0 if mark is None else mark.offset
        columns = binding.to_table(self.codecs[part, schema_id].rows(rows), fields)
        kafka: dict[int, list[int]] = {
            1: [0] * len(rows),
            2: list(range(start, start + len(rows))),
            1001: [schema_id] * len(rows),
        }
        for i, each in enumerate(fields):
            if field_id(each) in kafka:
                columns[i] = pa.array(kafka[field_id(each)], each.type)
        path = Path(table.metadata.location) / "data" / f"{uuid.uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        pq.write_table(written, path, compression="zstd", store_schema=False)
        entry = entry_from_parquet(
            pq.read_metadata(path),
            path=str(path),
            size_bytes=path.stat().st_size,
            target=table_target(table),
        )
        append(
            self.catalog,
            TableAppend(
                identifier=IDENTIFIER,
                topic=TOPIC,
                topic_id=TOPIC_ID,
                cycle_id=uuid.uuid4().hex,
                base=state,
                expected={0: mark},
                moved={0: Watermark(offset=start + len(rows))},
                files={0: (entry,)},
            ),
        )

    def file_rows(self, schema_id: int, part: Part = "value") -> list[Any]:
        """What all data files hold of one schema's rows, by the binding as it is now."""
        binding = self.binding(schema_id, part)
        found: list[tuple[int, Any]] = []
        for task in self.table().scan().plan_files():
            batch = pq.read_table(task.file.file_path.removeprefix("file://")).combine_chunks()
            arrays = [c.combine_chunks() for c in batch.columns]
            rows = binding.from_table(arrays, list(batch.schema)).to_pylist()
            by_id = {field_id(f): a for f, a in zip(batch.schema, arrays, strict=True)}
            for offset, wrote, row in zip(
                by_id[2].to_pylist(), by_id[1001].to_pylist(), rows, strict=True
            ):
                if wrote == schema_id:
                    found.append((offset, row))
        return [row for _, row in sorted(found, key=lambda each: each[0])]
