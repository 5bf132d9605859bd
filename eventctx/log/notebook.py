"""Answers as people see them at a prompt: one short line, and a table in a notebook.

A notebook asks an object for ``_repr_html_`` and shows what it returns. Every text is escaped: a
message may hold markup, and must not become part of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.text import clip

MAX_ROWS: Final = 50
"""Most rows of a table; the rest is counted."""

MAX_CELL: Final = 200
"""Characters of a text in a cell."""


def line(name: str, *facts: object) -> str:
    """``<name fact, fact>``; facts that are None or empty are left out."""
    given = ", ".join([str(fact) for fact in facts if fact not in (None, "")])
    return f"<{name} {given}>"


def counted(number: int, thing: str) -> str:
    """``1 message``, ``1,200 messages``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table of at most ``MAX_ROWS`` rows."""
    from html import escape  # few programs are notebooks

    found = list(rows)
    shown = found[:MAX_ROWS]
    head = "".join([f"<th>{escape(one)}</th>" for one in heads])
    body = "".join(
        [
            "<tr>" + "".join([f"<td>{escape(_cell(one))}</td>" for one in row]) + "</tr>"
            for row in shown
        ]
    )
    left = len(found) - len(shown)
    more = f"<p>and {left:,} more</p>" if left else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}"
    )


def text_of(message: Mapping[str, Any] | None) -> str:
    """A message's content in a cell: a text as it is, blocks as JSON."""
    if message is None:
        return "[erased]"
    content = message.get("content", message)
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:,}" if type(value) is int else str(value)
    return clip(text, MAX_CELL + 1)
