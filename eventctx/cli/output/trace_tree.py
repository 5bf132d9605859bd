"""A session's spans as trees on a screen: one for each turn, children by their start times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventctx.cli.output.plain import minute, number, one_line, plural
from eventctx.cli.output.screen import Screen
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span

Parts = list[tuple[str, str]]

_STYLES: Final = {
    conv.INVOKE_AGENT: "bold",
    conv.CHAT: "cyan",
    conv.EXECUTE_TOOL: "green",
    conv.COMPACT: "bold yellow",
    conv.PLAN: "blue",
}
_OVER: Final = (("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000))
_MILLISECOND: Final = 1_000_000
_MESSAGE: Final = 200
_WORDS: Final = {
    "threshold": "at the threshold",
    "budget": "over budget",
    "max_messages": "too many messages",
    "manual": "on demand",
    "imported": "imported",
}


def show(screen: Screen, spans: Sequence[Span]) -> None:
    """Print the spans of one session; those whose parent is not among them are roots."""
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    roots: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.start, one.attributes[conv.EVENT_SEQ])):
        if span.parent_span_id in known and span.parent_span_id is not None:
            children.setdefault(span.parent_span_id, []).append(span)
        else:
            roots.append(span)
    for place, root in enumerate(roots):
        if place:
            screen.blank()
        _head(screen, root)
        _branch(screen, root, children, "", "", root.start)


def _head(screen: Screen, root: Span) -> None:
    turn = root.attributes.get(conv.TURN_NUMBER)
    what = "outside a turn" if turn is None else f"turn {turn}"
    screen.whole((what, "bold underline"), f" · {minute(root.start)} UTC · trace {root.trace_id}")


def _branch(
    screen: Screen,
    span: Span,
    children: dict[str, list[Span]],
    lead: str,
    under: str,
    origin: int,
) -> None:
    style = _STYLES.get(str(span.attributes.get(conv.OPERATION)), "")
    mark = "↓ " if style == _STYLES[conv.COMPACT] else ""
    parts: Parts = [(lead, "dim"), (mark + one_line(span.name), style)]
    parts.append((f"  +{duration(span.start - origin)}" if under or lead else "", "dim"))
    parts.append((f"  {_took(span)}", ""))
    parts += _notes(span)
    below = children.get(span.span_id, ())
    hanging = f"{under}{'│  ' if below else '   '}   "
    screen.hanging(*[part for part in parts if part[0]], under=hanging)
    for place, child in enumerate(below):
        last = place == len(below) - 1
        branch, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        _branch(screen, child, children, under + branch, under + rest, origin)


def _took(span: Span) -> str:
    """A span's length, and what its program measured for the turn, where that is another."""
    length = span.end - span.start
    measured = span.attributes.get(conv.TURN_DURATION)
    # The records of a file without times share one, and every span has a nanosecond at least.
    took = duration(length) if length > 1 else "–"
    if not isinstance(measured, int) or measured == length:
        return took
    return f"{took} ({duration(measured)} by its program's measure)"


def _notes(span: Span) -> Parts:
    attributes = span.attributes
    operation = attributes.get(conv.OPERATION)
    notes: Parts = []
    if operation == conv.COMPACT:
        notes.append((f"  {_compaction(span)}", "yellow"))
    elif conv.INPUT_TOKENS in attributes:
        notes.append((f"  {_tokens(span)}", ""))
    elif operation == conv.CHAT and f"{conv.REQUEST}tokens" in attributes:
        notes.append((f"  ~{_count(span, f'{conv.REQUEST}tokens')} tokens estimated", ""))
    if operation == conv.CHAT and attributes.get(conv.CONVERSATION_COMPACTED):
        notes.append(("  compacted view", "yellow"))
    outcome = attributes.get(conv.OUTCOME)
    if span.status == "error":
        words = f"{attributes.get(conv.ERROR_TYPE, 'error')}: {span.message or ''}".rstrip(": ")
        notes.append((f"  failed: {one_line(words, _MESSAGE)}", "bold red"))
    elif outcome in ("cancelled", "skipped", "unfinished"):
        why = f": {one_line(span.message, _MESSAGE)}" if span.message else ""
        notes.append((f"  {outcome}{why}", "magenta"))
    return notes


def _tokens(span: Span) -> str:
    cached = span.attributes.get(conv.CACHE_READ_TOKENS)
    of_which = f" ({_count(span, conv.CACHE_READ_TOKENS)} cached)" if cached else ""
    output = _count(span, conv.OUTPUT_TOKENS)
    return f"{_count(span, conv.INPUT_TOKENS)} in{of_which}, {output} out"


def _compaction(span: Span) -> str:
    attributes = {
        name.removeprefix(conv.COMPACTION): value
        for name, value in span.attributes.items()
        if name.startswith(conv.COMPACTION)
    }
    trigger = str(attributes.get("trigger"))
    words = [_WORDS.get(trigger, trigger)]
    if "tokens.after" in attributes:
        before, after = (_count(span, f"{conv.COMPACTION}tokens.{end}") for end in _ENDS)
        words.append(f"{before} → {after} tokens")
        before, after = (_count(span, f"{conv.COMPACTION}messages.{end}") for end in _ENDS)
        words.append(f"{before} → {after} messages")
    for disposition in ("dropped", "shortened", "summarised", "merged"):
        count = attributes.get(f"{disposition}.count")
        if isinstance(count, int) and count:
            words.append(f"{count} {disposition}")
    if "fallback" in attributes:
        words.append(f"done by {attributes['fallback']}")
    return one_line(", ".join(words))


_ENDS: Final = ("before", "after")


def _count(span: Span, name: str) -> str:
    value = span.attributes.get(name)
    return number(value) if isinstance(value, int) else "–"


def duration(nanoseconds: int) -> str:
    """A duration for people: ``3.2 ms``, ``1.4 s``, ``2 min 5 s``, ``1 h 2 min``."""
    if nanoseconds < 10 * _MILLISECOND:
        return f"{max(nanoseconds, 0) / _MILLISECOND:.1f} ms"
    if nanoseconds < 1000 * _MILLISECOND:
        return f"{nanoseconds // _MILLISECOND} ms"
    if nanoseconds < _OVER[1][1]:
        return f"{nanoseconds / _OVER[2][1]:.1f} s"
    large, small = (_OVER[1], _OVER[2]) if nanoseconds < _OVER[0][1] else (_OVER[0], _OVER[1])
    whole, rest = divmod(nanoseconds, large[1])
    return f"{whole:,} {large[0]} {rest // small[1]} {small[0]}"


def counted(spans: int, traces: int) -> str:
    """``180 spans in 17 traces``."""
    return f"{plural(spans, 'span')} in {plural(traces, 'trace')}"
