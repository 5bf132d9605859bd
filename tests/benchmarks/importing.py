"""Importing a long Claude Code transcript, and many: how fast, and in how much memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.workload import text

FIGURE = "import"
MEGABYTE = 10**6
FLAT = 1.1


async def measure(place: Place) -> list[Row]:
    # Far enough apart that memory which grows by a little with every line shows.
    small, middle, large = place.count(10, 10), place.count(50, 20), place.count(500, 50)
    rates: dict[int, float] = {}
    spent: dict[int, float] = {}
    peaks: dict[int, float] = {}
    for size in (small, middle, large):
        path = place.path("session.jsonl")
        write_transcript(path, size * MEGABYTE)
        took, cpu, peaks[size] = _in_a_process_of_its_own(path, place.path("import.db"))
        megabytes = path.stat().st_size / MEGABYTE
        rates[size], spent[size] = megabytes / took, cpu * 1e6 / megabytes
        path.unlink()
    slope = (peaks[large] - peaks[small]) / (large - small)
    return [
        Row(
            figure=FIGURE,
            name=f"Claude Code JSONL, {middle} MB, durable",
            value=rates[middle],
            unit="MB/s",
            limit=40.0,
            better="more",
            cpu=spent[middle],
            note=", ".join(f"{size} MB: {rate:.1f}" for size, rate in rates.items()),
        ),
        Row(
            figure=FIGURE,
            name=f"most memory resident, {large} MB",
            value=peaks[large],
            unit="MiB",
            against=f"{small} MB",
            floor=peaks[small],
            limit=FLAT,
            note=f"{slope:.2f} MiB more for each MB of the file",
        ),
        _of_a_folder(place),
    ]


def _of_a_folder(place: Place) -> Row:
    """Sessions of 2 to 10 MB, read by two workers and, for comparison, by one process on a core."""
    count = place.count(40, 8)
    name = f"a folder of {count} sessions, two workers"
    if (os.cpu_count() or 1) < 2:
        return missing(FIGURE, name, "it needs two cores")
    folder = place.path("sessions")
    folder.mkdir()
    for number in range(count):
        write_transcript(folder / f"{number}.jsonl", (2 + number % 9) * MEGABYTE, number)
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / MEGABYTE
    took, cpu, _ = _in_a_process_of_its_own(folder, place.path("import.db"), 2)
    alone, cpu_alone, _ = _in_a_process_of_its_own(folder, place.path("import.db"), 1)
    return Row(
        figure=FIGURE,
        name=name,
        value=megabytes / took,
        unit="MB/s",
        against="one process on one core",
        floor=megabytes / alone,
        limit=1.7,
        better="more",
        cpu=cpu * 1e6 / megabytes,
        floor_cpu=cpu_alone * 1e6 / megabytes,
        note=f"{megabytes:.0f} MB",
    )


def _in_a_process_of_its_own(
    source: Path, store: Path, *workers: int
) -> tuple[float, float, float]:
    """Seconds, seconds of processor time, and MiB."""
    module = "tests.benchmarks.import_once"
    program = [sys.executable, "-m", module, str(source), str(store), *map(str, workers)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    took, cpu, peak = map(float, ran.stdout.split())
    return took, cpu, peak


def write_transcript(path: Path, size: int, session: int = 0) -> None:
    """A Claude Code session of at least ``size`` bytes: questions, tool calls, long results.

    ``session`` is the number in its id.
    """
    number = 0
    parent: str | None = None
    written = 0
    with path.open("wb") as file:
        while written < size:
            for row in _rows(number):
                uuid = f"00000000-0000-4000-8000-{number:012d}"
                stamp = f"2026-01-{1 + number // 86_400:02d}T{number // 3600 % 24:02d}:"
                stamp += f"{number // 60 % 60:02d}:{number % 60:02d}.000Z"
                record = {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "userType": "external",
                    "cwd": "/work/project",
                    "sessionId": f"00000000-0000-4000-8000-{session:012d}",
                    "version": "2.1.29",
                    "gitBranch": "main",
                    **row,
                    "uuid": uuid,
                    "timestamp": stamp,
                }
                line = msgspec.json.encode(record) + b"\n"
                file.write(line)
                written += len(line)
                parent = uuid
                number += 1


def _rows(number: int) -> list[dict[str, Any]]:
    """A question, and six rounds of thinking, a call and a result; then an answer."""
    rows = [_user(text(number, 300))]
    for step in range(1, 13, 2):
        call = f"toolu_{number + step:024d}"
        thinking = {"type": "thinking", "thinking": text(number, 400), "signature": "A" * 200}
        use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": text(step, 80)}}
        rows.append(_assistant(number + step, [thinking, use], "tool_use"))
        result = text(number + step, 2500)
        block = {"type": "tool_result", "tool_use_id": call, "content": result, "is_error": False}
        rows.append({**_user([block]), "toolUseResult": {"stdout": result, "stderr": ""}})
    rows.append(_assistant(number + 13, [{"type": "text", "text": text(number, 700)}], "end_turn"))
    return rows


def _user(content: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}}


def _assistant(number: int, content: list[dict[str, Any]], stop: str) -> dict[str, Any]:
    return {
        "type": "assistant",
        "requestId": f"req_{number:024d}",
        "message": {
            "id": f"msg_{number:024d}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": content,
            "stop_reason": stop,
            "usage": {
                "input_tokens": 4,
                "cache_creation_input_tokens": 900,
                "cache_read_input_tokens": 40_000,
                "output_tokens": 180,
            },
        },
    }
