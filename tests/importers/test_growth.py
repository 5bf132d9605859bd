"""Importing again: nothing new from an unchanged file, the rest of one that grew or is being
written, a clear error for one that was changed, or whose session was taken over; and subagents."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.errors import ImportedSession, SessionWasTakenOver, SourceChanged, TranscriptError
from eventctx.importers.load import ImportSummary, follow_file, import_file
from eventctx.log.codec import decode_event, encode_event
from eventctx.log.events import Erased, Event, MessageAdded, Pinned, SessionTakenOver
from eventctx.log.ids import derive_trace_id
from eventctx.log.record import Body, Draft
from eventctx.log.store import STREAM_EXISTS, Address
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.importers.given import NOW, SESSION, ClaudeCode, call, put, raw_bytes, salt, story, text
from tests.importers.growing import FILES, claude_code
from tests.importers.items import always
from tests.importers.taken import events, load, load_data, messages, records, same
from tests.sessions import USER, body_of, user


async def in_steps(name: str, steps: list[bytes]) -> tuple[list[Any], bytes]:
    """Import ever longer versions of a file into one store; its story at the end."""
    store = MemoryStore()
    session = ""
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(steps):
            path = put(Path(folder) / "file.jsonl", data)
            try:
                session = (await load(store, path, format=name)).session or ""
            except TranscriptError:
                # Of a list that has not one whole message yet nothing can be said.
                assert number < len(steps) - 1
    return story(await records(store, session)) if session else ([], b"")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_line_and_imported_again_equals_one_import(name: str) -> None:
    lines = FILES[name].splitlines(keepends=True)
    # A usual run cuts at every second line; the next test cuts at some of the others.
    for cut in range(1, len(lines), some(2, 1)):
        steps = [b"".join(lines[:cut]), FILES[name]]
        assert asyncio.run(in_steps(name, steps)) == one_import(name), cut


@cache
def one_import(name: str) -> tuple[list[Any], bytes]:
    return asyncio.run(in_steps(name, [FILES[name]]))


@cache
def cuts_of(name: str) -> st.SearchStrategy[int]:
    whole = FILES[name]
    # The long progress line adds bytes to choose from and nothing to find in them.
    places = [place for place in range(1, len(whole)) if whole[place - 1 : place] in b'\n{}",']
    return st.integers(1, len(whole)) | st.sampled_from(places)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=some(4, 60), deadline=None)
@given(data=st.data())
def test_a_file_cut_at_any_bytes_and_imported_again_equals_one_import(
    name: str, data: st.DataObject
) -> None:
    whole = FILES[name]
    steps = sorted(data.draw(st.lists(cuts_of(name), min_size=1, max_size=4)))
    grown = asyncio.run(in_steps(name, [*(whole[:step] for step in steps), whole]))
    assert grown == one_import(name)


async def test_a_copy_is_the_same_source_and_a_changed_line_is_named(tmp_path: Path) -> None:
    store, _ = await load_data(tmp_path, claude_code(), complete=False)
    assert (await load(store, put(tmp_path / "two.log", claude_code()))).added == 0
    log = ClaudeCode().user("one").user("two").user("three")
    store, _ = await load_data(tmp_path, log.data(), complete=False)
    path = put(tmp_path / "file.jsonl", log.data().replace(b"two", b"TWO"))
    with pytest.raises(SourceChanged, match=r"line 2.*--session"):
        await load(store, path)
    assert (await load(store, path, session="another")).messages == 3


def mini(rows: int, status: str | None) -> bytes:
    extra = {"response": {"usage": {"prompt_tokens": 5}}}
    answer = {"role": "assistant", "content": "step", "extra": extra}
    talk = [answer if n % 2 else user(f"<returncode>{n}") for n in range(1, rows)]
    info, form = {"exit_status": status, "cost": rows}, "mini-swe-agent-1"
    head = [{"role": "system", "content": "s"}, user("task")]
    return json.dumps({"messages": head + talk, "info": info, "trajectory_format": form}).encode()


async def test_a_trajectory_that_is_rewritten_as_it_goes_adds_the_rest(tmp_path: Path) -> None:
    path, store, other = tmp_path / "run.traj.json", MemoryStore(), MemoryStore()
    for rows, status in ((3, None), (7, None), (12, "Submitted")):
        assert (await load(store, put(path, mini(rows, status)))).messages == rows + 1
    assert (await load(store, path)).added == 0
    await load(other, path)
    assert await messages(store, "run") == await messages(other, "run")
    assert raw_bytes(await records(store, "run")).count(b'"cost"') == 3


# -- changed files and other writers -------------------------------------------------------------


def as_draft(event: Event, *bodies: Body, mark: int = 0) -> Draft:
    kind, version, payload = encode_event(event)
    return Draft(bytes([mark]) * 16, kind, version, NOW, payload, bodies)


def live_message() -> Draft:
    return as_draft(MessageAdded(), body_of(user("live"), salt), mark=9)


async def test_a_session_that_was_continued_live_is_not_imported_over(tmp_path: Path) -> None:
    path, log = tmp_path / "file.jsonl", ClaudeCode().user("one")
    store, _ = await load_data(tmp_path, log.data(), complete=False)
    head = await store.head(SESSION)
    assert head is not None
    await store.append(SESSION, [live_message()], head.head)
    for data in (log.data(), log.user("two").data()):
        with pytest.raises(SourceChanged, match="continued"):
            await load(store, put(path, data))
    store = MemoryStore()
    await store.append(SESSION, [live_message()], -1)
    with pytest.raises(SourceChanged, match="--session"):
        await load(store, path)


async def test_pins_and_erasures_after_an_import_do_not_stand_in_the_way(tmp_path: Path) -> None:
    path, log = tmp_path / "file.jsonl", ClaudeCode().user("one").user("secret")
    store, _ = await load_data(tmp_path, log.data(), complete=False)
    found = await records(store, SESSION)
    place = next(r.position for r in found if r.bodies and b"secret" in (r.bodies[0].data or b""))
    erased = Erased(numbers=(1,), bodies=((place, 0),), reason="asked")
    drafts = [as_draft(Pinned(numbers=(0,))), as_draft(erased, mark=1)]
    await store.append(SESSION, drafts, found[-1].position)
    await store.erase({SESSION: {Address(place): b""}})
    assert (await load(store, path)).added == 0
    assert (await load(store, put(path, log.user("three").data()))).messages == 3
    assert len(await events(store, SESSION, "context:message_added")) == 3


# -- subagents -----------------------------------------------------------------------------------


def family(tmp_path: Path, answered: bool) -> Path:
    main = ClaudeCode().user("go").answer("m1", call("t1", "Task")).progress(agentId="a1")
    if answered:
        main.result("t1", "report").answer("m2", text("x")).system("turn_duration")
    folder = tmp_path / SESSION / "subagents"
    agent = ClaudeCode(isSidechain=True, agentId="a1").user("task").answer("m9", text("report"))
    put(folder / "agent-a1.jsonl", agent.data())
    put(folder / "agent-empty.jsonl", b"")
    return put(tmp_path / f"{SESSION}.jsonl", main.data())


async def whole_family(store: MemoryStore, path: Path) -> Sequence[ImportSummary]:
    return await import_file(store, path, clock=lambda: NOW, salt=salt)


async def test_subagents_become_linked_streams_when_their_task_is_answered(tmp_path: Path) -> None:
    path, store, child = family(tmp_path, answered=True), MemoryStore(), f"{SESSION}.agent-a1"
    summaries = await whole_family(store, path)
    assert [s.session for s in summaries] == [SESSION, child, None]
    assert summaries[0].links == (child,)
    (task,) = [r for r in await records(store, SESSION) if r.type == "tool:pre"]
    span = {"trace_id": derive_trace_id(SESSION, task.turn_id), "span_id": task.span_id}
    for stream, expected in (
        (SESSION, {"session": child, "relation": "child"}),
        (child, {"session": SESSION, "relation": "parent", **span}),
    ):
        (link,) = [r for r in await records(store, stream) if r.type == "session:linked"]
        told = {"event": "session:linked", "call_id": "t1", **expected}
        assert json.loads(link.payload) == told
    assert len(await messages(store, child)) == 2
    assert sum(s.added for s in await whole_family(store, path)) == 0
    store = MemoryStore()
    for answered, counts in ((False, [1, 1, 0]), (True, [4, 2, 0])):
        done = await whole_family(store, family(tmp_path, answered))
        assert [s.messages for s in done] == counts
    assert sum(s.added for s in await whole_family(store, family(tmp_path, True))) == 0


def main_file(folder: Path, **about: Any) -> Path:
    """A session with two calls, whose results say ``about`` which subagent the first one had."""
    log = ClaudeCode().user("go").answer("m1", call("t1", "Task"), call("t2", "Workflow"))
    log.result("t1", "found")
    log.rows[-1]["toolUseResult"] = about
    log.result("t2").answer("m2", text("ok"), stop_reason="end_turn")
    return put(folder / f"{SESSION}.jsonl", log.data())


def agent_file(folder: Path, name: str) -> Path:
    side = ClaudeCode(isSidechain=True, agentId=name).user("look")
    side.answer(f"s-{name}", text("here"), stop_reason="end_turn")
    return put(folder / f"agent-{name}.jsonl", side.data())


async def calls_of_links(store: MemoryStore) -> dict[str, str | None]:
    found = await events(store, SESSION, "session:linked")
    return {one.session.rpartition(".agent-")[2]: one.call_id for one in found}


@pytest.mark.parametrize("status", ["completed", "async_launched"])
async def test_a_result_names_the_subagent_of_its_call(status: str, tmp_path: Path) -> None:
    main = main_file(tmp_path, status=status, agentId="aaa", content=[])
    agent = agent_file(tmp_path / SESSION / "subagents", "aaa")
    store = MemoryStore()
    done = await import_file(store, main)
    assert [one.error for one in done] == [None, None]
    assert await calls_of_links(store) == {"aaa": "t1"}
    ends = await events(store, f"{SESSION}.agent-aaa", "prompt:complete")
    # One that was started and goes on is not at its end when its call has a result.
    assert len(ends) == (status == "completed")
    agent.write_bytes(agent.read_bytes() + ClaudeCode(isSidechain=True, agentId="aaa").data())
    assert not any(one.added for one in await import_file(store, main))


async def test_subagents_of_a_workflow_are_sessions_too(tmp_path: Path) -> None:
    main = main_file(tmp_path, status="completed")
    run = tmp_path / SESSION / "subagents" / "workflows" / "wf_1"
    for name in ("bbb", "ccc"):
        agent_file(run, name)
    put(run / "agent-bbb.meta.json", b'{"agentType": "x", "toolUseId": "t2"}')
    put(run / "journal.jsonl", b'{"type": "launched"}\n')
    store = MemoryStore()
    done = await import_file(store, main, complete=True)
    names = [SESSION, *(f"{SESSION}.agent-{name}" for name in ("bbb", "ccc"))]
    assert [one.session for one in done] == names
    assert await calls_of_links(store) == {"bbb": "t2", "ccc": None}
    assert not any(one.added for one in await import_file(store, main, complete=True))


# -- a session that was taken over is ours for good ------------------------------------------------


def talk() -> ClaudeCode:
    one = ClaudeCode().user("Fix the test.").answer("m1", text("I look."), call("t1"))
    return one.result("t1").answer("m2", text("Done."))


async def test_what_is_taken_over_is_imported_whole_and_takes_messages(tmp_path: Path) -> None:
    store, path = MemoryStore(), put(tmp_path / "talk.jsonl", talk().data())
    assert (await load(store, path)).waiting
    summary = await load(store, path, take_over=True)
    assert (summary.taken_over, summary.waiting, summary.added) == (True, (), 7)
    *_, ended, taken = await records(store, SESSION)
    assert (ended.type, taken.type, taken.time) == ("prompt:complete", "session:taken_over", NOW)
    assert decode_event(taken) == SessionTakenOver(source="talk.jsonl", format="claude-code")
    async with Engine(store) as engine:
        context = await engine.session(SESSION)
        await context.add_message(USER)
        await context.pin(0)
        assert len(await context.get_messages()) == 5
        assert (await engine.verify(SESSION)).ok


async def test_a_later_import_is_refused_and_says_since_when(tmp_path: Path) -> None:
    store, path = MemoryStore(), put(tmp_path / "talk.jsonl", talk().data())
    await load(store, path, take_over=True)
    await store.append(SESSION, [live_message()], STREAM_EXISTS)
    before = await store.head(SESSION)
    others = [ClaudeCode().user(words) for words in ("Fix the test.", "Another.")]
    for session in (talk(), *others, talk().user("More.")):
        put(path, session.data())
        for take_over in (False, True):
            with pytest.raises(SessionWasTakenOver, match="--session NEW") as caught:
                await load(store, path, take_over=take_over)
            assert caught.value.since == NOW
            assert "2030-03-17 17:46:40+00:00" in str(caught.value)
    assert await store.head(SESSION) == before
    assert (await load(store, path, session="anew")).messages == 5


async def test_a_session_of_an_older_store_is_a_mirror_whoever_wrote_to_it(tmp_path: Path) -> None:
    store, path = MemoryStore(), put(tmp_path / "talk.jsonl", talk().data())
    await load(store, path)
    await store.append(SESSION, [live_message()], STREAM_EXISTS)
    with pytest.raises(SourceChanged, match="the session was continued"):
        await load(store, put(path, talk().user("More.").data()))
    async with Engine(store) as engine:
        with pytest.raises(ImportedSession):
            await (await engine.session(SESSION)).clear()


async def test_the_sessions_of_subagents_stay_mirrors(tmp_path: Path) -> None:
    store, path = MemoryStore(), put(tmp_path / "talk.jsonl", talk().data())
    agent_file(tmp_path / "talk" / "subagents", "a1")
    done = await import_file(store, path, take_over=True, clock=lambda: NOW, salt=salt)
    assert [one.taken_over for one in done] == [True, False]
    async with Engine(store) as engine:
        for one in done:
            assert (await engine.mirror_of(one.session or "") is None) is one.taken_over


async def test_an_export_of_a_mirror_stays_one_and_any_other_is_ours(tmp_path: Path) -> None:
    store, copies = MemoryStore(), MemoryStore()
    await load(store, put(tmp_path / "talk.jsonl", talk().data()))
    async with Engine(store) as engine:
        await (await engine.session("own")).add_message(USER)
        await engine.close_session("own")
        for name in (SESSION, "own"):
            info = await store.head(name)
            assert info is not None
            _, *lines = [line async for line in export_lines(store, info)]
            await import_drafts(copies, name, read_drafts(iter(lines)))
    async with Engine(copies) as other:
        await (await other.session("own")).add_message(USER)
        with pytest.raises(ImportedSession):
            await (await other.session(SESSION)).add_message(USER)


# -- a file that is read while it is written -------------------------------------------------------


class Written:
    """A file that gets its next part whenever the import has reached its end."""

    def __init__(self, path: Path, parts: Iterator[bytes]) -> None:
        self.path = path
        self.parts = parts
        self.paused: list[list[ImportSummary]] = []
        path.write_bytes(next(parts))

    async def more(self, summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
        self.paused.append(summaries)
        part = next(self.parts, None)
        if part is None:
            return False
        with self.path.open("ab") as file:
            file.write(part)
        assert same()
        return True

    async def follow(self, store: MemoryStore) -> list[ImportSummary]:
        return await follow_file(store, self.path, self.more, clock=lambda: NOW, salt=salt)


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    """The data cut at random places, first after the lines that name the session."""
    random_ = random.Random(seed)  # noqa: S311 - a seeded draw
    start = data.index(b"\n", data.index(b"\n", 400)) + 1
    yield data[:start]
    while start < len(data):
        stop = start + random_.choice((1, 9, 80, 500, 3_000))
        yield data[start:stop]
        start = stop


@pytest.mark.parametrize("seed", range(some(1, 3)))
@pytest.mark.parametrize("name", FILES)
async def test_reading_on_makes_the_records_of_an_import_of_the_whole(
    name: str, seed: int, tmp_path: Path
) -> None:
    path = tmp_path / "file.jsonl"
    store, other = MemoryStore(), MemoryStore()
    written = Written(path, pieces(FILES[name], seed))
    imports = 1
    (done,) = await written.follow(store)
    while path.read_bytes() != FILES[name]:
        # The lines ended, as their last one was whole without its end; or always do.
        await written.more([done], always)
        written.paused.pop()
        (done,) = await written.follow(store)
        imports += 1
    summary = await load(other, path)
    assert (await load(store, path)).added == 0
    assert (done.messages, done.calls) == (summary.messages, summary.calls)
    assert done.warned == summary.warned
    (stream,) = [info.stream async for info in store.streams()]
    assert await same(store, other, stream)
    assert len(written.paused) > imports


async def test_what_is_written_is_in_the_store_before_more_is_waited_for(tmp_path: Path) -> None:
    log = ClaudeCode().user("one")
    for number in range(5):
        log.answer(f"m{number}", text("yes"), stop_reason="end_turn").user(f"and {number}?")
    first, *lines = log.data().splitlines(keepends=True)
    parts = [first, *(a + b for a, b in zip(lines[::2], lines[1::2], strict=True))]
    written, store = Written(tmp_path / "file.jsonl", iter(parts)), MemoryStore()
    seen: list[int] = []

    async def more(summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
        seen.append(len(await messages(store, SESSION)))
        return await written.more(summaries, same)

    await follow_file(store, written.path, more)
    assert seen == [1, 3, 5, 7, 9, 11]
    added = [one[0].added for one in written.paused]
    assert added == sorted(set(added))


@pytest.mark.slow
async def test_an_import_that_was_killed_is_taken_up_and_nothing_doubled(tmp_path: Path) -> None:
    data = FILES["claude-code"].replace(b"y" * 300_000, b"y" * 3_000)
    store, other = MemoryStore(), MemoryStore()
    written = Written(tmp_path / "file.jsonl", pieces(data, 7))

    class Killed(BaseException):
        pass

    async def killed(summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
        if len(written.paused) % 4 == 3:
            written.paused.append(summaries)
            raise Killed
        return await written.more(summaries, same)

    kills = 0
    while written.path.read_bytes() != data or not written.paused:
        try:
            await follow_file(store, written.path, killed, clock=lambda: NOW, salt=salt)
        except Killed:
            kills += 1
        else:
            await written.more([], always)
    assert kills > 5
    await written.follow(store)
    await load(other, written.path)
    assert await same(store, other, SESSION)


async def test_a_file_that_was_cut_or_replaced_is_not_read_on(tmp_path: Path) -> None:
    path, data = tmp_path / "file.jsonl", ClaudeCode().user("one").user("two").data()

    async def goes_on(change: Callable[[], object]) -> bool:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        answers: list[bool] = []

        async def more(summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
            change()
            answers.append(same())
            return False

        await follow_file(MemoryStore(), path, more)
        return answers[0]

    assert await goes_on(lambda: path.write_bytes(data + data))
    for change in (
        lambda: put(tmp_path / "other.jsonl", data + data).replace(path),
        path.unlink,
        lambda: path.write_bytes(data[:-20]),
        lambda: path.write_bytes(data.replace(b"two", b"xyz") + data),
    ):
        assert not await goes_on(change)


RECORDED = (
    "claude-code/entire-26dcd5518fea.jsonl",
    "claude-code-exact/session.jsonl",
    "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl",
    "pi/large-session.jsonl",
)


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_session_that_is_written_again_gives_the_records_of_its_import(
    name: str, recorded_sessions: Path, tmp_path: Path
) -> None:
    lines = (recorded_sessions / name).read_bytes().splitlines(keepends=True)
    data = b"".join(lines[: some(400, len(lines))])
    first, size = len(lines[0]), len(data) // 40 + 1
    starts = range(first, len(data), size)
    parts = iter([data[:first], *[data[start : start + size] for start in starts]])
    written = Written(tmp_path / "file.jsonl", parts)
    store, other = MemoryStore(), MemoryStore()
    (done,) = await written.follow(store)
    while written.path.stat().st_size < len(data):
        await written.more([done], always)
        (done,) = await written.follow(store)
    await load(other, written.path)
    assert await same(store, other, done.session or "")
