"""What a page shows of texts with markup: trees, made in a process of their own.

Patterns of a lexer may take minutes for a text that was written for it, and no thread of this
process would run meanwhile. So a child reads the texts; one that takes too long is ended with its
text, which then is shown as it was written.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from math import inf
from typing import Any, BinaryIO, Final

import msgspec

from eventctx.messages.parts import SEALED, read_parts

MOST_TEXT: Final = 200_000
"""Characters of a text that is rendered; a longer one is shown as it was written."""

LIMIT: Final = 5.0
"""Seconds that a text may take."""

LIMIT_TOGETHER: Final = 10.0
"""Seconds that the messages of one question may take."""

_SIZE: Final = 4
"""Bytes that give the length of what comes after them."""

_WORDS: Final = ("text", "thinking", "refusal")
"""Kinds of parts that a person or a model wrote, or that a person reads as such."""

_MARKUP: Final = re.compile(
    r"[*_`~|\\<]|\]\(|://|^ {0,3}(?:#|>|[-+] |\d+[.)] |---|===)|^    ", re.MULTILINE
)
"""Without any of these a text reads the same as it was written."""

Rendered = list[tuple[list[str | int], msgspec.Raw]]
"""Of a message: the place of each text that has a tree, and the JSON of the tree's children."""


class Renderer:
    """Renders messages. The child starts with the first text that needs it.

    After ``most_slow`` texts that took too long no more are tried: a file is made in bounded time.
    """

    def __init__(
        self, *, most: int = MOST_TEXT, limit: float = LIMIT, most_slow: float = inf
    ) -> None:
        self._most = most
        self._limit = limit
        self._most_slow = most_slow
        self._child: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()
        self._too_slow: set[bytes] = set()

    async def message(self, message: Any) -> Rendered | None:
        """The trees of a message's texts; None for what is no message, or was erased."""
        if not isinstance(message, dict):
            return None
        found: Rendered = []
        for part in read_parts(message):
            if part.kind not in _WORDS or part.type in SEALED or not isinstance(part.value, str):
                continue
            tree = await self._tree(part.value)
            if tree is not None:
                found.append((list(part.place), tree))
        return found

    async def messages(
        self, messages: Sequence[Any], within: float = LIMIT_TOGETHER
    ) -> list[Rendered | None]:
        """Several in their order; None for those that would begin after ``within`` seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        return [await self.message(one) if loop.time() < end else None for one in messages]

    async def close(self) -> None:
        """End the child."""
        async with self._one_at_a_time:
            await self._end()

    async def _tree(self, text: str) -> msgspec.Raw | None:
        if len(text) > self._most or _MARKUP.search(text) is None:
            return None
        try:
            data = text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        mark = sha256(data).digest()
        async with self._one_at_a_time:
            if mark in self._too_slow or len(self._too_slow) >= self._most_slow:
                return None
            try:
                async with asyncio.timeout(self._limit):
                    answer = await self._asked(data)
            except (TimeoutError, OSError, asyncio.IncompleteReadError):
                self._too_slow.add(mark)
                await self._end()
                return None
            except asyncio.CancelledError:
                await self._end()  # its answer would be taken for that of the next text
                raise
        return None if answer == b"null" else msgspec.Raw(answer)

    async def _asked(self, data: bytes) -> bytes:
        if self._child is None:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "eventctx.web.renderer"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it; it ends when its pipe does
            )
        given, taken = self._child.stdin, self._child.stdout
        assert given is not None and taken is not None  # noqa: S101 - they are pipes
        given.write(len(data).to_bytes(_SIZE, "big") + data)
        await given.drain()
        size = int.from_bytes(await taken.readexactly(_SIZE), "big")
        return await taken.readexactly(size)

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            # Reads what is left: wait() alone never returns while a part of an answer is unread.
            await child.communicate()


def answer(texts: BinaryIO, trees: BinaryIO) -> None:
    """Answer each text of a pipe with its tree, or null, until the pipe ends."""
    from eventctx.web.markdown_tree import tree_of  # what the parent never loads

    while len(size := texts.read(_SIZE)) == _SIZE:
        text = texts.read(int.from_bytes(size, "big")).decode()
        try:
            data = msgspec.json.encode(tree_of(text))
        except Exception:
            data = b"null"  # a library's bug costs a text its markup, and nothing else
        trees.write(len(data).to_bytes(_SIZE, "big") + data)
        trees.flush()


if __name__ == "__main__":
    answer(sys.stdin.buffer, sys.stdout.buffer)
