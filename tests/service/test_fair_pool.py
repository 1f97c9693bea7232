"""The pool's turns: one topic's many calls must not make another topic wait for all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tiering.service.fair_pool import FairPool

BOUND_S = 20.0


@pytest.fixture
def pool() -> Iterator[FairPool]:
    made = FairPool(2, "test")
    yield made
    made.close()


def test_results_and_errors_reach_whoever_waits(pool: FairPool) -> None:
    def fail() -> int:
        raise ValueError("no")

    good, bad = pool.submit("a", lambda: 3), pool.submit("a", fail)
    assert good.result(BOUND_S) == 3
    with pytest.raises(ValueError, match="no"):
        bad.result(BOUND_S)
    assert pool.submit("a", lambda: 4).result(BOUND_S) == 4


def test_a_busy_group_leaves_a_thread_to_the_others(pool: FairPool) -> None:
    gate = threading.Event()
    slow = [pool.submit("slow", lambda: gate.wait(BOUND_S)) for _ in range(50)]
    assert pool.submit("quick", lambda: "done").result(BOUND_S) == "done"
    assert not any(future.done() for future in slow)
    gate.set()
    assert all(future.result(BOUND_S) for future in slow)


def test_groups_take_turns_however_many_calls_one_has() -> None:
    pool = FairPool(1, "single")
    begun, gate = threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        begun.set()
        gate.wait(BOUND_S)

    pool.submit("many", hold)
    assert begun.wait(BOUND_S)
    calls = [pool.submit("many", lambda: order.append("many")) for _ in range(10)]
    calls.append(pool.submit("few", lambda: order.append("few")))
    gate.set()
    for call in calls:
        call.result(BOUND_S)
    pool.close()
    assert order.index("few") <= 1
    assert len(order) == 11


def test_what_had_not_begun_is_cancelled_at_the_end() -> None:
    pool = FairPool(1, "ending")
    begun, gate = threading.Event(), threading.Event()

    def hold() -> str:
        begun.set()
        gate.wait(BOUND_S)
        return "held"

    running = pool.submit("a", hold)
    assert begun.wait(BOUND_S)
    waiting = pool.submit("a", lambda: "never")
    pool.close()
    assert waiting.cancelled()
    assert pool.submit("a", lambda: "late").cancelled()
    gate.set()
    assert running.result(BOUND_S) == "held"
