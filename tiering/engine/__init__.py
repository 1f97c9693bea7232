"""The engine: from native segments to proven table rows, one restartable loop."""

from tiering.engine.cycle import CycleReport, Engine
from tiering.engine.ports import Custody, Segments, Tables

__all__ = ["Custody", "CycleReport", "Engine", "Segments", "Tables"]
