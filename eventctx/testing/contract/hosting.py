"""Checks of a module in its host: contributions, several sessions, being mounted again."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eventctx.testing.contract.conversations import check_same, short, talk
from eventctx.testing.contract.subject import POST, PRE, Subject, declared_events, mounted
from eventctx.testing.contract.verdicts import Broken, NotChecked, sees

_PATIENCE: Final = 20
"""Waits of 50 ms that a thread gets to end: 1 second in all."""


async def contribution(subject: Subject) -> None:
    """The events are declared on the channel from which loggers collect names."""
    async with mounted(subject) as one:
        names = await declared_events(one.coordinator)
    missing = [name for name in (PRE, POST) if name not in names]
    sees(not missing, f"not declared: {', '.join(missing)}; declared: {', '.join(names) or 'none'}")


async def mounts_again(subject: Subject) -> None:
    """A host mounts once to validate, cleans up, and mounts for real."""
    async with mounted(subject):
        pass
    async with mounted(subject) as one:
        left = await one.transcript()
        sees(not left, f"mounted again it holds {len(left)} messages")
        await one.add(talk(1))
        sees(len(await one.transcript()) == len(talk(1)), "mounted again it does not keep messages")


async def sessions_apart(subject: Subject) -> None:
    """get_messages(): "Get all messages". A message of another session is none of them."""
    if _declared(subject.config):
        raise NotChecked("a setting may name a place, which both sessions would share")
    rows = talk(2)
    async with mounted(subject) as one, mounted(subject) as other:
        await one.add(copy.deepcopy(rows[:6]))
        await other.add(copy.deepcopy(rows[6:]))
        await one.add([{"role": "user", "content": "Go on."}])
        check_same(await other.transcript(), rows[6:], "get_messages() of the second session")
        found = await one.transcript()
        sees(len(found) == 7, f"the first session has {short(found[-2:])} at its end")


async def leaves_nothing(subject: Subject) -> None:
    """A module that was mounted and cleaned up leaves no file and no thread."""
    threads = set(threading.enumerate())
    folders = [Path.cwd(), Path.home()]
    before = _files(folders)
    async with mounted(subject):
        pass
    declared = _declared(subject.config)
    new = [one for one in sorted(_files(folders) - before) if not _is_declared(one, declared)]
    sees(not new, f"files that no setting names: {', '.join(map(str, new[:3]))}")
    await _wait_for(set(threading.enumerate()) - threads)


def _files(folders: Iterable[Path]) -> set[Path]:
    return {one for folder in folders for one in folder.rglob("*") if one.is_file()}


def _declared(config: object) -> list[Path]:
    """Every place that a setting may name: a path, or a store's URL."""
    if isinstance(config, str):
        path = config.partition("///")[2] if "://" in config else config
        # A plain word counts as a path, too, which permits nothing but a file of this name.
        return [Path(path).expanduser().absolute()] if path else []
    if isinstance(config, dict):
        return [path for value in config.values() for path in _declared(value)]
    if isinstance(config, list | tuple):
        return [path for value in config for path in _declared(value)]
    return []


def _is_declared(file: Path, declared: list[Path]) -> bool:
    # SQLite writes PATH-wal and PATH-shm beside PATH.
    return any(
        file == path or path in file.parents or str(file).startswith(f"{path}-")
        for path in declared
    )


async def _wait_for(new: set[Any]) -> None:
    """Raise Broken if a thread does not end; threads of the event loop's own pool may stay."""
    own = [one for one in new if not one.name.startswith("asyncio_")]
    for _ in range(_PATIENCE):
        if not any(one.is_alive() for one in own):
            return
        await asyncio.sleep(0.05)
    alive = ", ".join(one.name for one in own if one.is_alive())
    raise Broken(f"threads still run: {alive}")
