"""Names of messages, records and requests on a command line; ``log.naming`` has their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from eventctx.errors import InvalidSetting
from eventctx.log import naming
from eventctx.log.naming import RequestName

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


def one_request(turn: RequestName | None, iteration: int | None, at: int | None) -> RequestName:
    """The request that ``--turn``, ``--iteration`` and ``--position`` name together.

    Raises click.UsageError where they do not go together.
    """
    if iteration is not None and (turn is None or turn.turn is None):
        raise click.UsageError("--iteration counts within a turn: name it with --turn.")
    if turn is None:
        return RequestName(position=at)
    if iteration is None:
        return turn
    if turn.iteration is not None:
        raise click.UsageError("Expected the iteration once: --turn 3.2, or --iteration 2.")
    return RequestName(turn.turn, iteration)


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
