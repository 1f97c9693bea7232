"""Every bound of the offset reader in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_LIMITS", "ReadLimits"]

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Bounds on what a reader holds, in bytes unless the name says otherwise.

    Attributes:
        batch_bytes: decoded bytes that one Arrow batch aims at.
        gather_bytes: decoded rows held at once while overlapping row groups are merged; a
            deeper overlap is read in several passes instead of in more memory.
        read_ahead_row_groups: row groups decoded in the background during a scan.
        read_ahead_bytes: decoded bytes that each of them may hold back.
        footer_bytes: Parquet footers kept, by their size in the files.
        open_files: data files kept open between reads.
        delete_files: delete files whose positions are kept.
    """

    batch_bytes: int = 4 * _MIB
    gather_bytes: int = 128 * _MIB
    read_ahead_row_groups: int = 2
    read_ahead_bytes: int = 64 * _MIB
    footer_bytes: int = 32 * _MIB
    open_files: int = 16
    delete_files: int = 64


DEFAULT_LIMITS: Final = ReadLimits()
