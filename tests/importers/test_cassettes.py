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
from tests.importers.given import call, put, salt, story, text, thinking
from tests.importers.items import as_lines, of_type, texts
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
from tests.importers.taken import records

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


async def views_of(tape: Tape, folder: Path) -> list[list[dict[str, Any]]]:
    """What the model was shown by each call of the first session, as the log has it."""
    return (await views_in(put(folder / "tape.yaml", tape.yaml())))["tape"]


async def views_in(path: Path, bodies: list[Any] | None = None) -> dict[str, list[Any]]:
    """The same of all sessions in a file; ``bodies`` of requests that are known as they were sent.

    Such a request has its system prompt besides its messages.
    """
    engine = Engine(MemoryStore())
    found: dict[str, list[Any]] = {}
    for summary in await import_file(engine.store, path, complete=True, salt=salt):
        name = summary.session or ""
        assert (await engine.verify(name)).ok
        found[name] = []
        for one in (await engine.audit(name)).requests:
            view = await engine.request_view(name, position=one.position)
            if view.sent is not None:
                assert view.sent.holds and view.verified
                (bodies if bodies is not None else []).append(view.sent.body())
            found[name].append(view.messages if view.sent is None else rows_of(view.sent.body()))
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


async def test_requests_that_continue_each_other_are_one_session(tmp_path: Path) -> None:
    found = items_in(talk())
    assert sessions(found) == ["tape"]
    system = {"role": "system", "content": "be good"}
    first = {"role": "assistant", "content": [thinking("hm", "sig="), call("t1")]}
    last = {"role": "assistant", "content": [text("done")]}
    assert texts(found) == [system, user("go"), first, RESULT, last]
    assert len(of_type(found, TurnBegan)) == 1
    assert of_type(found, Branched) == []
    calls = [(one.line, one.model, one.provider) for one in of_type(found, ModelCall)]
    assert calls == [(1, "m-1", "anthropic"), (2, "m-1", "anthropic")]
    ends = of_type(found, CallEnded)
    assert [(one.usage.prompt, one.response_id) for one in ends] == [(43, "msg_1"), (43, "msg_2")]
    assert ends[0].time == 1_767_607_209_000_000_000
    views = await views_of(talk(), tmp_path)
    assert views == [[system, user("go")], [system, user("go"), first, RESULT]]


async def test_what_a_request_says_otherwise_is_in_its_view(tmp_path: Path) -> None:
    system = [{"role": "system", "content": f"the time is {hour}"} for hour in (1, 2)]
    answer = {"role": "assistant", "content": "hi"}
    tape = Tape(CHAT).exchange(request(system[0], user("go")), completion("hi"))
    tape.exchange(request(system[1], user("go"), answer, user("more")), completion("sure"))
    views = await views_of(tape, tmp_path)
    assert [(view[0], len(view)) for view in views] == [(system[0], 2), (system[1], 4)]


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
def test_a_request_looks_at_no_conversation_that_it_does_not_continue(opening: str) -> None:
    def calls_for(sessions: int) -> int:
        tape = Tape()
        for number in range(sessions):
            tape.exchange(request(user(opening.format(number))), message(text(f"{number}")))
        return calls_of_functions(lambda: list(cassette.parse(as_lines(tape.json()), "tape.json")))

    assert calls_for(120) < 2.2 * calls_for(60)


async def test_the_loop_goes_on_while_a_file_is_read_for_its_other_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned, loop = threading.Event(), asyncio.get_running_loop()

    def others(path: Path) -> list[Parser]:
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(20), "nothing else ran"
        return cassette.others(path)

    monkeypatch.setitem(FORMATS, "cassette", FORMATS["cassette"]._replace(others=others))
    tape = talk().exchange(request(user("other")), message(text("yes")))
    done = await import_file(MemoryStore(), put(tmp_path / "tape.yaml", tape.yaml()))
    assert [one.session for one in done] == ["tape", "tape-2"]


