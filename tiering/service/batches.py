"""Stand-in until segment_reader provides serve_offset_index."""

from __future__ import annotations

import numpy as np

__all__ = ["serve_offset_index"]


def serve_offset_index(data: bytes) -> bytes:
    """Positions divided by four."""
    entries = np.frombuffer(data, dtype=">i4").reshape(-1, 2).copy()
    entries[:, 1] //= 4
    return entries.tobytes()
