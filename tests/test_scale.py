"""The simulation behind docs/explanation/scale.md, and that the page says what was measured."""

from __future__ import annotations

import pytest

from tests.benchmarks.scale import measure, page
from tests.benchmarks.scale.points import Calibration, Round
from tests.benchmarks.scale.queueing import Costs, Shape, carried, simulate

COSTS = Costs(
    client_call=10e-6,
    client_append=5e-6,
    server_call=20e-6,
    server_append=10e-6,
    flush=100e-6,
    flush_append=0.0,
)


def test_an_append_that_meets_nobody_takes_the_sum_of_its_parts() -> None:
    outcome = simulate(10.0, Shape(processes=1, client_cores=1, server_cores=1), COSTS, 2_000)
    assert outcome.p50 == pytest.approx(145e-6, rel=1e-6)
    assert outcome.mean_batch == pytest.approx(1.0, abs=0.01)


def test_a_replica_adds_its_disk_and_a_round_trip_of_its_own() -> None:
    alone = Shape(processes=1, client_cores=1, server_cores=1, round_trip=1e-3)
    outcome = simulate(10.0, alone._replace(replica=True), COSTS, 2_000)
    assert outcome.p50 == pytest.approx(245e-6 + 2e-3, rel=1e-6)
    assert simulate(10.0, alone, COSTS, 2_000).p50 == pytest.approx(145e-6 + 1e-3, rel=1e-6)


def test_appends_that_wait_share_a_commit() -> None:
    shape = Shape(processes=1, client_cores=1, server_cores=1)
    # Alone, a commit each, one process would do some 6,900 a second.
    outcome = simulate(20_000.0, shape, COSTS)
    assert outcome.done == pytest.approx(20_000, rel=0.05)
    assert outcome.mean_batch > 2
    assert simulate(20_000.0, shape._replace(batch=1), COSTS).done < 8_000


def test_processes_share_the_disk_but_a_lone_disk_is_never_more_than_busy() -> None:
    outcome = simulate(30_000.0, Shape(processes=20, client_cores=20, server_cores=8), COSTS)
    assert outcome.done == pytest.approx(30_000, rel=0.05)
    assert 0.9 < outcome.disk_busy <= 1.0


def test_what_is_carried_is_what_the_cores_allow() -> None:
    # A core of the server does an append in 10 µs when the call's share of it is small.
    found = carried(Shape(processes=50, client_cores=50, server_cores=1), COSTS)
    assert 60_000 < found < 100_000


def test_costs_are_the_line_through_one_append_and_many() -> None:
    one = Round(1, wall=400e-6, client=60e-6, server=90e-6)
    many = Round(101, wall=4.6e-3, client=1.06e-3, server=2.09e-3)
    costs = Calibration("any", one, many).costs()
    assert costs.client_append == pytest.approx(10e-6)
    assert costs.client_call == pytest.approx(50e-6)
    assert costs.server_append == pytest.approx(20e-6)
    assert costs.server_call == pytest.approx(70e-6)
    assert costs.flush == pytest.approx(250e-6)
    assert costs.flush_append == pytest.approx(12e-6)


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_last_measurement() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, measure.read()) == text
    assert set(page.TABLES) == {block[2] for block in page.BLOCK.finditer(text)}
