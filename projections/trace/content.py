"""Contents of spans, if they are enabled: a second stage after the fold of spans.

A request's messages, the model's answer, a tool's arguments and its result are records of their
own, and most of them come after the span that they belong to: an answer is added when the call that
gave it has ended. So this stage holds a finished span back until its content has come, at the
latest until the next activity of the turn begins (``_BOUNDARIES``). Content that comes before its
span ends is kept, by span, by turn and iteration, or by call id, until the span takes it.

Invariants: a span leaves this stage once and is not changed afterwards; every table is bounded, so
a span may lack content, but the state does not grow with the log; erased content goes at once.
Records must be read with their bodies; one state folds one stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from eventctx.errors import EventctxError
from eventctx.log.events import Erased, RequestContent, RequestPrepared
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.projections.flat import read
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.trace.identity import Title, title_of
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.texts import (
    MAX_CONTENT,
    NOT_KEPT,
    Clean,
    Texts,
    Tools,
    array,
    compaction_contents,
    erase_bodies,
    forget_bodies,
    genai_message,
    keep_bodies,
    message_of_entry,
    newest,
    no_texts,
    to_json,
)
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.state import ViewState

_REMEMBERED: Final = 128
_BOUNDARIES: Final = frozenset(("provider:request", "tool:pre", "prompt:complete", "session:end"))

Key = str | tuple[str | None, int | None]
K = TypeVar("K")
V = TypeVar("V")


class ContentState(msgspec.Struct, frozen=True):
    """The state of the stage.

    - ``clean``: redacts a text.
    - ``view``, ``texts``: the request view, and the texts of its messages.
    - ``waiting``: finished spans whose content may still come.
    - ``requests``: attributes of requests, by the position of the prepared request.
    - ``answers``: answers as JSON, by span id, and by turn and iteration.
    - ``calls``, ``results``: tool calls' arguments and results, by call id.
    - ``prompts``: messages of the person, by turn; ``replies``: the last answer, by turn.
    - ``title``: that of the session, for the roots of its traces.
    - ``tools``: the definitions of tools that requests were sent with.
    - ``compacting``: span ids of compactions. No message answers a summarizer's call in one.
    """

    clean: Clean
    view: ViewState
    texts: Texts
    waiting: tuple[Span, ...] = ()
    requests: dict[int, Attributes] = {}
    answers: dict[Key, tuple[str, ...]] = {}
    calls: dict[str, str] = {}
    results: dict[str, str] = {}
    prompts: dict[str, tuple[str, ...]] = {}
    replies: dict[str, tuple[str, ...]] = {}
    compacting: tuple[str, ...] = ()
    title: Title | None = None
    tools: Tools = Tools()


def initial(clean: Clean) -> ContentState:
    """The state before a stream's first record. ``clean`` redacts a text."""
    return ContentState(clean, request_view.initial(), no_texts())


def evolve(
    state: ContentState, record: Record, finished: Iterable[Span]
) -> tuple[ContentState, list[Span]]:
    """The state after ``record``, and the spans that are complete now.

    ``finished`` are the spans that the fold of spans finished with this record.
    """
    out: list[Span] = []
    # The plan takes messages out of the view, so they are read before it does.
    compacted = record.type == "context:post_compact"
    told = compaction_contents(state.view, state.texts, record, state.clean) if compacted else {}
    state = _absorb(state, record)
    if record.type == "session:fork":  # the view goes on; spans that wait are the parent's
        state = ContentState(
            state.clean, state.view, state.texts, title=state.title, tools=state.tools
        )
    if record.type in _BOUNDARIES:
        state = _release(state, record, out)
    elif record.type == "context:pre_compact" and record.span_id is not None:
        compacting = (*state.compacting[1 - _REMEMBERED :], record.span_id)
        state = replace(state, compacting=compacting)
    elif record.type == "context:erased":
        state = _erase(state, record)
    elif record.type == "context:request_content" and record.bodies:
        state = _define(state, record)
    elif record.type == "context:message_added" and record.bodies:
        state = _add(state, record, out)
    elif record.type == "context:request_prepared":
        state = replace(
            state,
            requests=_remember(state.requests, record.position, _request_contents(state, record)),
        )
    for span in finished:
        if told and span.attributes.get(conv.OPERATION) == conv.COMPACT:
            span = replace(span, attributes=span.attributes | told)
        state = _finish(state, span, record, out)
    return state, out


