"""A record of the log as one line for a person and as one JSON object for a machine."""

from __future__ import annotations

from typing import Any, Final

from eventctx.cli.output.figures import (
    compaction_tokens,
    request_tokens,
    tokens,
    untold_in_words,
)
from eventctx.cli.output.plain import NOT_RECORDED, minute, number, plural, size
from eventctx.errors import DecodeError
from eventctx.log.codec import Unknown, unpacked
from eventctx.log.events import CATALOGUE, known_as
from eventctx.log.naming import position_name
from eventctx.log.plan import Plan
from eventctx.log.record import Body, Record
from eventctx.messages.facts import Facts
from eventctx.projections.figures import CompactionFigures, Figures
from eventctx.projections.flat import dispositions, read, scalars
from eventctx.projections.presence import describe_reason
from eventctx.queries.records import MOST_RAW

_FAMILY_STYLES: Final = {
    "context": "cyan",
    "prompt": "bold green",
    "provider": "blue",
    "tool": "yellow",
    "session": "magenta",
    "usage": "blue",
    "import": "dim",
}


WITH_MESSAGE: Final = ("context:message_added", "context:system_prompt_set")
"""Types of record whose message is shown, its beginning, where the record has one."""


def type_style(name: str) -> str:
    """The style of a record's type."""
    if name in ("context:post_compact", "context:pre_compact"):
        return "bold red"
    return _FAMILY_STYLES.get(name.partition(":")[0], "")


def details(record: Record, known: Figures | None = None) -> str:
    """The payload in few words; empty for a record whose message is shown instead.

    ``known`` are the figures of the session; without them, sizes are the estimates in the record.
    """
    event: Any = read(record)
    if isinstance(event, Unknown):
        return _unread(event)
    match record.type:
        case "context:message_added":
            return ""
        case "context:request_prepared":
            plan = f", plan {position_name(event.plan)}" if event.plan is not None else ""
            figures = None if known is None else known.requests.get(record.position)
            size = tokens(event.tokens, True) if figures is None else request_tokens(figures)
            breaks = f", after {' and '.join(event.breaks)}" if event.breaks else ""
            of = f" of {number(event.budget)}" if event.budget is not None else ""
            how = known_as(event)
            made = "" if how == "prepared" else f", {how}"
            digest = event.digest if event.wire is None else event.wire.digest
            return (
                f"{plural(event.messages, 'message')}, {size}{of} tokens"
                f"{plan}{breaks}{made}, digest {digest[:12]}"
            )
        case "context:post_compact":
            if event.outcome != "applied":
                return f"{event.outcome}, {event.error or event.trigger}"
            sizes = None if known is None else known.compactions.get(record.position)
            sizes = sizes or CompactionFigures(
                event.tokens_before, True, event.tokens_after, True, event.tokens_recorded
            )
            return (
                f"{event.trigger}: {compaction_tokens(sizes)}, "
                f"{event.messages_before} → {event.messages_after} messages; "
                f"{plan_in_words(event.plan)}"
            )
        case "context:request_sent":
            request = f"request {position_name(event.prepared)}"
            if event.untold is not None:
                return f"{request}: {untold_in_words(event.untold)}"
            missing = f", {plural(event.missing, 'message')} not sent" if event.missing else ""
            added = plural(len(event.additions), "text")
            return f"{request}: {added} added by the host{missing}"
        case "context:system_prompt_set":
            return "" if record.bodies else "none from here on"
        case "import:raw" if record.bodies:
            return _raw_in_words(record, event)
        case "usage:reported":
            cached = f", {number(event.cache_read)} cached" if event.cache_read else ""
            prompt = number(event.prompt) if event.prompt else NOT_RECORDED
            output = number(event.output) if event.output_exact else NOT_RECORDED
            return f"prompt {prompt}{cached}, output {output}"
    flat = scalars(event)
    if record.type == "context:pre_compact":
        flat["tokens"] = tokens(event.tokens, True)
    elif isinstance(flat.get("prepared"), int):
        flat["prepared"] = position_name(int(flat["prepared"]))
    if isinstance(flat.get("imported_at"), int):
        flat["imported_at"] = minute(int(flat["imported_at"]))
    return ", ".join(f"{name} {value}" for name, value in flat.items() if value not in ("", False))


def more_rows(record: Record) -> str:
    """The number of a record's rows after its first, such as those of memory files."""
    more = len(record.bodies) - 1
    return f" (and {plural(more, 'more row')})" if more > 0 else ""


def _unread(event: Unknown) -> str:
    """Describe a record that this release cannot read."""
    row = CATALOGUE.get(event.type)
    if row is not None and event.version <= row.version:
        return f"the payload is no {event.type}; `eventctx verify` lists all damage"
    return f"version {event.version}, written by a later release; kept, and not read here"


def reason_in_words(reason: str, *facts: Facts) -> str:
    """A reason code in words that follow a disposition: ``shortened, to fit the budget``.

    They are true of all messages with these ``facts``.
    """
    return describe_reason(reason, *facts) or reason


def plan_in_words(plan: Plan | None) -> str:
    """``dropped 45, shortened 2``: a plan's counts of messages that do not stay whole."""
    if plan is None:
        return "no plan"
    counted = dispositions(plan)
    texts = [f"{name} {count:,}" for name, count in counted.items() if count and name != "kept"]
    if plan.insertions:
        texts.append(f"inserted {len(plan.insertions)}")
    return ", ".join(texts) or "nothing left out"


def contents_in_text(record: Record, body: Body) -> str:
    """A body as text for a screen: of kept parts of a file what they hold, else the stored JSON."""
    if body.data is None:
        return "[erased]"
    if record.type != "import:raw":
        return body.data.decode("utf-8", errors="backslashreplace")
    try:
        raw = unpacked(record, MOST_RAW)
    except DecodeError as error:
        return f"[{error}]"
    return "[erased]" if raw is None else raw.data.decode("utf-8", errors="backslashreplace")


def _raw_in_words(record: Record, event: Any) -> str:
    first, last = event.lines
    where = f"line {first}" if first == last else f"lines {first}–{last}"
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in event.kinds.items())
    try:
        raw = unpacked(record, MOST_RAW)
    except DecodeError:
        return f"{where}: {kinds}; the container cannot be unpacked"
    if raw is None:
        return f"{where}: {kinds}; erased"
    length = f"over {size(MOST_RAW)}" if raw.length is None else size(raw.length)
    packed = f", {size(raw.stored)} in a {event.encoding} container"
    return f"{where}: {kinds}; {length}{packed if event.encoding != 'plain' else ''}"
