"""An import takes the same memory for a file of any length."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventctx.importers.recording import spilled
from eventctx.importers.recording.spilled import SpilledSequence, SpilledView
from eventctx.importers.source.spill_file import SpillFile
from eventctx.projections.view import request_view
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series
from eventctx.stores.memory import MemoryStore
from tests.benchmarks.importing import MEGABYTE, write_transcript
from tests.importers.given import load, records
from tests.importers.growing import FILES


def write_chat(path: Path, size: int) -> None:
    """A list of short messages, since each costs the view the same whatever its length."""
    with path.open("wb") as file:
        for number in range(size // 1000):
            role = "assistant" if number % 2 else "user"
            line = json.dumps({"role": role, "content": f"{number} " + "word " * 190})
            file.write(line.encode() + b"\n")


def peak_of(path: Path) -> float:
    """The most memory of a process that imports the file, in MiB."""
    program = [sys.executable, "-m", "tests.benchmarks.importing"]
    store = path.with_suffix(".db")
    ran = subprocess.run([*program, path, store], capture_output=True, text=True, check=True)
    return float(ran.stdout.split()[-1])


@pytest.mark.parametrize("write", [write_transcript, write_chat])
def test_an_import_of_a_file_four_times_as_long_takes_no_more_memory(
    write: Callable[[Path, int], None], tmp_path: Path
) -> None:
    peaks = []
    for megabytes in (3, 12):
        path = tmp_path / f"{megabytes}.jsonl"
        write(path, megabytes * MEGABYTE)
        peaks.append(peak_of(path))
    # What a process takes varies by half a MiB; an import that held its file would take nine more.
    assert peaks[1] - peaks[0] < 3, peaks


# -- a view on disk ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
async def test_an_import_is_the_same_with_its_view_on_disk(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(FILES[name])
    imports = []
    for chunk in (512, 3, 2):
        monkeypatch.setattr(spilled, "CHUNK", chunk)
        store = MemoryStore()
        summary = await load(store, path, complete=True)
        assert summary.session is not None
        imports.append(await records(store, summary.session))
    assert imports[0] == imports[1] == imports[2]


async def test_a_state_on_disk_is_equal_to_the_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilled, "CHUNK", 2)
    path = tmp_path / "file.jsonl"
    path.write_bytes(FILES["pi"])
    store = MemoryStore()
    summary = await load(store, path, complete=True)
    spill = SpilledView()
    plain = held = request_view.initial()
    for record in await records(store, summary.session or ""):
        plain = request_view.evolve(plain, record)
        held = spill.spill(request_view.evolve(held, record))
        assert _parts(held) == _parts(plain)
    assert held.layout.refs.is_backed
    spill.close()


def _parts(view: ViewState) -> tuple[object, ...]:
    return view.layout.measure(), view.layout.entries(), list(view.layout.refs), view.gone


def test_a_spilled_sequence_is_read_like_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled, "CHUNK", 3)
    spill = SpillFile()
    encode, decode = (lambda items: json.dumps(items).encode()), json.loads
    series: Series[int] = Series.backed_by(SpilledSequence(spill, encode, decode, range(7)))
    older = series
    for number in range(7, 20):
        series = series.append(number)
    series = series.extend([20, 21])
    assert list(series) == list(range(22))
    assert [series[place] for place in (0, 5, 21, -1)] == [0, 5, 21, 21]
    assert series[2:9] == list(range(2, 9))
    # An older version goes on without changing the newer one.
    assert list(older.append(100)) == [*range(7), 100]
    assert list(series) == list(range(22))
    assert series.is_backed
    spill.close()
    with pytest.raises(IndexError):
        spill.get(0)
