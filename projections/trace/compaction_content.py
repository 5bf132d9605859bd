"""The contents of a compaction: what left the view is its input, what was put in its output.

They are in the form of a model call's messages, since trace viewers show those as a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventctx.log.events import PostCompact
from eventctx.log.plan import Plan
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.projections.flat import read
from eventctx.projections.trace import bodies as trace_bodies
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.trace.bodies import Texts
from eventctx.projections.trace.genai_messages import Clean, genai_message, plain_text
from eventctx.projections.trace.message_lists import MAX_CONTENT, NOT_KEPT, array, newest, to_json
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.state import ViewState

_GONE: Final = frozenset(("dropped", "summarised", "merged"))


def contents(view: ViewState, texts: Texts, record: Record, clean: Clean) -> Attributes:
    """The contents of the compaction that ``record`` ends; none if it was not applied.

    ``view`` and ``texts`` are those before ``record``. ``clean`` redacts a text.
    """
    event = read(record)
    if not isinstance(event, PostCompact) or event.plan is None:
        return {}
    found: Attributes = {}
    gone = _gone(event.plan)
    left = [entry for entry in view.layout.entries() if _leaves(entry, event.plan, gone)]
    shown = [trace_bodies.shown(texts, entry, clean) for entry in left]
    if any(shown):
        found[conv.INPUT_MESSAGES] = array(newest([text or NOT_KEPT for text in shown]))
    put, summaries = _inserted(event.plan, texts, record, clean)
    if put:
        found[conv.OUTPUT_MESSAGES] = array(newest(put))
    if summaries:
        found[conv.COMPACTION_SUMMARY] = "\n".join(summaries)[:MAX_CONTENT]
    return found


def _gone(plan: Plan) -> list[range]:
    return [range(run.first, run.last + 1) for run in plan.runs if run.disposition in _GONE]


def _leaves(entry: Entry, plan: Plan, gone: list[range]) -> bool:
    """Whether an entry of the view before the plan is not in the view behind it."""
    ref = entry.ref
    if entry.kind == "message" and isinstance(ref, MessageRef):
        return any(ref.number in numbers for numbers in gone)
    if entry.kind == "insertion" and isinstance(ref, InsertionRef):
        return all((one.at, one.body) != (ref.position, ref.index) for one in plan.insertions)
    return False


def _inserted(
    plan: Plan, texts: Texts, record: Record, clean: Clean
) -> tuple[list[str], list[str]]:
    """The messages that the plan puts in anew, and the plain texts of all its summaries."""
    put: list[str] = []
    summaries: list[str] = []
    for one in plan.insertions:
        data = _body(texts.bodies, record, one.at, one.body)
        if data is None:
            continue
        message = decode_body(data)
        if one.at is None:
            made = {**genai_message(message, clean), "finish_reason": ""}
            put.append(to_json(made))
        if one.kind == "summary":
            summaries.append(plain_text(message.get("content"), clean))
    return put, summaries


def _body(
    known: Mapping[tuple[int, int], bytes | None], record: Record, at: int | None, index: int
) -> bytes | None:
    if at is not None:
        return known.get((at, index))
    return record.bodies[index].data if index < len(record.bodies) else None
