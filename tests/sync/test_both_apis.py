"""The same scenarios through both APIs, with and without async, and the thread of the second."""

from __future__ import annotations

import ast
import asyncio
import inspect
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

import eventctx
import eventctx.sync
from eventctx.errors import InvalidMessage, InvalidSetting, NotAStore
from eventctx.log import events
from eventctx.session.host_requests import ObservedRequest
from eventctx.session.host_state import Extension, HostPart
from tests.sessions import USER
from tests.sync_stub import STUB, made


@asynccontextmanager
async def entered(block: Any) -> AsyncIterator[Any]:
    """A block of either API; these tests run in a loop, as a notebook does."""
    if hasattr(block, "__aenter__"):
        async with block as inside:
            yield inside
    else:
        with block as inside:
            yield inside


class Through:
    """The API of the present test: what the other one returns is awaited by nobody."""

    awaited = True


async def got(answer: Any) -> Any:
    assert Through.awaited or not inspect.isawaitable(answer)
    return await answer if inspect.isawaitable(answer) else answer


async def each(answers: Any) -> list[Any]:
    return [one async for one in answers] if hasattr(answers, "__aiter__") else list(answers)


def opened(path: Path) -> Any:
    """A store, through the API of the present test."""
    opening: Any = eventctx.open if Through.awaited else eventctx.sync.open
    return opening(path, receipts=False)


