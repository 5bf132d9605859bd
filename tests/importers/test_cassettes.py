"""Recorded HTTP of provider SDKs: which requests are one session, and what each of them sent."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.format_table import FORMATS
from eventctx.importers.formats.cassettes import cassette
from eventctx.importers.formats.cassettes.rows import Row, rows_of, same
from eventctx.importers.load import import_file
from eventctx.importers.source.http_recording import exchanges_of, read_cassette
from eventctx.importers.source.items import (
    Branched,
    CallEnded,
    CompactionItem,
    Item,
    ModelCall,
    Parser,
    Session,
    TurnBegan,
    Warned,
)
from eventctx.importers.source.lines import read_lines
from eventctx.stores.memory import MemoryStore
from tests.calls import calls_of_functions
from tests.importers.given import (
    as_lines,
    call,
    of_type,
    records,
    salt,
    story,
    text,
    texts,
    thinking,
)
from tests.importers.recorded_http import (
    CHAT,
    RESPONSES,
    Tape,
    completion,
    message,
    reasoning,
    request,
    response,
    said,
    user,
)

RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}


def items_in(tape: Tape) -> list[Item]:
    """The items of all sessions, one after the other."""
    found = list(cassette.parse(as_lines(tape.yaml()), "tape.yaml"))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tape.yaml"
        path.write_bytes(tape.yaml())
        for parse in cassette.others(path):
            found += parse((), "", lambda: False)
    return found


def sessions(items: list[Item]) -> list[str]:
    return [item.session_id for item in of_type(items, Session)]


def talk() -> Tape:
    """Two requests to Anthropic; the second one has all that the first one has."""
    first = [thinking("hm", "sig="), call("t1")]
    answer = {"role": "assistant", "content": first}
    tape = Tape().exchange(request(user("go"), system="be good"), message(*first))
    sent = request(user("go"), answer, RESULT, system="be good")
    return tape.exchange(sent, message(text("done"), id="msg_2"))


async def views_of(tape: Tape, folder: Path) -> dict[str, list[list[dict[str, Any]]]]:
    """What the model was shown by each call of each session, as the log has it."""
    path = folder / "tape.yaml"
    path.write_bytes(tape.yaml())
    return await views_in(path)


async def views_in(path: Path) -> dict[str, list[list[dict[str, Any]]]]:
    engine = Engine(MemoryStore())
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for summary in await import_file(engine.store, path, complete=True, salt=salt):
        name = summary.session or ""
        assert (await engine.verify(name)).ok
        asked = (await engine.audit(name)).requests
        views = [await engine.request_view(name, position=one.position) for one in asked]
        # A request that is known as it was sent has its system prompt besides its messages.
        found[name] = [
            list(view.messages) if view.sent is None else rows_of(view.sent.body())
            for view in views
        ]
    return found


def sent_in(path: Path) -> list[list[dict[str, Any]]]:
    """The messages of every request to a model in a file."""
    tape = exchanges_of(read_cassette(read_lines(path), path.name))
    asked = [one for one in map(cassette.model_request, tape) if one is not None]
    return [rows_of(one.sent) for one in asked]


def alike(shown: list[dict[str, Any]], sent: list[dict[str, Any]]) -> bool:
    return len(shown) == len(sent) and all(
        same(Row(one, None), other) for one, other in zip(shown, sent, strict=True)
    )


# -- one conversation ------------------------------------------------------------------------------


def test_requests_that_continue_each_other_are_one_session() -> None:
    found = items_in(talk())
    assert sessions(found) == ["tape"]
    system = {"role": "system", "content": "be good"}
    first = {"role": "assistant", "content": [thinking("hm", "sig="), call("t1")]}
    last = {"role": "assistant", "content": [text("done")]}
    assert texts(found) == [system, user("go"), first, RESULT, last]
    assert len(of_type(found, TurnBegan)) == 1
    assert of_type(found, Branched) == []
    calls = of_type(found, ModelCall)
    assert [(one.line, one.model, one.provider) for one in calls] == [
        (1, "m-1", "anthropic"),
        (2, "m-1", "anthropic"),
    ]
    ends = of_type(found, CallEnded)
    assert [(one.usage.prompt, one.response_id) for one in ends] == [(43, "msg_1"), (43, "msg_2")]
    assert ends[0].time == 1_767_607_209_000_000_000


async def test_the_view_of_every_call_is_what_was_sent(tmp_path: Path) -> None:
    system = {"role": "system", "content": "be good"}
    first = {"role": "assistant", "content": [thinking("hm", "sig="), call("t1")]}
    views = await views_of(talk(), tmp_path)
    assert views == {"tape": [[system, user("go")], [system, user("go"), first, RESULT]]}


async def rebuilt(path: Path) -> list[Any]:
    """The bodies of all requests of a file as the log has them; none for one that it has not."""
    engine = Engine(MemoryStore())
    found: list[Any] = []
    for summary in await import_file(engine.store, path, complete=True, salt=salt):
        for one in (await engine.audit(summary.session or "")).requests:
            view = await engine.request_view(summary.session or "", position=one.position)
            assert view.sent is None or (view.sent.holds and view.verified)
            found.append(None if view.sent is None else view.sent.body())
    return found


@pytest.mark.parametrize("name", ["redacted.yaml", "[ag_ui-0_1_13].yaml", "[anthropic].yaml"])
async def test_recorded_requests_are_rebuilt_as_they_were_sent(
    name: str, recorded_sessions: Path
) -> None:
    (path,) = [one for one in (recorded_sessions / "provider").iterdir() if one.name.endswith(name)]
    sent = [one.sent for one in exchanges_of(read_cassette(read_lines(path), path.name))]
    assert await rebuilt(path) == sent


async def test_what_a_request_says_otherwise_is_in_its_view(tmp_path: Path) -> None:
    system = [{"role": "system", "content": f"the time is {hour}"} for hour in (1, 2)]
    answer = {"role": "assistant", "content": "hi"}
    tape = Tape(CHAT).exchange(request(system[0], user("go")), completion("hi"))
    tape.exchange(request(system[1], user("go"), answer, user("more")), completion("sure"))
    views = await views_of(tape, tmp_path)
    assert [view[0] for view in views["tape"]] == system
    assert [len(view) for view in views["tape"]] == [2, 4]


def test_requests_that_do_not_continue_each_other_are_sessions_of_their_own() -> None:
    tape = talk()
    tape.rows[1:1] = Tape().exchange(request(user("other")), message(text("yes"))).rows
    answer = {"role": "assistant", "content": [text("yes")]}
    tape.exchange(request(user("other"), answer, user("more")), message(text("no")))
    found = items_in(tape)
    assert sessions(found) == ["tape", "tape-2"]
    cut = found.index(of_type(found, Session)[1])
    assert [one.line for one in of_type(found[:cut], ModelCall)] == [1, 3]
    assert [one.line for one in of_type(found[cut:], ModelCall)] == [2, 4]


@pytest.mark.parametrize("opening", ["question {}", "the same question"])
def test_a_request_costs_no_look_at_the_conversations_that_it_does_not_continue(
    opening: str,
) -> None:
    def calls_for(sessions: int) -> int:
        tape = Tape()
        for number in range(sessions):
            tape.exchange(request(user(opening.format(number))), message(text(f"{number}")))
        return calls_of_functions(lambda: list(cassette.parse(as_lines(tape.json()), "tape.json")))

    assert calls_for(120) < 2.2 * calls_for(60)


async def test_the_loop_goes_on_while_a_file_is_read_for_its_other_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = threading.Event()

    def others(path: Path) -> list[Parser]:
        asyncio.run_coroutine_threadsafe(turn(), loop)
        assert turned.wait(20), "nothing else ran"
        return cassette.others(path)

    async def turn() -> None:
        turned.set()

    loop = asyncio.get_running_loop()
    monkeypatch.setitem(FORMATS, "cassette", FORMATS["cassette"]._replace(others=others))
    path = tmp_path / "tape.yaml"
    path.write_bytes(talk().exchange(request(user("other")), message(text("yes"))).yaml())
    done = await import_file(MemoryStore(), path)
    assert [one.session for one in done] == ["tape", "tape-2"]


def test_the_same_request_again_is_another_session_unless_the_first_one_failed() -> None:
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    tape = Tape().exchange(request(user("go")), failed, status=529)
    tape.exchange(request(user("go")), message(text("done")))
    found = items_in(tape)
    assert sessions(found) == ["tape"]
    assert [one.finish_reason for one in of_type(found, CallEnded)] == [
        "HTTP 529 overloaded_error",
        "end_turn",
    ]
    assert texts(found)[0] == user("go")
    assert len(texts(found)) == 2
    tape.exchange(request(user("go")), message(text("done")))
    assert sessions(items_in(tape)) == ["tape", "tape-2"]


# -- the Responses API -----------------------------------------------------------------------------


def asked(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **fields}


async def test_a_response_is_continued_by_its_id_alone(tmp_path: Path) -> None:
    tape = Tape(RESPONSES)
    tape.exchange({"model": "m", "input": "go", "instructions": "A"}, response("r1", said("hi")))
    sent = asked(user("more"), previous_response_id="r1", instructions="B")
    tape.exchange(sent, response("r2", said("sure"), previous_response_id="r1"))
    tape.exchange(asked(user("end"), previous_response_id="r2"), response("r3", said("bye")))
    views = await views_of(tape, tmp_path)
    shown = [[one["content"] for one in view] for view in views["tape"]]
    hi, sure = said("hi")["content"], said("sure")["content"]
    # Instructions hold for their own request.
    assert shown == [["A", "go"], ["B", "go", hi, "more"], ["go", hi, "more", sure, "end"]]


def test_a_conversation_is_continued_by_its_id_alone() -> None:
    tape = Tape(RESPONSES)
    for number, conversation in enumerate(("conv_1", {"id": "conv_1"}, "conv_2")):
        sent = asked(user(f"say {number}"), conversation=conversation)
        answer = response(f"r{number}", said(str(number)), conversation={"id": "conv_1"})
        tape.exchange(sent, answer if number < 2 else response("r9", said("x")))
    found = items_in(tape)
    assert sessions(found) == ["tape", "tape-2"]
    assert [warned.text.split(",")[0] for warned in of_type(found, Warned)] == [
        "it continues conversation conv_1",
        "it continues conversation conv_2",
    ]


async def test_thoughts_may_be_left_out_and_items_referred_to(tmp_path: Path) -> None:
    called = {"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}", "call_id": "c"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    tape = Tape(RESPONSES)
    tape.exchange(asked(user("go")), response("r1", reasoning("rs_1"), called))
    referred = {"type": "item_reference", "id": "fc_1"}
    tape.exchange(asked(user("go"), referred, output), response("r2", said("done")))
    views = await views_of(tape, tmp_path)
    assert views["tape"] == [[user("go")], [user("go"), called, output]]


async def test_a_compaction_leaves_what_the_next_request_has_of_it(tmp_path: Path) -> None:
    compaction = {"id": "cmp_1", "type": "compaction", "encrypted_content": "sealed"}
    kept = {**user("go"), "type": "message"}
    tape = Tape(RESPONSES).exchange(asked(user("go"), instructions="A"), response("r1", said("hi")))
    whole = {**response("r2", kept, compaction), "object": "response.compaction"}
    given = asked(user("go"), said("hi"), instructions="A")
    tape.exchange(given, whole, url=f"{RESPONSES}/compact")
    sent = asked(compaction, user("more"), instructions="A")
    tape.exchange(sent, response("r3", said("sure")))
    path = tmp_path / "tape.yaml"
    views = await views_of(tape, tmp_path)
    assert len(views["tape"]) == 3
    assert [alike(*pair) for pair in zip(views["tape"], sent_in(path), strict=True)] == [True] * 3
    (done,) = of_type(items_in(tape), CompactionItem)
    assert (done.messages, done.kept_from, done.line) == ((compaction,), None, 3)


async def test_a_compaction_in_an_answer_is_one_when_what_was_before_is_gone(
    tmp_path: Path,
) -> None:
    compaction = {"id": "cmp_1", "type": "compaction", "encrypted_content": "sealed"}
    tape = Tape(RESPONSES)
    tape.exchange(asked(user("go")), response("r1", compaction, said("hi")))
    tape.exchange(asked(compaction, said("hi"), user("more")), response("r2", said("sure")))
    views = await views_of(tape, tmp_path)
    assert views["tape"] == [[user("go")], [compaction, said("hi"), user("more")]]
    assert of_type(items_in(tape), CompactionItem)[0].kept_from == 1


# -- imports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tape.yaml", "tape.json", "tape.txt"])
async def test_a_cassette_is_recognised_in_yaml_and_json(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(talk().json() if name.endswith("json") else talk().yaml())
    store = MemoryStore()
    (summary,) = await import_file(store, path)
    assert (summary.format, summary.messages, summary.calls) == ("cassette", 5, 2)
    assert (await import_file(store, path))[0].added == 0


async def test_an_exchange_that_is_recorded_later_is_added(tmp_path: Path) -> None:
    tape = talk().exchange(request(user("other")), message(text("yes"), id="msg_3"))
    path, store, other = tmp_path / "tape.yaml", MemoryStore(), MemoryStore()
    whole = list(tape.rows)
    for count in range(1, len(whole) + 1):
        tape.rows = whole[:count]
        path.write_bytes(tape.yaml())
        await import_file(store, path, salt=salt)
    await import_file(other, path, salt=salt)
    for name in ("tape", "tape-2"):
        one, two = story(await records(store, name)), story(await records(other, name))
        assert one[0] == two[0]
        # The part without the exchanges is written at the end of each import.
        assert sorted(one[1].split(b"\n")) == sorted(two[1].split(b"\n"))


# -- recorded sessions -----------------------------------------------------------------------------

FILES = {
    # messages, model calls and compactions of each session
    "test_anthropic_model_thinking_part_redacted.yaml": [(4, 2, 0)],
    "test_anthropic_thinking_roundtrip_wire_stable[ag_ui-0_1_13].yaml": [(4, 2, 0), (4, 1, 0)],
    "test_deepseek_deferred_capability_with_thinking.yaml": [(11, 3, 0)],
    "test_model_sees_multiple_images[anthropic].yaml": [(4, 2, 0)],
    "test_multiple_parallel_tool_calls.yaml": [(5, 2, 0)],
    "test_openai_responses_compact_messages.yaml": [(7, 4, 1)],
    "test_tool_search_eval[openai-chat].yaml": [(6, 3, 0), (6, 3, 0), (2, 1, 0), (2, 1, 0)],
}


@pytest.mark.parametrize("name", FILES)
async def test_recorded_exchanges_are_what_was_sent_and_answered(
    name: str, recorded_sessions: Path
) -> None:
    path = recorded_sessions / "provider" / name
    store = MemoryStore()
    found = await import_file(store, path, complete=True)
    assert [(one.messages, one.calls, one.compactions) for one in found] == FILES[name]
    assert all((one.unknown, one.warned, one.waiting) == ({}, 0, ()) for one in found)
    shown = [view for views in (await views_in(path)).values() for view in views]
    sent = sent_in(path)
    assert len(shown) == len(sent)
    for one in sent:
        match = next(view for view in shown if alike(view, one))
        shown.remove(match)
