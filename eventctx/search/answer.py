"""The text of a recall tool's answer: quoted messages, fenced as data, of bounded size.

A recalled text may come from anywhere: a web page, a tool, another model. The fence around it is
chosen so that it does not occur inside, so nothing in it can pass for the end of the quotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, NamedTuple

from eventctx.messages.recall_text import QUOTED
from eventctx.text import clip, pattern

MIN_CHARACTERS: Final = 600
"""Smallest limit of an answer, in characters, that leaves room for a quotation."""

_HEADER_CHARACTERS: Final = 320
_UNSAFE: Final = pattern(r"[^\w.-]+")


class Quote(NamedTuple):
    """A message, or a piece of it, to quote. ``time`` is in UTC nanoseconds."""

    number: int
    role: str
    time: int
    text: str


def listing(intro: str, quotes: Sequence[Quote], characters: int) -> str:
    """An answer of at most ``characters``: ``intro``, then quotations, each in a fence of its own.

    Quotations that do not fit any more are left out.
    """
    lines = [QUOTED, intro]
    used = len(QUOTED) + len(intro) + 1
    for quote in quotes:
        block = fenced(quote)
        if used + 1 + len(block) > characters:
            break
        lines.append(block)
        used += 1 + len(block)
    return "\n".join(lines)


def page(quote: Quote, start: int, characters: int) -> str:
    """One message in an answer of at most ``characters``, from character ``start`` of its text."""
    whole = len(quote.text)
    if start and start >= whole:
        return clip(
            f"Message {quote.number} has {whole} characters; start must be below that.", characters
        )
    end = min(whole, start + characters - len(QUOTED) - _HEADER_CHARACTERS)
    intro = f"Message {quote.number}, characters {start} to {end} of {whole}."
    if end < whole:
        intro += f" For more, call again with start={end}."
    return listing(intro, [quote._replace(text=quote.text[start:end])], characters)


def fenced(quote: Quote) -> str:
    """The text between two lines that do not occur in it."""
    fence = _fence(quote.text)
    role = _UNSAFE.sub("_", quote.role)[:32]
    moment = datetime.fromtimestamp(quote.time // 10**9, UTC).isoformat().replace("+00:00", "Z")
    opening = f'<{fence} message="{quote.number}" role="{role}" time="{moment}">'
    return f"{opening}\n{quote.text}\n</{fence}>"


def _fence(text: str) -> str:
    attempt = 0
    while True:
        digest = sha256(f"{attempt}\0{text}".encode(errors="surrogatepass")).hexdigest()
        fence = f"recalled-{digest[:12]}"
        if fence not in text:
            return fence
        attempt += 1
