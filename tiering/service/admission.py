"""How many requests of a kind are worked on at once, in all and for one topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tiering.service.refusals import Refusal

__all__ = ["Admission"]


class Admission:
    """Slots for one kind of request; used from the event loop only, so it needs no lock."""

    def __init__(self, kind: str, *, total: int, per_topic: int, retry_after_s: int) -> None:
        self._kind = kind
        self._total = total
        self._per_topic = per_topic
        self._retry_after_s = retry_after_s
        self._by_topic: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        """Requests that hold a slot now."""
        return self._by_topic.total()

    @contextmanager
    def slot(self, topic_id: str) -> Iterator[None]:
        """Hold a slot, or raise Refusal 503 `busy` at once."""
        if self.in_flight >= self._total:
            raise self._busy(f"{self._total} {self._kind} requests are in flight")
        if self._by_topic[topic_id] >= self._per_topic:
            raise self._busy(f"topic {topic_id} has {self._per_topic} {self._kind} in flight")
        self._by_topic[topic_id] += 1
        try:
            yield
        finally:
            self._by_topic[topic_id] -= 1
            if not self._by_topic[topic_id]:
                del self._by_topic[topic_id]

    def _busy(self, why: str) -> Refusal:
        return Refusal(503, "busy", why, {"Retry-After": str(self._retry_after_s)})
