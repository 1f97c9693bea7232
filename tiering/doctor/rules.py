"""Judges an existing Kafka's settings: what is wrong for the tier, what it costs, what to set.

The rules are pure functions over settings as Kafka reports them (name -> text). Kafka is asked in
`tiering.doctor.broker_facts`. Sources: Kafka's broker and topic configuration reference, KIP-405.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from segment_reader.limits import DEFAULT_LIMITS
from tiering.broker_plugin import PLUGIN_CLASS

__all__ = ["Finding", "Level", "PartitionOffsets", "examine_broker", "examine_topic", "is_tiered"]

Settings = Mapping[str, str | None]

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_MIB: Final = 1024 * 1024
_UNLIMITED: Final = 2**63 - 1

_TASK_INTERVAL_MS_MAX: Final = 5 * _SECOND
_FETCH_WAIT_MS_MIN: Final = 500
_THREADS_MIN: Final = 2
_INDEX_CACHE_BYTES_MIN: Final = 64 * _MIB
_RETENTION_CHECK_MS_MAX: Final = 5 * _MINUTE
_TRANSACTION_MS_MAX: Final = 15 * _MINUTE
_SEGMENT_MS_LOW: Final = 5 * _SECOND
_SEGMENT_MS_HIGH: Final = 10 * _MINUTE
_SEGMENT_BYTES_LOW: Final = 16 * _MIB


class Level(StrEnum):
    """How bad it is: `error` stops tiering, `warn` costs something, `ok` is as it should be."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One setting of one subject (`broker 1`, `topic orders`).

    Attributes:
        means: what the value does, and costs.
        advice: what to set; empty when nothing need be.
    """

    level: Level
    subject: str
    setting: str
    value: str | None
    means: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """One partition's last stable offset, and the end of its log."""

    partition: int
    stable: int
    end: int


def is_tiered(topic: Settings) -> bool:
    """Whether tiering is on for a topic."""
    return topic.get("remote.storage.enable") == "true"


def examine_broker(broker_id: int, settings: Settings) -> list[Finding]:
    """Judge one broker's settings."""
    look = _Look(f"broker {broker_id}", settings)
    if not look.flag("remote.log.storage.system.enable"):
        return [
            look.error(
                "remote.log.storage.system.enable",
                "tiered storage is off: this broker hands no segment to any tier",
                "true, with the other settings that `onecopy plugin-path` prints; then restart it",
            )
        ]
    rules = (_plugin, _task_interval, _fetch_wait, _threads, _index_cache, _broker_times, _quotas)
    return [finding for rule in rules for finding in rule(look)]


def examine_topic(
    name: str, settings: Settings, offsets: Iterable[PartitionOffsets] = ()
) -> list[Finding]:
    """Judge one topic's settings (with the broker's defaults in them) and its transactions."""
    look = _Look(f"topic {name}", settings)
    rules = (_tiering, _cleanup, _roll, _segment_bytes, _local_retention, _message_size)
    findings = [finding for rule in rules for finding in rule(look)]
    return findings + list(_transactions(look, offsets))


class _Look:
    """One subject's settings, and the making of findings about them."""

    def __init__(self, subject: str, settings: Settings) -> None:
        self.subject = subject
        self._settings = settings

    def text(self, setting: str) -> str | None:
        return self._settings.get(setting)

    def flag(self, setting: str) -> bool:
        return self.text(setting) == "true"

    def number(self, setting: str) -> int | None:
        """None where the broker doesn't report it."""
        try:
            return int(self.text(setting) or "")
        except ValueError:
            return None

    def ok(self, setting: str, means: str) -> Finding:
        return self._finding(Level.OK, setting, means, "")

    def warn(self, setting: str, means: str, advice: str) -> Finding:
        return self._finding(Level.WARN, setting, means, advice)

    def error(self, setting: str, means: str, advice: str) -> Finding:
        return self._finding(Level.ERROR, setting, means, advice)

    def _finding(self, level: Level, setting: str, means: str, advice: str) -> Finding:
        return Finding(
            level=level,
            subject=self.subject,
            setting=setting,
            value=self.text(setting),
            means=means,
            advice=advice,
        )


