"""The effect of a tool call: the files that it touches, and the command that it runs.

The tools are those of the known programs: Claude Code (Read, Write, Edit, MultiEdit, NotebookEdit),
Codex (shell, exec_command, apply_patch), SWE-agent and OpenHands (str_replace_editor, file_editor),
pi (read, write, edit) and Amplifier (read_file, write_file, edit_file). A tool of an unknown name
is passed over: its effect is not sure.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.messages.encoding import decode_json
from eventctx.messages.parts import Part, hosted_arguments
from eventctx.text import pattern

How = Literal["read", "written", "edited", "deleted"]
"""The effect of a call on a file."""

_HOW: Final[dict[str, How]] = {
    **dict.fromkeys(("read", "read_file", "view", "view_file", "open", "open_file"), "read"),
    **dict.fromkeys(("readfile", "read_text_file", "cat"), "read"),
    **dict.fromkeys(("notebookread", "notebook_read"), "read"),
    **dict.fromkeys(("write", "write_file", "create", "create_file"), "written"),
    **dict.fromkeys(("writefile", "write_to_file", "save_file"), "written"),
    **dict.fromkeys(("edit", "edit_file", "multiedit", "multi_edit", "notebookedit"), "edited"),
    **dict.fromkeys(("notebook_edit", "str_replace", "insert", "search_replace"), "edited"),
    **dict.fromkeys(("replace", "replace_in_file", "update_file"), "edited"),
}
_EDITORS: Final = frozenset(
    ("str_replace_editor", "str_replace_based_edit_tool", "file_editor", "text_editor")
)
_HOW_OF_EDITOR: Final[dict[str, How]] = {
    "view": "read",
    "create": "written",
    **dict.fromkeys(("str_replace", "insert", "undo_edit"), "edited"),
}
_HOW_OF_PATCH: Final[dict[str, How]] = {
    **dict.fromkeys(("Add", "create_file"), "written"),
    **dict.fromkeys(("Update", "Delete", "update_file", "delete_file"), "edited"),
}
_PATH_KEYS: Final = (
    *("file_path", "path", "notebook_path", "filename", "file", "target_file", "absolute_path"),
    *("filePath", "notebookPath", "fileName", "targetFile", "absolutePath", "relative_path"),
    *("AbsolutePath", "TargetFile"),
)
_PATCHED: Final = pattern(r"^\*\*\* (Add|Update|Delete) File: (.*\S)", re.MULTILINE)
_PATCH_KEYS: Final = ("input", "patch", "diff", "content")


class CallEffect(NamedTuple):
    """The files that one call touches, and the command that it runs, if any.

    ``removed`` and ``added`` are the lines that it takes out of the files that it edits and puts
    in, without the white space around them. ``deleted`` are files and folders that are gone after
    it. ``process`` is the id of a running command whose output it asks for. ``told`` are short
    arguments of a call that is none of all this.
    """

    files: tuple[tuple[str, How], ...] = ()
    command: str | None = None
    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    deleted: tuple[str, ...] = ()
    process: str = ""
    told: str = ""


_NOTHING: Final = CallEffect()


def read_effect(part: Part) -> CallEffect:
    """The effect of a call; none where the part is no call or its tool is not known."""
    if part.kind not in ("call", "hosted") or part.name is None:
        return _NOTHING
    given = hosted_arguments(part) if part.kind == "hosted" else part.value
    return _effect(part.name, _open_json(given))


def effect_in_text(text: str) -> tuple[str, CallEffect] | None:
    """The tool and the effect of the one action that a model wrote into its text, if it did.

    The forms are a fenced command (mini-swe-agent, SWE-agent) and ``<function=NAME>`` (OpenHands).
    """
    commands = _FENCED.findall(text) if "```" in text else []
    if len(commands) == 1:
        return "bash", _read_command({"command": commands[0]})
    function = _FUNCTION.search(text) if "<function=" in text else None
    if function is None:
        return None
    given = {found[1]: found[2].strip("\n") for found in _PARAMETER.finditer(function[2])}
    return function[1], _effect(function[1], given)


_FENCED: Final = pattern(r"```(?:bash|sh|shell|mswea_bash_command)[ \t]*\n(.*?)\n```", re.DOTALL)
_FUNCTION: Final = pattern(r"<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER: Final = pattern(r"<parameter=(\w+)>(.*?)</parameter>", re.DOTALL)


def _effect(called: str, arguments: Any) -> CallEffect:
    name = called.rsplit("__", 1)[-1].casefold()
    if name in ("apply_patch", "apply_patch_call"):
        return _effect_of_patch(arguments)
    if not isinstance(arguments, dict):
        return _NOTHING
    if name in SHELL_TOOLS:
        return _read_command(arguments)
    editor = name in _EDITORS
    how = _HOW_OF_EDITOR.get(str(arguments.get("command"))) if editor else _HOW.get(name)
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), None)
    if name in _POLLS:
        return CallEffect(process=str(arguments.get(_POLLS[name], "")))
    if how is None or not path or "\n" in path:
        return CallEffect(told=_short_words(arguments))
    if editor and how == "read" and "." not in path.rsplit("/", 1)[-1]:
        return _NOTHING  # probably a folder
    files = ((plain_path(path), how),)
    return CallEffect(files) if how != "edited" else CallEffect(files, None, *_edits(arguments))


_POLLS: Final = {"write_stdin": "session_id", "bashoutput": "bash_id", "taskoutput": "task_id"}
"""Tools that ask for the output of a running command, and the argument that names it."""

MOST_TOLD: Final = 80
"""Characters of an argument that tells a call from others."""


def _short_words(arguments: dict[str, Any]) -> str:
    """The arguments that are short texts or numbers."""
    given = [one for one in arguments.values() if isinstance(one, str | int)]
    words = [str(one) for one in given if not isinstance(one, bool)]
    return " ".join([one for one in words if len(one) <= MOST_TOLD and "\n" not in one]).strip()


_OLD_KEYS: Final = ("old_string", "old_str", "oldString", "oldText", "search", "old")
_NEW_KEYS: Final = ("new_string", "new_str", "newString", "newText", "replace", "new")


def _edits(arguments: dict[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The lines that an edit takes out, and those that it puts in."""
    listed = arguments.get("edits")
    edits = [arguments, *(listed if isinstance(listed, list) else [])]
    old, new = (
        {
            line
            for edit in edits
            if isinstance(edit, dict)
            for key in keys
            if isinstance(edit.get(key), str)
            for line in _stripped_lines(edit[key])
        }
        for keys in (_OLD_KEYS, _NEW_KEYS)
    )
    return frozenset(old - new), frozenset(new)


