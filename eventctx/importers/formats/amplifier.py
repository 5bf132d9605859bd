"""Amplifier's files of a session: its transcript, its event log, and its stored context.

The transcript has a message per line, in Amplifier's own dialect, and is imported as it is. The
event log (``amplifier_log.py``) holds requests, usage and tools, too. The two describe one session
in different ways; ``amplifier.py`` says which of them is read.

context-persistent stores its messages itself, with a ``timestamp`` besides the role, and with
system messages and loaded memory files. The session of that file is named with ``.context`` at the
end, because the other files describe the same session differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats import amplifier_log, amplifier_rows, chat
from eventctx.importers.formats.amplifier_requests import messages_of
from eventctx.importers.formats.amplifier_rows import AmplifierRow, wire_answer
from eventctx.importers.formats.provider_answers import answers
from eventctx.importers.source.document import first_record, stem
from eventctx.importers.source.items import Ended, FileLine, Item, never
from eventctx.importers.source.lines import facts_or_none, nanoseconds, object_or_empty, read_lines

_LOOKED_AT: Final = 1000


def is_own_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of an event log, or a transcript's by itself."""
    if amplifier_rows.is_row(value):
        return True
    return is_row(value) and chat.is_plain(value) and not _is_stored(value)


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a transcript."""
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    facts = facts_or_none(value)
    stamp = object_or_empty(value.get("metadata")).get("timestamp")
    return facts is not None and (facts.dialect == "amplifier" or isinstance(stamp, str))


def is_context_row(value: dict[str, Any]) -> bool:
    """Whether an object is a message as context-persistent stores it."""
    return _is_stored(value) and chat.is_plain(value)


def _is_stored(value: dict[str, Any]) -> bool:
    """Whether an object has a role and the time of its addition."""
    stamp = value.get("timestamp")
    written = isinstance(stamp, str) and "T" in stamp and nanoseconds(stamp) is not None
    return written and isinstance(value.get("role"), str) and "content" in value


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of a transcript or an event log; ``name`` is used where no line names a session."""
    source = iter(lines)
    head: list[FileLine] = []
    for line in islice(source, _LOOKED_AT):
        head.append(line)
        record = first_record(line) if line.data.strip() else None
        if isinstance(record, dict):
            if "role" not in record or amplifier_rows.is_row(record):
                return amplifier_log.parse(chain(head, source), name, ended)
            break
    return chat.parse_rows(chain(head, source), stem(name))


