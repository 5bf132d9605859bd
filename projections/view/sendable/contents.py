"""Rules about the contents of rows: blank texts, thinking at an end, images, OpenAI's items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from eventctx.messages.media import image_medium
from eventctx.messages.response_items import (
    ID_OF_CALL,
    REFERENCE,
    is_item,
    type_of,
)
from eventctx.projections.view.render import ERASED
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


# -- images: their number, their sides, and the size of all of them ------------------------------

# Source: Anthropic's limits of a request with images, and its errors ("At least one of the image
# dimensions exceed max allowed size for many-image requests: 2000 pixels").
MOST_IMAGES: Final = 100
MANY_IMAGES: Final = 20
MOST_SIDE: Final = 8_000
MOST_SIDE_OF_MANY: Final = 2_000
MOST_CHARACTERS: Final = (5 << 20) * 4 // 3
"""Characters of base64 of one image: 5 MB, the lowest of the limits that errors have named."""

MOST_TOGETHER: Final = 28 << 20
"""Characters of base64 of all images: of the 32 MB of a request the rest is for its texts."""

BATCH: Final = 25
"""Images that are left out together where there are too many, so that a new image does not change
the beginning of every request."""


class _Image(NamedTuple):
    """An image: its row, its block (in a message or a result), and its characters."""

    place: int
    block: Block
    characters: int


def limit_images(rows: Rows) -> list[RowChange]:
    """Put a text in the place of images that are too large, and of the oldest that are too many."""
    found = list(_images(rows))
    side = MOST_SIDE_OF_MANY if len(found) > MANY_IMAGES else MOST_SIDE
    left_out = {id(one.block): text for one in found if (text := _too_large(one, side))}
    kept = [one for one in found if id(one.block) not in left_out]
    for one in kept[: _too_many(kept)]:
        left_out[id(one.block)] = "[An image is left out: the request has too many.]"
    changes = []
    for place in sorted({one.place for one in found if id(one.block) in left_out}):
        row = rows[place]
        assert row is not None  # noqa: S101 - it has an image
        rows[place] = with_content(row, _replaced(row["content"], left_out))
        changes.append(RowChange(place, "image_over_limit"))
    return changes


def _images(rows: Rows) -> Iterator[_Image]:
    for place, row in enumerate(rows):
        content = None if row is None else row.get("content")
        for block in content if isinstance(content, list) else ():
            kind = kind_of(block)
            if kind == "image":
                yield _Image(place, block, _characters(block))
            elif kind == "tool_result" and isinstance(block.get("content"), list):
                for inner in block["content"]:
                    if kind_of(inner) == "image":
                        yield _Image(place, inner, _characters(inner))


def _characters(block: Block) -> int:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    return len(data) if isinstance(data, str) else 0


def _too_large(one: _Image, side: int) -> str:
    """The text for an image that no request may hold; empty for one that may be sent."""
    if one.characters > MOST_CHARACTERS:
        megabytes = (one.characters * 3 // 4) >> 20
        return f"[An image of {megabytes} MB is left out: too large for a request.]"
    size = image_medium(one.block)
    if max(size.amount, size.height) <= side:
        return ""
    return (
        f"[An image of {size.amount} × {size.height} pixels is left out: a request like this has "
        f"none over {side}.]"
    )


def _too_many(images: list[_Image]) -> int:
    """How many of the oldest images are left out, in whole batches."""
    surplus = max(0, len(images) - MOST_IMAGES)
    together = sum([one.characters for one in images])
    taken = 0
    while taken < len(images) and (taken < surplus or together > MOST_TOGETHER):
        batch = images[taken : taken + BATCH]
        together -= sum([one.characters for one in batch])
        taken += len(batch)
    return taken


def _replaced(content: list[Any], texts: dict[int, str]) -> list[Any]:
    """The blocks with texts in the place of the images whose identity ``texts`` has."""
    made: list[Any] = []
    for block in content:
        text = texts.get(id(block))
        if text is not None:
            made.append({"type": "text", "text": text})
        elif kind_of(block) == "tool_result" and isinstance(block.get("content"), list):
            made.append(with_content(block, _replaced(block["content"], texts)))
        else:
            made.append(block)
    return made


# -- items of OpenAI's Responses API -------------------------------------------------------------


def drop_lone_reasoning(rows: Rows) -> list[RowChange]:
    """Leave out reasoning that no item of its answer follows, and ids that would ask for it."""
    changes = []
    following: Row | None = None
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        if row is None:
            continue
        if row.get("type") == "reasoning" and row.get("role") is None:
            if following is None or not _is_led_to(following):
                rows[place] = None
                changes.append(RowChange(place, "reasoning_alone", _id_of(row)))
                continue
        elif _was_reasoning(row) and following is not None and _is_led_to(following):
            changes += _without_ids(rows, place, "reasoning_alone")
        following = row
    return changes


def _is_led_to(row: Row) -> bool:
    """Whether a row is part of an answer. An unknown item more likely is than not."""
    given = str(row.get("type")).endswith(("_output", "_response"))
    return row.get("role", "assistant") == "assistant" and not given


def _was_reasoning(row: Row) -> bool:
    """Whether a row may take the place of reasoning that was erased."""
    return row.get("role") == "assistant" and row.get("content") == ERASED


def _without_ids(rows: Rows, reasoning: int, rule: str) -> list[RowChange]:
    """Take the ids off the items that reasoning led to: the API asks for it where it sees them."""
    changes = []
    for place in range(reasoning + 1, len(rows)):
        row = rows[place]
        if row is None:
            continue
        if row.get("type") in (None, "reasoning", REFERENCE) or not _is_led_to(row):
            break
        own = _id_of(row)
        if own:
            rows[place] = _without_id(row)
            changes.append(RowChange(place, rule, own))
    return changes


def drop_known_ids(rows: Rows) -> list[RowChange]:
    """Take the id off an item that has one of an earlier item; reasoning is left out as a whole."""
    changes = []
    known: set[str] = set()
    for place, row in enumerate(rows):
        own = () if row is None else _id_of(row)  # of most rows none: ask for it first
        if row is None or not own or not _has_own_id(row):
            continue
        if own[0] not in known:
            known.add(own[0])
            continue
        changes.append(RowChange(place, "item_id_used_twice", own))
        if type_of(row) not in ("reasoning", REFERENCE):
            rows[place] = _without_id(row)
            continue
        rows[place] = None
        if type_of(row) == "reasoning":
            changes += _without_ids(rows, place, "item_id_used_twice")
    return changes


_PLACEHOLDER: Final = "__fake_id__"
"""The id that OpenAI's Agents SDK gives items of other APIs; its clients take it off again."""


def _has_own_id(row: Row) -> bool:
    if row.get("id") == _PLACEHOLDER or type_of(row) in ID_OF_CALL:
        return False
    return is_item(row) or row.get("type") == "message"


def _without_id(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "id"}


def _id_of(row: Row) -> tuple[str, ...]:
    own = row.get("id")
    return (own,) if isinstance(own, str) else ()
