"""The rival, a program of its own: Spark's Kafka source, appended to an Iceberg table.

Runs under another Python, with PySpark 4.0 and nothing of Onecopy. Each line of standard input is
one JSON object with `do` and `table`: "create" it, "append" to it all records of `topic` below
`ends` ({partition: offset}), "count" what it holds, "drop" it. With `avro`, a schema's text, the
values behind their prefix become `columns` ({name: type}). Each is answered by a line of JSON once
it is done; a line before all others says that the session is up.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession, functions
from pyspark.sql.avro.functions import from_avro

_PREFIX_BYTES = 5
_COLUMNS = {
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "key": "BINARY",
    "value": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


def main() -> None:
    """Serve one request after the other."""
    settings: dict[str, str] = json.loads(sys.argv[1])
    bootstrap_servers = settings.pop("bootstrap_servers")
    builder = SparkSession.builder.appName("rival")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _say({"ready": session.version})
    for line in sys.stdin:
        request = json.loads(line)
        table = request["table"]
        if request["do"] == "create":
            wanted = {**_COLUMNS, **request.get("columns", {})}
            if "avro" in request:
                del wanted["value"]
            columns = ", ".join(f"{name} {kind}" for name, kind in wanted.items())
            session.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
            _say({})
        elif request["do"] == "append":
            _append(session, bootstrap_servers, request)
            _say({})
        elif request["do"] == "count":
            _say(_counts(session, table))
        else:
            session.sql(f"DROP TABLE {table} PURGE")
            _say({})
    session.stop()


def _append(session: SparkSession, bootstrap_servers: str, request: dict[str, Any]) -> None:
    source = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", request["topic"])
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps({request["topic"]: request["ends"]}))
        .option("includeHeaders", "true")
    )
    rows = source.load()
    if "avro" not in request:
        rows.select(*_COLUMNS).writeTo(request["table"]).append()
        return
    payload = functions.substring("value", _PREFIX_BYTES + 1, 2**31 - 1)
    decoded = rows.withColumn("event", from_avro(payload, request["avro"]))
    kept = [name for name in _COLUMNS if name != "value"]
    decoded.select(*kept, "event.*").writeTo(request["table"]).append()


def _counts(session: SparkSession, table: str) -> dict[str, int]:
    [(rows,)] = session.sql(f"SELECT count(*) FROM {table}").collect()
    [(files, stored)] = session.sql(
        f"SELECT count(*), sum(file_size_in_bytes) FROM {table}.files"
    ).collect()
    return {"rows": rows, "files": files, "file_bytes": stored}


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