def _plugin(look: _Look) -> Iterator[Finding]:
    setting = "remote.log.storage.manager.class.name"
    if look.text(setting) != PLUGIN_CLASS:
        yield look.error(
            setting, "segments go to another tier, not to Onecopy", f"{PLUGIN_CLASS}; restart it"
        )
    else:
        yield look.ok(setting, "segments go to Onecopy")
    setting = "remote.log.metadata.manager.listener.name"
    if not look.text(setting):
        yield look.warn(
            setting,
            "the broker doesn't know how to reach the topic in which it keeps segment states, "
            "unless that is set below rlmm.config.",
            "the name of a listener that this broker can reach itself by, for example PLAINTEXT",
        )


def _task_interval(look: _Look) -> Iterator[Finding]:
    setting = "remote.log.manager.task.interval.ms"
    interval = look.number(setting)
    if interval is None:
        return
    means = (
        f"a rolled segment waits {_duration(interval // 2)} on average and {_duration(interval)} "
        "at most before it is copied: so much later is it in the table"
    )
    if interval > _TASK_INTERVAL_MS_MAX:
        yield look.warn(setting, means, "1000, if the table should be fresher")
    else:
        yield look.ok(setting, means)


def _fetch_wait(look: _Look) -> Iterator[Finding]:
    setting = "remote.fetch.max.wait.ms"
    wait = look.number(setting)
    if wait is None:
        return
    means = (
        f"a read from the tier that takes more than {_duration(wait)} is thrown away, and the "
        "consumer asks again"
    )
    if wait < _FETCH_WAIT_MS_MIN:
        yield look.warn(setting, means, "500 (the default) or more")
    else:
        yield look.ok(setting, means)


def _threads(look: _Look) -> Iterator[Finding]:
    for setting, work in (
        ("remote.log.manager.copier.thread.pool.size", "copies to the tier"),
        ("remote.log.reader.threads", "reads from the tier"),
    ):
        threads = look.number(setting)
        if threads is None:
            continue
        means = f"this broker makes {threads} {work} at a time, over all topics"
        if threads < _THREADS_MIN:
            yield look.warn(setting, f"{means}: one slow one stops all others", "10 (the default)")
        else:
            yield look.ok(setting, means)


def _index_cache(look: _Look) -> Iterator[Finding]:
    setting = "remote.log.index.file.cache.total.size.bytes"
    size = look.number(setting)
    if size is None:
        return
    means = f"the broker keeps up to {size // _MIB} MiB of the tier's indexes on its disk"
    if size < _INDEX_CACHE_BYTES_MIN:
        yield look.warn(setting, f"{means}: seeks into history fetch them again", f"{1024 * _MIB}")
    else:
        yield look.ok(setting, means)


def _broker_times(look: _Look) -> Iterator[Finding]:
    setting = "log.retention.check.interval.ms"
    interval = look.number(setting)
    if interval is not None and interval > _RETENTION_CHECK_MS_MAX:
        yield look.warn(
            setting,
            f"local segments stay up to {_duration(interval)} longer than they must",
            f"{_RETENTION_CHECK_MS_MAX}",
        )
    setting = "transaction.max.timeout.ms"
    longest = look.number(setting)
    if longest is None:
        return
    means = (
        "Kafka copies no segment beyond an open transaction: a producer that hangs holds back "
        f"its partitions' tier and table for up to {_duration(longest)}"
    )
    if longest > _TRANSACTION_MS_MAX:
        yield look.warn(setting, means, f"{_TRANSACTION_MS_MAX} (the default) or less")
    else:
        yield look.ok(setting, means)


def _quotas(look: _Look) -> Iterator[Finding]:
    for setting, work in (
        ("remote.log.manager.copy.max.bytes.per.second", "copies to the tier"),
        ("remote.log.manager.fetch.max.bytes.per.second", "reads from the tier"),
    ):
        limit = look.number(setting)
        if limit is not None and limit < _UNLIMITED:
            yield look.warn(
                setting,
                f"all {work} of this broker together get at most {limit / _MIB:.1f} MiB/s",
                "more than the topics' produce rate, or nothing",
            )


