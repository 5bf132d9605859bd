"""``watch`` and ``import --follow``: sessions that agents write appear and grow in the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import run, stopped_by_signals
from eventctx.cli.output.screen import Screen, put_json
from eventctx.text import escape_breaks

if TYPE_CHECKING:
    from eventctx.importers.load import ImportSummary
    from eventctx.importers.many import FilePassedOver, ImportTotal


@click.command("watch", short_help="Import sessions while agents write them.")
@click.argument("folders", nargs=-1, metavar="[DIR...]", type=click.Path(path_type=Path))
@opening.reading
def watch_command(folders: tuple[Path, ...], store: str | None, as_json: bool) -> None:
    """Import the sessions in DIR, then what agents write to them, until Ctrl-C.

    Without DIR: the folders of Claude Code, Codex and other agents that there are. The store is as
    after `eventctx import`, at any moment; `sessions` and `log -f` show it live. What was imported
    by an earlier watch and has not changed is not read again. With --json, one JSON object a
    change.
    """
    screen = Screen(as_json)
    if not folders:
        from eventctx.importers.format_table import known_folders

        known = known_folders(Path.home(), os.environ)
        found = [one for one in known if one.path.is_dir()]
        if not found:
            looked = ", ".join(f"{one.path} ({one.program})" for one in known)
            raise click.UsageError(f"there is no folder of a known agent; looked for {looked}.")
        folders = tuple(one.path for one in found)
        if not as_json:
            for one in found:
                screen.line((f"found {one.program}: {one.path}", "dim"))
    follow_paths(folders, None, store, as_json)


def follow_paths(
    paths: Sequence[Path], format_: str | None, store: str | None, as_json: bool
) -> None:
    """Import paths, and what changes in them, until Ctrl-C; then print the total."""
    from eventctx.importers.found import check_folder

    for path in paths:
        if not path.exists():
            raise click.UsageError(f"{path}: there is no such file or folder.")
        check_folder(path)
    run(_follow(paths, format_, store, as_json))


async def _follow(
    paths: Sequence[Path], format_: str | None, store: str | None, as_json: bool
) -> None:
    from eventctx.importers.following import Follower, WatchLine, line_of
    from eventctx.importers.known_files import KnownFiles
    from eventctx.importers.load import ImportSummary

    screen = Screen(as_json)

    def told(result: ImportSummary | FilePassedOver) -> None:
        if as_json:
            put_json(line_of(result))
        elif isinstance(result, ImportSummary):
            show_session(screen, result)
        else:
            show_passed_over(screen, result)

    async with opening.open_or_create(store) as engine:
        known = KnownFiles(opening.path_of(opening.location(store)))
        follower = Follower(
            engine.store, paths, known=known, told=told, noted=engine.note_receipt, format=format_
        )
        if as_json:
            put_json(WatchLine(kind="watching", watching=paths))
        else:
            screen.line((f"watching {plural(len(paths), 'path')}; Ctrl-C ends it", "dim"))
        with stopped_by_signals() as stop:
            await follower.run(stop)
    result = follower.result
    if as_json:
        put_json(WatchLine(kind="total", total=result.total, unchanged=follower.unchanged))
        return
    show_total(screen, result.total)
    if follower.unchanged:
        files = plural(follower.unchanged, "file")
        screen.line((f"{files} not read, as nothing changed since an earlier watch", "dim"))


_SHOWN = 5


def show_session(screen: Screen, summary: ImportSummary, verbose: bool = False) -> None:
    """One line of a session: its name, format, counts and new records; ``verbose`` tells more."""
    added = plural(summary.added, "new record") if summary.added else "nothing new"
    problems = [plural(summary.warned, "warning")] if summary.warned else []
    screen.line(
        (summary.session or "", "bold green"),
        f"  {summary.format}  ",
        ", ".join((_counts(summary), added, *problems)),
    )
    if summary.taken_over:
        screen.line(
            ("taken over: it is yours, and its file is not imported again", "bold"), indent=2
        )
    if not verbose:
        return
    if summary.raw:
        screen.line((f"kept beside the messages: {_kinds(summary.raw)}", "dim"), indent=2)
    if summary.unanswered:
        requests = plural(summary.unanswered, "sent request")
        screen.line((f"{requests} without an answer in the file", "dim"), indent=2)
    if summary.unknown:
        screen.line((f"not understood among these: {_kinds(summary.unknown)}", "yellow"), indent=2)
    _listed(screen, "waits for the next import", summary.waiting, len(summary.waiting), "dim")
    _listed(screen, "warning", summary.warnings, summary.warned, "yellow")


def show_passed_over(screen: Screen, one: FilePassedOver) -> None:
    """One line of a file that became no session."""
    style = "dim" if one.error is None else "yellow"
    screen.line(("passed over: ", style), escape_breaks(f"{one.path}: {one.reason}"))


def show_total(screen: Screen, total: ImportTotal) -> None:
    """The last line of an import."""
    parts = [plural(total.sessions, "session"), _counts(total), plural(total.added, "new record")]
    if total.warned:
        parts.append(plural(total.warned, "warning"))
    text = "total: " + ", ".join(parts)
    if total.passed_over:
        text += f"; {plural(total.passed_over, 'file')} passed over"
        text += f", {number(total.failed)} of them for an error" if total.failed else ""
    screen.line((text, "bold"))


def _counts(counted: ImportSummary | ImportTotal) -> str:
    return ", ".join(
        (
            plural(counted.messages, "message"),
            plural(counted.turns, "turn"),
            plural(counted.calls, "request") + _observed(counted),
            plural(counted.compactions, "compaction"),
        )
    )


def _observed(counted: ImportSummary | ImportTotal) -> str:
    """How many of the requests are known as they were sent; nothing is said where none is."""
    if not counted.observed:
        return ""
    return " (as sent)" if counted.observed == counted.calls else f" ({counted.observed:,} as sent)"


def _listed(screen: Screen, title: str, texts: tuple[str, ...], total: int, style: str) -> None:
    for text in texts[:_SHOWN]:
        screen.line((f"{title}: {text}", style), indent=2)
    if total > _SHOWN:
        screen.line((f"… and {total - _SHOWN} more", style), indent=2)


def _kinds(kinds: dict[str, int]) -> str:
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{kind} {number(count)}" for kind, count in ranked[:8])
    rest = sum(count for _, count in ranked[8:])
    return f"{shown}, {number(rest)} others" if rest else shown
