"""The benchmark's own arithmetic; it runs nothing that takes time and judges no machine."""

from __future__ import annotations

import pytest

from tests.benchmarks import report
from tests.benchmarks.rows import Row, of_processor
from tests.benchmarks.timing import Samples


def test_a_timed_step_notes_the_wall_and_the_processor() -> None:
    samples = Samples()
    assert samples.time_call("sum", lambda: sum(range(1000))) == 499_500
    with samples.step(name := ["unknown"]):
        name[0] = "sum"
    assert len(samples.by_name["sum"]) == len(samples.processor["sum"]) == 2


def test_processor_time_is_given_in_microseconds_of_one_operation() -> None:
    samples = Samples()
    samples.add("batch", 0.5, processor=0.002)
    samples.add("wall only", 0.5)
    assert samples.cpu("batch", operations=100) == pytest.approx(20.0)
    assert samples.cpu("wall only") is None


def test_a_row_is_written_with_its_processor_time_and_its_floors() -> None:
    row = Row(figure="f", name="n", value=3.0, unit="ms", floor=2.0, cpu=120.0, floor_cpu=40.0)
    (written,) = report.document([row], quick=False)["rows"]
    assert (written["cpu"], written["floor_cpu"], written["ratio"]) == (120.0, 40.0, 1.5)
    assert report.processor(row) == "120 µs (40 µs)"
    assert report.processor(Row(figure="f", name="n", value=3.0)) == ""


@pytest.mark.parametrize(("unit", "cpu"), [("µs", 2.0), ("ms", 2000.0), ("µs/KB", 2.0)])
def test_a_figure_that_is_processor_time_is_noted_as_such(unit: str, cpu: float) -> None:
    row = of_processor(Row(figure="f", name="n", value=2.0, unit=unit))
    assert (row.cpu, row.floor_cpu) == (cpu, None)
