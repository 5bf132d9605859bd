"""The formats that can be imported: one row each.

A format is a function from lines to items (``source/items.py``): ``parse(lines, name, ended)``.
All else is the same for every format and is done once, elsewhere: opening a file and reading its
lines (``source/source.py``, ``source/lines.py``), finding and naming transcripts (``found.py``,
``many.py``), recognising a format (``detect.py``), records, ids and counts (``recording/``), and
the summary with what was not understood (``one_session.py``).

A new format is:

1. a module in ``formats`` with ``parse`` and the marks that tell its lines or documents from all
   others;
2. a row in ``FORMATS``, with the folder where its program keeps sessions, if there is one;
3. a row in docs/reference/import-formats.md.

The rules for items are in ``source/items.py``: nothing is dropped silently, and a second import of
a grown file finds the same items. The files of ``tests/importers/growing.py`` try them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.importers.formats import (
    amplifier,
    chat,
    claude_code,
    claude_stream,
    codex,
    codex_exec,
    codex_rows,
    copilot,
    cursor,
    opencode,
    opencode_storage,
    openhands,
    pi,
    trajectories,
)
from eventctx.importers.formats.atif import files as atif_files
from eventctx.importers.formats.atif import trajectory as atif
from eventctx.importers.formats.cassettes import cassette, tape
from eventctx.importers.formats.cline import cline
from eventctx.importers.formats.google import gemini, gemini_records, qwen
from eventctx.importers.source.companions import TASK
from eventctx.importers.source.items import FileLine, Parser
from eventctx.importers.source.naming import named_by_folder
from eventctx.importers.source.source import folder_name


class KnownFolder(NamedTuple):
    """A folder of sessions, the program that writes it, and the end of its sessions' paths."""

    program: str
    path: Path
    files: str

    def holds(self, path: str) -> bool:
        """Whether a path in the folder is that of a session."""
        return re.search(rf"(?:{self.files})\Z", path) is not None


class ProgramHome(NamedTuple):
    """``below`` a program's folder are its sessions; the environment may name another folder.

    ``files`` is an expression for the end of their paths: programs keep other files there, too.
    """

    program: str
    folder: str
    below: str
    variable: str | None = None
    files: str = r"\.jsonl"

    def sessions(self, home: Path, environment: Mapping[str, str]) -> KnownFolder:
        """The folder of sessions of the person whose home folder is ``home``."""
        moved = environment.get(self.variable) if self.variable else None
        return KnownFolder(self.program, Path(moved or home / self.folder) / self.below, self.files)


def _own_name(path: Path) -> str:
    return path.name


def _event_name(path: Path) -> str:
    return folder_name(path) if path.is_dir() else path.name


def _no_others(path: Path) -> list[Parser]:
    return []


def _only_its_own(path: Path, lines: Iterable[FileLine]) -> Iterable[FileLine]:
    return lines


def _no_file(path: Path) -> bool:
    return False


def _unmarked(value: Any) -> bool:
    return False


class Format(NamedTuple):
    """A format that can be imported. ``parse`` reads its files, ``parse_folder`` its folders.

    ``is_row`` marks one object of JSONL, ``is_document`` the value of a whole file, ``is_file`` a
    file by its place, or one that is no text. ``called`` gives the name of a session whose lines do
    not name it. ``others`` gives a parser for each further session of a file; they read the file as
    it is when they are made. ``whole`` adds the lines of the session that are in another file.
    ``home`` is where a program keeps its sessions, ``also`` are further folders, which count where
    they exist.

    ``by_file``: no line names a session, so that two files of one name are told apart by their
    folders. ``has_agents``: sessions of subagents are in files of a folder with the session's name.
    ``rewrites``: the program writes heads and envelopes of a file anew, and leaves its messages.
    ``has_requests``: files hold requests as they were sent. ``undoes_compactions``: what a
    compaction took out may return.
    """

    name: str
    title: str
    parse: Parser
    is_row: Callable[[dict[str, Any]], bool] = _unmarked
    is_document: Callable[[Any], bool] = _unmarked
    is_file: Callable[[Path], bool] = _no_file
    called: Callable[[Path], str] = _own_name
    parse_folder: Parser | None = None
    others: Callable[[Path], list[Parser]] = _no_others
    whole: Callable[[Path, Iterable[FileLine]], Iterable[FileLine]] = _only_its_own
    home: ProgramHome | None = None
    also: tuple[ProgramHome, ...] = ()
    by_file: bool = False
    has_agents: bool = False
    has_requests: bool = False
    undoes_compactions: bool = False
    rewrites: bool = False


