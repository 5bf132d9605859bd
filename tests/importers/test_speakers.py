"""What only a file's envelope says of a speaker holds wherever it is asked who spoke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import SourceChanged
from eventctx.importers.formats.claude_code import parse
from eventctx.importers.source.items import MessageItem, TurnBegan
from eventctx.log.codec import HarnessBodies, encode_event, harness_bodies, stored_harness_bodies
from eventctx.log.events import MessageAdded, MessagesSet
from eventctx.log.plan import Plan, Run, Shortening
from eventctx.log.record import Draft
from eventctx.log.store import NO_STREAM
from eventctx.policies.planner import visible_of
from eventctx.projections.view import request_view, snapshot
from eventctx.projections.view.request_view import ViewState
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.importers.given import (
    SESSION,
    ClaudeCode,
    forked,
    items_of,
    load,
    load_data,
    of_type,
    records,
    salt,
    text,
)
from tests.sessions import append_event, body_of, compacted_by_hand, user

SKILL = "Base directory for this skill: /s\n\nAlways write the tests first."


def talk(**envelope: Any) -> ClaudeCode:
    log = ClaudeCode().user("fix the login").answer("m1", text("on it"), stop_reason="end_turn")
    return log.user(SKILL, **envelope).answer("m2", text("done"), stop_reason="end_turn")


async def imported(tmp_path: Path, **envelope: Any) -> MemoryStore:
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
        view = await view_of(await imported(tmp_path, **envelope))
        kinds = [ref.facts.kind for ref in view.layout.refs]
        assert kinds == ["human", "assistant", kind, "assistant"]
        assert visible_of(view).latest_human == latest


async def test_lost_why_and_an_audience_agree_on_the_speaker(tmp_path: Path) -> None:
    async with Engine(await imported(tmp_path, isMeta=True)) as engine:
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
    store = await imported(tmp_path, isMeta=True)
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
    at = {"session": stream, "expected": (await view_of(store, stream)).position}
    await append_event(
        store, compacted_by_hand(plan), *[body_of(one, salt) for one in bodies], **at
    )


@pytest.mark.parametrize("envelope", [{}, {"isMeta": True}], ids=["a person's", "a harness's"])
async def test_a_shortened_message_keeps_its_speaker(
    tmp_path: Path, envelope: dict[str, Any]
) -> None:
    store = await imported(tmp_path, **envelope)
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


async def test_a_speaker_of_an_import_by_an_earlier_release_is_not_passed_over(
    tmp_path: Path,
) -> None:
    store, older = await imported(tmp_path, isMeta=True), MemoryStore()
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
        assert harness_bodies(event) == stored_harness_bodies(kind, payload) == expected
    assert stored_harness_bodies("context:messages_set", b'{"harness":"harness"') == none
    assert stored_harness_bodies("prompt:submit", b'{"harness":[0]}') == none
