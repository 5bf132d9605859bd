"""The first lines of ``lost``: how much left the view, and how much of each kind is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eventctx.cli.output.plain import number, plural
from eventctx.queries.lost.answers import STATES

if TYPE_CHECKING:
    from eventctx.queries.lost.answers import ItemKind, LeftBy, Lost, StateCounts

NOUNS: Final[dict[ItemKind, tuple[str, str]]] = {
    "instruction": ("instruction", "instructions"),
    "file": ("file", "files"),
    "command": ("command", "commands"),
    "decision": ("decision", "decisions"),
    "result": ("result that was used again", "results that were used again"),
}
BY_IN_WORDS: Final[dict[LeftBy, str]] = {
    "compaction": "by a compaction",
    "taken_back": "because they were taken back",
    "set": "by a set of the transcript",
    "clear": "by a clear of the transcript",
    "replaced": "for the host's own system prompt",
    "erased": "erased",
    "unanswered": "as results whose call is not in view",
}


def answer(found: Lost) -> str:
    """The answer in a few sentences."""
    return " ".join([_messages(found), *_summaries(found), _items(found)]).rstrip()


def _messages(found: Lost) -> str:
    counts = found.messages
    total = plural(counts.total, "message")
    if not counts.left and not counts.shortened:
        return f"{_where(found)}: nothing left the view; {total} are whole."
    verb = "left the view" if found.about == "compaction" else "are not in view"
    text = f"{_where(found)}: {number(counts.left)} of {total} {verb}"
    if set(counts.left_by) - {"compaction"}:
        by = [f"{number(n)} {BY_IN_WORDS[one]}" for one, n in sorted(counts.left_by.items())]
        text += f" ({', '.join(by)})"
    if counts.shortened:
        text += f", {number(counts.shortened)} {_are(counts.shortened)} shortened"
    return text + "."


def _summaries(found: Lost) -> list[str]:
    texts: list[str] = []
    if found.sealed:
        sealed = plural(found.sealed, "summary", "summaries")
        texts.append(f"{sealed} {_are(found.sealed)} encrypted: what is in there is not known.")
    if found.messages.erased:
        erased = plural(found.messages.erased, "message")
        texts.append(f"{erased} {_are(found.messages.erased)} erased: nothing is known of them.")
    return texts


def _where(found: Lost) -> str:
    at = found.at or ""
    turn = None if found.turn is None else f"turn {found.turn}"
    if found.about == "compaction":
        places = ", ".join([one for one in (turn, at) if one])
        return f"Compaction {found.compaction} ({places})"
    if found.about == "turn":
        return f"Turn {found.turn} (request at {at})"
    return "Now"


def _items(found: Lost) -> str:
    kinds = [_kind(one) for one in found.counts if one.total]
    if not kinds:
        return "No instruction, file or command is known in them." if found.messages.left else ""
    if all(one.whole == one.total for one in found.counts):
        left = found.messages.left or found.messages.shortened
        return "Every instruction, file and command in them is still in view." if left else ""
    return f"Of {'; of '.join(kinds)}."


def _kind(counts: StateCounts) -> str:
    """``31 files 9 are whole, 2 in the summary, 20 gone``."""
    one, many = NOUNS[counts.kind]
    found = {one: getattr(counts, one.value) for one in reversed(STATES)}
    shown = [(count, presence.short) for presence, count in found.items() if count]
    parts = [f"{number(count)} {words}" for count, words in shown]
    first, words = shown[0]
    parts[0] = f"{number(first)} {_are(first)} {words}"
    return f"{plural(counts.total, one, many)} {', '.join(parts)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
