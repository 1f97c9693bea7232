"""Avro's binary encoding (specification 1.12): payloads of one writer's schema <-> Arrow columns.

A schema becomes a small tree (`schema`), the tree a linear program (`program`), and two kernels,
which are compiled once for all schemas, run programs: `decoding` and `encoding`.
"""

from tiering.values.avro.codec import AvroCodec

__all__ = ["AvroCodec"]
