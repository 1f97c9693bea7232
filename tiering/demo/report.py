"""The demonstration's report as tables for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_report"]


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """Print sizes, the readings with their digests, SQL results, and seconds per stage."""
    topics: Mapping[str, Mapping[str, Any]] = report["topics"]
    for table in (_sizes(topics), _readings(topics), _sql(topics), _seconds(report["seconds"])):
        console.print(table)
    served = report["bytes_served_from_tier"] / 1e6
    segments = sum(topic["segments"] for topic in topics.values())
    retired = sum(topic["retired"] for topic in topics.values())
    console.print(
        f"{retired} of {segments} segments were proven and retired; "
        f"native bytes left in the tier: {report['native_bytes_left']}."
    )
    console.print(
        f"The stock consumer was served {served:.1f} MB out of the Parquet files, byte for byte "
        "what was produced. Nothing was consumed through the Kafka API to build the tables."
    )
    verdict = "EQUAL: all readings agree" if report["equal"] else "DIFFERENT: readings disagree"
    console.print(verdict, style="bold green" if report["equal"] else "bold red")


def _sizes(topics: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(
        "topic",
        "produced (aborted ones, too)",
        "segments",
        "left on broker",
        "native MB",
        "files",
        "Parquet MB",
        "side MB",
        "(Parquet + side) / native",
        title="The tier",
    )
    for name, topic in topics.items():
        table.add_row(
            name,
            f"{topic['produced']:,}",
            str(topic["segments"]),
            f"{topic['local_segments']} ({topic['local_bytes']} bytes)",
            f"{topic['native_bytes'] / 1e6:.1f}",
            str(topic["files"]),
            f"{topic['table_bytes'] / 1e6:.1f}",
            f"{topic['side_bytes'] / 1e6:.2f}",
            f"{(topic['table_bytes'] + topic['side_bytes']) / topic['native_bytes']:.2f}",
        )
    return table


def _readings(topics: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(
        "topic",
        "read as",
        "records",
        "SHA-256",
        title="The same history: as acknowledged, and read in three ways",
    )
    for name, topic in topics.items():
        for way, (records, digest) in topic["readings"].items():
            table.add_row(name, way, f"{records:,}", digest[:32])
        table.add_section()
    return table


def _sql(topics: Mapping[str, Mapping[str, Any]]) -> Table:
    first = next(iter(topics.values()))["sql"]["duckdb"]
    table = Table("topic", "engine", *first, title="SQL on the same files")
    for name, topic in topics.items():
        for engine, figures in topic["sql"].items():
            table.add_row(name, engine, *(f"{value:,}" for value in figures.values()))
        table.add_section()
    return table


def _seconds(seconds: Mapping[str, float]) -> Table:
    table = Table("stage", "seconds", title="Time")
    for stage, value in seconds.items():
        table.add_row(stage, f"{value:.1f}")
    return table
