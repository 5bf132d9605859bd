"""``replay``: step through a session and watch the view grow and shrink."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from eventctx.cli.output import opening
from eventctx.cli.output.figures import figures_of, show_known, tokens
from eventctx.cli.output.messages import show
from eventctx.cli.output.opening import position, session_or_last
from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.records import type_style
from eventctx.cli.output.screen import Screen, put_json, styled
from eventctx.cli.output.steps import Step, at_position, next_compaction, next_turn, steps_of
from eventctx.errors import InvalidSetting
from eventctx.log.naming import position_name, read_position
from eventctx.messages.encoding import decode_body
from eventctx.projections.figures import Figures

if TYPE_CHECKING:
    from eventctx.reader import Reader

_SNIPPET = 160
_BAR = 24
_KEYS = "n next · p previous · t turn · T turn back · c compaction · g go to · q quit"
_KEY = re.compile(r"\x1b\[[A-D]|.", re.DOTALL)
_NEXT = ("n", " ", "\r", "\n", "\x1b[C", "\x1b[B", "j", "l")
_PREVIOUS = ("p", "\x1b[D", "\x1b[A", "k", "h", "\x7f")


@click.command("replay", short_help="Step through a session.")
@click.argument("session", required=False)
@click.option("--to", "stop", type=position, metavar="POSITION", help="Stop at this position.")
@click.option("--plain", is_flag=True, help="Print the steps, also on a terminal.")
@opening.reading
def replay_command(
    session: str | None, stop: int | None, plain: bool, store: str | None, as_json: bool
) -> None:
    """Step through SESSION: each message, request and compaction, with the view's size after it.

    On a terminal one record after the other, by keys. In a pipe one line a step; with --json one
    object a line. Without SESSION: the last one used.
    """
    if stop is not None and stop < 0:
        raise InvalidSetting(f"position: expected 0 or more, found --to {stop}")
    run(_replay(session, stop, plain, store, as_json))


async def _replay(
    session: str | None, stop: int | None, plain: bool, store: str | None, as_json: bool
) -> None:
    async with opening.open_reader(store, lists=session is None) as reader:
        info = await session_or_last(reader, session)
        if stop is not None and stop > info.head:
            raise InvalidSetting(
                f"session {info.stream!r} has positions @0 to {position_name(info.head)}, "
                f"found --to {position_name(stop)}"
            )
        by_keys = not (as_json or plain) and Screen().live and sys.stdin.isatty()
        known = await figures_of(reader.store, info.stream)
        steps = await steps_of(reader, info.stream, stop, _SNIPPET, known)
        screen = Screen()
        if as_json:
            for step in steps:
                put_json(step)
        elif not by_keys:
            _print_all(screen, steps)
            show_known(screen, known)
        elif steps:
            await _Stepper(reader, info.stream, steps, screen, known).run()


def _place(step: Step) -> str:
    turn = "" if step.turn is None else str(step.turn)
    return f"{turn}.{step.iteration}" if step.iteration is not None else turn


def _print_all(screen: Screen, steps: list[Step]) -> None:
    """One line a step; a new turn gets a line before it."""
    for step in steps:
        if step.type == "prompt:submit":
            screen.line((f"── turn {step.turn} ──", "bold green"))
        line: list[str | tuple[str, str]] = [
            (f"{step.name:>7}  ", "bold"),
            (f"{_place(step):<6}  ", "green"),
            (f"{step.type:<24}  ", type_style(step.type)),
            (f"view {step.view:>4} / {tokens(step.tokens, step.estimated):>9} tokens  ", "dim"),
        ]
        used = sum(len(part[0]) for part in line)
        room = screen.width - used
        if screen.live and room < 24:
            screen.line(*line)
            screen.line(one_line(step.text, max(20, screen.width - 16)), indent=16)
        else:
            screen.whole(*line, one_line(step.text, room if screen.live else None))


class _Stepper:
    """The interactive stepper: one screen a step, one key a move."""

    def __init__(
        self, reader: Reader, session: str, steps: list[Step], screen: Screen, known: Figures
    ) -> None:
        self._reader = reader
        self._session = session
        self._steps = steps
        self._screen = screen
        self._known = known
        self._at = 0

    async def run(self) -> None:
        """Show steps until the reader quits."""
        while True:
            await self._show()
            # One read may return several key presses, when a key is held down.
            for key in _KEY.findall(click.getchar()):
                if key in ("q", "Q", "\x1b", "\x04"):
                    return
                self._move(key)

    def _move(self, key: str) -> None:
        last = len(self._steps) - 1
        if key in _NEXT:
            self._at = min(self._at + 1, last)
        elif key in _PREVIOUS:
            self._at = max(self._at - 1, 0)
        elif key == "t":
            self._at = next_turn(self._steps, self._at, 1)
        elif key == "T":
            self._at = next_turn(self._steps, self._at, -1)
        elif key == "c":
            self._at = next_compaction(self._steps, self._at)
        elif key == "G":
            self._at = last
        elif key == "g":
            answer = click.prompt("position", default="@0", show_default=False)
            with suppress(InvalidSetting):
                self._at = at_position(self._steps, read_position(answer))

    async def _show(self) -> None:
        step, screen = self._steps[self._at], self._screen
        screen.console.clear()
        screen.line((self._session, "bold"))
        when = "not dated" if step.time is None else f"{step.time[11:23]} UTC"
        inside = f"turn {_place(step)}" if step.turn is not None else "outside a turn"
        screen.line(
            f"step {self._at + 1} of {len(self._steps)} · {step.name} · ",
            (inside, "green"),
            (f" · {when}", "dim"),
        )
        screen.console.print(self._size(step))
        screen.blank()
        screen.line((step.type, type_style(step.type)))
        if step.type == "context:message_added":
            await self._show_message(step)
        else:
            screen.line(step.text, indent=2)
        screen.blank()
        show_known(screen, self._known)
        screen.line((_KEYS, "dim"))

    async def _show_message(self, step: Step) -> None:
        records = self._reader.records(self._session, step.position, step.position, bodies=True)
        async for record in records:
            data = record.bodies[0].data
            show(self._screen, None if data is None else decode_body(data), full=False)

    def _size(self, step: Step) -> Any:
        """The view's size, with a bar where the budget is known."""
        parts: list[str | tuple[str, str]] = [
            f"transcript {plural(step.transcript, 'message')} · view ",
            f"{plural(step.view, 'message')}, {tokens(step.tokens, step.estimated)} tokens",
        ]
        if step.budget:
            parts.append(f" of {number(step.budget)} ")
            parts.extend(bar(step.tokens, step.budget, _BAR))
        if step.compactions:
            parts.append((f" · {plural(step.compactions, 'compaction')}", "red"))
        return styled(*parts)


def bar(value: int, whole: int, width: int) -> list[tuple[str, str]]:
    """A bar of ``width`` characters for the part of the budget that is used."""
    filled = min(width, round(width * value / whole)) if whole else 0
    colour = "green" if value < whole * 0.6 else "yellow" if value < whole * 0.92 else "red"
    return [("█" * filled, colour), ("░" * (width - filled), "dim")]
