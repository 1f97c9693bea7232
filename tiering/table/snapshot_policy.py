"""How long a table's snapshots are kept: as its properties say it (Iceberg, "Table behavior")."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGE_MS",
    "AGE_MS_MIN",
    "AGE_PROPERTY",
    "SNAPSHOTS_KEPT",
    "SNAPSHOTS_KEPT_PROPERTY",
    "snapshot_properties",
]

AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
AGE_MS: Final = 600_000
"""What a table is made with. A tier commits up to once a second, and every commit writes all that
are kept; who reads the table as a stream needs them for as long as the reader may be away."""
AGE_MS_MIN: Final = 60_000
"""Nothing younger is expired, whatever the property says: its tierer may still look for it."""
SNAPSHOTS_KEPT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"
SNAPSHOTS_KEPT: Final = 100


def snapshot_properties() -> dict[str, str]:
    """The properties that a new table gets."""
    return {AGE_PROPERTY: str(AGE_MS), SNAPSHOTS_KEPT_PROPERTY: str(SNAPSHOTS_KEPT)}
