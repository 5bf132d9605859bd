"""The number of pages of a PDF, read from its bytes without rendering or a parser.

A page is an object of ``/Type /Page``; the root of the page tree has their number in ``/Count``
(ISO 32000-1, 7.7.3). Since PDF 1.5 objects may lie in object streams (7.5.7), which are inflated,
up to a limit. A file of which nothing can be read this way (broken, encrypted) is judged by size.
"""

from __future__ import annotations

import zlib
from typing import Final

from eventctx.text import pattern

BYTES_PER_PAGE: Final = 20_000
"""Of a PDF whose pages cannot be counted. Pages of text take 2,000 to 20,000 bytes, scans more."""

MOST_PAGES: Final = 600
"""Pages that a provider reads of one request: 600 (Anthropic; 100 with a window of 200,000
tokens), 1,000 (Gemini). A larger number in a file is a mistake or a trap."""

MOST_GUESSED: Final = 100

_MOST_INFLATED: Final = 4 << 20
_MOST_STREAMS: Final = 512
_REACH: Final = 4_096
"""Bytes on either side of ``/Type /Pages`` in which its ``/Count`` is looked for."""

_TYPE: Final = pattern(rb"/Type\s*/(Pages?|ObjStm)(?![A-Za-z])")
_COUNT: Final = pattern(rb"/Count\s+(\d{1,9})(?!\d)")
_LINEAR: Final = pattern(rb"/Linearized\b[^>]{0,400}?/N\s+(\d{1,9})(?!\d)")
_BOUNDS: Final = (b"endobj", b" obj")


def pdf_pages(data: bytes) -> int:
    """Pages of a PDF, from 1 to ``MOST_PAGES``; never raises."""
    pages, tree, packed = _counted(data)
    left = _MOST_INFLATED
    for place in packed[:_MOST_STREAMS]:
        text = _inflated(data, place, left)
        left -= len(text)
        more, count, _ = _counted(text)
        pages, tree = pages + more, max(tree, count)
        if left <= 0:
            break
    if not pages and not tree:
        linear = _LINEAR.search(data, 0, 2_048)
        tree = int(linear[1]) if linear is not None else 0
    # An updated file holds old pages too; a count alone may be anything.
    found = min(pages, tree) if pages and tree else max(pages, tree)
    if not found:
        return min(MOST_GUESSED, 1 + len(data) // BYTES_PER_PAGE)
    return min(MOST_PAGES, found)


def _counted(text: bytes) -> tuple[int, int, list[int]]:
    """The number of pages, the largest count of a page tree, and where packed objects begin."""
    pages = tree = 0
    packed: list[int] = []
    for found in _TYPE.finditer(text):
        if found[1] == b"Page":
            pages += 1
        elif found[1] == b"Pages":
            tree = max(tree, _count_of_tree(text, found.start(), found.end()))
        else:
            packed.append(found.end())
    return pages, tree, packed


def _count_of_tree(text: bytes, start: int, end: int) -> int:
    """The number in the object around ``/Type /Pages``; 0 if there is none in reach."""
    first = max(0, start - _REACH)
    first = max(first, *(text.rfind(bound, first, start) for bound in _BOUNDS))
    last = text.find(b"endobj", end, end + _REACH)
    last = end + _REACH if last < 0 else last
    return max([int(count[1]) for count in _COUNT.finditer(text, first, last)], default=0)


def _inflated(data: bytes, place: int, most: int) -> bytes:
    """The text of the stream behind ``place``, at most ``most`` bytes; empty if it is broken."""
    start = data.find(b"stream", place, place + _REACH)
    if start < 0:
        return b""
    start += len(b"stream")
    start += 2 if data[start : start + 2] == b"\r\n" else 1
    end = data.find(b"endstream", start)
    try:
        # A view, not a copy: without an end the stream is the rest of the file.
        stream = memoryview(data)[start : end if end >= 0 else len(data)]
        return zlib.decompressobj().decompress(stream, most)
    except zlib.error:
        return b""
