"""Values written with Protocol Buffers."""

from __future__ import annotations

from tiering.values.protobuf.codec import ProtobufCodec

__all__ = ["ProtobufCodec"]