def _tiering(look: _Look) -> Iterator[Finding]:
    setting = "remote.storage.enable"
    if not look.flag(setting):
        yield look.error(setting, "this topic is not tiered: it gets no table", "true")
        return
    yield look.ok(setting, "this topic is tiered")
    setting = "remote.log.copy.disable"
    if look.flag(setting):
        yield look.error(setting, "nothing more is copied to the tier", "false")


def _cleanup(look: _Look) -> Iterator[Finding]:
    setting = "cleanup.policy"
    if "compact" in (look.text(setting) or ""):
        yield look.error(
            setting,
            "Kafka doesn't tier compacted topics",
            "delete (set when the topic is made; a compacted topic has to be copied to a new one)",
        )


def _roll(look: _Look) -> Iterator[Finding]:
    setting = "segment.ms"
    roll = look.number(setting)
    if roll is None:
        return
    rule = "It goes by record timestamps, and only the next append rolls."
    if roll > _SEGMENT_MS_HIGH:
        yield look.warn(
            setting,
            f"a record may take {_duration(roll)} to come into the table, unless segment.bytes "
            f"fills a segment sooner. {rule}",
            "10000 to 60000",
        )
    elif roll < _SEGMENT_MS_LOW:
        yield look.warn(
            setting,
            f"fresh, at up to {_DAY // max(roll, 1):,} segments and small files a day in each "
            f"partition. {rule}",
            "10000 to 60000, unless seconds count",
        )
    else:
        yield look.ok(
            setting, f"a record comes into the table {_duration(roll)} late at most. {rule}"
        )


def _segment_bytes(look: _Look) -> Iterator[Finding]:
    setting = "segment.bytes"
    size = look.number(setting)
    if size is None:
        return
    if size < _SEGMENT_BYTES_LOW:
        yield look.warn(
            setting,
            f"a new segment, and a small file, every {size / _MIB:.1f} MiB at the latest",
            f"{128 * _MIB} or more; segment.ms keeps the table fresh",
        )
    else:
        yield look.ok(setting, f"segments, and their files, come from up to {size // _MIB} MiB")


def _local_retention(look: _Look) -> Iterator[Finding]:
    kept = {name: look.number(name) for name in ("local.retention.ms", "local.retention.bytes")}
    kept_ms, kept_bytes = kept.values()
    if kept_ms is None or kept_bytes is None:
        return
    if kept_ms == -2 and kept_bytes == -2:
        yield look.warn(
            "local.retention.ms",
            "-2 is the topic's whole retention: the broker's disk keeps everything that the tier "
            "has, too",
            f"{_HOUR} (1 h), or what your consumers usually lag behind",
        )
        return
    shown = [f"{_duration(kept_ms)}"] if kept_ms >= 0 else []
    shown += [f"{kept_bytes // _MIB} MiB"] if kept_bytes >= 0 else []
    yield look.ok(
        "local.retention.ms" if kept_ms != -2 else "local.retention.bytes",
        f"the broker's disk keeps {' or '.join(shown) or 'everything'}, the tier the rest",
    )


def _message_size(look: _Look) -> Iterator[Finding]:
    setting = "max.message.bytes"
    size, largest = look.number(setting), DEFAULT_LIMITS.batch_bytes_max
    if size is not None and size > largest:
        yield look.warn(
            setting,
            f"a batch of more than {largest // _MIB} MiB can't be converted: its segment would be "
            "put in quarantine",
            f"{largest} or less",
        )


def _transactions(look: _Look, offsets: Iterable[PartitionOffsets]) -> Iterator[Finding]:
    for each in offsets:
        if each.stable < each.end:
            yield look.warn(
                f"partition {each.partition}",
                f"a transaction is open since offset {each.stable}: {each.end - each.stable} "
                "offsets wait for its end, in the tier as in read_committed consumers",
                "nothing if it ends soon; else find it with Kafka's `kafka-transactions.sh "
                "find-hanging` and abort it",
            )


def _duration(ms: int) -> str:
    """90000 -> '1.5 min'."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s")):
        if ms >= unit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms} ms"
