"""The screen on a terminal: Textual reads keys and sizes, and writes the lines that were drawn."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.strip import Strip
from textual.widget import Widget

from eventctx.cli.replay_screen.drawing import Line, drawn, wanted
from eventctx.cli.replay_screen.model import Model, found, pressed, resized
from eventctx.cli.replay_screen.session import ReplayedSession
from eventctx.cli.replay_screen.texts import ReadTexts, TextReader, WantedTexts

_COLOURS = frozenset(("red", "green", "yellow", "cyan", "magenta"))
_NAMES = {"ctrl+j": "enter", "ctrl+m": "enter", "ctrl+h": "backspace"}


class Canvas(Widget, can_focus=True):
    """All of the terminal: it shows lines, and hands on what is typed."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; background: ansi_default; }"

    def __init__(self) -> None:
        super().__init__()
        self._strips: list[Strip] = []

    def show(self, lines: list[Line]) -> None:
        """Show these lines, and no others."""
        self._strips = [
            Strip([Segment(text, _style(style)) for text, style in line]) for line in lines
        ]
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line, for Textual."""
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(0)
        return strip.adjust_cell_length(self.size.width)


class ReplayScreen(App[None]):
    """The screen of one session.

    ``model`` is its state. When it has ended, ``failure`` is what ended it: a KeyboardInterrupt
    for Ctrl-C, an error of the store; None when the reader quit.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; }"

    def __init__(self, session: ReplayedSession, reader: TextReader, model: Model) -> None:
        super().__init__(ansi_color=True)
        self.model = model
        self.failure: BaseException | None = None
        self._session = session
        self._reader = reader
        self._texts = ReadTexts()
        self._changed = asyncio.Event()
        self._rests = asyncio.Event()
        self._canvas = Canvas()
        self._task: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self._canvas

    def on_mount(self) -> None:
        """Begin to read texts."""
        self._canvas.focus()
        self._task = asyncio.create_task(self._reading())
        self._take(resized(self.model, *self.size))

    async def on_unmount(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def on_resize(self, event: events.Resize) -> None:
        """Draw in the new size."""
        self._take(resized(self.model, event.size.width, event.size.height))

    async def on_event(self, event: events.Event) -> None:
        """Take every key, before Textual's own bindings do."""
        if not isinstance(event, events.Key):
            await super().on_event(event)
        elif event.key == "ctrl+c":
            self._fail(KeyboardInterrupt())
        else:
            printable = event.character if event.is_printable else None
            key = printable or _NAMES.get(event.key, event.key)
            self._take(pressed(self.model, self._session, key))

    async def rested(self) -> None:
        """Return when all that the screen shows was read, or it failed."""
        await self._rests.wait()

    def _take(self, model: Model) -> None:
        self.model = model
        if model.over:
            self.exit()
            return
        self._rests.clear()
        self._changed.set()
        self._draw()

    def _draw(self) -> None:
        self._canvas.show(drawn(self.model, self._session, self._texts))

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._rests.set()
        self.exit()

    async def _reading(self) -> None:
        try:
            await self._read_on()
        except Exception as error:
            self._fail(error)

    async def _read_on(self) -> None:
        """Read what the screen wants until it wants no more, and wait for the next change."""
        while True:
            self._changed.clear()
            missing = self._texts.missing(wanted(self.model, self._session))
            if missing != WantedTexts():
                # Rows come first: they are read in a moment, and a reason may take longer.
                first = WantedTexts(rows=missing.rows) if missing.rows else missing
                await self._reader.read(first, self._texts)
                self._draw()
            elif self.model.hits is None:
                await self._search(self.model.query)
            else:
                self._rests.set()
                await self._changed.wait()

    async def _search(self, query: str) -> None:
        hits = []
        async for number in self._reader.hits(query):
            if number >= 0:
                hits.append(number)
            elif self.model.query != query:
                return
        self.model = found(self.model, self._session, query, tuple(hits))
        self._draw()


def _style(words: str) -> Style:
    if os.environ.get("NO_COLOR"):
        words = " ".join([word for word in words.split() if word not in _COLOURS])
    return Style.parse(words)
