"""Pauses between tries: bounded, random, by an injected clock."""

from __future__ import annotations

from tiering.pacing import Pacing


def test_pauses_grow_to_their_bound() -> None:
    slept: list[float] = []
    pacing = Pacing(backoff_ms_min=10, backoff_ms_max=100, sleep=slept.append, chance=lambda: 0.5)
    for attempt in (1, 2, 3, 4, 1000):
        pacing.pause(attempt)
    assert slept == [0.010, 0.020, 0.040, 0.050, 0.050]


def test_patience_ends() -> None:
    pacing = Pacing(patience_ms=1000, clock=lambda: 11.0)
    assert not pacing.is_out_of_patience(10.5)
    assert pacing.is_out_of_patience(10.0)
