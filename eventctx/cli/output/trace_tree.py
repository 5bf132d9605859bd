"""A session's spans as trees on a screen: one for each turn, children by their start times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from eventctx.cli.output.figures import compaction_tokens, request_tokens
from eventctx.cli.output.messages import arguments
from eventctx.cli.output.plain import NOT_RECORDED, minute, number, one_line, plural
from eventctx.cli.output.screen import Screen
from eventctx.log.naming import position_name, request_name
from eventctx.messages.call_effects import read_effect
from eventctx.messages.parts import Part
from eventctx.projections.figures import Figures
from eventctx.projections.presence import describe_trigger
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span
from eventctx.text import clip

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
_COMMAND: Final = 60
"""Characters that a tree shows of what a tool call asked for."""


def show(screen: Screen, spans: Sequence[Span], figures: Figures) -> None:
    """Print the spans of one session; those whose parent is not among them are roots.

    Roots of one turn, or of one trace outside a turn, have one head. ``figures`` are the
    session's, as the counts for a compaction come only after its span.
    """
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    groups: dict[tuple[str, object], list[Span]] = {}
    for span in sorted(spans, key=lambda one: (one.start, one.attributes[conv.EVENT_SEQ])):
        if span.parent_span_id in known and span.parent_span_id is not None:
            children.setdefault(span.parent_span_id, []).append(span)
        else:
            group = (span.trace_id, span.attributes.get(conv.TURN_ID))
            groups.setdefault(group, []).append(span)
    tree = _Tree(children, figures, _turns(spans))
    for place, (first, *more) in enumerate(groups.values()):
        if place:
            screen.blank()
        alone = not more and first.span_id not in children
        end = max(one.end for one in (first, *more))
        _head(screen, first, dated=alone or end - first.start > 1)
        for root in (first, *more):
            _branch(screen, root, tree, "", "", first.start)


class _Tree(NamedTuple):
    """The children of each span, the session's figures, and the numbers of its turns by id."""

    children: dict[str, list[Span]]
    figures: Figures
    turns: dict[str, int]


def _turns(spans: Sequence[Span]) -> dict[str, int]:
    found: dict[str, int] = {}
    for span in spans:
        number, turn_id = span.attributes.get(conv.TURN_NUMBER), span.attributes.get(conv.TURN_ID)
        if isinstance(number, int) and isinstance(turn_id, str):
            found[turn_id] = number
    return found


def _head(screen: Screen, root: Span, *, dated: bool) -> None:
    turn = root.attributes.get(conv.TURN_NUMBER)
    what = "outside a turn" if turn is None else f"turn {turn}"
    when = f"{minute(root.start)} UTC" if dated else "not dated"
    screen.whole((what, "bold underline"), f" · {when} · trace {root.trace_id}")


def _branch(
    screen: Screen,
    span: Span,
    tree: _Tree,
    lead: str,
    under: str,
    origin: int,
) -> None:
    style = _STYLES.get(str(span.attributes.get(conv.OPERATION)), "")
    mark = "↓ " if style == _STYLES[conv.COMPACT] else ""
    parts: Parts = [(lead, "dim"), (mark + one_line(span.name), style)]
    parts.append((_name(span, tree.turns), "bold"))
    parts.append((_asked(span), ""))
    parts.append(
        (f"  +{duration(span.start - origin)}" if lead or span.start > origin else "", "dim")
    )
    parts.append((f"  {_took(span)}", ""))
    parts += _notes(span, tree.figures)
    below = tree.children.get(span.span_id, ())
    hanging = f"{under}{'│  ' if below else '   '}   "
    screen.hanging(*[part for part in parts if part[0]], under=hanging)
    for place, child in enumerate(below):
        last = place == len(below) - 1
        branch, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        _branch(screen, child, tree, under + branch, under + rest, origin)


def _name(span: Span, turns: dict[str, int]) -> str:
    """The name of the request that a model call sends, or the position of a compaction."""
    sent = _position(span, f"{conv.REQUEST}seq")
    if sent >= 0:
        turn = turns.get(str(span.attributes.get(conv.TURN_ID)))
        iteration = span.attributes.get(conv.ITERATION)
        return f"  {request_name(turn, iteration if isinstance(iteration, int) else None, sent)}"
    ended = _position(span, conv.COMPACTION_ID)
    return f"  {position_name(ended)}" if ended >= 0 else ""


def _asked(span: Span) -> str:
    """The request of a tool call: its command, else its file, else the beginning of it all."""
    given = span.attributes.get(conv.TOOL_ARGUMENTS)
    if span.attributes.get(conv.OPERATION) != conv.EXECUTE_TOOL or not isinstance(given, str):
        return ""
    name = span.name.rpartition(" ")[2]
    effect = read_effect(Part("call", (), given, name=name))
    if effect.command is not None:
        return f"  $ {one_line(effect.command, _COMMAND)}"
    if effect.files:
        return f"  {clip(one_line(effect.files[0][0]), _COMMAND, end=True)}"
    return f"  {one_line(arguments(given), _COMMAND)}" if arguments(given) else ""