def unfinished(state: ContentState, spans: Iterable[Span]) -> list[Span]:
    """The spans that still wait, and then ``spans``, which no record has ended."""
    return [*state.waiting, *(_with_content(state, span) for span in spans)]


# -- records -------------------------------------------------------------------------------------


def _absorb(state: ContentState, record: Record) -> ContentState:
    title = title_of(state.title, record, state.clean)
    if title is not state.title:
        state = replace(state, title=title)
    texts = keep_bodies(state.texts, record)
    try:
        view = request_view.evolve(state.view, record)
    except EventctxError:
        # A damaged record has no content to show; ``verify`` reports what is wrong with it.
        return replace(state, texts=texts)
    return replace(state, view=view, texts=forget_bodies(texts, view))


def _erase(state: ContentState, record: Record) -> ContentState:
    """The state without the erased content, and without all other content that it has collected.

    Collected texts are not linked to the bodies that they come from, so all of them go.
    """
    event = read(record)
    if not isinstance(event, Erased):
        return state
    stripped = [
        replace(
            span, attributes={n: v for n, v in span.attributes.items() if n not in conv.CONTENT}
        )
        for span in state.waiting
    ]
    texts = erase_bodies(state.texts, event)
    return ContentState(
        state.clean,
        state.view,
        texts,
        tuple(stripped),
        compacting=state.compacting,
        title=state.title,
        tools=state.tools.without(event),
    )


def _request_contents(state: ContentState, record: Record) -> Attributes:
    """The messages of a request, cut to ``MAX_CONTENT``: system messages stay, the oldest go."""
    event = read(record)
    if not isinstance(event, RequestPrepared):
        return {}
    view = planned.with_insertions(state.view, event.insertions, record)
    entries = list(view.layout.entries())
    found = [message_of_entry(state.texts, entry, state.clean) for entry in entries]
    if entries and not any(found):
        return {}  # read without bodies
    texts = [text or NOT_KEPT for text in found]
    systems = next((at for at, text in enumerate(texts) if not _is_system(text)), len(texts))
    attributes: Attributes = {conv.INPUT_MESSAGES: array(newest(texts[systems:]))}
    if systems:
        parts = [
            part for text in texts[:systems] for part in msgspec.json.decode(text).get("parts", ())
        ]
        attributes[conv.SYSTEM_INSTRUCTIONS] = msgspec.json.encode(parts).decode()[:MAX_CONTENT]
    tools = state.tools.of_requests.get(request_view.tools_of(event) or "")
    return attributes if tools is None else attributes | {conv.TOOL_DEFINITIONS: tools}


def _define(state: ContentState, record: Record) -> ContentState:
    event, data = read(record), record.bodies[0].data
    if not isinstance(event, RequestContent) or event.kind != "tools" or data is None:
        return state
    names = (event.digest, f"{record.position}.0")
    return replace(state, tools=state.tools.after(names, decode_body(data), state.clean))


