"""The store that a command works on, opened without creating one by accident."""

from __future__ import annotations

import difflib
import shlex
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from eventctx.documents.short_names import fits
from eventctx.errors import (
    InvalidSessionId,
    InvalidSetting,
    StoreUnavailable,
    StreamNotFound,
)
from eventctx.log.private_files import make_folder
from eventctx.log.session_id import check_session_id
from eventctx.log.store import StreamInfo
from eventctx.safe_text import without_password
from eventctx.stores.location import ENVIRONMENT, default_path, default_store, in_users_folder

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.session.context import Context

_NEAR: Final = 3
_LOOKED: Final = 10_000
"""Names that are compared with one that is not there: each takes a tenth of a millisecond."""

F = TypeVar("F", bound=Callable[..., Any])


def named_store(own: str | None) -> str | None:
    """The store that a command line names after the command (``own``) or before it."""
    context = click.get_current_context(silent=True)
    settings = context.find_root().obj if context is not None else None
    before = settings.get("store") if isinstance(settings, dict) else None
    return own or before


def location(own: str | None) -> str:
    """The store's URL or path: ``--store``, else ``EVENTCTX_STORE``, else the default.

    Raises InvalidSetting for a store in memory.
    """
    named = named_store(own)
    url = default_store() if named is None else in_users_folder(named)
    if url in ("memory://", ":memory:"):
        raise InvalidSetting(
            f"store: expected one that outlives the command, found {url}; name a path, or a URL"
        )
    return url


def as_option(own: str | None) -> str:
    """`` --store URL`` for a suggested command, without a password; empty for the default store."""
    url = named_store(own)
    return "" if url is None else f" --store {shlex.quote(without_password(url))}"


def path_of(url: str) -> Path | None:
    """The file behind a store's URL; None for a store that is no file."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return Path(url)
    return Path(rest.removeprefix("/")) if scheme == "sqlite" else None


def store_options(command: F) -> F:
    """Give a command ``--store``, which may stand before the command's name or after it."""
    option = click.option(
        "--store",
        metavar="URL",
        help="The store: a path, sqlite:///PATH, postgresql://… or nats://…. May also stand before "
        "the command.",
    )
    decorated: F = option(command)
    return decorated


def reading(command: F) -> F:
    """Give a command ``--store`` and ``--json``."""

    @wraps(command)
    def called(*args: Any, **kwargs: Any) -> Any:
        return command(*args, as_json=kwargs.pop("json"), **kwargs)

    option = click.option("--json", is_flag=True, help="Print JSON with stable keys.")
    return cast(F, option(store_options(called)))


@asynccontextmanager
async def existing(own: str | None, *, read_only: bool = False) -> AsyncIterator[Engine]:
    """The engine on a store that exists already. Raises StoreUnavailable where there is none."""
    url = location(own)
    path = path_of(url)
    if path is not None and not path.exists():
        raise StoreUnavailable(
            f"there is no store at {path}: `eventctx import FILE` makes one, `eventctx demo` shows "
            f"what it is good for, --store or {ENVIRONMENT} names another"
        )
    from eventctx.engine import open_engine

    async with open_engine(url, create=False, read_only=read_only) as engine:
        yield engine


@asynccontextmanager
async def created(own: str | None) -> AsyncIterator[Engine]:
    """The engine on a store that is created if it does not exist; the default folder, too."""
    url = location(own)
    if path_of(url) == default_path():
        make_folder(default_path().parent)
    from eventctx.engine import open_engine

    async with open_engine(url) as engine:
        yield engine