def _stripped_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def plain_path(path: str) -> str:
    """A path without ``./`` before it and doubled strokes."""
    while path.startswith("./"):
        path = path[2:]
    return re.sub("/{2,}", "/", path)


def absolute_of(paths: Iterable[str]) -> dict[str, str]:
    """The absolute path of each relative one that can only mean it."""
    given = list(paths)
    absolute: dict[str, list[str]] = {}
    for path in dict.fromkeys(given):
        if path.startswith(("/", "~")):
            absolute.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    found: dict[str, str] = {}
    for path in given:
        named = absolute.get(path.rsplit("/", 1)[-1], ())
        same = [one for one in named if one.endswith(f"/{path}")]
        if len(same) == 1:
            found[path] = same[0]
    return found


def _open_json(value: Any) -> Any:
    """Arguments as an object where they are JSON in a text."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            return decode_json(value)
        except msgspec.DecodeError:
            return value
    return value


def _read_command(arguments: dict[str, Any]) -> CallEffect:
    command: Any = arguments.get("command", arguments.get("cmd", arguments.get("commands")))
    if isinstance(arguments.get("action"), dict):
        command = arguments["action"].get("command", arguments["action"].get("commands"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        # ["bash", "-lc", "make test"]
        wrapped = len(command) == 3 and command[1] in ("-c", "-lc")
        command = command[2] if wrapped else " ".join(command)
    if not isinstance(command, str) or not command.strip():
        return _NOTHING
    patched = _effect_of_patch(command) if "*** Begin Patch" in command else _NOTHING
    if patched.files:
        return patched
    folder = arguments.get("workdir", arguments.get("cwd"))
    files = tuple([(_within(folder, path), how) for path, how in files_of(command)])
    deleted = tuple([_within(folder, path) for path in _deleted_by(command)])
    command = None if files and only_files(command) else command
    return CallEffect(files, command, deleted=deleted)


def _within(folder: object, path: str) -> str:
    """A path of a command that ran in a folder."""
    inside = isinstance(folder, str) and folder and not path.startswith(("/", "~"))
    return plain_path(f"{folder}/{path}" if inside else path)


def _effect_of_patch(value: Any) -> CallEffect:
    """The effect of a patch in Codex's form, or of an operation of the Responses API."""
    if isinstance(value, dict):
        operation = value.get("operation", value)
        if isinstance(operation, dict) and isinstance(operation.get("path"), str):
            how = _HOW_OF_PATCH.get(str(operation.get("type")), "edited")
            text = operation.get("diff")
            changed = _changes(text) if isinstance(text, str) else (frozenset(), frozenset())
            return CallEffect(((plain_path(operation["path"]), how),), None, *changed)
        value = next((value[key] for key in _PATCH_KEYS if isinstance(value.get(key), str)), "")
    if not isinstance(value, str):
        return _NOTHING
    found = [(one[1], plain_path(one[2])) for one in _PATCHED.finditer(value)]
    files = tuple([(path, _HOW_OF_PATCH[what]) for what, path in found])
    deleted = tuple([path for what, path in found if what == "Delete"])
    return CallEffect(files, None, *_changes(value), deleted)