def _add(state: ContentState, record: Record, out: list[Span]) -> ContentState:
    body = record.bodies[0]
    if body.data is None:
        return state
    facts = decode_facts(body.facts)
    message = genai_message(decode_body(body.data), state.clean)
    for part in message["parts"]:
        call_id = part.get("id")
        if part["type"] == "tool_call" and isinstance(call_id, str):
            # Some hosts use the same call ids in every turn: drop the result of the older call.
            results = {one: text for one, text in state.results.items() if one != call_id}
            calls = _remember(state.calls, call_id, part["arguments"])
            state = replace(state, calls=calls, results=results)
        elif part["type"] == "tool_call_response" and isinstance(call_id, str):
            state = _add_result(state, call_id, part["response"], out)
    turn_id = record.turn_id
    if facts.kind == "assistant":
        state = _add_answer(state, record, to_json(message))
        if turn_id is not None:
            replies = _remember(state.replies, turn_id, (to_json(message),))
            state = replace(state, replies=replies)
    elif facts.human and turn_id is not None:
        prompts = (*state.prompts.get(turn_id, ()), to_json(message))
        state = replace(state, prompts=_remember(state.prompts, turn_id, prompts))
    return state


def _add_answer(state: ContentState, record: Record, answer: str) -> ContentState:
    """Add an answer to the chat span that waits for it, or keep it for one that is still open."""
    for place in range(len(state.waiting) - 1, -1, -1):
        span = state.waiting[place]
        if _is_chat(span) and _key_of(span) == (record.turn_id, record.iteration):
            earlier = str(span.attributes.get(conv.OUTPUT_MESSAGES, "[]"))
            more = array([*([earlier[1:-1]] if earlier != "[]" else []), _final(answer, span)])
            span = replace(span, attributes={**span.attributes, conv.OUTPUT_MESSAGES: more})
            waiting = (*state.waiting[:place], span, *state.waiting[place + 1 :])
            return replace(state, waiting=waiting)
    for key in (record.span_id, (record.turn_id, record.iteration)):
        if key is not None:
            answers = (*state.answers.get(key, ()), answer)
            state = replace(state, answers=_remember(state.answers, key, answers))
    return state


def _add_result(state: ContentState, call_id: str, result: str, out: list[Span]) -> ContentState:
    for span in state.waiting:
        if span.attributes.get(conv.TOOL_CALL_ID) == call_id:
            out.append(replace(span, attributes={**span.attributes, conv.TOOL_RESULT: result}))
            rest = tuple([one for one in state.waiting if one is not span])
            return replace(state, waiting=rest)
    return replace(state, results=_remember(state.results, call_id, result))


def _release(state: ContentState, record: Record, out: list[Span]) -> ContentState:
    """Release the spans of the part of the turn that is over with this record."""
    keep: list[Span] = []
    parallel = (record.turn_id, record.iteration) if record.iteration is not None else None
    for span in state.waiting:
        mine = span.attributes.get(conv.TURN_ID) == record.turn_id
        waits_on = not mine
        if record.type == "provider:request":
            waits_on = waits_on or _key_of(span) == parallel
        elif record.type == "tool:pre":
            waits_on = waits_on or not _is_chat(span)
        (keep if waits_on and record.type != "session:end" else out).append(span)
    return replace(state, waiting=tuple(keep))


# -- spans ---------------------------------------------------------------------------------------


def _finish(state: ContentState, span: Span, record: Record, out: list[Span]) -> ContentState:
    operation = span.attributes.get(conv.OPERATION)
    if operation == conv.INVOKE_AGENT:
        mine = span.attributes.get(conv.TURN_ID)
        out += [one for one in state.waiting if one.attributes.get(conv.TURN_ID) == mine]
        rest = [one for one in state.waiting if one.attributes.get(conv.TURN_ID) != mine]
        state = replace(state, waiting=tuple(rest))
    if span.parent_span_id in state.compacting:
        out.append(span)
        return state
    filled = _with_content(state, span)
    key = _key_of(span)
    if _is_chat(span):
        left = {one: text for one, text in state.answers.items() if one not in (key, span.span_id)}
        state = replace(state, answers=left)
    if _waits(filled, record):
        filled = _with_kept_answer(state, filled, record)
        surplus, waiting = (*state.waiting, filled)[:-_REMEMBERED], (*state.waiting, filled)
        out += surplus
        return replace(state, waiting=waiting[-_REMEMBERED:])
    out.append(filled)
    return state


