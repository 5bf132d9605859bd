"""The part of a transcript for an audience (orchestrator specification, "Visibility Policy").

The log keeps everything; an application decides what it shows. A content block may be marked with
``visibility``: ``internal``, ``developer`` or ``user``. Each audience sees the blocks that are
marked for it and for those behind it in this list. So a developer sees all that a user sees, and
``internal`` sees everything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from eventctx.errors import InvalidSetting
from eventctx.messages.parts import kind_of_block
from eventctx.messages.speaker import is_of_harness

Audience = Literal["internal", "developer", "user"]
AUDIENCES: Final[tuple[str, ...]] = get_args(Audience)

_DEVELOPER: Final = AUDIENCES.index("developer")
_USER: Final = AUDIENCES.index("user")

_SPEAKERS: Final = ("user", "assistant", "model")
_BESIDE: Final = ("tool_calls", "function_call", "thinking_block", "reasoning_content")
_USER_KEYS: Final = frozenset(
    ("role", "type", "content", "refusal", "name", "id", "timestamp", "visibility")
)
"""The keys of a message that a user sees; other keys may hold a provider's state."""


def for_audience(
    messages: Iterable[dict[str, Any]], audience: Audience, *, harness: Container[int] = ()
) -> list[dict[str, Any]]:
    """The messages as an audience is shown them, of any dialect, in order.

    ``internal`` is shown everything; ``developer`` everything but parts marked internal;
    ``user`` everything that is marked for users and, of all without a mark, the words of people
    and the answers to them: not thinking, calls and their results, system messages, or texts that
    a harness or a hook wrote in the user's role. The mark of a message holds for its blocks without
    one, and a hidden block hides all inside it. A message without any shown part is left out.
    ``harness`` holds the places of messages that a harness wrote although their texts do not say
    so (``Message.origin``). Messages that are shown whole are the given objects; none is changed.
    Raises InvalidSetting.
    """
    if audience not in AUDIENCES:
        raise InvalidSetting(f"audience: expected one of {', '.join(AUDIENCES)}, found {audience}")
    if audience == "internal":
        return list(messages)
    rank = AUDIENCES.index(audience)
    shown = (_message(one, rank, place in harness) for place, one in enumerate(messages))
    return [message for message in shown if message is not None]


class _Row(NamedTuple):
    """A message's ranks for its blocks; a rank is a place in ``AUDIENCES``."""

    rank: int
    """The audience's."""
    marked: int | None
    """The message's own mark."""
    usual: int
    """Of words without a mark of their own."""
    of_user: bool
    """Whether a harness may have written it, as it does in the user's role."""


def _message(message: dict[str, Any], rank: int, by_harness: bool) -> dict[str, Any] | None:
    marked = _mark(message)
    if marked is not None and marked < rank:
        return None
    usual = _of_role(message, by_harness) if marked is None else marked
    row = _Row(rank, marked, usual, message.get("role") == "user")
    copied = _levels_of_copies(message)
    kept: dict[str, Any] = {}
    for key, value in message.items():
        if key == "content":
            kept[key] = _content(value, row)
        elif key in _BESIDE:
            found = _beside(value, row, copied)
            if found:
                kept[key] = found
        elif rank < _USER or key in _USER_KEYS:
            kept[key] = value
    left = any(kept.get(key) for key in ("content", "refusal", *_BESIDE))
    if kept == message and (left or usual >= rank):
        return message
    return kept if left else None


def _mark(block: Mapping[str, Any]) -> int | None:
    """The rank of a block's or message's mark; None without one (Amplifier writes null)."""
    value = block.get("visibility")
    return AUDIENCES.index(value) if isinstance(value, str) and value in AUDIENCES else None


def _of_role(message: Mapping[str, Any], by_harness: bool) -> int:
    metadata = message.get("metadata")
    from_hook = isinstance(metadata, dict) and metadata.get("source") == "hook"
    return _DEVELOPER if by_harness or from_hook or message.get("role") not in _SPEAKERS else _USER


def _content(content: object, row: _Row) -> object:
    if isinstance(content, list):
        kept = [_block(block, row) for block in content]
        return [block for block in kept if block is not None]
    if isinstance(content, dict):
        return _block(content, row)
    level = row.usual if row.marked is not None else _of_text(content, row)
    return content if level >= row.rank else None


def _of_text(text: object, row: _Row) -> int:
    harness = row.of_user and isinstance(text, str) and text and is_of_harness(text)
    return min(row.usual, _DEVELOPER) if harness else row.usual


def _block(block: Any, row: _Row) -> Any:
    if not isinstance(block, dict):
        return block if row.usual >= row.rank else None
    level = _level(block, row)
    if level < row.rank:
        return None
    inner = block.get("content")
    if not isinstance(inner, list):
        return block
    kept = [part for part in inner if not _hidden_inside(part, row.rank)]
    return block if len(kept) == len(inner) else {**block, "content": kept}


def _hidden_inside(part: object, rank: int) -> bool:
    own = _mark(part) if isinstance(part, dict) else None
    return own is not None and own < rank


def _level(block: Mapping[str, Any], row: _Row) -> int:
    """The rank of a block: its own mark, else its message's, else that of its kind."""
    own = _mark(block)
    if own is not None:
        return own
    if row.marked is not None:
        return row.marked
    kind = kind_of_block(block)
    if kind == "text":
        return _of_text(block.get("text"), row)
    return row.usual if kind in ("refusal", "image", "document") else _DEVELOPER


def _levels_of_copies(message: Mapping[str, Any]) -> dict[object, int]:
    """The ranks of marked blocks, by call id and by the text that was thought.

    Amplifier rows hold calls and thinking a second time, outside their content and unmarked.
    """
    levels: dict[object, int] = {}
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        own = _mark(block) if isinstance(block, dict) else None
        if own is not None:
            levels.update(dict.fromkeys(_names_of(block), own))
    return levels


def _names_of(block: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, block[key]) for key in ("id", "thinking") if isinstance(block.get(key), str)]


def _beside(value: Any, row: _Row, copied: Mapping[object, int]) -> object:
    """The shown ones of a message's calls or thinking outside its content."""

    def shown(entry: object) -> bool:
        level = _DEVELOPER if row.marked is None else row.marked
        if isinstance(entry, dict):
            own = _mark(entry)
            copies = [copied[name] for name in _names_of(entry) if name in copied]
            level = own if own is not None else copies[0] if copies else level
        return level >= row.rank

    if isinstance(value, list):
        return [entry for entry in value if shown(entry)]
    return value if shown(value) else None