async def find_session(engine: Engine, name: str) -> StreamInfo:
    """The session called ``name``, or the only one whose name begins with it.

    A ``…`` in it stands for any characters, as screens cut long names.
    Raises StreamNotFound with similar names, InvalidSetting for an ambiguous beginning.
    """
    if _may_be_a_session(name):
        info = await engine.store.head(name)
        if info is not None and not info.deleted:
            return info
    begins = NamesBeginning(name)
    async for info in engine.each_session():
        begins.take(info)
    if begins.main is not None:
        return begins.main
    if begins.count:
        raise InvalidSetting(
            f"session {name!r} could be {_listed(begins.names, begins.count)}; "
            "give more of the name"
        )
    raise _not_found(name, begins)


def _may_be_a_session(name: str) -> bool:
    try:
        check_session_id(name)
    except InvalidSessionId:
        return False
    return True


class NamesBeginning:
    """The sessions whose names begin with ``name``: however many there are, a few are held.

    ``main`` is the only one, or the one with whose name all others begin: a subagent's stream
    begins with the name of the session that it belongs to. ``near`` are similar names of the first
    sessions of the store, ``all`` counts its sessions.
    """

    def __init__(self, name: str) -> None:
        self.names: list[str] = []
        self.count = self.all = 0
        self._name = name
        self._shortest: StreamInfo | None = None
        self._shared = ""
        self._looked: list[str] = []

    def take(self, info: StreamInfo) -> None:
        """Take the next session of the store."""
        self.all += 1
        if len(self._looked) < _LOOKED:
            self._looked.append(info.stream)
        if not self._name or not fits(self._name, info.stream):
            return
        self.count += 1
        if len(self.names) < _NEAR:
            self.names.append(info.stream)
        if self._shortest is None:
            self._shortest, self._shared = info, info.stream
            return
        while not info.stream.startswith(self._shared):
            self._shared = self._shared[:-1]
        if len(info.stream) < len(self._shortest.stream):
            self._shortest = info

    @property
    def main(self) -> StreamInfo | None:
        """The session that is meant; None where it may be any of several, or there is none."""
        shortest = self._shortest
        return shortest if shortest is not None and shortest.stream == self._shared else None

    @property
    def near(self) -> list[str]:
        """Similar names."""
        return difflib.get_close_matches(self._name, self._looked, n=_NEAR, cutoff=0.5)

    @property
    def first(self) -> list[str]:
        """The names of the first sessions of the store."""
        return self._looked[:_NEAR]


async def free_name(engine: Engine, wanted: str) -> str:
    """A session name that is not taken: nothing is added to a session that is there."""
    name, following = wanted, 2
    while await engine.store.head(name) is not None:
        name, following = f"{wanted}-{following}", following + 1
    return name


def on_fork(command: F) -> F:
    """Give a command ``--fork``, for sessions that it may not write to."""
    words = "Leave SESSION as it is: fork it as it is now, and do it there."
    return click.option("--fork", metavar="NAME", help=words)(command)


async def for_a_change(engine: Engine, name: str) -> Context:
    """A session for a command that compacts nothing, so that it needs no policy's function."""
    from eventctx.session.settings import SettingsForgotten

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingsForgotten)
        return await engine.session(name)


async def written(engine: Engine, info: StreamInfo, fork: str | None) -> str:
    """The session that a command writes to: the one found, or a new fork of it at its head.

    Raises ImportedSession for a mirror without a fork, StreamExists, InvalidSessionId.
    """
    if fork is None:
        return info.stream
    await engine.fork(info.stream, info.head, fork)
    return fork


def _not_found(name: str, begins: NamesBeginning) -> StreamNotFound:
    error = StreamNotFound(name)
    near = begins.near
    if near:
        error.args = (f"no session {name!r} in this store; did you mean {_listed(near)}?",)
    elif 0 < begins.all <= _NEAR:
        error.args = (f"no session {name!r} in this store; it holds {_listed(begins.first)}",)
    elif not begins.all:
        error.args = (f"no session {name!r} in this store, which is empty",)
    return error


def _listed(names: list[str], count: int = 0) -> str:
    shown = " or ".join(repr(name) for name in names)
    return f"{shown} or {count - len(names)} others" if count > len(names) else shown