_EDITORS: Final = (
    ".config/Code/User",
    "Library/Application Support/Code/User",
    "AppData/Roaming/Code/User",
    ".vscode-server/data/User",
)
"""The folders of Visual Studio Code on Linux, macOS, Windows and a remote machine."""

_CLINES: Final = (("Cline", "saoudrizwan.claude-dev"), ("Roo Code", "rooveterinaryinc.roo-cline"))
"""Programs in an editor that keep tasks, and their names there."""

OPENHANDS: Final = "openhands"
AMPLIFIER: Final = "amplifier"
CONTEXT_PERSISTENT: Final = "context-persistent"
CASSETTE: Final = "cassette"
CLINE: Final = "cline"
CURSOR: Final = "cursor"
MESSAGES: Final = "messages"

_ROWS: Final = (
    Format(
        "claude-code",
        "Claude Code session (JSONL)",
        claude_code.parse,
        is_row=claude_code.is_row,
        others=claude_code.others,
        home=ProgramHome("Claude Code", ".claude", "projects", "CLAUDE_CONFIG_DIR"),
        has_agents=True,
        has_requests=True,
        undoes_compactions=True,
    ),
    Format(
        "claude-stream",
        "output of claude -p --output-format stream-json, or of the Agent SDK (JSONL, JSON)",
        claude_stream.parse,
        is_row=claude_stream.is_row,
        is_document=claude_stream.is_document,
        others=claude_stream.others,
        by_file=True,
        has_agents=True,
    ),
    Format(
        "codex",
        "Codex rollout (JSONL)",
        codex.parse,
        is_row=codex_rows.is_row,
        whole=codex_rows.with_base,
        rewrites=True,
        home=ProgramHome("Codex", ".codex", "sessions", "CODEX_HOME"),
        undoes_compactions=True,
    ),
    Format(
        "codex-exec",
        "output of codex exec --json (JSONL)",
        codex_exec.parse,
        is_row=codex_exec.is_row,
        by_file=True,
    ),
    Format(
        "copilot",
        "GitHub Copilot CLI session (events.jsonl)",
        copilot.parse,
        is_row=copilot.is_row,
        called=named_by_folder,
        others=copilot.others,
        home=ProgramHome("Copilot CLI", ".copilot", "session-state", "COPILOT_HOME"),
        has_agents=True,
    ),
    Format(
        CURSOR,
        "Cursor agent transcript (JSONL or text)",
        cursor.parse,
        is_row=cursor.is_row,
        home=ProgramHome("Cursor", ".cursor", "projects", files=r"\.jsonl|\.txt"),
        by_file=True,
        has_agents=True,
    ),
    Format(
        CLINE,
        "Cline or Roo Code task, or Cline session (a folder of JSON)",
        cline.parse,
        is_document=cline.is_document,
        called=named_by_folder,
        whole=cline.with_companions,
        home=ProgramHome("Cline", ".cline/data", "sessions", "CLINE_DATA_DIR", r"\.messages\.json"),
        also=(
            ProgramHome("Cline", ".cline/data", "tasks", "CLINE_DATA_DIR", re.escape(TASK)),
            *[
                ProgramHome(program, editor, f"globalStorage/{name}/tasks", files=re.escape(TASK))
                for editor in _EDITORS
                for program, name in _CLINES
            ],
        ),
        by_file=True,
    ),
    Format(
        "gemini-cli",
        "Gemini CLI chat (JSON or JSONL)",
        gemini.parse,
        is_row=gemini_records.is_row,
        is_document=gemini_records.is_document,
        called=gemini.called,
        home=ProgramHome("Gemini CLI", ".gemini", "tmp", files=r"/chats/session-[^/]*\.jsonl?"),
    ),
    Format(
        "qwen-code",
        "Qwen Code chat (JSONL)",
        qwen.parse,
        is_row=qwen.is_row,
        home=ProgramHome("Qwen Code", ".qwen", "projects"),
        undoes_compactions=True,
    ),
    Format(
        "swe-agent",
        "SWE-agent trajectory (.traj)",
        trajectories.parse_swe_agent,
        is_document=trajectories.is_swe_agent,
        by_file=True,
    ),
    Format(
        "mini-swe-agent",
        "mini-swe-agent trajectory (.traj.json)",
        trajectories.parse_mini,
        is_document=trajectories.is_mini,
        by_file=True,
    ),
    Format(
        "atif",
        "ATIF trajectory of Harbor's agents and others (JSON)",
        atif.parse,
        is_document=atif_files.is_document,
        others=atif.others,
        whole=atif_files.with_continuations,
        by_file=True,
    ),
    Format(
        "pi",
        "pi session (JSONL)",
        pi.parse,
        is_row=pi.is_row,
        home=ProgramHome("pi", ".pi", "agent/sessions"),
    ),
    Format(
        "opencode",
        "opencode session (storage, opencode.db, or an export)",
        opencode.parse,
        is_row=opencode.is_head,
        is_document=opencode.is_document,
        is_file=opencode_storage.is_session_file,
        others=opencode.others,
        whole=opencode_storage.with_messages,
        home=ProgramHome("opencode", ".local/share", "opencode", "XDG_DATA_HOME", ""),
    ),
    Format(
        OPENHANDS,
        "OpenHands events (a folder of them, JSON or JSONL)",
        openhands.parse,
        is_row=openhands.is_event,
        is_document=openhands.is_document,
        called=_event_name,
        parse_folder=openhands.parse_folder,
        by_file=True,
    ),
    Format(
        AMPLIFIER,
        "Amplifier transcript.jsonl or events.jsonl",
        amplifier.parse,
        is_row=amplifier.is_own_row,
        called=named_by_folder,
        home=ProgramHome("Amplifier", ".amplifier", "projects"),
    ),
    Format(
        CONTEXT_PERSISTENT,
        "Amplifier's context-messages.jsonl",
        amplifier.parse_context,
        is_row=amplifier.is_context_row,
        called=named_by_folder,
    ),
    Format(
        CASSETTE,
        "recorded HTTP of a provider's SDK (VCR cassette)",
        cassette.parse,
        is_document=cassette.is_cassette,
        others=cassette.others,
        by_file=True,
        has_requests=True,
    ),
    Format(
        "tape",
        "recorded by `eventctx record` (JSONL)",
        tape.parse,
        is_row=tape.is_row,
        others=tape.others,
        has_requests=True,
    ),
    Format(
        MESSAGES,
        "message list, OpenAI or Anthropic (JSON or JSONL)",
        chat.parse,
        is_row=chat.is_plain,
        is_document=chat.is_document,
        by_file=True,
    ),
)

FORMATS: Final[dict[str, Format]] = {row.name: row for row in _ROWS}
"""The values of ``--format``. The first row whose mark fits a line or a document is its format."""


def known_folders(home: Path, environment: Mapping[str, str]) -> tuple[KnownFolder, ...]:
    """The folders where programs keep sessions that can be imported.

    The first folder of each program is among them whether it exists or not.
    """
    homes = [row.home for row in _ROWS if row.home is not None]
    further = [one.sessions(home, environment) for row in _ROWS for one in row.also]
    return (
        *[one.sessions(home, environment) for one in homes],
        *[one for one in further if one.path.is_dir()],
    )
