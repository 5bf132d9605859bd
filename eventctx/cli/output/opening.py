"""The store that a command works on, opened without creating one by accident."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from eventctx.errors import InvalidSetting, StoreUnavailable
from eventctx.log.private_files import make_folder
from eventctx.log.store import StreamInfo
from eventctx.queries.session_names import find_session as find_session
from eventctx.stores.location import ENVIRONMENT, default_path, default_store, in_users_folder
from eventctx.text import without_password

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.session.context import Context

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
        help="The store, as in `eventctx --help`.",
    )
    decorated: F = option(command)
    return decorated


def reading(command: F) -> F:
    """Give a command ``--store`` and ``--json``."""

    @wraps(command)
    def called(*args: Any, **kwargs: Any) -> Any:
        return command(*args, as_json=kwargs.pop("json"), **kwargs)

    option = click.option("--json", is_flag=True, help="Print JSON.")
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
