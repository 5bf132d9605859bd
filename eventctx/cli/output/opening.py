"""The store, the session and the numbers that a command line names.

A store is opened without creating one by accident.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import click

from eventctx.errors import InvalidSetting, StoreUnavailable, StreamNotFound
from eventctx.log.private_files import make_folder
from eventctx.log.store import StreamInfo
from eventctx.queries.session_names import find_session as find_session
from eventctx.queries.session_names import short_names
from eventctx.stores.location import ENVIRONMENT, default_path, default_store, in_users_folder
from eventctx.text import without_password

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.log.store import StreamInfo
    from eventctx.reader import Reader
    from eventctx.session.context import Context
from eventctx.cli.output.plain import one_line
from eventctx.cli.output.screen import progress
from eventctx.log import naming
from eventctx.log.naming import RequestName

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
    """The file of a store's URL; None for a store that is no file."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return Path(url)
    return Path(rest.removeprefix("/")) if scheme == "sqlite" else None


def store_options(command: F) -> F:
    """Give a command ``--store``, before the command's name or after it."""
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
async def open_existing(own: str | None) -> AsyncIterator[Engine]:
    """The engine on a store that exists already. Raises StoreUnavailable where there is none."""
    url = _existing(own)
    from eventctx.engine import open_engine

    async with open_engine(url, create=False) as engine:
        yield engine


@asynccontextmanager
async def open_reader(own: str | None, *, lists: bool = False) -> AsyncIterator[Reader]:
    """A reader of a store that exists already, which leaves no trace. Raises StoreUnavailable.

    A command that ``lists`` all sessions, or searches them, asks an engine: it saves the sums and
    the index with the store, so that the next such command reads only what came since.
    """
    if lists:
        async with open_existing(own) as engine:
            yield engine
        return
    from eventctx.reader import read

    async with read(_existing(own)) as found:
        yield found


@asynccontextmanager
async def answering(
    own: str | None, *, lists: bool = False, text: str = "Reading"
) -> AsyncIterator[Reader]:
    """A reader, as ``open_reader`` has it, with a progress bar until the answer is there.

    For commands that print after they have asked. Key frames of a long session are saved next to
    the store, so that the next of these commands folds only what came since.
    """
    with progress(text):
        from eventctx.queries.key_frames import save_frames_of

        async with open_reader(own, lists=lists) as found:
            save_frames_of(found.store)
            yield found


def _existing(own: str | None) -> str:
    url = location(own)
    path = path_of(url)
    if path is not None and not path.exists():
        raise StoreUnavailable(
            f"there is no store at {path}: `eventctx` alone makes one of the sessions on this "
            "machine, `eventctx import FILE` of a file, `eventctx demo` shows what it is good for; "
            f"--store or {ENVIRONMENT} names another"
        )
    return url


@asynccontextmanager
async def open_or_create(own: str | None) -> AsyncIterator[Engine]:
    """The engine on a store that is created if it does not exist; the default folder, too."""
    url = location(own)
    if path_of(url) == default_path():
        make_folder(default_path().parent)
    from eventctx.engine import open_engine

    async with open_engine(url) as engine:
        yield engine


async def free_name(reader: Reader, wanted: str) -> str:
    """A session name that is not taken: nothing is added to a session that is there."""
    name, following = wanted, 2
    while await reader.store.head(name) is not None:
        name, following = f"{wanted}-{following}", following + 1
    return name


def on_fork(command: F) -> F:
    """Give a command ``--fork``, for sessions that it may not write to."""
    words = "Leave SESSION as it is: fork it as it is now, and do it there."
    return click.option("--fork", metavar="NAME", help=words)(command)


async def open_session(engine: Engine, name: str) -> Context:
    """A session for a command that compacts nothing, so that it needs no policy's function."""
    from eventctx.session.settings import SettingsForgotten

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingsForgotten)
        return await engine.session(name)


async def choose_written(engine: Engine, info: StreamInfo, fork: str | None) -> str:
    """The session that a command writes to: the one found, or a new fork of it at its head.

    Raises ImportedSession for a mirror without a fork, StreamExists, InvalidSessionId.
    """
    if fork is None:
        return info.stream
    await engine.fork(info.stream, info.head, fork)
    return fork


Which = Literal["used", "compacted"]

_LONGEST: Final = 60


