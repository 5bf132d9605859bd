"""Many records folded together give the view that they give one by one; so do series that grow."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.record import Draft, Record, make_body, place
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import as_observation, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections import transcript
from eventctx.projections.transcript import PackedLines, TranscriptLine
from eventctx.projections.view import layout as layouts
from eventctx.projections.view import request_view
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series
from tests.how_much import some
from tests.transcripts import DIALECTS, Message, answer, calls, hook_row, human, result, stories

examples = settings(max_examples=some(30, 200))

IDS = ("a", "b", "c", "d")
ACTION = {"role": "assistant", "content": "I look.\n\n```bash\nls\n```"}
OUTPUT = {"role": "user", "content": "<returncode>0</returncode>\n<output>\nx\n</output>"}
ITEMS: tuple[Message, ...] = (
    {"type": "item_reference", "id": "x"},
    {"type": "reasoning", "id": "rs", "summary": []},
    {"type": "custom_tool_call", "call_id": "", "name": "read", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "", "output": "y"},
    {"type": "computer_call", "call_id": "", "id": "cc", "action": {}, "status": "completed"},
    {"type": "hologram_call", "call_id": ""},
    {"type": "hologram_call_output", "call_id": ""},
    {"type": "hologram", "id": "y"},
)
ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3)


@st.composite
def rows(draw: st.DrawFn) -> list[Message]:
    """One row, or a whole round, in any dialect, with few ids: so answers meet many calls."""
    dialect = draw(st.sampled_from(DIALECTS))
    name = draw(st.sampled_from(("human", "answer", "item", "system", "hook", "calls", "results")))
    if name == "human":
        return [human(dialect, draw(st.sampled_from(("hello", "You MUST NOT touch main.py."))))]
    if name == "answer":
        return [ACTION, OUTPUT] if draw(st.booleans()) else answer(dialect, "well")
    if name == "item":
        item = draw(st.sampled_from(ITEMS))
        return [{**item, "call_id": draw(st.sampled_from(IDS))} if "call_id" in item else item]
    if name == "system":
        return [{"role": "system", "content": "be brief"}]
    if name == "hook":
        return [hook_row("soon")]
    asked = draw(ids)
    made = calls(dialect, asked, "so", 3) if name == "calls" or draw(st.booleans()) else []
    if name == "calls":
        return made
    if dialect == "anthropic" and draw(st.booleans()):
        blocks = [one for call in asked for one in result(dialect, call, "done")["content"]]
        words = [{"type": "text", "text": "and go on"}] if draw(st.booleans()) else []
        return [*made, {"role": "user", "content": [*blocks, *words]}]
    return [*made, *[result(dialect, call, "done") for call in draw(st.permutations(asked))]]


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """A story of one dialect, or a mix of rows of all."""
    if draw(st.booleans()):
        return draw(stories(most=30)).messages
    return [row for part in draw(st.lists(rows(), max_size=30)) for row in part]


OTHERS: tuple[Event, ...] = (
    events.PromptSubmit(number=1),
    events.Pinned(numbers=(0,)),
    events.MessagesSet(order=((0, 0),)),
    events.Cleared(messages=1),
    events.ToolPost(name="read", call_id="a"),
)


def record(event: Event, position: int, message: Message | None = None) -> Record:
    name, version, payload = encode_event(event)
    bodies: tuple[Any, ...] = ()
    if message is not None:
        facts = read_facts(message)
        facts = as_observation(facts) if message is OUTPUT else facts
        bodies = (make_body(encode_message(message), encode_facts(facts), bytes),)
    draft = Draft(bytes(16), name, version, position, payload, bodies, span_id=f"{position:016x}")
    return place(draft, "s", position, position, b"")


def logged(messages: list[Message], between: dict[int, Event]) -> list[Record]:
    """The log of messages, with an event before some of them."""
    log: list[Record] = []
    for number, message in enumerate(messages):
        if number in between and number:
            log.append(record(between[number], len(log)))
        log.append(record(events.MessageAdded(), len(log), message))
    return log


def parted(state: ViewState) -> tuple[Any, ...]:
    """All that a state holds; a digest still running cannot be compared itself."""
    layout = state.layout
    plain = replace(layout, sealed_digest=None), layout.sealed_digest.hexdigest()
    return replace(state, layout=layouts.EMPTY), plain


@examples
@given(
    messages=transcripts(),
    between=st.dictionaries(st.integers(0, 60), st.sampled_from(OTHERS), max_size=4),
    cut=st.integers(0, 60),
)
def test_records_together_give_the_view_of_one_after_the_other(
    messages: list[Message], between: dict[int, Event], cut: int
) -> None:
    log = logged(messages, between)
    one_by_one = request_view.initial()
    for one in log:
        one_by_one = request_view.evolve(one_by_one, one)
    together = request_view.evolve_all(request_view.initial(), log)
    assert parted(together) == parted(one_by_one)
    parts = request_view.evolve_all(request_view.initial(), log[:cut])
    assert parted(request_view.evolve_all(parts, log[cut:])) == parted(one_by_one)


@examples
@given(
    messages=transcripts(),
    between=st.dictionaries(st.integers(0, 60), st.sampled_from(OTHERS), max_size=4),
)
def test_a_view_that_shows_all_messages_has_the_lines_of_the_transcript(
    messages: list[Message], between: dict[int, Event]
) -> None:
    view, folded = request_view.initial(), transcript.initial()
    broken = False
    for one in logged(messages, between):
        view, folded = request_view.evolve(view, one), transcript.evolve(folded, one)
        # A set may name a message that a clear took away; no view tells what became of that one.
        missing = one.type == "context:messages_set" and view.messages > len(view.layout.refs)
        broken = broken or missing
        assert broken or transcript.whole_transcript(view) == folded


def test_one_step_takes_all_rows_of_a_usual_session() -> None:
    messages: list[Message] = [{"role": "system", "content": "be brief"}]
    for dialect in ("anthropic", "openai", "amplifier"):
        messages += [human(dialect, "go"), *calls(dialect, ["a", "b"], "so", 3)]
        messages += [result(dialect, "b", "2"), result(dialect, "a", "1"), *answer(dialect, "so")]
    refs = [
        MessageRef(number, number, 0, bytes(32), read_facts(message), 10)
        for number, message in enumerate(messages)
    ]
    layout, taken = layouts.extend(layouts.EMPTY, refs)
    assert taken == len(refs)
    assert len(layout.sealed) == len(refs)
    assert layouts.plain_until(refs, 0) == len(refs)
    late = msgspec.structs.replace(refs[3], facts=read_facts(result("openai", "gone", "x")))
    assert layouts.extend(replace(layout, abandoned={"gone": 1}), [refs[1], late])[1] == 1


@examples
@given(steps=st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(), max_size=3))))
def test_no_version_ever_changes_whichever_one_grows(steps: list[tuple[int, list[int]]]) -> None:
    versions = [(Series[int](), list[int]())]
    for chosen, items in steps:
        series, model = versions[chosen % len(versions)]
        grown = series.append(items[0]) if len(items) == 1 else series.extend(items)
        versions.append((grown, model + items))
    for series, model in versions:
        assert list(series) == model
        assert len(series) == len(model)
        assert [series[n] for n in range(-len(model), len(model))] == model + model
        assert series[1:4] == model[1:4]
        assert list(series.first(2).append(9)) == [*model[:2], 9]
        assert list(series.first(len(model) + 4)) == list(series) == model


PACKABLE = st.builds(TranscriptLine, *[st.integers(0, 99)] * 3)


@examples
@given(steps=st.lists(st.tuples(st.integers(0, 30), st.lists(PACKABLE, max_size=3))))
def test_packed_lines_are_a_series_like_others(
    steps: list[tuple[int, list[TranscriptLine]]],
) -> None:
    packed: list[Series[TranscriptLine]] = [Series.backed_by(PackedLines())]
    plain: list[list[TranscriptLine]] = [[]]
    for chosen, lines in steps:
        at = chosen % len(packed)
        packed.append(packed[at].extend(lines))
        plain.append(plain[at] + lines)
    for series, model in zip(packed, plain, strict=True):
        assert list(series) == series[:] == model
        assert [series[place] for place in range(len(model))] == model


@pytest.mark.slow
def test_a_line_of_a_transcript_takes_the_memory_of_its_numbers() -> None:
    tracemalloc.start()
    try:
        state = transcript.add_messages(transcript.initial(), range(5, 10_005))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 40 * 10_000
    assert state.lines[9_999] == transcript.TranscriptLine(9_999, 10_004, 0)
    assert state.lines[:2] == [(0, 5, 0), (1, 6, 0)]
