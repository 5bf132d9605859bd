"""An agent in another process that appends when it is told to, and when a page shows its words."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.async_api import Page

from tests.browser.inspecting import PATIENCE
from tests.children import started

_PROGRAM: Final = Path(__file__).resolve().parents[1] / "programs" / "appending.py"

_NOTE: Final = """() => {
  window.seen = {};
  const look = () => {
    for (const [word] of document.body.textContent.matchAll(/word-\\d+/g)) {
      window.seen[word] ??= performance.timeOrigin + performance.now();
    }
  };
  new MutationObserver(look).observe(document.body,
    { subtree: true, childList: true, characterData: true });
  look();
}"""


class Appended(NamedTuple):
    """When an append was acknowledged, in ms since 1970, and how many ms it took."""

    at: float
    took: float


Says = Callable[[str, str], Awaitable[Appended]]
"""Appends a round of an agent to a session: a person's message, a request, and an answer."""


@asynccontextmanager
async def writing(store: Path) -> AsyncIterator[Says]:
    """A writer to sessions of a store until the end of the block."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started([sys.executable, _PROGRAM, store], **pipes) as process:

        def append(session: str, text: str) -> Appended:
            process.stdin.write(f"{session}\t{text}\n")
            process.stdin.flush()
            at, took = process.stdout.readline().split()
            return Appended(float(at), float(took))

        async def says(session: str, text: str) -> Appended:
            return await asyncio.wait_for(asyncio.to_thread(append, session, text), PATIENCE)

        yield says


async def note_words(page: Page) -> None:
    """From now on the page notes when each word of the form ``word-7`` first stands on it."""
    await page.evaluate(_NOTE)


async def shown_at(page: Page, word: str) -> float:
    """When a word first stood on the page, in ms since 1970; waits for it."""
    await page.wait_for_function("(word) => word in window.seen", arg=word, polling=5)
    at: float = await page.evaluate("(word) => window.seen[word]", word)
    return at
