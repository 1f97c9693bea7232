"""The engine's heartbeat: one small object in the store that says what it did and what stops it."""

from __future__ import annotations

import json
from typing import Any, Final

from tiering.errors import NotFound
from tiering.store import ObjectStore

__all__ = ["HEARTBEAT_KEY", "read_heartbeat"]

HEARTBEAT_KEY: Final = "engine/heartbeat.json"
"""Object that the engine rewrites as it works; `/metrics` and `status` read it."""


def read_heartbeat(store: ObjectStore) -> dict[str, Any]:
    """The engine's last heartbeat, empty when it never wrote one."""
    try:
        raw = json.loads(store.get(HEARTBEAT_KEY).data)
    except (NotFound, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}
