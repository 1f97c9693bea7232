"""The engine: from native segments to proven table rows, one restartable loop."""

from tiering.engine.conversion import ValueCounts
from tiering.engine.cycle import CycleReport, Engine
from tiering.engine.ports import Custody, Schemas, Segments, Tables

__all__ = ["Custody", "CycleReport", "Engine", "Schemas", "Segments", "Tables", "ValueCounts"]
