"""`onecopy read`: records of a topic by offset or timestamp, from the table's files."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tiering.cli.exit_codes import OK
from tiering.cli.tier_options import add_tier_arguments, find_config
from tiering.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

    from tiering.offset_reader import OffsetReader, Record

__all__ = ["add_arguments", "run"]

_SHOWN_BYTES: Final = 120  # of a value, in lines for people
_LAST_DATE_MS: Final = 253_402_300_799_999  # Python's calendar ends with the year 9999


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `onecopy read --help`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", type=_natural, required=True, metavar="P")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--offset", type=_natural, metavar="O", help="first offset (default: the first there is)"
    )
    start.add_argument(
        "--timestamp",
        type=_timestamp_ms,
        metavar="T",
        help="from the first record at or after it: epoch milliseconds, or ISO 8601 (UTC unless "
        "it says otherwise)",
    )
    parser.add_argument("--end-offset", type=_natural, metavar="O", help="stop before this offset")
    parser.add_argument("--max", type=_natural, metavar="N", help="at most N records")
    add_tier_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_true",
        help="one JSON object per record and line; bytes that aren't UTF-8 text come as "
        "key_base64, value_base64",
    )
    form.add_argument("--arrow", metavar="FILE", help="write an Arrow IPC stream; - is stdout")


def run(options: argparse.Namespace) -> int:
    """Read at the table's newest snapshot; the tier needn't be running."""
    reader = _open(options)
    span = {
        "offset": options.offset,
        "timestamp_ms": options.timestamp,
        "end_offset": options.end_offset,
    }
    if options.arrow is not None:
        batches = reader.batches(options.partition, **span)
        _write_arrow(options.arrow, reader.schema, _first_rows(batches, options.max))
        return OK
    found = 0
    for record in islice(reader.records(options.partition, **span), options.max):
        print(json.dumps(_plain(record)) if options.json else _line(record))
        found += 1
    if not found:
        end = reader.end_offset(options.partition)
        print(f"no such records; partition {options.partition} ends at {end}", file=sys.stderr)
    return OK


def _open(options: argparse.Namespace) -> OffsetReader:
    config = find_config(options)
    # Imported late: Arrow and Iceberg cost a second that a usage error shouldn't wait for.
    from tiering.offset_reader import OffsetReader
    from tiering.table.topic_tables import CatalogTables

    return OffsetReader.open(CatalogTables(config).catalog, config.namespace, options.topic)


def _write_arrow(target: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa

    try:
        sink: Any = sys.stdout.buffer if target == "-" else pa.OSFile(target, "wb")
    except OSError as error:
        raise BadInput(f"--arrow {target}: {error}") from error
    try:
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    finally:
        if target != "-":
            sink.close()


def _first_rows(batches: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    if rows is None:
        yield from batches
        return
    for batch in batches:
        if rows <= 0:
            return
        yield batch.slice(0, rows)
        rows -= batch.num_rows


def _plain(record: Record) -> dict[str, Any]:
    """As values for JSON."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        **_encoded("key", record.key),
        **_encoded("value", record.value),
        "headers": [{"key": key, **_encoded("value", value)} for key, value in record.headers],
    }


def _encoded(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _line(record: Record) -> str:
    headers = f"  {len(record.headers)} headers" if record.headers else ""
    at = _time(record.timestamp_ms)
    return f"{record.offset}  {at}  {_shown(record.key)}  {_shown(record.value)}{headers}"


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    if timestamp_ms > _LAST_DATE_MS:
        return f"{timestamp_ms} ms"
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:_SHOWN_BYTES])[1:]
    return text if len(data) <= _SHOWN_BYTES else f"{text}... ({len(data)} bytes)"


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _timestamp_ms(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither epoch milliseconds nor ISO 8601"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
