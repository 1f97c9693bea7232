"""Slots for requests, and the cache bounded by bytes."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tiering.service.admission import Admission
from tiering.service.bounded_cache import BoundedCache
from tiering.service.refusals import Refusal


def test_slots_in_all_and_per_topic() -> None:
    admission = Admission("GET", total=3, per_topic=2, retry_after_s=7)
    with ExitStack() as held:
        held.enter_context(admission.slot("a"))
        held.enter_context(admission.slot("a"))
        with pytest.raises(Refusal) as refusal, admission.slot("a"):
            pass
        assert (refusal.value.status, refusal.value.code) == (503, "busy")
        assert refusal.value.headers == {"Retry-After": "7"}
        held.enter_context(admission.slot("b"))
        with pytest.raises(Refusal), admission.slot("c"):
            pass
        assert admission.in_flight == 3
    assert admission.in_flight == 0


def test_a_slot_is_given_back_after_an_error() -> None:
    admission = Admission("PUT", total=1, per_topic=1, retry_after_s=1)
    with pytest.raises(RuntimeError), admission.slot("a"):
        raise RuntimeError
    with admission.slot("b"):
        assert admission.in_flight == 1


def test_the_cache_drops_what_was_unused_longest() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 4)
    assert cache.get("a") == "A"
    cache.put("c", "C", 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")
    assert cache.size_bytes == 8


def test_the_cache_counts_replaced_and_discarded_values() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10)
    cache.put("a", "A", 9)
    cache.put("a", "B", 3)
    assert (cache.get("a"), cache.size_bytes) == ("B", 3)
    cache.put("a", "too large", 11)
    assert (cache.get("a"), cache.size_bytes) == (None, 0)
    cache.discard("never there")