def parse_context(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one file of context-persistent; ``name`` is that of its session."""
    return chat.parse_rows(lines, f"{stem(name)}.context")


# -- the folder of a session: which of its files tells the session -------------------------------
#
# A folder has ``transcript.jsonl``, and logs: ``events.jsonl`` in it, or in a folder
# ``context-intelligence``, or both. They tell one session. A log with the text of answers is the
# source, because it has the transcript's messages and the requests, usage, tools and compactions
# besides; of two, the one with whole requests. The transcript is the source where no log has the
# text of an answer: a log may have calls and their usage alone, and nothing says which call gave
# which answer. Programs write the log first, so the choice stays the same while the files grow.
#
# A session that is taken over needs its messages as Amplifier's loops know them, and a log has them
# as a provider does. So its source is ``context-messages.jsonl``, which context-persistent leaves
# with the system messages in it, else the transcript.

TRANSCRIPT: Final = "transcript.jsonl"
CONTEXT: Final = "context-messages.jsonl"
_LOG: Final = "events.jsonl"
_BETWEEN: Final = "context-intelligence"
_BESIDE: Final = ("metadata.json", _LOG, _BETWEEN)

_REQUESTS: Final = ("llm:request", "llm:request:raw")
_ANSWERS: Final = ("llm:response", "llm:response:raw")
_BLOCK: Final = "content_block:end"
_MARKS: Final = (b"llm:re", b"content_block:end")


def source_of(path: Path) -> Path:
    """The file that tells the session of a file or a folder; the path itself where it is alone."""
    folder = _folder_of(path)
    if folder is None:
        return path
    logs = [log for log in (folder / _LOG, folder / _BETWEEN / _LOG) if log.is_file()]
    transcript = folder / TRANSCRIPT
    files = [*logs, *([transcript] if transcript.is_file() else [])]
    if len(files) < 2:
        return files[0] if files and path == folder else path
    told = {log: _fullness(log) for log in logs}
    best = max(logs, key=lambda log: told[log], default=transcript)
    if not told.get(best):
        return transcript if transcript in files else (logs[0] if path == folder else path)
    return best


def folder_of_session(path: Path) -> Path | None:
    """The folder of the session that a file or folder of Amplifier's tells; None for any other."""
    if path.is_dir() and (path / CONTEXT).is_file():
        return path
    return path.parent if path.name == CONTEXT else _folder_of(path)


def source_to_take_over(path: Path, mirrored: str | None = None) -> Path:
    """The file from which a session goes on as ours; the path itself where it is alone.

    ``mirrored`` is the name of the file that it mirrors already: then it is that one.
    """
    folder = folder_of_session(path)
    if folder is None:
        return path
    if mirrored == _LOG:
        # Not source_of(path): of a file named otherwise this is another one.
        logs = [log for log in (folder / _LOG, folder / _BETWEEN / _LOG) if log.is_file()]
        return max(logs, key=_fullness, default=source_of(path))
    for name in (mirrored, CONTEXT, TRANSCRIPT):
        if name is not None and (folder / name).is_file():
            return folder / name
    return source_of(path)


def passed_over(path: Path, *, take_over: bool = False) -> str | None:
    """The reason not to import a file of a session folder: another one tells its session."""
    if path.is_dir():
        return None
    if take_over:
        source = source_to_take_over(path)
        return None if source == path else f"the session goes on from {source.name}"
    source = source_of(path)
    if source == path:
        return None
    if source.name == TRANSCRIPT:
        return f"a log without the text of answers; {TRANSCRIPT} tells its session"
    where = f"{_BETWEEN}/{_LOG}" if source.parent.name == _BETWEEN else _LOG
    return f"{where} tells the same session, with more of it"


def is_session_folder(path: Path) -> bool:
    """Whether a folder is that of one session."""
    return path.is_dir() and _is_session(path)


def is_transcript(path: Path) -> bool:
    """Whether a file is a transcript by its name and place; its rows may not tell."""
    return path.name == TRANSCRIPT and any((path.parent / one).exists() for one in _BESIDE)


def _folder_of(path: Path) -> Path | None:
    if path.is_dir():
        return path if _is_session(path) else None
    if path.name == TRANSCRIPT:
        return path.parent
    if path.name != _LOG:
        return None
    return path.parent.parent if path.parent.name == _BETWEEN else path.parent


def _is_session(folder: Path) -> bool:
    # A log alone is found as any other file; next to it there may be folders of other sessions.
    transcript = folder / TRANSCRIPT
    return (folder / _BETWEEN / _LOG).is_file() or (
        transcript.is_file() and is_transcript(transcript)
    )


def _fullness(log: Path) -> int:
    """The fullness of a log: 2 with whole requests, 1 with texts of answers, 0 with neither."""
    try:
        for line in read_lines(log):
            row = first_record(line) if any(mark in line.data for mark in _MARKS) else None
            told = _fullness_of_row(row) if isinstance(row, dict) else 0
            if told:
                return told
    except (OSError, MalformedTranscript):
        return 0  # reading it says what is wrong with it
    return 0


def _fullness_of_row(row: dict[str, Any]) -> int:
    if not amplifier_rows.is_row(row):
        return 0
    name, found = amplifier_rows.name_of(row), AmplifierRow(0, row)
    if name in _REQUESTS and messages_of(found.request) is not None:
        return 2
    block = name == _BLOCK and isinstance(found.data.get("block"), dict)
    return int(block or (name in _ANSWERS and bool(answers(wire_answer(found.data)))))
