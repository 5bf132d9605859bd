"""A program's compaction is inferred from what it sends: what left, by what, and what stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")

from eventctx.engine import Engine
from eventctx.log.codec import decode_known
from tests.adapters.conftest import engine as engine
from tests.adapters.logs import count
from tests.orchestrators.providers.server import json_reply
from tests.proxy.recorded import (
    CLAUDE,
    SESSION,
    TOOLS,
    Body,
    answer,
    recording,
    request,
    said,
    sent_bodies,
    user,
)

COMPACT = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarize."
SUMMARY = "This session is being continued from a previous conversation. a.py was read."
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "text of a.py"}
FIRST = user("Never touch main.py. Read a.py.")


def system(text: str) -> Body:
    return {"role": "system", "content": text}


async def recorded(
    engine: Engine,
    folder: Path,
    calls: list[tuple[Body, Body]],
    headers: dict[str, str] = CLAUDE,
    path: str = "/anthropic/v1/messages",
) -> str:
    """The session of these requests and answers.

    Each request is observed as it was sent, and the transcript's view shows the same.
    """
    async with recording(folder) as made:
        for body, reply in calls:
            await made.ask(body, json_reply(reply), headers, path)
        (summary,) = await made.imported(engine)
    assert await sent_bodies(engine, summary.session) == [body for body, _ in calls]
    return str(summary.session)


async def runs(engine: Engine, session: str) -> list[tuple[int, int, str]]:
    """The plan of the only compaction of a session, which no set hides."""
    assert await count(engine, "context:messages_set", session=session) == [0]
    found = [one async for one in engine.store.read(session)]
    (event,) = [decode_known(one) for one in found if one.type == "context:post_compact"]
    plan: Any = getattr(event, "plan", None)
    return [(run.first, run.last, run.disposition) for run in plan.runs]


async def last_view(engine: Engine, session: str) -> list[Body]:
    """The messages of the last request, as the transcript and its compactions show them."""
    last = (await engine.audit(session)).requests[-1]
    return list((await engine.request_view(session, position=last.position)).derived)


def claude() -> list[tuple[Body, Body]]:
    """A compaction as Claude Code makes it: by a request more, and with its last answer kept."""
    rows = [FIRST, system("Environment."), {"role": "assistant", "content": [CALL]}]
    asked = [*rows, {"role": "user", "content": [RESULT]}]
    ended = [*asked, said("It is short.")]
    anew = [user(SUMMARY), {**system(""), "content": [], "output_config": {"effort": "low"}}]
    anew += [said("It is short."), user("Go on with b.py.")]
    return [
        (request(*rows[:2], system="v1"), {**answer(""), "content": [CALL]}),
        (request(*asked, system="v1"), answer("It is short.")),
        (request(*ended, user(COMPACT), system="v1"), answer("a.py was read.")),
        (request(*anew, system="v1"), answer("Gone on.")),
        (request(*anew, said("Gone on."), user("And c.py."), system="v1"), answer("Done.")),
    ]


async def test_all_that_left_went_by_the_compaction(tmp_path: Path, engine: Engine) -> None:
    session = await recorded(engine, tmp_path, claude())
    assert await count(engine, "prompt:submit", session=session) == [3]  # its prompt is no turn
    assert await runs(engine, session) == [
        *((0, 0, "kept"), (1, 4, "summarised"), (5, 5, "kept"), (6, 7, "summarised"))
    ]
    why = await engine.why(session, 1)
    assert [one.message for one in why.stands_in] == [user(SUMMARY)]
    lost = await engine.lost(session)
    gone = [one.text for one in lost.items if one.state == "gone"]
    assert gone == ["Read a.py.", "Never touch main.py."]
    assert (await engine.verify(session)).ok


async def test_a_line_for_the_api_changes_no_system_prompt(tmp_path: Path, engine: Engine) -> None:
    def prompt(version: int) -> list[Body]:
        line = f"x-anthropic-billing-header: cc_version={version};"
        return [{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]

    rows = [user("one"), said("1"), user("two")]
    bodies = [request(*rows[:1], system=prompt(1)), request(*rows, system=prompt(2))]
    session = await recorded(engine, tmp_path, [(bodies[0], answer("1")), (bodies[1], answer("2"))])
    assert await count(engine, "context:messages_set", session=session) == [0]


def item(role: str, text: str, id_: str) -> Body:
    """A message as Codex sends it."""
    content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
    noted = {"internal_chat_message_metadata_passthrough": {"turn_id": id_}}
    return {"type": "message", "role": role, "content": content, "id": id_, **noted}


async def test_codexs_sealed_record_keeps_a_persons_words(tmp_path: Path, engine: Engine) -> None:
    rules, world = item("developer", "Rules.", "d1"), item("user", "<environment_context>x", "e1")
    first = item("user", "Never touch main.py. Read a.py.", "u1")
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": "cat a.py"}
    result = {"type": "custom_tool_call_output", "call_id": "c1", "output": "text of a.py"}
    answered = item("assistant", "It is short.", "m1")
    sealed = {"type": "compaction", "id": "k1", "encrypted_content": "x7Gh"}
    second = item("user", "Now b.py.", "u2")

    def body(*items: Body) -> Body:
        return {"model": "g", "input": list(items), "tools": TOOLS, "store": False}

    def reply(*output: Body) -> Body:
        return {"id": "r", "object": "response", "status": "completed", "output": list(output)}

    rows = [rules, world, first]
    done = [*rows, call, result, answered]
    again = [first, {**rules, "id": "d2"}, {**world, "id": "e2"}, sealed, second]
    calls = [
        (body(*rows), reply({**call, "id": "x1", "status": "completed"})),
        (body(*rows, call, result), reply({**answered, "id": "m9"})),
        (body(*done, {"type": "compaction_trigger"}), reply(sealed)),
        (body(*again), reply(item("assistant", "Done.", "m2"))),
    ]
    headers = {"session-id": SESSION, "thread-id": SESSION}
    headers["x-codex-turn-metadata"] = json.dumps({"request_kind": "turn"})
    session = await recorded(engine, tmp_path, calls, headers, "/openai/responses")
    assert await runs(engine, session) == [
        *((0, 1, "summarised"), (2, 2, "kept"), (3, 6, "dropped"), (7, 7, "kept"))
    ]
    lost = await engine.lost(session)
    demands = {one.text: one.state for one in lost.items if one.kind == "instruction"}
    assert demands == dict.fromkeys(["Never touch main.py.", "Read a.py.", "Now b.py."], "whole")
    types = [one.get("type") for one in await last_view(engine, session)]
    assert types == ["message", "message", "message", "compaction", "message"]


async def test_a_sliding_window_drops_the_oldest_messages(tmp_path: Path, engine: Engine) -> None:
    rows = [FIRST, said("1"), user("two"), said("2"), user("three"), said("3"), user("four")]
    shown = [rows[:1], rows[:3], rows[:5], rows[2:]]
    calls = [(request(*one), answer(f"{number}")) for number, one in enumerate(shown, 1)]
    session = await recorded(engine, tmp_path, calls)
    assert [how for *_, how in await runs(engine, session)] == ["dropped", "kept"]
    assert await count(engine, "prompt:submit", session=session) == [4]


@pytest.mark.parametrize("then", [[], [user("Rather b.py.")]])
async def test_who_asks_again_or_goes_back_did_not_compact(
    tmp_path: Path, engine: Engine, then: list[Body]
) -> None:
    rows = [user("one"), said("1"), FIRST]
    calls = [
        (request(*rows[:1]), answer("1")),
        (request(*rows), answer("It is sh")),
        (request(*(rows if not then else [*rows[:2], *then])), answer("It is short.")),
    ]
    session = await recorded(engine, tmp_path, calls)
    assert await count(engine, "context:post_compact", session=session) == [0]
    assert await last_view(engine, session) == calls[-1][0]["messages"]


async def test_a_second_summary_stands_for_the_first(tmp_path: Path, engine: Engine) -> None:
    calls = claude()
    later = user("This session is being continued: a.py, b.py and c.py were read.")
    rows = [*calls[4][0]["messages"], said("Done."), user(COMPACT)]
    calls.append((request(*rows, system="v1"), answer("a.py, b.py and c.py were read.")))
    calls.append((request(later, user("And d.py."), system="v1"), answer("Read.")))
    session = await recorded(engine, tmp_path, calls)
    assert await count(engine, "context:post_compact", session=session) == [2]
    why = await engine.why(session, 1)
    assert [one.message for one in why.stands_in] == [later]
    assert (await last_view(engine, session))[1:] == [later, user("And d.py.")]


async def test_a_text_and_its_block_are_told_apart(tmp_path: Path, engine: Engine) -> None:
    plain = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
    rows = [user("one"), said("1"), user("two"), said("2"), user("three")]
    shown = [rows[:1], [*plain, user("two")], rows]
    await recorded(
        engine, tmp_path, [(request(*one), answer(f"{at}")) for at, one in enumerate(shown, 1)]
    )