@pytest.fixture(params=["async", "sync"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    Through.awaited = request.param == "async"
    async with entered(opened(tmp_path / "s.db")) as one:
        yield one


async def test_a_loop_is_recorded_inside_its_turn(engine: Any) -> None:
    ctx = await got(engine.session("s", max_tokens=9_000))
    for number in (1, 2):
        async with entered(ctx.turn()) as turn:
            assert turn.number == number
            (receipt,) = await got(ctx.add_messages([USER]))
            assert receipt.number == 2 * number - 2
            async with entered(turn.iteration()) as cycle:
                call = cycle.provider_call("m")
                rows = await got(ctx.get_messages_for_request(call=call))
                async with entered(call):
                    await got(call.usage(10, 2))
                    call.finished("stop")
                await got(ctx.add_message({"role": "assistant", "content": "Yes."}))
                async with entered(cycle.tool_call("read", "c1")) as tool:
                    tool.answered("x")
    assert len(rows) == 3
    found = [(r.type, r.turn_id is not None, r.iteration) for r in await each(engine.records("s"))]
    first, last = ["prompt:submit", "context:message_added"], ["prompt:complete"]
    inside = ["context:request_prepared", "provider:request", "usage:reported"]
    inside += ["provider:response", "context:message_added", "tool:pre", "tool:post"]
    expected = [(one, True, None) for one in first] + [(one, True, 1) for one in inside]
    assert found[1:] == 2 * [*expected, *[(one, True, None) for one in last]]


async def test_messages_are_pinned_compacted_asked_for_and_found(engine: Any) -> None:
    ctx = await got(engine.session("s", policy="truncate", keep_recent=2))
    await got(ctx.add_message({"role": "user", "content": "Never edit the tests."}))
    for number in range(1, 6):
        await got(ctx.add_message({"role": "assistant", "content": f"word{number}"}))
    for pinned in (1, 2):
        await got(ctx.pin(pinned))
    await got(ctx.unpin(2))
    would = await got(engine.dry_run("s", force=True))
    assert (would.outcome, would.dry_run) == ("applied", True)
    assert (await got(ctx.compact(force=True))).outcome == "applied"
    assert "word1" in str(await got(ctx.get_messages_for_request()))
    assert (await got(engine.why("s", 3))).in_view is False
    assert [one.number for one in await got(engine.recall("word3"))] == [3]
    assert "word3" in await got(ctx.recall_tool()({"query": "word3"}))
    assert (await got(engine.instructions("s"))).taken_back == 0
    await got(ctx.withdraw_instruction(0))
    assert (await got(engine.instructions("s"))).taken_back == 1
    assert await got(ctx.restore(2)) == (2,)
    assert (await got(engine.lost("s"))).messages.total == 6
    assert (await got(engine.verify("s"))).ok
    assert [one.stream for one in await each(engine.each_session())] == ["s"]
    assert engine.receipts_path is None


async def test_errors_are_the_same_and_have_the_whole_traceback(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    with pytest.raises(InvalidMessage) as caught:
        await got(ctx.add_message({"role": "user", "content": {1}}))
    names = {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert {"add_message", "plain_message"} <= names
    assert Path(__file__).name in "".join(traceback.format_tb(caught.value.__traceback__))
    with pytest.raises(ValueError, match="mine"):
        async with entered(ctx.turn()):
            raise ValueError("mine")
    last = (await each(engine.records("s")))[-1]
    assert last.type == "prompt:complete"


async def test_a_transcript_is_set_resumed_and_cleared_and_hooks_hear_of_it(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    assert ctx.session_id == "s"
    assert ctx.mirror is None
    heard: list[str] = []
    all_heard: list[str] = []
    engine.on("context:*", lambda record: all_heard.append(record.type))
    stop = ctx.on("context:*", lambda record: heard.append(record.type))
    await got(ctx.set_messages([USER, {"role": "assistant", "content": "Yes."}]))
    assert len(await got(ctx.get_messages())) == 2
    assert await got(ctx.resume_messages([USER])) is True
    assert [row for row, _ in await got(ctx.get_timed_messages())] == [USER]
    mark = await got(ctx.transcript_mark())
    assert mark.messages == 1
    assert await got(ctx.get_messages_after(mark)) == []

    async def step(position: int) -> Extension:
        return Extension("host", [HostPart("state", b"{}")], [{**USER, "content": "More."}])

    assert len(await got(ctx.extend(step))) == 2
    assert [row["content"] for row in await got(ctx.get_messages_after(mark))] == ["More."]
    assert await got(ctx.get_token_count()) > 0
    await got(ctx.clear())
    assert await got(ctx.get_messages()) == []
    await got(ctx.close())
    stop()
    await got(engine.close_session("s"))
    sets = ["context:messages_set", "context:messages_set"]
    assert heard == [*sets, "context:message_added", "context:cleared"]
    await got((await got(engine.session("t"))).add_message(USER))
    await got(engine.close())
    assert all_heard == [*heard, "context:message_added"]


async def test_what_stands_before_the_messages_is_told_and_sent(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    assert await got(ctx.set_system_prompt("Be brief.")) is True
    assert await got(ctx.set_memory(["Use tabs."])) is True
    assert await got(ctx.memory()) == ("Use tabs.",)
    await got(ctx.add_message(USER))
    rows = await got(ctx.get_messages_for_request())
    assert [row["content"] for row in rows] == ["Be brief.", "Use tabs.", USER["content"]]
    prepared = (await each(engine.records("s")))[-1].position
    await got(ctx.record_sent(prepared, 4, [(3, {"role": "user", "content": "Now."})]))
    own = ObservedRequest("openai-chat-1", rows, parameters={"model": "m"}, model="m")
    observed = await got(ctx.observe_request(own))
    assert (await got(engine.request_view("s", position=observed))).sent.rows == rows
    await got(ctx.emit(events.PlanStart()))
    last = [record.type for record in await each(engine.records("s"))][-1]
    assert last == "plan:start"


async def test_requests_are_read_again_compared_and_explained(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    for _ in range(2):
        async with entered(ctx.turn()) as turn, entered(turn.iteration()) as cycle:
            await got(ctx.add_message(USER))
            await got(ctx.get_messages_for_request())
            async with entered(cycle.plan("think")), entered(cycle.provider_call("m")) as call:
                await got(call.usage_from({"usage": {"input_tokens": 10, "output_tokens": 2}}))
            async with entered(cycle.tool_call("read", "c1")) as tool:
                tool.failed("no such file")
            await got(ctx.add_message({"role": "assistant", "content": "Yes."}))
    assert len((await got(engine.request_view("s", 2))).messages) == 3
    assert len((await got(engine.audit("s"))).requests) == 2
    assert len(await got(engine.transcript("s", turn=1))) == 2
    assert [one.number for one in (await got(engine.diff("s", 1, 2))).differences] == [1, 2]
    assert (await got(engine.timeline("s")))["session"] == "s"
    compared = await got(engine.compare(["s"], policies=["truncate"], budgets=[1_000]))
    assert [one.session for one in compared.sessions] == ["s"]


async def test_sessions_are_forked_linked_erased_and_deleted(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    receipt = await got(ctx.add_message({"role": "user", "content": "a secret"}))
    await got(engine.fork("s", receipt.position, "child"))
    await got(engine.session("other"))
    await got((await got(engine.session("other"))).add_message(USER))
    await got(engine.link("s", "other", call_id="c1"))
    assert await got(engine.forks("s")) == ["child"]
    assert await got(engine.mirror_of("s")) is None
    assert {one.stream for one in await got(engine.sessions())} == {"s", "child", "other"}
    erased = await got(engine.erase("s", [0], reason="asked for"))
    assert set(erased.sessions) == {"s", "child"}
    assert await got(engine.delete("other")) == ["other"]
    expired = await got(engine.expired(2**62))
    assert {one.session for one in expired} == {"s", "child"}


async def test_a_store_is_signed_verified_backed_up_and_copied(engine: Any, tmp_path: Path) -> None:
    ctx = await got(engine.session("s"))
    await got(ctx.add_message(USER))
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(*pem, serialization.NoEncryption())
    receipt = await got(engine.sign("s", eventctx.signer(key)))
    await got(engine.note_receipt(receipt))
    assert (await got(engine.verify("s", receipt))).ok
    assert (await got(engine.verify_store())).ok
    assert [one.stream for one in await each(engine.verifications())] == ["s"]
    assert (await got(engine.backup(tmp_path / "copy.db"))).ok
    assert (await got(engine.export_atif("s", tmp_path / "s.json"))).completeness.steps == 1
    async with entered(opened(tmp_path / "other.db")) as other:
        assert (await got(engine.copy_to(other))).copied == 1
    assert await got(engine.hook_failures()) == ()
    assert len(await got(engine.recaller().search("hello", "s"))) == 1


async def test_a_host_reports_its_turns(engine: Any) -> None:
    ctx = await got(engine.session("s"))
    host = ctx.following()
    await got(host.turn_began("t"))
    await got(ctx.add_message(USER))
    await got(host.iteration_began("example", "m"))
    await got(ctx.get_messages_for_request(call=host))
    await got(host.request_prepared())
    await got(host.model_answered())
    await got(host.turn_ended())
    assert host.in_turn is False
    found = [record.type for record in await each(engine.records("s"))]
    assert found[-3:] == ["provider:request", "provider:response", "prompt:complete"]


CALLED_ON: dict[str, type] = {"engine": eventctx.Engine, "ctx": eventctx.Context}
CALLED_ON |= {"turn": eventctx.Turn, "cycle": eventctx.Iteration}
ELSEWHERE = {("ctx", "emitter"), ("cycle", "number"), ("cycle", "scope"), ("turn", "scope")}
"""Public names for those who write an adapter, which are values and no calls; ``emitter`` is how
our own blocks reach the log."""


def test_the_scenarios_use_every_public_name_of_engine_context_and_blocks() -> None:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    used, public = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.add((node.value.id, node.attr))
    for name, kind in CALLED_ON.items():
        public |= {(name, one) for one in dir(kind) if not one.startswith("_")}
    assert public - used == ELSEWHERE


# -- the thread ------------------------------------------------------------------------------------


def test_each_thread_is_in_its_own_turn() -> None:
    with eventctx.sync.open() as engine:
        ctx = engine.session("s")
        with ctx.turn() as turn:
            asyncio.run(asyncio.to_thread(lambda: ctx.add_message(USER)))
            ctx.add_message(USER)
        added = [r.turn_id for r in engine.records("s") if r.type == "context:message_added"]
        assert added == [None, turn.turn_id]


def test_a_call_from_inside_the_engine_is_refused_instead_of_waiting_for_good() -> None:
    with eventctx.sync.open() as engine:
        ctx = engine.session("s")

        async def summary(request: Any) -> str:
            ctx.get_messages()
            return "never"

        other = engine.session("t", policy="summarize", summarizer=summary, max_tokens=8_000)
        for number in range(20):
            other.add_message({"role": "user", "content": f"{number} " + "word " * 300})
        result = other.compact(budget=4_000, force=True)
        assert "expected a call from a thread of the program" in str(result.error)


def test_what_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no store" * 200)
    with pytest.raises(NotAStore):
        eventctx.sync.open(tmp_path / "text")
    engine = eventctx.sync.open()
    engine.close()
    with pytest.raises(InvalidSetting, match="found a closed one"):
        engine.session("s")


PROGRAM = """
import sys, time
import eventctx.sync

async def summary(request):
    print("asked", flush=True)
    import asyncio
    await asyncio.sleep(60)

engine = eventctx.sync.open(sys.argv[1], receipts=False)
ctx = engine.session("s", policy="summarize", summarizer=summary, max_tokens=8_000)
for number in range(20):
    ctx.add_message({"role": "user", "content": f"{number} " + "word " * 300})
if sys.argv[2] == "compact":
    ctx.compact(budget=4_000, force=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["interrupted", "dropped"])
def test_a_program_that_ends_leaves_the_store_whole_and_unlocked(how: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    work = "compact" if how == "interrupted" else "nothing"
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(path), work]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as child:
        if how == "interrupted":
            assert child.stdout and child.stdout.readline() == "asked\n"
            child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=60)
    ended = (child.returncode != 0, "KeyboardInterrupt" in error, error == "")
    assert ended == ((True, True, False) if how == "interrupted" else (False, False, True))
    with eventctx.sync.open(path, lock_timeout=0.2, receipts=False) as engine:
        types = [record.type for record in engine.records("s")]
        assert types.count("context:message_added") == 20
        assert types.count("context:pre_compact") == types.count("context:post_compact")
        assert engine.verify("s").ok


def test_the_stub_is_that_of_the_async_classes(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.pyi"
    fresh.write_text(made(), encoding="utf-8")
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        config = ["--config", str(STUB.parents[2] / "pyproject.toml")]
        ruff = [sys.executable, "-m", "ruff", command[0], *config, *command[1:], str(fresh)]
        subprocess.run(ruff, check=True)
    told = "run `python -m tests.sync_stub`"
    assert STUB.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), told
