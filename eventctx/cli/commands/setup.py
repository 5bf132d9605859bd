"""``setup``: our server and our hooks in the settings of the agents' programs, and out again."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eventctx.adapters.host_settings.hosts import HOSTS
from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import USAGE, CommandFailed, complain, is_agreed, spelling
from eventctx.cli.output.screen import Screen
from eventctx.errors import InvalidSetting
from eventctx.text import without_password

if TYPE_CHECKING:
    from eventctx.adapters.host_settings.changes import FileChange, SetupState
    from eventctx.adapters.host_settings.hosts import HostSettings, OurProgram
    from eventctx.adapters.host_settings.parts import Part

    _HostChange = tuple[str, FileChange]

_LINES: Final = 12
"""Lines of a file of ours that are shown; the rest is counted."""


@click.command("setup", short_help="Connect the agents' programs on this machine.")
@click.argument("hosts", nargs=-1, type=click.Choice(list(HOSTS)), metavar="[HOST]...")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--undo", is_flag=True, help="Take back what was written.")
@opening.store_options
def setup_command(hosts: tuple[str, ...], yes: bool, undo: bool, store: str | None) -> None:
    """Write our MCP server and our hooks into the settings of agents' programs.

    Without a HOST it is for each of these programs that is on this machine: claude-code, codex,
    gemini-cli, opencode, cursor, vscode, copilot, kiro. Shows what it would write, and asks;
    without a terminal it only shows, unless --yes is given. Comments, order and layout of a file
    stay, and what is there already is not written again. A file that cannot be edited so is left
    as it is; what to add to it by hand is shown.

    --undo brings each file back byte for byte. Of a file that was changed since, our part alone is
    taken out. With --store, the settings name that store. docs/how-to/set-up-a-host.md has more.
    """
    from eventctx.adapters.host_settings.changes import SetupState
    from eventctx.stores.location import default_setup

    screen = Screen()
    state = SetupState(default_setup())
    if undo:
        _undo(screen, state, hosts or tuple(state.hosts), yes=yes)
    else:
        _set_up(screen, state, hosts, _our_program(store), yes=yes)


def _set_up(
    screen: Screen,
    state: SetupState,
    names: tuple[str, ...],
    program: OurProgram,
    *,
    yes: bool,
) -> None:
    from eventctx.adapters.host_settings.changes import plan
    from eventctx.adapters.host_settings.hosts import is_found, parts_of

    home = Path.home()
    chosen = [HOSTS[one] for one in dict.fromkeys(names)] or [
        one for one in HOSTS.values() if is_found(one, home, os.environ)
    ]
    changes: list[_HostChange] = []
    for host in chosen:
        folder = host.home.path(home, os.environ)
        files = parts_of(host, folder, program)
        own = [plan(path, parts, host.name, state) for path, parts in files.items()]
        _show_host(screen, host, own, files, folder)
        changes += [(host.name, one) for one in own]
    if not names and (others := [one.name for one in HOSTS.values() if one not in chosen]):
        screen.line((f"Not found on this machine: {', '.join(others)}.", "dim"))
    needed = [(host, one) for host, one in changes if one.is_needed]
    question = f"Write {plural(len(needed), 'file')}?"
    if needed and is_agreed(question, yes=yes):
        _apply_all(needed, state)
        screen.line(f"Written. `{spelling()} setup --undo` takes it back.")
        for host in chosen:
            if host.advice and any(name == host.name for name, _ in needed):
                screen.line((f"{host.title}: ", "bold"), f"{host.advice}.")
    if any(one.problem for _, one in changes):
        raise CommandFailed(USAGE)


def _undo(screen: Screen, state: SetupState, names: tuple[str, ...], *, yes: bool) -> None:
    from eventctx.adapters.host_settings.changes import plan_undo

    changes: list[_HostChange] = []
    for name in dict.fromkeys(names):
        # The last one first: the folders that were made for the first one are then empty.
        own = [plan_undo(Path(one), name, state) for one in reversed(list(state.files(name)))]
        title = (HOSTS[name].title if name in HOSTS else name, "bold")
        screen.line(title, "" if own else ": nothing was written for it")
        for one in own:
            screen.line(_undo_in_words(one), indent=2)
        changes += [(name, one) for one in own]
    if not names:
        screen.line("Nothing is set up.")
    undoable = [(host, one) for host, one in changes if one.problem is None]
    question = f"Take back {plural(len(undoable), 'file')}?"
    if undoable and is_agreed(question, yes=yes):
        _apply_all(undoable, state, undo=True)
        screen.line("Taken back.")
    if any(one.problem for _, one in changes):
        raise CommandFailed(USAGE)


def _undo_in_words(change: FileChange) -> str:
    path = _short(change.path)
    if change.problem is not None:
        return f"{path}: stays, with our part in it: {change.problem}"
    if change.found is None:
        return f"{path}: is gone already"
    if change.changed:
        took = "our part is taken out" if change.is_needed else "nothing of ours is in it"
        return f"{path}: was changed since: {took}, the rest stays"
    return f"{path}: {'goes' if change.after is None else 'back to its bytes before'}"


def _apply_all(changes: list[_HostChange], state: SetupState, *, undo: bool = False) -> None:
    """Write the changes. Raises CommandFailed after the last one where one cannot be written."""
    from eventctx.adapters.host_settings.changes import apply

    failed = False
    for host, change in changes:
        try:
            apply(change, host, state, undo=undo)
            continue
        except InvalidSetting as error:
            complain(str(error))
        except OSError as error:
            complain(f"{change.path}: cannot be written: {error.strerror}")
        failed = True
    if failed:
        raise CommandFailed(USAGE)


# -- what is shown --------------------------------------------------------------------------------


def _show_host(
    screen: Screen,
    host: HostSettings,
    changes: list[FileChange],
    files: dict[Path, tuple[Part, ...]],
    folder: Path,
) -> None:
    nothing = not any(one.is_needed or one.problem for one in changes)
    screen.line((host.title, "bold"), ": is set up" if nothing else "")
    for one in changes:
        if one.problem is not None:
            screen.line((f"{_short(one.path)}: stays as it is: {one.problem}", "yellow"), indent=2)
            screen.line("To add by hand:", indent=4)
            _show_parts(screen, files[one.path])
        elif one.is_needed:
            how = "new" if one.found is None else "added"
            screen.line(f"{_short(one.path)}: {how}", indent=2)
            _show_parts(screen, one.parts)
    for name, expression in host.by_hand.items():
        path = folder / name
        if os.access(path, os.R_OK) and re.search(expression, path.read_text("utf-8", "replace")):
            words = f"{_short(path)} has eventctx, too: take it out there, or it runs twice"
            screen.line((words, "yellow"), indent=2)


def _show_parts(screen: Screen, parts: tuple[Part, ...]) -> None:
    from eventctx.adapters.host_settings.parts import describe

    lines = describe(parts)
    for line in lines[:_LINES]:
        screen.whole((f"    {line}", "cyan"))
    if len(lines) > _LINES:
        screen.line((f"… {len(lines) - _LINES} more lines", "dim"), indent=4)


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


# -- our own command ------------------------------------------------------------------------------


def _our_program(store: str | None) -> OurProgram:
    """The words that start this program from anywhere.

    Raises InvalidSetting without the server's package, or for a store whose URL has a password.
    """
    from eventctx.adapters.host_settings.hosts import OurProgram

    if find_spec("mcp") is None:
        raise InvalidSetting(
            "setup: expected the package mcp, which our server needs; install it with: "
            "pip install 'eventctx[mcp]'"
        )
    named = opening.named_store(store)
    url = None if named is None else opening.location(store)
    if url is not None and without_password(url) != url:
        raise InvalidSetting(
            "setup: expected a store without a password, which would stand in files of other "
            f"programs; found {without_password(url)}. Set EVENTCTX_STORE where they start instead"
        )
    if url is not None and "://" not in url:
        url = str(Path(url).absolute())
    return OurProgram(_command(), url)


def _command() -> tuple[str, ...]:
    """Whole paths: a program that a desktop starts has another PATH than a shell."""
    called = Path(sys.argv[0])
    if called.stem == "eventctx" and (path := shutil.which(str(called))) is not None:
        return (Path(path).absolute().as_posix(),)  # which every shell of Windows takes, too
    return (Path(sys.executable).as_posix(), "-m", "eventctx.cli")
