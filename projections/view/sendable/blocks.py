"""Rules about one message: texts without words, an answer that ends with thinking, no content."""

from __future__ import annotations

from typing import Any, Final

from eventctx.projections.view.sendable.rows import (
    THINKING,
    Block,
    Row,
    RowChange,
    Rows,
    blocks_of,
    has_calls,
    kind_of,
    runs,
    with_content,
)

NO_OUTPUT: Final = "[The tool failed without any output.]"
"""Takes the place of an empty error: Anthropic refuses an empty content where ``is_error`` is
true."""

_PAYLOAD: Final = ("tool_calls", "function_call", "refusal", "audio", "parts", "contents")
"""Keys besides ``content`` under which a row of some dialect holds what it says."""


def is_blank(text: Any) -> bool:
    """Whether a text has no visible character."""
    return text is None or (isinstance(text, str) and (not text or text.isspace()))


def is_empty(row: Row) -> bool:
    """Whether a row says nothing: no content, no call, no refusal. A tool's result may be empty."""
    if row.get("role") not in ("user", "assistant", "system", "developer"):
        return False
    if "content" not in row or row.get("type", "message") != "message":
        return False
    content = row["content"]
    if not (is_blank(content) or content == []):
        return False
    return not any(row.get(key) for key in _PAYLOAD)


def unblank(rows: Rows) -> list[RowChange]:
    """Leave out texts without a visible character, also inside results, and empty lists."""
    changes = []
    for place, row in enumerate(rows):
        if row is None:
            continue
        made = row
        content = row.get("content")
        if isinstance(content, list):
            kept = _without_blanks(content)
            if kept is not content:
                made = with_content(row, kept or ("" if row.get("role") == "tool" else []))
        if made.get("tool_calls") == []:
            made = {key: value for key, value in made.items() if key != "tool_calls"}
        if made is not row:
            rows[place] = made
            changes.append(RowChange(place, "blank_text"))
    return changes


def _without_blanks(content: list[Any]) -> list[Any]:
    """The blocks without blank texts; the given list where there are none."""
    kept: list[Any] = []
    same = True
    for block in content:
        kind = kind_of(block)
        if kind == "text" and is_blank(block.get("text")):
            same = False
        elif kind == "tool_result":
            made = _result(block)
            same = same and made is block
            kept.append(made)
        else:
            kept.append(block)
    return content if same else kept


def _result(block: Block) -> Block:
    """A result without blank texts; one without content where nothing is left."""
    if "output" in block:
        return block  # another dialect's, whose provider renders it
    inner = block.get("content")
    kept = inner
    if isinstance(inner, list):
        kept = _without_blanks(inner)
    if not (kept == [] or is_blank(kept)):
        return block if kept is inner else with_content(block, kept)
    if block.get("is_error") is True:
        return with_content(block, NO_OUTPUT)
    if "content" not in block:
        return block
    return {key: value for key, value in block.items() if key != "content"}


def end_without_thinking(rows: Rows) -> list[RowChange]:
    """Take thinking off the end of an answer, which may be several rows."""
    changes = []
    for run in runs(rows, "assistant"):
        for place in reversed(run):
            row = rows[place]
            assert row is not None  # noqa: S101 - a run has none
            content = blocks_of(row)
            if is_empty(row):
                continue
            if has_calls(row) or not content or kind_of(content[-1]) not in THINKING:
                break
            end = len(content)
            while end and kind_of(content[end - 1]) in THINKING:
                end -= 1
            left = {key: value for key, value in row.items() if key != "thinking_block"}
            rows[place] = with_content(left, content[:end])
            changes.append(RowChange(place, "thinking_last"))
            if end:
                break
    return changes
