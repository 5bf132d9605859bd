"""Checks of a module in its host: its form, its settings, several sessions, being mounted again.

A host keeps the settings of a context in its profile, and changes the module by its name. So a
module gets settings that were made for another one: "Context managers receive configuration via
Mount Plan" (contract, "Configuration"), and no module may be the reason that a session fails.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from eventctx.testing.contract.conversations import check_same, short, talk
from eventctx.testing.contract.subject import (
    METHODS,
    POST,
    PRE,
    Subject,
    declared_events,
    entry_points_of,
    mounted,
)
from eventctx.testing.contract.verdicts import Broken, NotChecked, raised, sees

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
    # SQLite writes PATH-wal and PATH-shm next to PATH.
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


DOCUMENTED: Final[tuple[Mapping[str, Any], ...]] = (
    # The contract's example of mount(), its guide's template, and Amplifier's default bundle.
    {"max_tokens": 100_000, "compaction_threshold": 0.8},
    {"max_tokens": 200_000, "compact_threshold": 0.92, "auto_compact": True},
    {"max_tokens": 300_000, "compact_threshold": 0.8, "auto_compact": True},
    {"auto_compact": False},
    # What context-simple and context-persistent document.
    {"max_messages": 100},
    {"target_usage": 0.6, "protected_recent": 0.3, "protected_tool_results": 5},
    {"truncate_chars": 250, "truncate_boundary": 0.5, "output_reserve_fraction": 0.5},
    {"compaction_notice_enabled": False, "compaction_notice_verbosity": "minimal"},
    {"compaction_notice_token_reserve": 800, "compaction_notice_min_level": 1},
    {"memory_files": ["./AGENTS.md", "~/.amplifier/AGENTS.md"]},
    {"compaction_strategy": "smart", "export_on_compact": True},
)

UNUSUAL: Final[tuple[Mapping[str, Any], ...]] = (
    # Both modules work with these, so they are in use.
    {"compact_threshold": 0.4},
    {"compact_threshold": 1},
    {"compact_threshold": 1.5},
    {"target_usage": 0.95},
    {"max_tokens": 200_000.0},
)

FOREIGN: Final = {"a_setting_of_another_module": {"x": 1}, "another": [1, None]}


async def known_settings(subject: Subject) -> None:
    """No setting that Amplifier's documents name is refused, nor a value that is in use."""
    for settings in (*DOCUMENTED, *UNUSUAL):
        await _works_with(subject, settings)


async def unknown_settings(subject: Subject) -> None:
    """Settings that a module does not know are no error."""
    await _works_with(subject, FOREIGN)


async def _works_with(subject: Subject, settings: Mapping[str, Any]) -> None:
    """Raise Broken unless the module can be mounted and used with these settings."""
    rows = talk(1)
    try:
        async with mounted(subject, settings) as one:
            await one.add(copy.deepcopy(rows))
            await one.request()
            # A file that the caller's settings name may hold messages of the mounts before.
            found = (await one.transcript())[-len(rows) :]
            check_same(found, rows, "get_messages()")
    except Broken as error:
        raise Broken(f"with {dict(settings)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise Broken(f"with {dict(settings)} it {raised(error)}") from error


async def mount_function(subject: Subject) -> None:
    """There is an ``async def mount(coordinator, config)``."""
    name = subject.target.attribute
    mount = subject.mount
    if mount is None:
        raise Broken(f"the module has no function {name}()")
    sees(inspect.iscoroutinefunction(mount), f"{name}() is not async")
    parameters = inspect.signature(mount).parameters.values()
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    taken = [
        one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)
    ]
    sees(several or len(taken) >= 2, f"{name}() takes {len(taken)} arguments")


async def entry_point(subject: Subject) -> None:
    """The module is declared under ``amplifier.modules``, in pyproject.toml or as installed."""
    found = entry_points_of(subject.target, subject.mount)
    if found is None:
        raise NotChecked("no pyproject.toml lies above it, and it is not installed as a module")
    wanted = f"{subject.target.module}:{subject.target.attribute}"
    sees(found, f"pyproject.toml declares no entry point {wanted} in the group amplifier.modules")


async def mount_point(subject: Subject) -> None:
    """There is a context at the mount point ``context``, where hosts look for it."""
    async with mounted(subject):
        pass


async def methods(subject: Subject) -> None:
    """The context has the five methods, async, with the protocol's arguments."""
    async with mounted(subject) as one:
        for name, count in METHODS:
            method = getattr(one.context, name, None)
            sees(callable(method), f"there is no method {name}()")
            assert method is not None
            sees(inspect.iscoroutinefunction(method), f"{name}() is not async")
            _takes(name, method, count)


def _takes(name: str, method: object, count: int) -> None:
    assert callable(method)
    arguments = (None,) * count
    try:
        inspect.signature(method).bind(*arguments)
        if name == "get_messages_for_request":
            inspect.signature(method).bind()
            inspect.signature(method).bind(token_budget=None, provider=None)
    except TypeError as error:
        raise Broken(f"{name}{inspect.signature(method)}: {error}") from error
