"""``watch`` and ``import --follow``: sessions that agents write appear and grow in the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from eventctx.cli.output import opening
from eventctx.cli.output.imported import show_passed_over, show_session, show_total
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_json
from eventctx.cli.output.stopping import stopped_by_signals
from eventctx.importers.following import Follower
from eventctx.importers.format_table import known_folders
from eventctx.importers.known_files import KnownFiles
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import FilePassedOver


@click.command("watch", short_help="Import sessions while agents write them.")
@click.argument("folders", nargs=-1, metavar="[DIR...]", type=click.Path(path_type=Path))
@opening.reading
def watch_command(folders: tuple[Path, ...], store: str | None, as_json: bool) -> None:
    """Import the sessions in DIR, then what agents write to them, until Ctrl-C.

    Without DIR: the folders of Claude Code, Codex, pi and Amplifier that there are. The store is as
    after `eventctx import`, at any moment; `sessions` and `log -f` show it live. What was imported
    by an earlier watch and has not changed is not read again. With --json, one JSON object a
    change.
    """
    screen = Screen(as_json)
    if not folders:
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
    for path in paths:
        if not path.exists():
            raise click.UsageError(f"{path}: there is no such file or folder.")
    run(_follow(paths, format_, store, as_json))


async def _follow(
    paths: Sequence[Path], format_: str | None, store: str | None, as_json: bool
) -> None:
    screen = Screen(as_json)

    def told(result: ImportSummary | FilePassedOver) -> None:
        if as_json:
            kind = "session" if isinstance(result, ImportSummary) else "passed_over"
            put_json({"kind": kind, kind: result})
        elif isinstance(result, ImportSummary):
            show_session(screen, result)
        else:
            show_passed_over(screen, result)

    async with opening.created(store) as engine:
        known = KnownFiles(opening.path_of(opening.location(store)))
        follower = Follower(engine.store, paths, known=known, told=told, format=format_)
        if as_json:
            put_json({"kind": "watching", "watching": paths})
        else:
            screen.line((f"watching {plural(len(paths), 'path')}; Ctrl-C ends it", "dim"))
        with stopped_by_signals() as stop:
            await follower.run(stop)
    result = follower.result
    if as_json:
        put_json({"kind": "total", "total": result.total, "unchanged": follower.unchanged})
        return
    show_total(screen, result.total)
    if follower.unchanged:
        files = plural(follower.unchanged, "file")
        screen.line((f"{files} not read, as nothing changed since an earlier watch", "dim"))
