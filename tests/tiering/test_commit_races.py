"""Tierers that race in earnest: processes and threads on one SQLite catalog file."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appends import NO_WAIT, Tier

from tiering.table.commit import append

ROUNDS = 6
PROCESSES = 3
STEP = 50


def race_to(tier: Tier, end: int, partitions: tuple[int, ...]) -> int:
    """Plan, convert and append until every partition stands at `end`; the number of landings."""
    landed = 0
    while True:
        state = tier.state()
        marks = {p: state.watermarks[p].offset if p in state.watermarks else 0 for p in partitions}
        moves = {p: offset + STEP for p, offset in marks.items() if offset < end}
        if not moves:
            return landed
        landed += len(append(tier.catalog, tier.plan(moves, state=state)).landed)


def test_processes_that_race_for_the_same_offsets_land_each_once(tmp_path: Path) -> None:
    """All start without a catalog file, so they race for making it and the table, too."""
    end = STEP * ROUNDS
    racers = [
        subprocess.Popen(
            [sys.executable, __file__, str(tmp_path), str(end)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    try:
        outputs = [racer.communicate(timeout=120)[0] for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    assert [racer.returncode for racer in racers] == [0] * PROCESSES
    tier = Tier.open(tmp_path)
    for partition in (0, 1):
        assert tier.offsets(partition) == list(range(end))
    assert sum(int(o) for o in outputs) == 2 * ROUNDS
    assert tier.marks() == {0: end, 1: end}
    assert len(tier.referenced_files()) == 2 * ROUNDS


def test_threads_on_one_catalog_with_partitions_of_their_own_all_land(tmp_path: Path) -> None:
    tier = Tier.open(tmp_path)
    tier.ensure()
    end = STEP * ROUNDS
    with ThreadPoolExecutor(4) as pool:
        landings = list(pool.map(lambda p: race_to(tier, end, (p,)), range(4)))
    assert landings == [ROUNDS] * 4
    assert all(tier.offsets(p) == list(range(end)) for p in range(4))


def test_many_tierers_with_the_same_plan_at_the_same_instant(tmp_path: Path) -> None:
    tier = Tier.open(tmp_path)
    tier.ensure()
    plans = [tier.plan({0: 100, 1: 100}) for _ in range(4)]
    barrier = threading.Barrier(len(plans))

    def go(index: int) -> int:
        own = Tier.open(tmp_path)
        barrier.wait(30)
        return len(append(own.catalog, plans[index], pacing=NO_WAIT).landed)

    with ThreadPoolExecutor(len(plans)) as pool:
        landings = sorted(pool.map(go, range(len(plans))))
    assert landings == [0, 0, 0, 2]
    assert tier.offsets(0) == tier.offsets(1) == list(range(100))


if __name__ == "__main__":
    racing = Tier.open(Path(sys.argv[1]))
    racing.ensure()
    sys.stdout.write(str(race_to(racing, int(sys.argv[2]), (0, 1))))