def _changes(patch: str) -> tuple[frozenset[str], frozenset[str]]:
    """The lines that a patch takes out, and those that it puts in."""
    old, new = (
        {line[1:].strip() for line in patch.splitlines() if line.startswith(sign)} for sign in "-+"
    )
    return frozenset(old - new), frozenset(new)


# -- shell commands ------------------------------------------------------------------------------

SHELL_TOOLS: Final = frozenset(
    (
        *("bash", "shell", "sh", "exec", "exec_command", "shell_command", "run_command"),
        *("terminal", "execute_bash", "execute_command", "run_shell_command", "run_terminal_cmd"),
        *("local_shell_call", "shell_call", "container.exec", "run_bash", "command"),
    )
)
"""Names of tools that run a command, in lower case."""

MOST_KNOWN: Final = 1_024
"""Commands whose files are remembered: each compaction reads those of its session again."""

MOST_AROUND: Final = 16
"""Pieces around a command that are taken off; what has more was made by a program."""

_DOCUMENT: Final = pattern(r"<<-?\s*(['\"]?)(\w+)\1(.*)")
_PREFIX: Final = pattern(
    r"\s*(?:cd\s+(?:\"[^\"]*\"|'[^']*'|\S+)\s*(?:&&|;|\n)|(?:export\s+)?[A-Z_][A-Z0-9_]*=\S*"
    r"(?:\s*(?:&&|;))?\s|(?:sudo|time|nohup)\s|timeout\s+\S+\s|set\s+-\S+\s*(?:&&|;|\n))\s*"
)
_SUFFIX: Final = pattern(
    # Each run of spaces is tried from its start alone: from all, it would take the square of it.
    r"(?<!\s)\s*(?:\|\s*(?:tail|head|less|cat|wc)\b[^|;&]*|\d?>&\d|2>\s*/dev/null|\|\|\s*true|;\s*echo[^;]*)$"
)
_SEPARATORS: Final = frozenset(("&&", "||", ";", "|", "&", "(", ")", ";;", "|&"))
_UNSURE: Final = pattern(r"[*?$`{}\[\]<>|\"\\]|^-|^/dev/|^&")
_ON_FILES: Final = frozenset(("cat", "head", "tail", "sed", "nl", "tee", "cd"))
_DELETES: Final = pattern(r"\b(?:rm|mv|rmdir|unlink)\b")
_WITH_SUBCOMMAND: Final = frozenset(
    (
        *("npx", "uv", "poetry", "bundle", "pnpm", "yarn", "npm", "mix", "cargo", "git", "go"),
        *("python", "python3", "docker", "make", "bd"),
    )
)
_SUBCOMMAND: Final = pattern(r"[a-z][\w:.-]*")


def core(command: str) -> str:
    """A command without its wrapping: ``cd x &&``, variables, ``2>&1 | tail -5``."""
    text = command.strip()
    for _ in range(MOST_AROUND):
        prefix = _PREFIX.match(text)
        shorter = _SUFFIX.sub("", text if prefix is None else text[prefix.end() :]).strip()
        if not shorter or shorter == text:
            break
        text = shorter
    return " ".join(text.split())