async def session_or_last(reader: Reader, name: str | None, which: Which = "used") -> StreamInfo:
    """The session called ``name``; without a name the last one used, or the last compacted one.

    It is named on stderr then. Raises what ``find_session`` raises, and StreamNotFound where there
    is none.
    """
    if name is not None:
        return await find_session(reader.store, name)
    from eventctx.queries.read_errors import ReadErrors
    from eventctx.queries.session_list import list_sessions, sort_sessions, sum_sessions

    every = await sum_sessions(reader.store, ReadErrors())
    fitting = [
        one
        for one in sort_sessions(every, "last")
        if (one.sums.compactions if which == "compacted" else one.sums.belongs_to is None)
    ]
    if not fitting:
        raise _none(which, empty=not every)
    chosen = fitting[0].info
    rows = [row async for row in list_sessions(reader.store, fitting[:1])]
    short = short_names(one.info.stream for one in every)[chosen.stream]
    title = f" “{one_line(rows[0].title, _LONGEST)}”" if rows[0].title else ""
    last = "the last one that was compacted" if which == "compacted" else "the last one used"
    click.echo(f"session {one_line(short)}{title}, {last}", err=True)
    return chosen


def _none(which: Which, *, empty: bool) -> StreamNotFound:
    error = StreamNotFound("")
    if empty:
        words = "the store holds no sessions yet; `eventctx import FILE` adds some"
    elif which == "compacted":
        words = (
            "no session of this store was compacted; name one of `eventctx sessions`, in which "
            "`lost` then shows what left its view in other ways"
        )
    else:
        words = "every session of this store belongs to another one; name one: `eventctx sessions`"
    error.args = (words,)
    return error


T = TypeVar("T")


def message_number(text: str) -> int:
    """A message, ``#12`` or ``12``. For ``type=`` of an argument."""
    return _read(naming.read_message, text)


def message_numbers(text: str) -> tuple[int, ...]:
    """A message, or a range of them, ``#3–#9`` or ``3-9``. For ``type=`` of an argument."""
    return _read(naming.read_messages, text)


def demand(text: str) -> tuple[int, int]:
    """A demand, ``#12.1`` or ``12.1``. For ``type=`` of an option."""
    return _read(naming.read_demand, text)


def flat(
    _: click.Context, __: click.Parameter, given: tuple[tuple[int, ...], ...]
) -> tuple[int, ...]:
    """The numbers of all messages and ranges. For ``callback=`` of an argument."""
    return tuple(number for one in given for number in one)


def position(text: str) -> int:
    """A record's position, ``@48`` or ``48``. For ``type=`` of an option."""
    return _read(naming.read_position, text)


def request(text: str) -> RequestName:
    """A request as screens name it, ``3``, ``3.2`` or ``@48``. For ``type=``."""
    return _read(naming.read_request, text)


def one_request(command: F) -> F:
    """Give a command the options that name a request; it gets ``name``, a RequestName."""

    @wraps(command)
    def called(*args: Any, **kwargs: Any) -> Any:
        options = [kwargs.pop(one) for one in ("turn", "iteration", "position", "request")]
        return command(*args, name=_named_by(*options), **kwargs)

    for option in reversed(_REQUEST_OPTIONS):
        called = option(called)
    return cast(F, called)


def _named_by(
    turn: RequestName | None, iteration: int | None, at: int | None, ordinal: int | None
) -> RequestName:
    """The request that the options name together. Raises click.UsageError."""
    if sum(one is not None for one in (turn, at, ordinal)) > 1:
        raise click.UsageError("Expected at most one of --turn, --position and --request.")
    if iteration is not None and (turn is None or turn.turn is None):
        raise click.UsageError("--iteration counts within a turn: name it with --turn.")
    if turn is None:
        return RequestName(position=at, ordinal=ordinal)
    if iteration is None:
        return turn
    if turn.iteration is not None:
        raise click.UsageError("Expected the iteration once: --turn 3.2, or --iteration 2.")
    return RequestName(turn.turn, iteration)


_REQUEST_OPTIONS: Final = (
    click.option(
        "--turn", type=request, metavar="N[.I]", help="The last request of turn N, or that of N.I."
    ),
    click.option("--iteration", type=int, metavar="I", help="The request of this iteration."),
    click.option(
        "--position",
        type=position,
        metavar="P",
        help="Instead: the request prepared at this position.",
    ),
    click.option(
        "--request",
        type=click.IntRange(min=1),
        metavar="K",
        help="Instead: the request of this number, from 1, as `audit` lists them.",
    ),
)


def _read(reads: Callable[[str], T], text: str) -> T:
    try:
        return reads(text)
    except InvalidSetting as error:
        raise click.BadParameter(f"{error}.") from error


def request_in_words(turn: int | None, iteration: int | None, position: int | None) -> str:
    """The request that an answer is about; without a position, the view as it stands now."""
    if position is None:
        return "the view as it stands now"
    name, at = naming.request_name(turn, iteration, position), naming.position_name(position)
    return f"request {name}" if name == at else f"request {name} ({at})"


def place_in_words(turn: int | None, iteration: int | None, position: int) -> str:
    """A record and the request or turn that it belongs to: ``@898 in 1.102``."""
    at = naming.position_name(position)
    if turn is None:
        return at
    return f"{at} in turn {turn}" if iteration is None else f"{at} in {turn}.{iteration}"
