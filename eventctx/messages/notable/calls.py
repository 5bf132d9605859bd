"""What a tool call does to files, and which command it runs: read from its arguments.

The tools are those of the known programs: Claude Code (Read, Write, Edit, MultiEdit, NotebookEdit),
Codex (shell, exec_command, apply_patch), SWE-agent and OpenHands (str_replace_editor, file_editor),
pi (read, write, edit) and Amplifier (read_file, write_file, edit_file). A tool of an unknown name
is passed over: what it did is not sure.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.messages.encoding import decode_json
from eventctx.messages.notable import shell
from eventctx.messages.notable.shell import How
from eventctx.messages.part_queries import hosted_arguments
from eventctx.messages.parts import Part
from eventctx.text import pattern

_HOW: Final[dict[str, How]] = {
    **dict.fromkeys(("read", "read_file", "view", "view_file", "open", "open_file"), "read"),
    **dict.fromkeys(("notebookread", "notebook_read"), "read"),
    **dict.fromkeys(("write", "write_file", "create", "create_file"), "written"),
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
)
_PATCHED: Final = pattern(r"^\*\*\* (Add|Update|Delete) File: (.*\S)", re.MULTILINE)
_PATCH_KEYS: Final = ("input", "patch", "diff", "content")


class Deed(NamedTuple):
    """What one call does: the files that it touches, and the command that it runs, if any."""

    files: tuple[tuple[str, How], ...] = ()
    command: str | None = None


NOTHING: Final = Deed()


def deed_of(part: Part) -> Deed:
    """What a call does; nothing where it is no call or its tool is not known."""
    if part.kind not in ("call", "hosted") or part.name is None:
        return NOTHING
    given = hosted_arguments(part) if part.kind == "hosted" else part.value
    name = part.name.rsplit("__", 1)[-1].casefold()
    arguments = _opened(given)
    if name in ("apply_patch", "apply_patch_call"):
        return Deed(_patched(arguments))
    if not isinstance(arguments, dict):
        return NOTHING
    if name in shell.TOOLS:
        return _of_command(arguments)
    editor = name in _EDITORS
    how = _HOW_OF_EDITOR.get(str(arguments.get("command"))) if editor else _HOW.get(name)
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), None)
    if how is None or not path or "\n" in path:
        return NOTHING
    if editor and how == "read" and "." not in path.rsplit("/", 1)[-1]:
        return NOTHING  # probably a folder
    return Deed(((plain_path(path), how),))


def plain_path(path: str) -> str:
    """A path without ``./`` before it and doubled strokes."""
    while path.startswith("./"):
        path = path[2:]
    return re.sub("/{2,}", "/", path)


def _opened(value: Any) -> Any:
    """Arguments as an object where they are JSON in a text."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            return decode_json(value)
        except msgspec.DecodeError:
            return value
    return value


def _of_command(arguments: dict[str, Any]) -> Deed:
    command: Any = arguments.get("command", arguments.get("cmd", arguments.get("commands")))
    if isinstance(arguments.get("action"), dict):
        command = arguments["action"].get("command", arguments["action"].get("commands"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        # ["bash", "-lc", "make test"]
        wrapped = len(command) == 3 and command[1] in ("-c", "-lc")
        command = command[2] if wrapped else " ".join(command)
    if not isinstance(command, str) or not command.strip():
        return NOTHING
    patched = _patched(command) if "*** Begin Patch" in command else ()
    if patched:
        return Deed(patched)
    folder = arguments.get("workdir", arguments.get("cwd"))
    files = tuple([(_within(folder, path), how) for path, how in shell.files_of(command)])
    return Deed(files, None if files and shell.only_files(command) else command)


def _within(folder: object, path: str) -> str:
    """A path of a command that ran in a folder."""
    inside = isinstance(folder, str) and folder and not path.startswith(("/", "~"))
    return plain_path(f"{folder}/{path}" if inside else path)


def _patched(value: Any) -> tuple[tuple[str, How], ...]:
    """The files of a patch in Codex's form, or of an operation of the Responses API."""
    if isinstance(value, dict):
        operation = value.get("operation", value)
        if isinstance(operation, dict) and isinstance(operation.get("path"), str):
            how = _HOW_OF_PATCH.get(str(operation.get("type")), "edited")
            return ((plain_path(operation["path"]), how),)
        value = next((value[key] for key in _PATCH_KEYS if isinstance(value.get(key), str)), "")
    if not isinstance(value, str):
        return ()
    return tuple(
        [(plain_path(found[2]), _HOW_OF_PATCH[found[1]]) for found in _PATCHED.finditer(value)]
    )
