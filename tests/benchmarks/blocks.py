"""Generated parts of a page: ``<!-- KIND: NAME -->`` to ``<!-- /KIND -->``, and prose around."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence


def filled(text: str, kind: str, made: Mapping[str, str]) -> str:
    """The page with each block's content made anew. Raises KeyError for a block of no such name."""
    block = re.compile(rf"(<!-- {kind}: ([a-z-]+) -->\n).*?(<!-- /{kind} -->)", re.DOTALL)
    return block.sub(lambda found: f"{found[1]}{made[found[2]]}{found[3]}", text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; a head that begins with ``>`` has its column to the right."""
    rule = ["---:" if head.startswith(">") else "---" for head in heads]
    lines = [f"| {' | '.join(head.lstrip('>') for head in heads)} |", f"|{'|'.join(rule)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"
