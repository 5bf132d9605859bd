"""The benchmark's own arithmetic; it runs nothing that takes time and judges no machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import appending, peers, report
from tests.benchmarks.report import Run
from tests.benchmarks.rows import Better, Row, combined, in_order, target
from tests.benchmarks.timing import Place, Samples


def test_a_step_notes_wall_and_processor_and_a_row_is_written_with_them_and_its_floors() -> None:
    samples = Samples()
    assert samples.time_call("sum", lambda: sum(range(1000))) == 499_500
    with samples.step("sum"):
        pass
    assert len(samples.by_name["sum"]) == len(samples.processor["sum"]) == 2
    samples.add("batch", 0.5, processor=0.002)
    samples.add("wall only", 0.5)
    assert samples.cpu("batch", operations=100) == pytest.approx(20.0)
    assert samples.cpu("wall only") is None
    row = Row(figure="f", name="n", value=3.0, unit="ms", floor=2.0, cpu=120.0, floor_cpu=40.0)
    (written,) = report.document([row], quick=False)["rows"]
    assert (written["cpu"], written["floor_cpu"], written["ratio"]) == (120.0, 40.0, 1.5)
    assert report.processor(row) == "120 µs (40 µs)"
    assert report.processor(Row(figure="f", name="n", value=3.0)) == ""


# -- repeats and comparisons -----------------------------------------------------------------------


def _runs(*values: float, name: str = "n", **options: Any) -> list[list[Row]]:
    return [[Row(figure="f", name=name, value=one, unit="µs", **options)] for one in values]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Run]:
    def make(repeats: list[list[Row]], quick: bool = False) -> Run:
        path = tmp_path / "run.json"
        report.write(path, report.document(combined(repeats), quick, len(repeats)))
        return report.read(path)

    return make


def test_a_repeated_row_is_the_median_of_those_and_keeps_what_each_repeat_measured(
    written: Callable[..., Run],
) -> None:
    run = written(_runs(3.0, 9.0, 4.0, floor=2.0))
    (row,) = run.rows
    assert (run.repeats, row.value, row.floor, row.ratio) == (3, 4.0, 2.0, 2.0)
    assert [one.value for one in row.samples] == [3.0, 9.0, 4.0]
    some = written([*_runs(1.0), *_runs(5.0, name="that compact"), *_runs(2.0)])
    assert [(row.name, row.value) for row in some.rows] == [("n", 1.5), ("that compact", 5.0)]
    first, second = _runs(1.0, 2.0)  # rows of one name are told apart by their order
    assert [row.value for row in combined([[*first, *second], [*first, *second]])] == [1.0, 2.0]


def test_a_change_is_beyond_noise_where_no_repeats_of_both_runs_overlap(
    written: Callable[..., Run],
) -> None:
    for old, new, verdict in [
        ((100, 101, 99, 102), (90, 91, 89, 98), "yes"),
        ((90, 91, 89, 98), (100, 101, 99, 102), "yes"),
        ((100, 120, 90, 110), (98, 118, 92, 105), "no"),
        ((100, 101, 99, 102), (90, 91, 89, 99), "no"),
        ((100, 101, 102), (10, 11, 12), "too few repeats"),
        ((100,), (10,), "too few repeats"),
    ]:
        (change,) = report.compare(written(_runs(*old)), written(_runs(*new))).changes
        assert change.beyond_noise == verdict
    for before, after, shift in [(100, 90, "-10.0%"), (-4, 4, "+200.0%"), (0, 4, "+4 µs")]:
        (change,) = report.compare(written(_runs(before)), written(_runs(after))).changes
        assert change.shift == shift, "a share of the median before"


def test_rows_are_compared_and_what_runs_differ_in_is_said(written: Callable[..., Run]) -> None:
    before = written(_runs(100, 101, 99, 100, floor=50))
    (change,) = report.compare(before, written(_runs(200, 202, 198, 200, floor=100))).changes
    assert (change.what, change.before) == ("ratio", [2.0, 2.02, 1.98, 2.0])
    assert change.before == change.after
    run = written([*_runs(1.0, cpu=5.0), *_runs(1.0, cpu=6.0)])
    assert [one.what for one in report.compare(run, run).changes] == ["value", "processor time"]
    before, after = written(_runs(1, name="gone")), written(_runs(1, name="new"), quick=True)
    after.machine["python"] = "4.0"
    found = report.compare(before, after)
    assert [row.name for row in found.only_before] == ["gone"]
    assert [row.name for row in found.only_after] == ["new"]
    assert any("quick" in one for one in found.remarks)
    assert any(one.startswith("Another python") for one in found.remarks)


def test_another_machine_is_said_where_its_own_floors_moved(written: Callable[..., Run]) -> None:
    def of(*values: float) -> list[list[Row]]:
        return [[Row(figure=appending.MACHINE, name=appending.LOOP, value=one)] for one in values]

    before, after = written(of(1, 2, 3, 4)), written(of(11, 12, 13, 14))
    assert any("The machine differs" in one for one in report.compare(before, after).remarks)
    assert report.compare(before, before).remarks == []


def test_a_figure_is_slower_by_more_than_a_tenth_unless_that_is_noise(
    written: Callable[..., Run],
) -> None:
    cases: list[tuple[Better, Any, Any, bool]] = [
        ("less", (100,) * 4, (111,) * 4, True),
        ("less", (100,) * 4, (109,) * 4, False),
        ("less", (100,) * 4, (50,) * 4, False),
        ("more", (100,) * 4, (80,) * 4, True),
        ("more", (100,) * 4, (200,) * 4, False),
        ("less", (100, 100, 100, 130), (120, 120, 120, 120), False),
        ("less", (100,), (120,), True),
    ]
    for better, old, new, is_slower in cases:
        runs = [written(_runs(*values, better=better)) for values in (old, new)]
        (change,) = report.compare(*runs).changes
        assert change.is_slower is is_slower


# -- the table -------------------------------------------------------------------------------------


def test_targets_come_first_and_in_their_own_order() -> None:
    disk, start = Row(figure="disk", name="d"), Row(figure="start", name="s")
    rows = [disk, target("mcp", 1.0), start, target("cycle 20", 3.0, 2.0)]
    cycle, mcp, *others = in_order(rows)
    assert others == [disk, start]
    assert (cycle.target, cycle.met) == ("≤ 1.6 ×", True)
    assert (mcp.target, mcp.met) == ("≤ 0.5 s", False)


def test_the_pages_table_has_a_dash_for_what_was_not_measured(written: Callable[..., Run]) -> None:
    run = written([[target("import", 40.0)]])
    lines = report.page_table(run).splitlines()
    assert len(lines) == 12
    assert {len(line.split(" | ")) for line in lines} == {len(peers.PEERS) + 2}
    assert [line for line in lines if "40 ms/MB" in line] != []
    assert sum("–" in line for line in lines) == 9
    text = "# A page\n\n| old |\n| --- |\n\nWords.\n\n| another |\n"
    assert report.with_table(text, run) == text.replace("| old |\n| --- |", report.page_table(run))


# -- neighbours ------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_neighbour_takes_steps_in_its_own_process_or_says_why_not(tmp_path: Path) -> None:
    nobody = peers.Peer("a library that nobody has", "nobody")
    with Place(tmp_path, quick=True) as place:
        async with peers.started(place, peers.OURS, length=10) as process:
            assert await process.take("append", 3) == 3
            assert await process.take("load") == await process.take("prepare") == 1
        async with peers.started(place, nobody, length=10) as missing:
            assert "nobody" in missing.missing
    assert [len(process.samples.processor[step]) for step in peers.KEYS] == [3, 1, 1]


@pytest.mark.parametrize("found", [None, b"", b'{"rows": [', b"[]", b'{"rows": 5}'])
def test_a_file_that_is_no_run_is_told_in_one_line(tmp_path: Path, found: bytes | None) -> None:
    path = tmp_path / "run.json"
    if found is not None:
        path.write_bytes(found)
    with pytest.raises(SystemExit, match="expected the JSON of a run"):
        report.read(path)