def test_the_same_request_again_is_another_session_unless_the_first_one_failed() -> None:
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    tape = Tape().exchange(request(user("go")), failed, status=529)
    tape.exchange(request(user("go")), message(text("done")))
    found = items_in(tape)
    assert sessions(found) == ["tape"]
    reasons = [one.finish_reason for one in of_type(found, CallEnded)]
    assert reasons == ["HTTP 529 overloaded_error", "end_turn"]
    assert texts(found) == [user("go"), {"role": "assistant", "content": [text("done")]}]
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
    shown = [[one["content"] for one in view] for view in await views_of(tape, tmp_path)]
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
    warned = [one.text.split(",")[0] for one in of_type(found, Warned)]
    assert warned == [f"it continues conversation conv_{number}" for number in (1, 2)]


async def test_thoughts_may_be_left_out_and_items_referred_to(tmp_path: Path) -> None:
    called = {"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}", "call_id": "c"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    tape = Tape(RESPONSES)
    tape.exchange(asked(user("go")), response("r1", reasoning("rs_1"), called))
    referred = {"type": "item_reference", "id": "fc_1"}
    tape.exchange(asked(user("go"), referred, output), response("r2", said("done")))
    assert await views_of(tape, tmp_path) == [[user("go")], [user("go"), called, output]]


COMPACTION = {"id": "cmp_1", "type": "compaction", "encrypted_content": "sealed"}


async def test_a_compaction_leaves_what_the_next_request_has_of_it(tmp_path: Path) -> None:
    kept = {**user("go"), "type": "message"}
    tape = Tape(RESPONSES).exchange(asked(user("go"), instructions="A"), response("r1", said("hi")))
    whole = {**response("r2", kept, COMPACTION), "object": "response.compaction"}
    given = asked(user("go"), said("hi"), instructions="A")
    tape.exchange(given, whole, url=f"{RESPONSES}/compact")
    sent = asked(COMPACTION, user("more"), instructions="A")
    tape.exchange(sent, response("r3", said("sure")))
    views = await views_of(tape, tmp_path)
    assert len(views) == 3
    assert all(map(alike, views, sent_in(tmp_path / "tape.yaml")))
    (done,) = of_type(items_in(tape), CompactionItem)
    assert (done.messages, done.kept_from, done.line) == ((COMPACTION,), None, 3)
    tape, later = Tape(RESPONSES), [COMPACTION, said("hi"), user("more")]
    tape.exchange(asked(user("go")), response("r1", COMPACTION, said("hi")))
    tape.exchange(asked(*later), response("r2", said("sure")))
    assert await views_of(tape, tmp_path) == [[user("go")], later]
    assert of_type(items_in(tape), CompactionItem)[0].kept_from == 1


@pytest.mark.parametrize("name", ["tape.yaml", "tape.json", "tape.txt"])
async def test_a_cassette_is_recognised_in_yaml_and_json(name: str, tmp_path: Path) -> None:
    path = put(tmp_path / name, talk().json() if name.endswith("json") else talk().yaml())
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
        await import_file(store, put(path, tape.yaml()), salt=salt)
    await import_file(other, path, salt=salt)
    for name in ("tape", "tape-2"):
        one, two = story(await records(store, name)), story(await records(other, name))
        assert one[0] == two[0]
        # The part without the exchanges is written at the end of each import.
        assert sorted(one[1].split(b"\n")) == sorted(two[1].split(b"\n"))


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
    found = await import_file(MemoryStore(), path, complete=True)
    assert [(one.messages, one.calls, one.compactions) for one in found] == FILES[name]
    assert all((one.unknown, one.warned, one.waiting) == ({}, 0, ()) for one in found)
    bodies: list[Any] = []
    shown = [view for views in (await views_in(path, bodies)).values() for view in views]
    sent = sent_in(path)
    assert len(shown) == len(sent)
    for one in sent:
        match = next(view for view in shown if alike(view, one))
        shown.remove(match)
    if name.endswith(("redacted.yaml", "[ag_ui-0_1_13].yaml", "[anthropic].yaml")):
        # All of these are known as they were sent.
        assert bodies == [one.sent for one in exchanges_of(read_cassette(read_lines(path), name))]
