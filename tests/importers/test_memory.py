"""An import takes the same memory for a file of any length."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventctx.importers.recording import spilled
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


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_transcript, write_chat])
def test_an_import_of_a_file_three_times_as_long_takes_no_more_memory(
    write: Callable[[Path, int], None], tmp_path: Path
) -> None:
    peaks = []
    for megabytes in (2, 6):
        path = tmp_path / f"{megabytes}.jsonl"
        write(path, megabytes * MEGABYTE)
        peaks.append(peak_of(path))
    # What a process takes varies by one MiB; an import that held its file would take four more.
    assert peaks[1] - peaks[0] < 3, peaks


# -- a view on disk ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi", "copilot"])
async def test_an_import_is_the_same_with_its_view_on_disk(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(FILES[name])
    imports = []
    for chunk in (512, 2):
        monkeypatch.setattr(spilled, "CHUNK", chunk)
        store = MemoryStore()
        summary = await load(store, path, complete=True)
        assert summary.session is not None
        imports.append(await records(store, summary.session))
    assert imports[0] == imports[1]
