"""Names of messages and requests on a command line: reading and writing them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import click

_NUMBER: Final = re.compile(r"#?(\d{1,18})")
_TURN: Final = re.compile(r"(\d{1,18})(?:\.(\d{1,18}))?")


def message_number(text: str) -> int:
    """A message's number; ``#12``, as it is printed, is 12. For ``type=`` of an argument."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(
            f"expected a message number such as 12, found {text!r}; `transcript` lists them."
        )
    return int(match[1])


def turn_name(text: str) -> int | tuple[int, int]:
    """A turn, or turn and iteration as ``replay`` prints them: ``3``, ``3.2``. For ``type=``."""
    match = _TURN.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(
            f"expected a turn such as 3, or turn and iteration such as 3.2, found {text!r}; "
            "`audit` lists them."
        )
    turn = int(match[1])
    return turn if match[2] is None else (turn, int(match[2]))


def run_in_words(first: int, last: int) -> str:
    """A run of message numbers."""
    return f"#{first}" if first == last else f"#{first}–#{last}"


def runs_in_words(runs: Iterable[tuple[int, int]]) -> str:
    """Runs of message numbers, with commas between."""
    return ", ".join(run_in_words(first, last) for first, last in runs)


def request_in_words(turn: int | None, iteration: int | None, position: int | None) -> str:
    """The request that an answer is about; without a position, the view as it stands now."""
    if position is None:
        return "the view as it stands now"
    where = [f"turn {turn}"] if turn is not None else []
    where += [f"iteration {iteration}"] if iteration is not None else []
    named = ", ".join(where)
    return f"{named} (position {position})" if named else f"the request at position {position}"
