"""Calling what may hang, for so long and no longer."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


def within(seconds: float, call: Callable[[], object], name: str) -> bool:
    """Make the call in a thread of its own; false when it is not done after ``seconds``.

    Then it goes on alone, and does not keep the program from ending. What it raises is raised here.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()
