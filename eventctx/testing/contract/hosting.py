"""Checks of a module in its host: settings, contributions, being mounted again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eventctx.testing.contract.conversations import talk
from eventctx.testing.contract.subject import POST, PRE, Subject, mounted
from eventctx.testing.contract.verdicts import Broken, sees

FOREIGN: Final = {"auto_compact": True, "a_setting_of_another_module": {"x": 1}}
"""Foundation's default bundle gives every context ``auto_compact``."""

_PATIENCE: Final = 20
"""Waits of 50 ms that a thread gets to end: 1 second in all."""


async def unknown_settings(subject: Subject) -> None:
    """Settings that a module does not know are no error."""
    async with mounted(subject, FOREIGN) as one:
        await one.add(talk(1))


async def contribution(subject: Subject) -> None:
    """The events are declared on the channel from which loggers collect names."""
    async with mounted(subject) as one:
        found = await one.coordinator.collect_contributions("observability.events")
    names = list(_flat(found))
    missing = [name for name in (PRE, POST) if name not in names]
    sees(not missing, f"not declared: {', '.join(missing)}; declared: {', '.join(names) or 'none'}")


def _flat(found: object) -> Iterable[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, Iterable):
        for one in found:
            yield from _flat(one)


async def mounts_again(subject: Subject) -> None:
    """A host mounts once to validate, cleans up, and mounts for real."""
    async with mounted(subject):
        pass
    async with mounted(subject) as one:
        left = await one.transcript()
        sees(not left, f"mounted again it holds {len(left)} messages")
        await one.add(talk(1))
        sees(len(await one.transcript()) == len(talk(1)), "mounted again it does not keep messages")


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