def _waits(span: Span, record: Record) -> bool:
    if record.type in _BOUNDARIES and record.type != "tool:pre":
        return False
    if span.attributes.get(conv.OUTCOME) != "ok":
        return False
    if _is_chat(span):
        return True
    return conv.TOOL_CALL_ID in span.attributes and conv.TOOL_RESULT not in span.attributes


def _with_content(state: ContentState, span: Span) -> Span:
    """The span with the contents that have come so far."""
    known = span.attributes
    found: Attributes = {}
    operation = known.get(conv.OPERATION)
    root = operation == conv.INVOKE_AGENT or span.parent_span_id is None
    if root and state.title is not None and state.title.text is not None:
        found[conv.SESSION_TITLE] = state.title.text
    if operation == conv.CHAT:
        found |= state.requests.get(_whole(known.get(f"{conv.REQUEST}seq")), {})
        answers = state.answers.get(span.span_id) or state.answers.get(_key_of(span))
        if answers:
            found[conv.OUTPUT_MESSAGES] = array(_final(answer, span) for answer in answers)
    elif operation == conv.EXECUTE_TOOL:
        described = state.tools.described.get(str(known.get(conv.TOOL_NAME)))
        if described is not None:
            found[conv.TOOL_DESCRIPTION] = described
        call_id = str(known.get(conv.TOOL_CALL_ID))
        for name, texts in ((conv.TOOL_ARGUMENTS, state.calls), (conv.TOOL_RESULT, state.results)):
            if call_id in texts:
                found[name] = texts[call_id]
    elif operation == conv.INVOKE_AGENT:
        turn_id = str(known.get(conv.TURN_ID))
        if turn_id in state.prompts:
            found[conv.INPUT_MESSAGES] = array(state.prompts[turn_id])
        if turn_id in state.replies:
            replies = [_final(answer, span) for answer in state.replies[turn_id]]
            found[conv.OUTPUT_MESSAGES] = array(replies)
    return replace(span, attributes=known | found) if found else span


def _with_kept_answer(state: ContentState, span: Span, record: Record) -> Span:
    """The span with the answer that its end keeps, for a call whose result is never added."""
    data = record.bodies[0].data if record.type == "tool:post" and record.bodies else None
    if data is None:
        return span
    for part in genai_message(decode_body(data), state.clean)["parts"]:
        if part["type"] == "tool_call_response":
            return replace(span, attributes={**span.attributes, conv.TOOL_RESULT: part["response"]})
    return span


# -- parts ---------------------------------------------------------------------------------------


def _is_chat(span: Span) -> bool:
    return span.attributes.get(conv.OPERATION) == conv.CHAT


def _key_of(span: Span) -> Key:
    turn_id, iteration = span.attributes.get(conv.TURN_ID), span.attributes.get(conv.ITERATION)
    return (
        turn_id if isinstance(turn_id, str) else None,
        iteration if isinstance(iteration, int) else None,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else -1


def _final(answer: str, span: Span) -> str:
    """An answer with its finish reason; an empty one if the provider reported none.

    The released conventions require it, and Phoenix shows no answer of a call without it.
    """
    reasons = span.attributes.get(conv.FINISH_REASONS)
    reason = reasons[0] if isinstance(reasons, tuple) and reasons else ""
    return f'{answer[:-1]},"finish_reason":{to_json(reason)}}}'


def _is_system(text: str) -> bool:
    return text.startswith(('{"role":"system"', '{"role":"developer"'))


def _remember(known: dict[K, V], key: K, value: V) -> dict[K, V]:
    """``known`` with one more entry, the newest last; without the oldest above ``_REMEMBERED``."""
    grown = {one: other for one, other in known.items() if one != key}
    grown[key] = value
    if len(grown) > _REMEMBERED:
        del grown[next(iter(grown))]
    return grown