@lru_cache(maxsize=MOST_KNOWN)
def files_of(command: str) -> tuple[tuple[str, How], ...]:
    """The files that a command surely reads, writes or edits; none where that is not sure.

    Read are the operands of ``cat``, ``head``, ``tail``, ``nl`` and ``sed -n``; edited those of
    ``sed -i``; written those of ``tee`` and of a redirection. Patterns and variables are passed
    over.
    """
    found: list[tuple[str, How]] = []
    for simple in _simple_commands(command):
        found += [one for one in _read_simple_command(simple) if not _UNSURE.search(one[0])]
    return tuple(found)


@lru_cache(maxsize=MOST_KNOWN)
def _deleted_by(command: str) -> tuple[str, ...]:
    """The files and folders that a command surely deletes or moves away."""
    found: list[str] = []
    for words in _simple_commands(command) if _DELETES.search(command) else ():
        words = words[1:] if words[:1] == ["git"] else words
        operands = [word for word in words[1:] if not word.startswith("-")]
        if words[:1] == ["mv"]:
            found += operands[:-1]
        elif words[:1] in (["rm"], ["unlink"], ["rmdir"]):
            found += operands
    return tuple([one.rstrip("/") for one in found if not _UNSURE.search(one)])


def only_files(command: str) -> bool:
    """Whether a command does nothing but show, write or edit files."""
    simple = [one for one in _simple_commands(command) if one]
    return bool(simple) and all(one[0] in _ON_FILES for one in simple)


def _without_documents(command: str) -> Iterator[str]:
    """The lines of a command without those of its here-documents."""
    lines = command.split("\n")
    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(place)
    after = 0
    for place, line in enumerate(lines):
        if place < after:
            continue
        document = _DOCUMENT.search(line)
        ends = [] if document is None else places.get(document[2], [])
        end = bisect_right(ends, place)
        if document is None or end == len(ends):
            yield line
            continue
        after = ends[end] + 1
        yield f"{line[: document.start()]}<<{document[2]} {document[3]} ;"


def _simple_commands(command: str) -> Iterator[list[str]]:
    text = " ; ".join(_without_documents(command))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for token in lexer:
            if token in _SEPARATORS:
                yield words
                words = []
            else:
                words.append(token)
    except ValueError:
        return  # an open quotation: nothing about the rest is sure
    yield words


def _read_simple_command(words: list[str]) -> Iterator[tuple[str, How]]:
    if not words:
        return
    plain: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word in (">", ">>") and place + 1 < len(words):
            if plain and plain[-1] in ("1", "2"):
                plain.pop()
            else:
                yield words[place + 1], "written"
            place += 2
        elif word.startswith(("<", ">", "&")):
            place += 2  # a here-document, an input or a copy of an output
        else:
            plain.append(word)
            place += 1
    if not plain:
        return
    program, operands = plain[0], plain[1:]
    # BSD's sed takes an empty word after -i: sed -i '' s/a/b/ file
    files = [word for word in operands if word and not word.startswith("-")]
    if program in ("cat", "nl"):
        yield from [(file, "read") for file in files]
    elif program in ("head", "tail"):
        yield from [(file, "read") for file in files if not file.isdigit()]
    elif program == "sed" and len(files) > 1 and "-e" not in operands:
        how: How = "edited" if any(one.startswith("-i") for one in operands) else "read"
        yield from [(file, how) for file in files[1:]]
    elif program == "tee":
        yield from [(file, "written") for file in files]


def identifying(command: str) -> tuple[str, list[str]]:
    """The program with its subcommand, and the words that tell this run from another.

    Those words are paths, names with a digit or a mark, and quoted texts.
    """
    words = core(command).split()
    if not words:
        return "", []
    at = 1
    program = words[0].rsplit("/", 1)[-1]
    if program in _WITH_SUBCOMMAND and len(words) > 1:
        at = 2
        program = f"{program} {words[1]}" if _SUBCOMMAND.fullmatch(words[1]) else program
    marked = [
        word.strip("\"'`()")
        for word in words[at:]
        if not word.startswith("-")
        and re.search(r"[A-Za-z]", word)
        and re.search(r"[\d_/.:\"'-]", word)
    ]
    return program, [word for word in marked if len(word) >= 4]
