"""The rows of ``lost``: each item on a line or two, with its state, its place and its later use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from eventctx.cli.output.lost_summary import BY_IN_WORDS
from eventctx.cli.output.plain import number, one_line
from eventctx.projections.presence import Presence
from eventctx.queries.lost.answers import KINDS, STATES, ItemKind, Lost, ViewItem
from eventctx.text import clip

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen

PIPE_WIDTH: Final = 160
"""Characters of an item's line where there is no terminal."""

_TITLES: Final[dict[ItemKind, str]] = {
    "instruction": "Instructions of a person",
    "file": "Files",
    "command": "Commands",
    "decision": "Decisions of the model",
    "result": "Results that were used again",
}
_STYLES: Final = {
    Presence.GONE: "red",
    Presence.SUMMARY: "yellow",
    Presence.SHORTENED: "yellow",
    Presence.WHOLE: "green",
}
_LEAST_TEXT: Final = 24
_MOST_QUOTED: Final = 3


def show_items(screen: Screen, found: Lost, *, everything: bool, limit: int) -> None:
    """The items by kind: at most ``limit`` rows each; whole ones only with ``everything``."""
    root = _root([item.text for item in found.items if item.kind == "file"])
    for kind in KINDS:
        listed = [
            item
            for item in found.items
            if item.kind == kind and (everything or item.state is not Presence.WHOLE)
        ]
        if not listed:
            continue
        screen.blank()
        below = f" below {root}" if kind == "file" and root else ""
        screen.line((_TITLES[kind], "bold"), (below, "dim"))
        for item in listed[:limit]:
            _show(screen, item, root)
        _show_rest(screen, listed[limit:])


def _show(screen: Screen, item: ViewItem, root: str) -> None:
    head = f"  {item.state.value:<9} {item.name:<6} "
    note = "; ".join(_notes(item))
    width = (screen.width if screen.live else PIPE_WIDTH) - len(head)
    beside = width - len(note) - 2
    # On a narrow screen the notes stand below, so that the words keep their line.
    fits = not note or beside >= min(len(_text(item, root, width)), max(_LEAST_TEXT, width // 2))
    text = _text(item, root, beside if fits and note else width)
    colour = (head[:11], _STYLES[item.state])
    if note and fits:
        screen.line(colour, (head[11:], "bold"), text, (f"  {note}", "dim"))
    else:
        screen.line(colour, (head[11:], "bold"), text)
    if note and not fits:
        screen.line((note, "dim"), indent=len(head))
    for line in _below(item, width):
        screen.line((line, "dim"), indent=len(head))


def _text(item: ViewItem, root: str, width: int) -> str:
    """An item on one line of at most ``width`` characters."""
    if item.kind in ("instruction", "decision"):
        return f'"{one_line(item.text, max(_LEAST_TEXT, width - 2))}"'
    if item.kind == "file":
        return _path(item.text, root, max(_LEAST_TEXT, width))
    text = item.text.replace(f"{root}/", "") if root else item.text
    return one_line(text, max(_LEAST_TEXT, width))


def _path(path: str, root: str, width: int) -> str:
    """A path below ``root``; of a long one the end, which tells more."""
    return clip(one_line(path.removeprefix(f"{root}/") if root else path), width, end=True)


def _notes(item: ViewItem) -> list[str]:
    notes: list[str] = []
    if item.file is not None:
        ways = (("read", item.file.read), ("written", item.file.written))
        notes.append(
            ", ".join(
                [f"{way} {number(n)}×" for way, n in (*ways, ("edited", item.file.edited)) if n]
            )
        )
    if item.command is not None and item.command.failed:
        status = item.command.status
        notes.append("failed" if status is None else f"failed ({status})")
    if item.command is not None and item.command.runs > 1:
        notes.append(f"ran {number(item.command.runs)}×")
    if 0 < item.in_view < item.messages and item.state is not Presence.GONE:
        notes.append(f"{number(item.in_view)} of {number(item.messages)} in view")
    if item.left is not None and item.left.by != "compaction":
        notes.append(BY_IN_WORDS[item.left.by])
    if item.used_again:
        notes.append(f"used again {number(item.used_again)}×")
    return [note for note in notes if note]


def _below(item: ViewItem, width: int) -> list[str]:
    """What stands below an item: the error of a command, what was used of a result."""
    if item.command is not None and item.command.error:
        return [one_line(item.command.error, width)]
    if item.quoted:
        shown = ", ".join([one_line(text, 60) for text in item.quoted[:_MOST_QUOTED]])
        more = len(item.quoted) - _MOST_QUOTED
        return [one_line(shown + (f" and {more} more" if more > 0 else ""), width)]
    return []


def _show_rest(screen: Screen, rest: Sequence[ViewItem]) -> None:
    if not rest:
        return
    states = Counter(item.state for item in rest)
    parts = [f"{number(states[state])} {state.short}" for state in STATES if states[state]]
    screen.line((f"… and {number(len(rest))} more: {', '.join(parts)} (--limit)", "dim"), indent=2)


def _root(paths: Sequence[str]) -> str:
    """The deepest folder in which most files lie (four of five); "" if there is none."""
    folders: Counter[str] = Counter()
    for path in paths:
        parts = path.split("/")[:-1] if path.startswith("/") else []
        folders.update(["/".join(parts[:depth]) for depth in range(3, len(parts) + 1)])
    deep = [one for one, count in folders.items() if count > 1 and 5 * count >= 4 * len(paths)]
    return max(deep, key=len, default="")
