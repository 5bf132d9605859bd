"""Subagents of Claude Code: their files, in a folder beside the session's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, Protocol

from eventctx.importers.source.lines import nanoseconds
from eventctx.importers.source.values import read_value

_TAIL_BYTES: Final = 1 << 16


class Known(Protocol):
    """What the main session says: its subagents' calls, those with a result, its compactions."""

    links: dict[str, str | None]
    answered: set[str]
    last_compaction: int | None


class Subagent(NamedTuple):
    """A subagent, and the state of its file; an equal one need not be imported again.

    ``over``: nothing will be written to the file any more.
    """

    name: str
    call_id: str | None
    over: bool
    file: tuple[int, int, int] | None = None


def subagent_files(path: Path) -> list[Path]:
    """The files of the subagents of a Claude Code session."""
    folder = path.with_suffix("") / "subagents"
    return sorted(folder.glob("*.jsonl")) if folder.is_dir() else []


def subagent_of(path: Path, main: Known) -> Subagent:
    """What is known of a subagent by its file's name, by its main session, and by the system."""
    name = path.stem.removeprefix("agent-")
    call_id = next((c for s, c in main.links.items() if s.endswith(f".agent-{name}")), None)
    # Its call has a result, or the compaction for which it wrote the summary is done.
    over = call_id is not None and call_id in main.answered
    if name.startswith("acompact") and main.last_compaction is not None:
        last = _last_time(path)
        over = last <= main.last_compaction if last is not None else over
    try:
        there = path.stat()
    except OSError:
        return Subagent(name, call_id, over)
    return Subagent(name, call_id, over, (there.st_ino, there.st_size, there.st_mtime_ns))


def _last_time(path: Path) -> int | None:
    """The time of a file's last line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).rstrip()
    except OSError:
        tail = b""  # the import itself says what is wrong
    last = tail[tail.rfind(b"\n") + 1 :]
    try:
        value, _ = read_value(last)
    except ValueError:
        value = None
    return nanoseconds(value.get("timestamp")) if isinstance(value, dict) else None
