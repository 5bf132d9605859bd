"""The module under test: found by the text that a person typed, mounted anew for each check."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
import tomllib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.testing.contract.conversations import Row, rows_of
from eventctx.testing.contract.coordinator import new_coordinator
from eventctx.testing.contract.verdicts import Broken
from eventctx.testing.recorder import EventRecorder

GROUP: Final = "amplifier.modules"

_EXPECTED: Final = (
    "a directory with amplifier_module_*/__init__.py or __init__.py, a .py file, a module "
    "(pkg.mod), pkg.mod:mount, or the name of an installed entry point of amplifier.modules"
)


class Target(msgspec.Struct, frozen=True):
    """A module to check: its import name, and its path if it was named by a path."""

    given: str
    module: str
    attribute: str = "mount"
    path: Path | None = None
    entry_point: str | None = None

    def load(self) -> Any:
        """Import the module. Raises the module's own errors, and ImportError for a hidden module.

        A module is hidden where another one of the same name comes first on the import path.
        """
        if self.path is None:
            return import_module(self.module)
        folder = str(self.path.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = import_module(self.module)
        found = Path(getattr(module, "__file__", None) or "")
        wanted = self.path / "__init__.py" if self.path.is_dir() else self.path
        if found.resolve() != wanted.resolve():
            raise ImportError(f"{self.module!r} is {found}, which hides {wanted}; rename one")
        return module

    def mount_of(self, module: Any) -> Callable[..., Any] | None:
        """The mount function; None if there is none."""
        found = getattr(module, self.attribute, None)
        return found if callable(found) else None


def resolve(given: str, folder: Path) -> Target:
    """The module that ``given`` names; paths are relative to ``folder``. Raises InvalidSetting."""
    path = folder / Path(given).expanduser()
    if path.is_dir():
        package = _package_in(path.resolve())
        return Target(given, package.name, path=package)
    if path.is_file():
        if path.suffix != ".py":
            raise InvalidSetting(f"{given}: expected {_EXPECTED}; found a file that is not Python")
        path = path.resolve()
        path = path.parent if path.name == "__init__.py" else path
        return Target(given, path.stem if path.is_file() else path.name, path=path)
    for entry in entry_points(group=GROUP):
        if entry.name == given:
            return Target(given, entry.module, entry.attr or "mount", entry_point=entry.name)
    module, _, attribute = given.partition(":")
    if not _exists(module):
        raise InvalidSetting(f"{given}: expected {_EXPECTED}; found none of them")
    return Target(given, module, attribute or "mount")


def _package_in(folder: Path) -> Path:
    """The package that an Amplifier host would load from a source folder (its loader's rule)."""
    found = sorted(one.parent for one in folder.glob("amplifier_module_*/__init__.py"))
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise InvalidSetting(f"{folder}: expected one package, found {names}; name its directory")
    if (folder / "__init__.py").is_file():
        return folder
    raise InvalidSetting(
        f"{folder}: expected amplifier_module_*/__init__.py or __init__.py directly in it, found "
        "neither; Amplifier's loader does not look into src/"
    )


def _exists(module: str) -> bool:
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        # A parent package that cannot be imported exists all the same; a check reports its error.
        return find_spec(module.partition(".")[0]) is not None


def entry_points_of(target: Target, mount: object) -> list[str] | None:
    """The names under which a host finds the module's mount; None if nothing could declare one.

    A package that only re-exports the mount of another one is found under that one's name.
    """
    home = f"{getattr(mount, '__module__', '')}:{getattr(mount, '__qualname__', '')}"
    wanted = (f"{target.module}:{target.attribute}", home)
    installed = [
        entry.name
        for entry in entry_points(group=GROUP)
        if entry.value.replace(" ", "") in (*wanted, target.module)
    ]
    if installed or target.path is None:
        return installed or None
    for folder in list(target.path.parents)[:2]:
        project = folder / "pyproject.toml"
        if project.is_file():
            return _declared_in(project, wanted)
    return None


def _declared_in(project: Path, wanted: Collection[str]) -> list[str]:
    try:
        parsed = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    declared: Any = parsed
    for key in ("project", "entry-points", GROUP):
        declared = declared.get(key, {}) if isinstance(declared, dict) else {}
    if not isinstance(declared, dict):
        return []
    return [name for name, value in declared.items() if str(value).replace(" ", "") in wanted]


PRE: Final = "context:pre_compact"
POST: Final = "context:post_compact"
KNOWN: Final = (PRE, POST, "context:compaction", "context:compact")
"""The contract's names, the one in Amplifier's catalogue of events, and the one of its guide."""

METHODS: Final = (
    ("add_message", 1),
    ("get_messages_for_request", 2),
    ("get_messages", 0),
    ("set_messages", 1),
    ("clear", 0),
)
"""The protocol's methods, each with its number of arguments (context contract 2.1.0)."""

_sessions = itertools.count(1)


class Subject(NamedTuple):
    """A module that was imported, its mount function, and the settings to mount it with."""

    target: Target
    module: Any
    mount: Callable[..., Any] | None
    config: Mapping[str, Any]


class MountedModule:
    """A mounted context. ``events`` recorded the events of its compactions.

    These are events with a known name, or with one that the module declares and that speaks of
    compaction: a host can listen to no other.
    """

    def __init__(self, context: Any, coordinator: Any, events: EventRecorder) -> None:
        self.context = context
        self.coordinator = coordinator
        self.events = events

    async def add(self, rows: list[Row]) -> None:
        """Add messages one by one."""
        for row in rows:
            await self.context.add_message(row)

    async def transcript(self) -> list[Row]:
        """The result of ``get_messages``. Raises Broken if it is no list of messages."""
        return rows_of(await self.context.get_messages(), "get_messages")

    async def request(self, budget: int | None = None, provider: Any = None) -> list[Row]:
        """The result of ``get_messages_for_request``. Raises Broken if it is no message list."""
        arguments = {"token_budget": budget, "provider": provider}
        given = {name: value for name, value in arguments.items() if value is not None}
        found = await self.context.get_messages_for_request(**given)
        return rows_of(found, "get_messages_for_request")


@contextlib.asynccontextmanager
async def mounted(subject: Subject, config: Mapping[str, Any] = {}) -> AsyncIterator[MountedModule]:
    """Mount the module in a session of its own, and clean up as a host does.

    ``config`` are settings besides the subject's. Raises Broken if mounting gives no context.
    """
    assert subject.mount is not None
    coordinator = new_coordinator(f"validation-{next(_sessions)}")
    events = EventRecorder()
    for name in KNOWN:
        coordinator.hooks.register(name, events, name=f"recorder {name}")
    returned = await subject.mount(coordinator, {**subject.config, **config})
    try:
        context = coordinator.get("context")
        if context is None:
            raise Broken(f"nothing at the mount point 'context'; mount() returned {returned!r}")
        for name in await declared_events(coordinator):
            if "compact" in name and name not in KNOWN:
                coordinator.hooks.register(name, events, name=f"recorder {name}")
        yield MountedModule(context, coordinator, events)
    finally:
        await clean_up(coordinator, returned)


async def declared_events(coordinator: Any) -> list[str]:
    """The names on the channel from which loggers collect them, in the modules' order."""
    return list(_flat(await coordinator.collect_contributions("observability.events")))


def _flat(found: object) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, Iterable):
        for one in found:
            yield from _flat(one)


async def clean_up(coordinator: Any, returned: object) -> None:
    """End a session as a host does: call the returned cleanup function and the registered ones."""
    if callable(returned) and not hasattr(returned, "add_message"):
        result = returned()
        if isinstance(result, Awaitable) or inspect.isawaitable(result):
            await result
    await coordinator.cleanup()


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[Path]:
    """Move this process into ``folder``: its working directory and the user's home.

    Yields the folder, which holds ``work`` and ``home``. A process can be in one sandbox at a
    time, because both are process-wide.
    """
    work, home = folder / "work", folder / "home"
    for one in (work, home):
        one.mkdir(parents=True)
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ.update(HOME=str(home), USERPROFILE=str(home))
    try:
        with contextlib.chdir(work):
            yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