def _took(span: Span) -> str:
    """A span's length, and what its program measured for the turn, where that is another.

    Of a span without an end no length was recorded. Of another program's compaction there is one
    if the file names it, and else the time since the record before it.
    """
    known = span.attributes
    imported = known.get(f"{conv.COMPACTION}trigger") == "imported"
    measured = span.attributes.get(conv.TURN_DURATION)
    unfinished = span.attributes.get(conv.OUTCOME) in ("unfinished", "lost")
    if unfinished and not isinstance(measured, int):
        return f"duration {NOT_RECORDED}"
    length = span.end - span.start
    # The records of a file without times share one, and every span has a nanosecond at least.
    took = duration(length) if length > 1 else f"duration {NOT_RECORDED}"
    if imported and length > 1 and f"{conv.COMPACTION}duration" not in known:
        return f"{took} since the record before it"
    if not isinstance(measured, int) or measured == length:
        return took
    return f"{took} ({duration(measured)} by its program's measure)"


def _notes(span: Span, figures: Figures) -> Parts:
    attributes = span.attributes
    operation = attributes.get(conv.OPERATION)
    notes: Parts = []
    if operation == conv.COMPACT:
        notes.append((f"  {_compaction(span, figures)}", "yellow"))
    elif operation == conv.CHAT or conv.INPUT_TOKENS in attributes:
        notes.append((f"  {_tokens(span, figures)}", ""))
    if operation == conv.CHAT and attributes.get(conv.CONVERSATION_COMPACTED):
        notes.append(("  compacted view", "yellow"))
    outcome = attributes.get(conv.OUTCOME)
    if outcome == "lost":
        notes.append(("  lost: its process ended first", "bold red"))
    elif span.status == "error":
        kind = attributes.get(conv.ERROR_TYPE)
        told = [span.message] if kind == conv.ERROR_OTHER and span.message else [kind, span.message]
        words = ": ".join([str(one) for one in told if one])
        notes.append((f"  failed: {one_line(words, _MESSAGE)}", "bold red"))
    elif outcome in ("cancelled", "skipped", "stale", "unfinished"):
        why = f": {one_line(span.message, _MESSAGE)}" if span.message else ""
        notes.append((f"  {outcome}{why}", "magenta"))
    return notes


def _tokens(span: Span, figures: Figures) -> str:
    """Tokens in and out; of a call whose prompt was not reported, the request's estimate."""
    attributes = span.attributes
    cached = attributes.get(conv.CACHE_READ_TOKENS)
    of_which = f" ({_count(span, conv.CACHE_READ_TOKENS)} cached)" if cached else ""
    prompt = f"{_count(span, conv.INPUT_TOKENS)} in"
    if conv.INPUT_TOKENS not in attributes:
        request = figures.requests.get(_position(span, f"{conv.REQUEST}seq"))
        prompt = f"prompt {NOT_RECORDED}" if request is None else f"{request_tokens(request)} in"
    if conv.OUTPUT_TOKENS not in attributes:
        return f"{prompt}{of_which}, output {NOT_RECORDED}"
    without = attributes.get(conv.INEXACT_OUTPUTS)
    missing = f", of {without} calls {NOT_RECORDED}" if without else ""
    return f"{prompt}{of_which}, {_count(span, conv.OUTPUT_TOKENS)} out{missing}"


def _position(span: Span, name: str) -> int:
    value = span.attributes.get(name)
    return value if isinstance(value, int) else -1


def _compaction(span: Span, figures: Figures) -> str:
    attributes = {
        name.removeprefix(conv.COMPACTION): value
        for name, value in span.attributes.items()
        if name.startswith(conv.COMPACTION)
    }
    trigger = str(attributes.get("trigger"))
    words = [describe_trigger(trigger).short]
    if attributes.get("background"):
        words.append("in the background")
    sizes = figures.compactions.get(_position(span, conv.COMPACTION_ID))
    if sizes is not None:
        words.append(compaction_tokens(sizes))
    if "messages.after" in attributes:
        before, after = (_count(span, f"{conv.COMPACTION}messages.{end}") for end in _ENDS)
        words.append(f"{before} → {after} messages")
    for disposition in ("dropped", "shortened", "summarised", "merged"):
        count = attributes.get(f"{disposition}.count")
        if isinstance(count, int) and count:
            words.append(f"{count} {disposition}")
    if "fallback" in attributes:
        error = span.attributes.get(conv.ERROR_TYPE)
        after = f" after {error}" if error is not None else ""
        words.append(f"done by {attributes['fallback']}{after}")
    return one_line(", ".join(words))


_ENDS: Final = ("before", "after")


def _count(span: Span, name: str) -> str:
    value = span.attributes.get(name)
    return number(value) if isinstance(value, int) else "–"


def duration(nanoseconds: int) -> str:
    """A duration for people: ``3.2 ms``, ``1.4 s``, ``2 min 5 s``, ``1 h 2 min``."""
    if nanoseconds < 10 * _MILLISECOND:
        return f"{max(nanoseconds, 0) / _MILLISECOND:.1f} ms"
    nanoseconds = round(nanoseconds / _MILLISECOND) * _MILLISECOND
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
