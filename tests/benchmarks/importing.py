"""Importing transcripts: how fast and in how much memory, on two cores, again, and of calls.

``python -m tests.benchmarks.importing FILE STORE`` imports one file, and prints the processor time
that it took in seconds, and the most memory of the process in MiB.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

import eventctx
from eventctx.importers.load import import_file
from tests.benchmarks.rows import Row, target
from tests.benchmarks.timing import EVENTCTX, Place, Ran, ran
from tests.benchmarks.workload import text
from tests.importers.recorded_http import Tape, request, user
from tests.importers.recorded_http import message as answer

MEGABYTE: Final = 10**6
FILES: Final = 300
CALLS: Final = 400


async def measure(place: Place) -> list[Row]:
    return [*_one_file(place), *_folder(place), _calls(place)]


def _one_file(place: Place) -> list[Row]:
    # Far enough apart that memory which grows by a little with every line shows.
    small, large = place.count(10, 3), place.count(50, 12)
    spent: dict[int, list[float]] = {small: [], large: []}
    peaks: dict[int, float] = {}
    for size in (small, large):
        path = place.path("session.jsonl")
        write_transcript(path, size * MEGABYTE)
        for _ in range(3):
            printed = ran("-m", __name__, path, place.path("import.db")).output
            took, peaks[size] = map(float, printed.split())
            spent[size].append(took * 1e3 / (path.stat().st_size / MEGABYTE))
        path.unlink()
    slope = (peaks[large] - peaks[small]) / (large - small)
    return [
        target("import", median(spent[large]), note=f"{large} MB, durable"),
        Row(
            figure="import",
            name=f"most memory resident, {large} MB",
            value=peaks[large],
            unit="MiB",
            against=f"{small} MB",
            floor=peaks[small],
            limit=1.1,
            note=f"{slope:.2f} MiB more for each MB of the file",
        ),
    ]


def _folder(place: Place) -> list[Row]:
    """A folder of a few long sessions and many short ones by the command line; then once more."""
    folder, store = place.path("sessions"), place.path("folder.db")
    folder.mkdir()
    for number in range(FILES):
        size = 50_000 if number % 12 else place.count(2_000_000 + number * 20_000)
        write_transcript(folder / f"{number}.jsonl", size, number)
    megabytes = sum(one.stat().st_size for one in folder.iterdir()) / MEGABYTE
    took: dict[int, list[Ran]] = {2: [], 1: []}
    for _ in range(place.count(2, 1)):
        for workers, found in took.items():
            store = place.path(f"by-{workers}.db")
            found.append(_import(folder, store, workers))
    again = [_import(folder, store).processor for _ in range(3)]
    unchanged = target("unchanged", median(again), note="the start of the program included")
    two, one = (megabytes / median(ran.wall for ran in took[workers]) for workers in took)
    spent = ", ".join(
        f"{median(ran.processor for ran in found):.1f} s of processor time by {workers}"
        for workers, found in took.items()
    )
    return [target("two cores", two, one, f"{FILES} files, {megabytes:.0f} MB; {spent}"), unchanged]


def _calls(place: Place) -> Row:
    tape = Tape()
    for number in range(CALLS):
        said = {"type": "text", "text": text(number, 300)}
        tape.exchange(request(user(text(number))), answer(said, id=f"msg_{number}"))
    path = place.path("calls.json")
    path.write_bytes(tape.json())
    took = _import(path, place.path("calls.db")).processor
    return target("calls", took, note="recorded HTTP; the start of the program included")


def _import(source: Path, store: Path, workers: int = 1) -> Ran:
    """Import by the command line, on as many cores as there are workers."""
    words = [source, "--store", store, "--workers", workers]
    return ran("-c", EVENTCTX, "import", *words, cores=workers)


# -- one file in this process ----------------------------------------------------------------------


async def _run(source: Path, store: Path) -> float:
    async with eventctx.open(store) as engine:
        spent = time.process_time()
        await import_file(engine.store, source)
        return time.process_time() - spent


def _peak() -> float:
    """The most memory this process had resident, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux it outlives exec, so a child begins with its parent's peak.
        found = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(found[0].split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


# -- transcripts -----------------------------------------------------------------------------------


def write_transcript(path: Path, size: int, session: int = 0) -> None:
    """A Claude Code session of at least ``size`` bytes: questions, tool calls, long results.

    Sessions of other numbers have other names and other texts.
    """
    number = written = 0
    constant = {"isSidechain": False, "userType": "external", "cwd": "/work/project"}
    constant |= {"version": "2.1.29", "gitBranch": "main"}
    constant |= {"sessionId": f"00000000-0000-4000-8000-{session:012d}"}
    parent: str | None = None
    with path.open("wb") as file:
        while written < size:
            for row in _rows(number + session * 10_000):
                uuid = f"00000000-0000-4000-{session:04d}-{number:012d}"
                stamp = f"2026-01-{1 + number // 86_400:02d}T{number // 3600 % 24:02d}:"
                stamp += f"{number // 60 % 60:02d}:{number % 60:02d}.000Z"
                record = {"parentUuid": parent, **constant, **row, "uuid": uuid, "timestamp": stamp}
                written += file.write(msgspec.json.encode(record) + b"\n")
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
    cached = {"cache_creation_input_tokens": 900, "cache_read_input_tokens": 40_000}
    named = {"id": f"msg_{number:024d}", "type": "message", "role": "assistant"}
    said = {"model": "claude-sonnet-4-5", "content": content, "stop_reason": stop}
    message = {**named, **said, "usage": {"input_tokens": 4, **cached, "output_tokens": 180}}
    return {"type": "assistant", "requestId": f"req_{number:024d}", "message": message}


if __name__ == "__main__":
    print(asyncio.run(_run(Path(sys.argv[1]), Path(sys.argv[2]))), _peak())
