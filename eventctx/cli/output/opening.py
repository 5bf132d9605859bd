"""The store that a command works on, opened without creating one by accident."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from eventctx.engine import Engine, open_engine
from eventctx.errors import InvalidSetting, StoreUnavailable, StreamNotFound
from eventctx.log.private_files import make_folder
from eventctx.log.store import StreamInfo
from eventctx.stores.location import ENVIRONMENT, default_path, default_store

_NEAR: Final = 3

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
    url = named_store(own) or default_store()
    if url in ("memory://", ":memory:"):
        raise InvalidSetting(
            f"store: expected a file that outlives the command, found {url}; name a path"
        )
    return url


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
        help="The store: a path or sqlite:///PATH. May also stand before the command.",
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
    async with open_engine(url, create=False, read_only=read_only) as engine:
        yield engine


@asynccontextmanager
async def created(own: str | None) -> AsyncIterator[Engine]:
    """The engine on a store that is created if it does not exist; the default folder, too."""
    url = location(own)
    if path_of(url) == default_path():
        make_folder(default_path().parent)
    async with open_engine(url) as engine:
        yield engine


async def find_session(engine: Engine, name: str) -> StreamInfo:
    """The session called ``name``, or the only one whose name begins with it.

    Raises StreamNotFound with similar names, InvalidSetting for an ambiguous beginning.
    """
    sessions = await engine.sessions()
    for info in sessions:
        if info.stream == name:
            return info
    begins = [info for info in sessions if name and info.stream.startswith(name)]
    # A subagent's stream begins with the name of the session that it belongs to.
    main = [info for info in begins if all(one.stream.startswith(info.stream) for one in begins)]
    if len(begins) == 1 or main:
        return (main or begins)[0]
    if begins:
        raise InvalidSetting(
            f"session {name!r} could be {_listed([info.stream for info in begins])}; "
            "give more of the name"
        )
    raise _not_found(name, [info.stream for info in sessions])


def on_fork(command: F) -> F:
    """Give a command ``--fork``, for sessions that it may not write to."""
    words = "Leave SESSION as it is: fork it as it is now, and do it there."
    return click.option("--fork", metavar="NAME", help=words)(command)


async def written(engine: Engine, info: StreamInfo, fork: str | None) -> str:
    """The session that a command writes to: the one found, or a new fork of it at its head.

    Raises ImportedSession for a mirror without a fork, StreamExists, InvalidSessionId.
    """
    if fork is None:
        return info.stream
    await engine.fork(info.stream, info.head, fork)
    return fork


def _not_found(name: str, names: list[str]) -> StreamNotFound:
    error = StreamNotFound(name)
    near = difflib.get_close_matches(name, names, n=_NEAR, cutoff=0.5)
    if near:
        error.args = (f"no session {name!r} in this store; did you mean {_listed(near)}?",)
    elif 0 < len(names) <= _NEAR:
        error.args = (f"no session {name!r} in this store; it holds {_listed(names)}",)
    elif not names:
        error.args = (f"no session {name!r} in this store, which is empty",)
    return error


def _listed(names: list[str]) -> str:
    shown = " or ".join(repr(name) for name in names[:_NEAR])
    return shown if len(names) <= _NEAR else f"{shown} or {len(names) - _NEAR} others"
