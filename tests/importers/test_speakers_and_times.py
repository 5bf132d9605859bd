"""Who spoke, and when, in an imported session: what its file says, wherever it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import eventctx
from eventctx.engine import Engine
from eventctx.errors import SourceChanged
from eventctx.importers.formats.claude_code import parse
from eventctx.importers.load import import_file
from eventctx.importers.source.items import MessageItem, TurnBegan
from eventctx.log import codec
from eventctx.log.codec import HarnessBodies, decode_event, encode_event, harness_bodies
from eventctx.log.events import MessageAdded, MessagesSet
from eventctx.log.plan import Plan, Run, Shortening
from eventctx.log.record import Draft, Record
from eventctx.log.store import NO_STREAM
from eventctx.policies.planner import visible_of
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span
from eventctx.projections.view import request_view, snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.queries.requests import fold
from eventctx.queries.spans import spans
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Pi, pi_call
from tests.importers.given import CHAT, NOW, SESSION, ClaudeCode, call, jsonl, put, salt, text
from tests.importers.given import text as said
from tests.importers.items import items_of, of_type
from tests.importers.taken import forked, imported, load, load_data, records
from tests.sessions import append_event, body_of, compacted_by_hand, user

SKILL = "Base directory for this skill: /s\n\nAlways write the tests first."


def talk(**envelope: Any) -> ClaudeCode:
    log = ClaudeCode().user("fix the login").answer("m1", text("on it"), stop_reason="end_turn")
    return log.user(SKILL, **envelope).answer("m2", text("done"), stop_reason="end_turn")


async def spoken(tmp_path: Path, **envelope: Any) -> MemoryStore:
    return (await load_data(tmp_path, talk(**envelope).data(), complete=False))[0]


async def view_of(store: MemoryStore, session: str = SESSION) -> ViewState:
    return await fold(store, session, request_view)


ENVELOPES: list[tuple[bool, dict[str, Any]]] = [
    (True, {"isMeta": True}),
    (True, {"isVisibleInTranscriptOnly": True}),
    (True, {"origin": {"kind": "task-notification"}}),
    (True, {"origin": {"kind": "peer", "from": "x"}}),
    (True, {"promptSource": "system"}),
    (True, {"turnOrigin": "task_notification"}),
    (False, {}),
    (False, {"isMeta": False, "origin": {"kind": "human"}, "turnOrigin": "human"}),
    (False, {"promptSource": "typed"}),
    (False, {"promptSource": "sdk", "turnOrigin": "sdk"}),
    (False, {"promptSource": "queued"}),
    (False, {"origin": "?", "promptSource": 5, "turnOrigin": None}),
]


@pytest.mark.parametrize(("harness", "envelope"), ENVELOPES)
def test_a_line_says_who_wrote_its_message(harness: bool, envelope: dict[str, Any]) -> None:
    found = items_of(parse, talk(**envelope).data())
    assert [m.by_harness for m in of_type(found, MessageItem)] == [False, False, harness, False]
    assert len(of_type(found, TurnBegan)) == 2 - harness


async def test_the_latest_human_message_is_the_one_that_a_person_wrote(tmp_path: Path) -> None:
    for envelope, kind, latest in (({"isMeta": True}, "user", 0), ({}, "human", 2)):
        view = await view_of(await spoken(tmp_path, **envelope))
        kinds = [ref.facts.kind for ref in view.layout.refs]
        assert kinds == ["human", "assistant", kind, "assistant"]
        assert visible_of(view).latest_human == latest


async def test_lost_why_and_an_audience_agree_on_the_speaker(tmp_path: Path) -> None:
    async with Engine(await spoken(tmp_path, isMeta=True)) as engine:
        assert (await engine.verify(SESSION)).ok
        transcript = await engine.transcript(SESSION)
        assert [one.origin for one in transcript] == [None, None, "harness", None]
        messages = [one.message for one in transcript if one.message is not None]
        await (await forked(engine, SESSION)).set_messages(messages[3:])
        left = [one for one in (await engine.lost("fork")).items if one.kind == "instruction"]
        assert [one.text for one in left] == ["fix the login"]
    shown = eventctx.for_audience(messages, "user", harness={2})
    assert [m["content"] for m in shown] == ["fix the login", [text("on it")], [text("done")]]
    assert len(eventctx.for_audience(messages, "developer", harness={2})) == 4
    assert len(eventctx.for_audience(messages, "user")) == 4


async def test_a_message_that_is_restored_has_its_speaker(tmp_path: Path) -> None:
    store = await spoken(tmp_path, isMeta=True)
    runs = (Run(0, 3, "dropped", "x"), Run(4, 4, "kept", "latest_human"))
    async with Engine(store) as engine:
        await (await forked(engine, SESSION)).add_message(user("and now?"))
        await compacted(store, "fork", Plan(4, runs))
        await (await engine.session("fork")).restore(2)
        assert (await engine.verify("fork")).ok
        view = await view_of(store, "fork")
    assert [(ref.number, ref.facts.kind) for ref in view.layout.refs] == [(2, "user"), (4, "human")]


async def compacted(store: MemoryStore, stream: str, plan: Plan, *bodies: Any) -> None:
    """Append a compaction by this plan, as another process would."""
    at: dict[str, Any] = {"session": stream, "expected": (await view_of(store, stream)).position}
    made = [body_of(one, salt) for one in bodies]
    await append_event(store, compacted_by_hand(plan), *made, **at)


@pytest.mark.parametrize("envelope", [{}, {"isMeta": True}], ids=["a person's", "a harness's"])
async def test_a_shortened_message_keeps_its_speaker(
    tmp_path: Path, envelope: dict[str, Any]
) -> None:
    store = await spoken(tmp_path, **envelope)
    before = await view_of(store)
    # A cut may take the mark that tells a harness's text, or leave nothing but it.
    shorter = "<system-reminder>x" if not envelope else "Base directory […] first."
    runs = (Run(0, 1, "kept", "x"), Run(2, 2, "shortened", "x"), Run(3, 3, "kept", "x"))
    await compacted(store, SESSION, Plan(3, runs, shortened=(Shortening(2, 0),)), user(shorter))
    after = await view_of(store)
    assert after.layout.refs[2].shortened
    assert after.layout.refs[2].facts.human is before.layout.refs[2].facts.human is not envelope
    assert snapshot.load(snapshot.dump(after)).layout.refs == after.layout.refs
    assert (await Engine(store).verify(SESSION)).ok


async def test_a_speaker_of_an_earlier_releases_import_is_not_passed_over(tmp_path: Path) -> None:
    store, older = await spoken(tmp_path, isMeta=True), MemoryStore()
    kind, _, payload = encode_event(MessageAdded())
    for at, record in enumerate(await records(store, SESSION)):
        fields = {name: getattr(record, name) for name in Draft.__struct_fields__}
        fields |= {"payload": payload} if record.type == kind else {}
        await older.append(SESSION, [Draft(**fields)], at - 1 if at else NO_STREAM)
    with pytest.raises(SourceChanged, match="a message of the speaker that was imported before"):
        await load(older, tmp_path / "file.jsonl")


def test_a_record_names_the_bodies_that_a_harness_wrote() -> None:
    first, both, none = frozenset((0,)), frozenset((0, 2)), HarnessBodies()
    order = ((0, 2),)
    known: list[tuple[Any, HarnessBodies]] = [
        (MessageAdded(), none),
        (MessageAdded(origin="harness"), HarnessBodies(first)),
        (MessageAdded(origin="harness", observation=True), HarnessBodies(first, first)),
        (MessagesSet(order, harness=(0, 2)), HarnessBodies(both)),
        (MessagesSet(order, harness=(0, 2), observations=(0,)), HarnessBodies(both, first)),
    ]
    for event, expected in known:
        kind, _, payload = encode_event(event)
        assert harness_bodies(event) == codec.stored_harness_bodies(kind, payload) == expected
    assert codec.stored_harness_bodies("context:messages_set", b'{"harness":"harness"') == none
    assert codec.stored_harness_bodies("prompt:submit", b'{"harness":[0]}') == none


# -- the times are the file's: nothing of the import's own time is in them -------------------------

SECOND = 1_000_000_000
START = 1_767_261_600 * SECOND
"""2026-01-01T10:00:00Z. Rows of ``ClaudeCode`` are half a second after it, a second apart."""


async def typed(store: MemoryStore, session: str, kind: str) -> list[Record]:
    return [one for one in await records(store, session) if one.type == kind]


async def traced(store: MemoryStore, session: str, operation: str | None = None) -> list[Span]:
    found = [span async for span in spans(store, session)]
    return [one for one in found if operation in (None, one.attributes[conv.OPERATION])]


async def turns(store: MemoryStore, session: str) -> list[Span]:
    return await traced(store, session, conv.INVOKE_AGENT)


def seconds(span: Span) -> float:
    """Its length; an imported span ends a nanosecond early."""
    return round((span.end - span.start) / SECOND, 8) or 1 / SECOND


def tool_loop() -> ClaudeCode:
    log = ClaudeCode().user("go").answer("m1", said("I look."), call("t1"), call("t2"))
    return log.result("t1").result("t2").answer("m2", said("Done."))


async def test_an_open_turn_lasts_up_to_its_last_record(tmp_path: Path) -> None:
    log = tool_loop().progress().system("local_command", content="x" * 300_000)
    log.answer("m3", said("And more.")).answer("m4", said("."))
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("Look.").answer("m5", said("Seen."))
    put(tmp_path / "file" / "subagents" / "agent-a1.jsonl", agent.data())
    path, store = put(tmp_path / "file.jsonl", log.data()), MemoryStore()
    for _ in range(2):
        await import_file(store, path, clock=lambda: NOW, salt=salt)
    found = await records(store, SESSION)
    assert {"session:linked", "import:raw"} <= {one.type for one in found}
    assert max(one.time for one in found) < START + 60 * SECOND
    (turn,) = await turns(store, SESSION)
    assert (turn.attributes[conv.OUTCOME], seconds(turn)) == ("unfinished", 7.0)


async def test_what_is_written_about_a_session_later_prolongs_no_turn(tmp_path: Path) -> None:
    store, session = await imported(tmp_path, tool_loop().user("Thanks.").user("Bye.").data())
    before = await traced(store, session)
    async with Engine(store, clock=lambda: NOW) as engine:
        await engine.session("child")
        await engine.link(session, "child")
        await engine.erase(session, [0])
        await engine.close_session(session)
        after = await traced(store, session)
        assert [(one.start, one.end) for one in after] == [(one.start, one.end) for one in before]


async def test_a_turn_that_is_not_ended_is_over_with_its_last_record(tmp_path: Path) -> None:
    log = tool_loop()
    log.user("A day later.").rows[-1]["timestamp"] = "2026-01-02T10:00:00Z"
    first, _ = await turns(*await imported(tmp_path, log.answer("m3", said("x")).data()))
    assert (first.attributes[conv.OUTCOME], seconds(first)) == ("ok", 4.0)


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_measured_turn_takes_just_what_its_program_says(
    goes_on: bool, tmp_path: Path
) -> None:
    log = tool_loop().system("turn_duration", durationMs=4_321)
    log = log.user("Thanks.").answer("m3", said(".")) if goes_on else log
    first, *_ = await turns(*await imported(tmp_path, log.data()))
    assert (seconds(first), first.attributes[conv.TURN_DURATION]) == (4.321, 4_321_000_000)


async def test_a_measure_that_is_none_changes_nothing(tmp_path: Path) -> None:
    for measure in (None, "x", -1, 1.5, 10**300, True, [1]):
        log = tool_loop().system("turn_duration", durationMs=measure).user("Thanks.")
        got = await imported(tmp_path, log.data())
        assert await typed(*got, "prompt:measured") == [], measure


def branched(header: str) -> bytes:
    """A session that was branched from another, with the messages that it had there."""
    log = Pi(tree=True).user("go").answer(said("x"), pi_call("c1")).result("c1").answer(said("y"))
    log.rows[0]["timestamp"] = header
    return log.data()


async def test_parallel_results_keep_their_times_and_every_span_is_valid(tmp_path: Path) -> None:
    log = tool_loop()
    log.rows[2]["timestamp"] = "2026-01-01T10:00:09.500Z"
    got = await imported(tmp_path, log.answer("m3", said("End.")).user("Thanks.").data())
    times = [one.time - START for one in await typed(*got, "tool:post")]
    assert times == [9.5 * SECOND, 4.5 * SECOND]
    own = {turn.trace_id: turn for turn in await turns(*got)}
    for span in await traced(*got):
        turn = own[span.trace_id]
        assert turn.start <= span.start < span.end <= turn.end


async def test_wrong_times_and_late_headers_move_no_other_record(tmp_path: Path) -> None:
    log = tool_loop()
    log.rows[1]["timestamp"] = "2040-01-01T00:00:00Z"
    got = await imported(tmp_path, log.user("Thanks.").user("x").data())
    added = await typed(*got, "context:message_added")
    assert [(one.time - START) / SECOND for one in added[2:]] == [3.5, 4.5, 5.5, 6.5, 7.5]
    early = await imported(tmp_path, branched("2026-01-01T10:00:00.000Z"))
    late = await imported(tmp_path, branched("2026-03-01T10:00:00.000Z"))
    wanted, found = [[one.time for one in await records(*one)] for one in (early, late)]
    assert (found[0], found[1:]) == (START + SECOND, wanted[1:])
    assert list(map(seconds, await turns(*late))) == [3.0]


# -- growth, and files without times -------------------------------------------------------------


async def test_what_a_file_gives_no_time_has_that_of_the_first_import(tmp_path: Path) -> None:
    store, session = await imported(tmp_path, jsonl(CHAT))
    path = put(tmp_path / "file.jsonl", jsonl([*CHAT, *CHAT]))
    (summary,) = await import_file(store, path, clock=lambda: 2 * NOW, salt=salt)
    assert summary.added > 0
    assert {one.time for one in await records(store, session)} == {NOW}
    rows: list[dict[str, Any]] = [{"role": "user", "content": "one"}]
    for second, role in enumerate(("assistant", "user", "assistant")):
        stamp = f"2026-01-01T10:00:0{second}+00:00"
        rows.append({"role": role, "content": "x", "timestamp": stamp})
    form: dict[str, Any] = {"format": "context-persistent"}
    store, session = await imported(tmp_path, jsonl(rows[:1]), **form)
    await load(store, put(tmp_path / "file.jsonl", jsonl(rows)), **form)
    # The first row was written when its time was not known: it has that of the import.
    assert [one.time == NOW for one in await records(store, session)][:3] == [True] * 3
    assert max(map(seconds, await traced(store, session))) <= 1.0


# -- compactions ---------------------------------------------------------------------------------


def summarised(trigger: str = "auto", at: str = "10:01:44.500", **measured: Any) -> ClaudeCode:
    """A tool loop with a compaction whose summary is done at ``at``, and the answer after it."""
    log = ClaudeCode().user("go").answer("m1", said("I look."), call("t1")).result("t1")
    facts = {"trigger": trigger, "preTokens": 167_000, **measured}
    log.system("compact_boundary", compactMetadata=facts)
    log.user("This session is being continued…", isCompactSummary=True)
    log.answer("m2", said("On I go.")).user("Thanks.")
    for row in log.rows[3:5]:
        row["timestamp"] = f"2026-01-01T{at}Z"
    for row in log.rows[5:]:
        row["timestamp"] = "2026-01-01T11:00:00Z"
    return log


async def compaction_and_chats(folder: Path, log: ClaudeCode) -> tuple[Span, list[Span]]:
    got = await imported(folder, log.data())
    (one,) = await traced(*got, conv.COMPACT)
    return one, await traced(*got, conv.CHAT)


async def test_a_compaction_lasts_from_the_record_before_or_as_it_says(tmp_path: Path) -> None:
    one, (_, after) = await compaction_and_chats(tmp_path, summarised())
    assert (one.start - START, one.end + 1 - START) == (3.5 * SECOND, 104.5 * SECOND)
    assert one.end <= after.start
    assert "eventctx.compaction.duration" not in one.attributes  # the file names none
    assert one.attributes["eventctx.compaction.tokens.recorded"] == 167_000
    assert "167,000 before by the file's own count" in str(one.attributes["compaction"])
    one, _ = await compaction_and_chats(tmp_path, summarised(durationMs=86_000))
    assert (one.start - START, one.end + 1 - START) == (18.5 * SECOND, 104.5 * SECOND)
    assert one.attributes["eventctx.compaction.duration"] == 86 * SECOND
    # One that a person asked for does not last as long as the person waited.
    one, _ = await compaction_and_chats(tmp_path, summarised("manual"))
    assert (one.start - START, seconds(one)) == (104.5 * SECOND, 1 / SECOND)
    one, _ = await compaction_and_chats(tmp_path, summarised("manual", durationMs=2_000))
    assert seconds(one) == 2.0


async def test_a_mirror_of_the_release_before_takes_the_rest_of_its_file(tmp_path: Path) -> None:
    """That release recorded no duration of a compaction; what it stored stays as it is."""
    log, store, drafts = summarised(durationMs=86_000), MemoryStore(), list[Draft]()
    now, session = await imported(tmp_path, log.data())
    for record in await records(now, session):
        fields = {name: getattr(record, name) for name in Draft.__struct_fields__}
        if record.type == "context:post_compact":
            fields["payload"] = encode_event(replace(decode_event(record), duration=0))[2]
            assert fields["payload"] != record.payload
        drafts.append(Draft(**fields))
    await store.append(session, drafts, NO_STREAM)
    before = [one.digest for one in await records(store, session)]
    path = put(tmp_path / "file.jsonl", log.answer("m3", said("Bye.")).user("x").data())
    assert (await load(store, path)).added > 0
    found = await records(store, session)
    assert [one.digest for one in found[: len(before)]] == before
    assert list(map(seconds, await traced(store, session, conv.COMPACT))) == [101.0]
