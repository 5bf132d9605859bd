"""The benchmark's own arithmetic; it runs nothing that takes time and judges no machine."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.benchmarks import comparing, machine, report
from tests.benchmarks.blocks import filled
from tests.benchmarks.growing import by_length
from tests.benchmarks.page import kept, plots, tables
from tests.benchmarks.page.__main__ import PAGES
from tests.benchmarks.peers import compared
from tests.benchmarks.place import Place
from tests.benchmarks.profile import flame, stacks
from tests.benchmarks.profile import page as profile_page
from tests.benchmarks.profile.work import ADD, COMPACTING, PLAIN, Spent
from tests.benchmarks.repeats import combined
from tests.benchmarks.report import Run
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


# -- repeats and comparisons -----------------------------------------------------------------------


def _runs(*values: float, name: str = "n", floor: float | None = None) -> list[list[Row]]:
    return [[Row(figure="f", name=name, value=one, unit="µs", floor=floor)] for one in values]


def _written(folder: Path, repeats: list[list[Row]], quick: bool = False) -> Run:
    """The run as a file holds it."""
    path = folder / "run.json"
    report.write(path, report.document(combined(repeats), quick, len(repeats)))
    return report.read(path)


def test_a_repeated_row_is_the_median_and_keeps_what_each_repeat_measured(tmp_path: Path) -> None:
    run = _written(tmp_path, _runs(3.0, 9.0, 4.0, floor=2.0))
    (row,) = run.rows
    assert (run.repeats, row.value, row.floor, row.ratio) == (3, 4.0, 2.0, 2.0)
    assert [one.value for one in row.samples] == [3.0, 9.0, 4.0]


def test_a_row_that_only_some_repeats_have_is_the_median_of_those(tmp_path: Path) -> None:
    repeats = [*_runs(1.0), *_runs(5.0, name="that compact"), *_runs(2.0)]
    assert [(row.name, row.value) for row in _written(tmp_path, repeats).rows] == [
        ("n", 1.5),
        ("that compact", 5.0),
    ]


def test_rows_of_one_name_are_told_apart_by_their_order() -> None:
    first, second = _runs(1.0, 2.0)
    assert [row.value for row in combined([[*first, *second], [*first, *second]])] == [1.0, 2.0]


def test_a_change_beyond_the_spread_of_repeats_is_beyond_noise(tmp_path: Path) -> None:
    before = _written(tmp_path, _runs(100, 101, 99, 102, 98))
    after = _written(tmp_path, _runs(90, 91, 89, 92, 88))
    (change,) = comparing.compare(before, after).changes
    assert (change.before, change.after, change.shift.middle) == (100, 90, -10)
    assert -14 <= change.shift.low < change.shift.high <= -6
    assert change.shift.beyond_noise == "yes"


def test_a_change_within_the_spread_of_repeats_is_not(tmp_path: Path) -> None:
    before = _written(tmp_path, _runs(100, 120, 90, 110, 95))
    after = _written(tmp_path, _runs(98, 118, 92, 105, 97))
    (change,) = comparing.compare(before, after).changes
    assert change.shift.beyond_noise == "no"


def test_without_repeats_nothing_is_said_to_be_beyond_noise(tmp_path: Path) -> None:
    before, after = _written(tmp_path, _runs(100)), _written(tmp_path, _runs(10))
    (change,) = comparing.compare(before, after).changes
    assert change.shift.beyond_noise == "too few repeats"


def test_a_row_with_a_floor_is_compared_by_its_ratio(tmp_path: Path) -> None:
    before = _written(tmp_path, _runs(100, 101, 99, 100, floor=50))
    after = _written(tmp_path, _runs(200, 202, 198, 200, floor=100))
    (change,) = comparing.compare(before, after).changes
    assert (change.what, change.before, change.after) == ("ratio", 2.0, 2.0)
    assert change.shift.beyond_noise == "no"


def test_the_processor_time_is_compared_beside_the_value(tmp_path: Path) -> None:
    rows = [[Row(figure="f", name="n", value=1.0, cpu=cpu)] for cpu in (5.0, 6.0)]
    run = _written(tmp_path, rows)
    assert [one.what for one in comparing.compare(run, run).changes] == ["value", "processor time"]


def test_rows_of_one_run_and_what_the_runs_differ_in_are_said(tmp_path: Path) -> None:
    before = _written(tmp_path, _runs(1, name="gone"))
    after = _written(tmp_path, _runs(1, name="new"), quick=True)
    after.machine["python"] = "4.0"
    found = comparing.compare(before, after)
    assert [row.name for row in found.only_before] == ["gone"]
    assert [row.name for row in found.only_after] == ["new"]
    assert any("quick" in one for one in found.remarks)
    assert any(one.startswith("Another python") for one in found.remarks)


def test_another_machine_is_said_where_its_own_floors_moved(tmp_path: Path) -> None:
    def of(*values: float) -> list[list[Row]]:
        return [[Row(figure=machine.FIGURE, name=machine.LOOP, value=one)] for one in values]

    before, after = _written(tmp_path, of(1, 2, 3, 4)), _written(tmp_path, of(11, 12, 13, 14))
    assert any("The machine differs" in one for one in comparing.compare(before, after).remarks)
    assert comparing.compare(before, before).remarks == []


@pytest.mark.parametrize(("repeats", "coverage"), [(1, 0.0), (3, 0.9), (4, 0.97)])
def test_an_interval_says_how_often_one_like_it_holds_the_shift(
    repeats: int, coverage: float
) -> None:
    shift = comparing.shift_of(range(repeats), range(100, 100 + repeats))
    assert shift.coverage == pytest.approx(coverage, abs=0.002)


def test_an_interval_holds_the_true_shift_as_often_as_it_says() -> None:
    dice = random.Random(7)  # noqa: S311 - the same draws in every run
    held = 0
    for _ in range(1000):
        before = [dice.expovariate(1) for _ in range(5)]
        shift = comparing.shift_of(before, [3 + dice.expovariate(1) for _ in range(5)])
        held += shift.low <= 3 <= shift.high
    assert 930 <= held <= 990


def test_a_difference_of_two_negative_figures_is_a_change_too(tmp_path: Path) -> None:
    before, after = _written(tmp_path, _runs(-4, -4, -4, -4)), _written(tmp_path, _runs(4, 4, 4, 4))
    (change,) = comparing.compare(before, after).changes
    assert change.share(change.shift.middle) == 2.0
    assert change.shift.beyond_noise == "yes"


# -- the page of results ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_of_results_show_the_run_that_is_kept(page: Path) -> None:
    shown = page.read_text("utf-8")
    assert filled(shown, "bench", tables.made(report.read(kept.PATH))) == shown, (
        "run `python -m tests.benchmarks.page`"
    )


def test_every_figure_that_a_user_pays_for_is_in_the_run() -> None:
    shown = tables.made(report.read(kept.PATH))["short"]
    assert [words for *_, words in tables.SHORT if f"| {words} |" not in shown] == []


def test_the_pictures_of_results_show_the_run_that_is_kept() -> None:
    for name, picture in plots.made(report.read(kept.PATH)).items():
        assert (plots.FOLDER / name).read_text("utf-8") == picture, name


def test_a_run_is_kept_with_four_digits_and_nothing_that_is_empty(tmp_path: Path) -> None:
    run = _written(tmp_path, _runs(1.234567, 2.345678, 3.456789, floor=2.0))
    path = tmp_path / "kept.json"
    path.write_text(kept.text(run), "utf-8")
    assert "null" not in kept.text(run)
    again = report.read(path)
    assert kept.text(again) == kept.text(run)
    assert [one.value for one in again.rows[0].samples] == [1.235, 2.346, 3.457]


def test_only_what_stands_between_marks_is_written_anew() -> None:
    text = "before\n<!-- bench: run -->\nold\n<!-- /bench -->\nafter\n"
    assert filled(text, "bench", {"run": "new\n"}) == text.replace("old", "new")
    with pytest.raises(KeyError, match="run"):
        filled(text, "bench", {})


def test_the_table_shows_the_median_and_the_spread_of_the_repeats(tmp_path: Path) -> None:
    results = tables.made(_written(tmp_path, _runs(1.0, 3.0, 2.0, floor=4.0)))["results"]
    assert "| n | 2 µs (1 to 3) |  | : 4 µs | 0.50 |  |  |" in results


# -- the profile -----------------------------------------------------------------------------------

SEEN = f"""\
thread (1): MainThread;run (/usr/lib/python3.11/asyncio/runners.py:160);Worker.{ADD} (work.py:90);\
Transcript.add ({stacks.ROOT}/eventctx/session/transcript.py:40) 30
thread (1): MainThread;run (/usr/lib/python3.11/asyncio/runners.py:160);Worker.{ADD} (work.py:90);\
read_facts ({stacks.ROOT}/eventctx/messages/facts_reader.py:9);\
loads ({stacks.ROOT}/.venv/lib/python3.11/site-packages/j/x.py:1) 10
thread (1): MainThread;run (/usr/lib/python3.11/asyncio/runners.py:160) 500
thread (2): eventctx-writer a file.db;Thread.run (/usr/lib/python3.11/threading.py:1);\
Log.commit ({stacks.ROOT}/eventctx/stores/sqlite_log.py:81) 7
thread (2): eventctx-writer a file.db;Mailbox.take ({stacks.ROOT}/eventctx/stores/mailbox.py:1) 900
thread (3) 5
""".replace("\\\n", "")
SPENT = {
    ADD: Spent(own=0.004, loop=0.001, others=0.002, count=10),
    PLAIN: Spent(own=0.0, loop=0.001, others=0.001, count=1),
    COMPACTING: Spent(own=0.0, loop=0.001, others=0.001, count=1),
}


def test_clocks_say_how_long_a_step_takes_and_samples_where() -> None:
    found = {stack[-1].function: micro for stack, micro in stacks.by_step(SEEN, SPENT)[ADD].items()}
    assert found == pytest.approx(
        {"Transcript.add": 300, "loads": 100, stacks.ASYNCIO.function: 100, "Log.commit": 200}
    )


def test_what_a_function_calls_in_a_library_is_its_own_time() -> None:
    found = stacks.by_step(SEEN, SPENT)[ADD]
    rooms = {stacks.room(stacks.home(stack)) for stack in found}
    assert rooms == {"session/", "messages/", "stores/", "asyncio"}
    assert any(stack[-1].file == "j/x.py" for stack in found)


def test_the_flame_graph_draws_a_function_as_wide_as_its_time() -> None:
    drawn = flame.drawn(stacks.by_step(SEEN, SPENT)[ADD], "a message")
    widths = {
        title.partition(" ")[0]: float(width)
        for width, title in re.findall(r"width='([\d.]+)'[^>]*><title>([^<]+)", drawn)
    }
    assert widths["Transcript.add"] == pytest.approx(3 * widths["read_facts"], rel=0.01)
    assert widths["a"] == pytest.approx(flame.WIDTH - 8, abs=1)


def test_the_profile_page_has_a_block_for_each_table() -> None:
    made = profile_page.blocks(stacks.by_step(SEEN, SPENT), SPENT)
    text = profile_page.PAGE.read_text("utf-8")
    assert set(re.findall(r"<!-- profile: ([a-z]+) -->", text)) == set(made)
    assert "| `session/transcript.py` | loop | 300 µs | 43% | `Transcript.add` |" in made["add"]


def test_the_pictures_draw_each_neighbour_and_each_length() -> None:
    rows = [
        Row(figure="peers", name="eventctx: append at 1,000", value=2.0, unit="ms"),
        Row(figure="peers", name="another: append at 1,000", value=20.0, unit="ms"),
        Row(figure="by length", name="a request: 1,000 messages", value=500.0, unit="µs"),
        Row(figure="by length", name="a request: 10,000 messages", value=600.0, unit="µs"),
    ]
    made = plots.made(Run(at="", quick=True, machine={}, rows=rows))
    assert "another: 20 ms" in made["bench-peers.svg"]
    assert "a request, 10,000 messages: 600 µs" in made["bench-growth.svg"]
    assert (
        "not measured"
        in plots.made(Run(at="", quick=True, machine={}, rows=[]))["bench-growth.svg"]
    )


async def test_a_neighbour_takes_steps_in_a_process_of_its_own(tmp_path: Path) -> None:
    with Place(tmp_path, quick=True) as place:
        async with compared.started(place, compared.OURS, length=10) as process:
            assert await process.take("append", 3) == 3
            assert await process.take("load") == await process.take("prepare") == 1
    assert [len(process.samples.processor[step]) for step in compared.KEYS] == [3, 1, 1]


async def test_a_neighbour_that_cannot_be_imported_is_missing_with_the_reason(
    tmp_path: Path,
) -> None:
    nobody = compared.Peer("a library that nobody has", "nobody")
    with Place(tmp_path, quick=True) as place:
        async with compared.started(place, nobody, length=10) as process:
            assert "nobody" in process.missing


def test_growth_is_flat_logarithmic_or_has_a_reason() -> None:
    assert by_length.growth(1.2, bound=3.0, step=by_length.ADD) == "flat"
    assert by_length.growth(2.9, bound=3.0, step=by_length.ADD) == "logarithmic"
    assert by_length.growth(900.0, bound=3.0, step=by_length.COMMON).startswith("every message")
    assert "not explained" in by_length.growth(900.0, bound=3.0, step=by_length.ADD)


@pytest.mark.parametrize("found", [None, b"", b'{"rows": [', b"[]", b'{"rows": 5}'])
def test_a_file_that_is_no_run_is_told_in_one_line(tmp_path: Path, found: bytes | None) -> None:
    path = tmp_path / "run.json"
    if found is not None:
        path.write_bytes(found)
    with pytest.raises(SystemExit, match="expected the JSON of a run"):
        report.read(path)
