"""Telling formats apart by content; file names are not reliable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import MalformedTranscript, NotATranscript, UnknownFormat, UnreadableFile
from eventctx.importers.foreign import foreign
from eventctx.importers.formats import (
    amplifier,
    amplifier_folder,
    amplifier_rows,
    chat,
    claude_code,
    codex,
    codex_base,
    context_persistent,
    mini_swe_agent,
    openhands,
    pi,
    swe_agent,
)
from eventctx.importers.formats.cassettes import cassette, tape
from eventctx.importers.source.document import read_document
from eventctx.importers.source.http_recording import begins_cassette, read_cassette
from eventctx.importers.source.items import FileLine, Parser
from eventctx.importers.source.lines import read_lines, split_records, text_or_none
from eventctx.importers.source.naming import named_by_folder
from eventctx.importers.source.source import folder_name, is_event_folder
from eventctx.importers.source.values import TooDeep, read_value


def _own_name(path: Path) -> str:
    return path.name


def _no_others(path: Path) -> list[Parser]:
    return []


def _only_its_own(path: Path, lines: Iterable[FileLine]) -> Iterable[FileLine]:
    return lines


class Format(NamedTuple):
    """A format that can be imported. ``parse`` reads its files, ``parse_folder`` its folders.

    ``called`` gives the name of a session whose lines do not name it. ``others`` gives a parser for
    each further session of a file; they read the file as it is when they are made. ``whole`` adds
    the lines of the session that are in another file. ``by_file``: no line names a session, so that
    two files of one name are told apart by their folders.
    """

    name: str
    title: str
    parse: Parser
    called: Callable[[Path], str] = _own_name
    parse_folder: Parser | None = None
    others: Callable[[Path], list[Parser]] = _no_others
    whole: Callable[[Path, Iterable[FileLine]], Iterable[FileLine]] = _only_its_own
    by_file: bool = False


def _event_name(path: Path) -> str:
    return folder_name(path) if path.is_dir() else path.name


FORMATS: Final[dict[str, Format]] = {
    row.name: row
    for row in (
        Format(
            claude_code.NAME,
            "Claude Code session (JSONL)",
            claude_code.parse,
            others=claude_code.others,
        ),
        Format(codex.NAME, "Codex rollout (JSONL)", codex.parse, whole=codex_base.with_base),
        Format(swe_agent.NAME, "SWE-agent trajectory (.traj)", swe_agent.parse, by_file=True),
        Format(
            mini_swe_agent.NAME,
            "mini-swe-agent trajectory (.traj.json)",
            mini_swe_agent.parse,
            by_file=True,
        ),
        Format(pi.NAME, "pi session (JSONL)", pi.parse),
        Format(
            openhands.NAME,
            "OpenHands events (a folder of them, JSON or JSONL)",
            openhands.parse,
            _event_name,
            openhands.parse_folder,
            by_file=True,
        ),
        Format(
            amplifier.NAME,
            "Amplifier transcript.jsonl or events.jsonl",
            amplifier.parse,
            named_by_folder,
        ),
        Format(
            context_persistent.NAME,
            "Amplifier's context-messages.jsonl",
            context_persistent.parse,
            named_by_folder,
        ),
        Format(
            cassette.NAME,
            "recorded HTTP of a provider's SDK (VCR cassette)",
            cassette.parse,
            others=cassette.others,
            by_file=True,
        ),
        Format(
            tape.NAME,
            "recorded by `eventctx record` (JSONL)",
            tape.parse,
            others=tape.others,
        ),
        Format(
            chat.NAME, "message list, OpenAI or Anthropic (JSON or JSONL)", chat.parse, by_file=True
        ),
    )
}
"""The values of ``--format``."""

_LOOKED_AT: Final = 50
_CONTENT: Final = ("content", "tool_calls", "function_call", "refusal", "audio")
"""A message with a role has one of these; without any, it is a line of another program."""

_BINARY_BYTES: Final = 8192
_NUL_BYTES: Final = 4096


def session_source(path: Path, name: str | None = None) -> Path:
    """The file that tells the session of ``path``: of several files, the one that tells most.

    Amplifier has several for one session, and may be named by its folder. With the ``name`` of a
    format a file is taken as it is.
    """
    if name is None or (name == amplifier.NAME and path.is_dir()):
        return amplifier_folder.source_of(path)
    return path


def passed_over(path: Path, *, take_over: bool = False) -> str | None:
    """Why a file that was found in a folder is not imported: another one tells its session."""
    return amplifier_folder.passed_over(path, take_over=take_over)


def is_transcript_folder(path: Path) -> bool:
    """Whether a folder is one session, and not a folder to search for some."""
    return is_event_folder(path) or amplifier_folder.is_session_folder(path)


def choose(path: Path, name: str | None, *, folders: bool = False) -> Format:
    """The format called ``name``, or the one that the file's content shows.

    With ``folders`` a folder of events is accepted, too.

    Raises UnknownFormat and MalformedTranscript, also for an empty or binary file under a name,
    and UnreadableFile for a pipe or a device.
    """
    if name is not None and name not in FORMATS:
        raise UnknownFormat(f"no format {name!r}; known are {', '.join(FORMATS)}")
    if path.is_dir():
        if folders and name in (None, openhands.NAME) and is_event_folder(path):
            return FORMATS[openhands.NAME]
        raise UnknownFormat(
            f"{path}: expected a file or a folder of OpenHands events, found a folder; "
            "name the files in it"
        )
    if path.exists() and not path.is_file():
        raise UnreadableFile(
            f"{path}: expected a file, which is read more than once, found a pipe or a device; "
            "write it to a file first"
        )
    _refuse_binary(path)
    if name is None:
        name = detect(read_lines(path), path.name)
        if name in (chat.NAME, context_persistent.NAME) and amplifier_folder.is_transcript(path):
            name = amplifier.NAME
    return FORMATS[name]


def _refuse_binary(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(_BINARY_BYTES)
    if not head.strip():
        # White space at the start counts as an empty file, unless text follows.
        if any(line.data.strip() for line in read_lines(path)):
            return
        raise MalformedTranscript(
            f"{path.name}: expected a transcript, found an empty file; "
            "import it when the program has written to it"
        )
    text = head.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf").lstrip()
    nul = head.count(b"\0")
    # A crash leaves up to a page of them in a file of JSON, where the rest is still good.
    if nul > _NUL_BYTES or (nul and not text.startswith((b"{", b"["))):
        raise UnknownFormat(
            f"{path.name}: expected text (JSON or JSONL in UTF-8), found binary data; "
            "unpack or convert it first"
        )


def detect(lines: Iterable[FileLine], name: str) -> str:
    """The name of the format of these lines. Raises UnknownFormat with an excerpt of them.

    It is NotATranscript where they can be read, and MalformedTranscript where they are nested too
    deeply to be read. A JSON document is read whole; of JSONL, only the first lines are read.
    """
    source = iter(lines)
    head = list(islice((line for line in source if line.data.strip()), _LOOKED_AT))
    if begins_cassette(head):
        return _of_cassette(chain(head, source), name)
    values = _values(head)
    if not _begins_with_record(head):
        values = _of_many_lines(chain(head, source), name, values) or values
        if not values:
            if name.endswith((".yaml", ".yml")):
                raise NotATranscript(name, "YAML that is no cassette", tuple(FORMATS))
            raise UnknownFormat(
                f"{name}: expected JSON or JSONL, found neither ({_excerpt(head)}); "
                f"name the format with --format if it is one of {', '.join(FORMATS)}"
            )
    for value in values:
        if foreign(value) is not None:
            raise NotATranscript(name, _described(value), tuple(FORMATS))
        found = _of_record(value)
        if found == chat.NAME and any(map(_is_amplifier, values)):
            return amplifier.NAME
        found = found or _of_document(value)
        if found is not None:
            return found
    raise NotATranscript(name, _described(values[0]), tuple(FORMATS))


def _of_cassette(lines: Iterable[FileLine], name: str) -> str:
    if cassette.is_cassette(read_cassette(lines, name)):
        return cassette.NAME
    found = "a cassette without requests to Anthropic's messages, OpenAI's chat or responses"
    raise NotATranscript(name, found, tuple(FORMATS))


def _of_many_lines(lines: Iterable[FileLine], name: str, single: list[object]) -> list[object]:
    """The value of all lines together; none where they are no document that can be read.

    ``single`` are the values of single lines. Raises MalformedTranscript where there are none, and
    the document is nested too deeply.
    """
    try:
        return [read_document(lines, name).value]
    except MalformedTranscript as error:
        if not single and isinstance(error.__cause__, TooDeep):
            raise
        return []


def _begins_with_record(head: list[FileLine]) -> bool:
    """Whether the first line holds a whole object, as in JSONL; else it may open a document."""
    return bool(head) and bool(_values(head[:1]))


def _values(head: list[FileLine]) -> list[object]:
    """The objects and lists that lines hold by themselves.

    Texts and numbers do not count: they may be lines of one document of many lines.
    """
    values: list[object] = []
    for line in head:
        parts, _ = split_records(line.data) if b"}{" in line.data else ([line.data], b"")
        for part in parts:
            try:
                value, _ = read_value(part)
            except ValueError:
                continue
            if isinstance(value, dict | list):
                values.append(value)
    return values


def _of_record(value: object) -> str | None:
    """The JSONL format of one line, if that line is enough to tell."""
    if not isinstance(value, dict):
        return None
    kind = text_or_none(value.get("type"))
    if tape.is_row(value):
        return tape.NAME
    if kind in codex.TYPES and isinstance(value.get("payload"), dict):
        return codex.NAME
    if kind is not None and _is_claude_code(value):
        return claude_code.NAME
    if kind in pi.TYPES and _is_pi(value):
        return pi.NAME
    if openhands.is_event(value):
        return openhands.NAME
    if amplifier_rows.is_row(value):
        return amplifier.NAME
    if not _is_plain_message(value):
        return None
    if context_persistent.is_row(value):
        return context_persistent.NAME
    return amplifier.NAME if amplifier.is_row(value) else chat.NAME


def _is_amplifier(value: object) -> bool:
    """Whether a row is Amplifier's; its first rows may look like any other chat's."""
    return isinstance(value, dict) and amplifier.is_row(value)


def _is_pi(value: dict[str, Any]) -> bool:
    if value["type"] == "session":
        return "cwd" in value
    if value["type"] in ("custom", "label", "session_info"):
        return "parentId" in value
    if value["type"] == "message":
        # Other programs write this type, too, with the role in the line itself.
        return "timestamp" in value and isinstance(value.get("message"), dict)
    return "timestamp" in value


def _is_claude_code(value: dict[str, Any]) -> bool:
    if "sessionId" in value and ("uuid" in value or "operation" in value or "message" in value):
        return True
    return ("leafUuid" in value and "summary" in value) or (
        "messageId" in value and "snapshot" in value
    )


def _of_document(value: object) -> str | None:
    """The format of a whole document."""
    if isinstance(value, list):
        if any(map(openhands.is_event, value[:_LOOKED_AT])):
            return openhands.NAME
        return chat.NAME if value and any(map(_is_plain_message, value[:_LOOKED_AT])) else None
    if not isinstance(value, dict):
        return None
    history = value.get("history")
    if cassette.is_cassette(value):
        return cassette.NAME
    if openhands.is_event(value):
        return openhands.NAME
    if isinstance(history, list) and any(map(openhands.is_event, history[:_LOOKED_AT])):
        return openhands.NAME
    if isinstance(history, list) and _rows_with_roles(history):
        return swe_agent.NAME
    messages = value.get("messages")
    if isinstance(messages, list):
        marked = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
        info = value.get("info")
        if marked or (isinstance(info, dict) and ("exit_status" in info or "mini_version" in info)):
            return mini_swe_agent.NAME
        return chat.NAME if _rows_with_roles(messages) else None
    rows = value.get("input")
    return chat.NAME if isinstance(rows, list) and any(map(_is_plain_message, rows)) else None


def _is_plain_message(value: object) -> bool:
    """Whether a value is a message of a known dialect, by its role or type and by its content."""
    if not isinstance(value, dict) or not chat.is_message(value) or foreign(value):
        return False
    return "role" not in value or any(key in value for key in _CONTENT)


def _rows_with_roles(rows: list[Any]) -> bool:
    return not rows or any(map(_is_plain_message, rows[:_LOOKED_AT]))


def _described(value: object) -> str:
    if isinstance(value, dict):
        return foreign(value) or f"an object with the keys {', '.join(list(value)[:6]) or 'none'}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return foreign(value) or f"a list of {_described(value[0])}"
    return f"JSON of type {type(value).__name__}"


def _excerpt(head: list[FileLine]) -> str:
    data = head[0].data[:40] if head else b""
    return msgspec.json.encode(data.decode("utf-8", errors="replace")).decode()
