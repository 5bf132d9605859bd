"""What the API, the network or a gateway does wrong, and whether to try again."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request
from eventctx.orchestrators.providers import anthropic as anthropic_module
from eventctx.orchestrators.providers import openai_chat
from eventctx.orchestrators.providers.failures import PROBLEM_CHARACTERS, retry_after
from tests.orchestrators.providers.conftest import Api
from tests.orchestrators.providers.kits import ANTHROPIC, CHAT, RESPONSES, Kit
from tests.orchestrators.providers.server import Reply, json_reply, streamed

HELLO = Request([{"role": "user", "content": "hello"}], Ids("s"))
WAYS = ("complete", "stream")


async def failed(provider: Any, way: str) -> eventctx.ProviderFailed:
    """How a call fails, asked one way or the other."""
    with pytest.raises(eventctx.ProviderFailed) as caught:
        if way == "complete":
            await provider.complete(HELLO)
        else:
            async for _ in provider.stream(HELLO):
                pass
    return caught.value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (403, False), (408, True), (429, True), (500, True), (529, True)],
)
async def test_a_status_says_whether_to_try_again(
    kit: Kit, api: Api, way: str, status: int, retryable: bool
) -> None:
    refusal = kit.refusal("some_error", "It went wrong.")
    error = await failed(api.connect(kit, json_reply(refusal, status)), way)
    assert (error.status, error.retryable, error.too_long) == (status, retryable, False)
    assert error.problem == "It went wrong."
    assert error.provider in ("anthropic", "openai")
    assert error.__cause__ is not None
    assert len(api.requests) == 1, "each attempt is a call of its own"


@pytest.mark.parametrize("way", WAYS)
async def test_the_api_says_when_to_come_back_and_whether(kit: Kit, api: Api, way: str) -> None:
    refusal = kit.refusal("rate_limit_error", "Slow down.")
    provider = api.connect(kit, json_reply(refusal, 429, retry_after="7"), json_reply(refusal, 429))
    assert (await failed(provider, way)).retry_after == 7
    assert (await failed(provider, way)).retry_after is None
    api.answers(json_reply(refusal, 500, x_should_retry="false"))
    api.answers(json_reply(refusal, 400, x_should_retry="true"))
    assert not (await failed(provider, way)).retryable
    assert (await failed(provider, way)).retryable


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
LATER = "Wed, 21 Oct 2015 07:28:30 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": LATER, "date": DATE}, 30),
        ({"retry-after": LATER}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_the_wait_is_a_number_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


INVALID = "invalid_request_error"
LIMIT = "input length and `max_tokens` exceed context limit: 190 + 20 > 200"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kit", "status", "kind", "message"),
    [
        (ANTHROPIC, 400, INVALID, "prompt is too long: 210 tokens > 200 maximum"),
        (ANTHROPIC, 400, INVALID, LIMIT),
        (ANTHROPIC, 413, "request_too_large", "Request exceeds the maximum size"),
        (CHAT, 400, "context_length_exceeded", "Too much."),
        (CHAT, 400, INVALID, "This model's maximum context length is 65536 tokens"),
        (RESPONSES, 400, "context_length_exceeded", "Your input exceeds the context window"),
    ],
    ids=lambda value: value.name if isinstance(value, Kit) else None,
)
async def test_a_request_that_does_not_fit_is_told_from_other_refusals(
    kit: Kit, api: Api, way: str, status: int, kind: str, message: str
) -> None:
    error = await failed(api.connect(kit, json_reply(kit.refusal(kind, message), status)), way)
    assert error.too_long and not error.retryable


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("overloaded_error", True),
        ("rate_limit_exceeded", True),
        ("invalid_request_error", False),
        ("insufficient_quota", False),
    ],
)
async def test_an_error_inside_a_stream_says_whether_to_try_again(
    kit: Kit, api: Api, kind: str, retryable: bool
) -> None:
    events = [*kit.text_events[:3], kit.broken(kind, "Overloaded")]
    error = await failed(api.connect(kit, events), "stream")
    assert (error.problem, error.retryable, error.status) == ("Overloaded", retryable, None)


async def test_a_response_that_failed_is_a_failed_call(api: Api) -> None:
    problem = {"code": "server_error", "message": "The model broke."}
    broken = {**RESPONSES.text, "status": "failed", "output": [], "error": problem}
    ended = {"type": "response.failed", "response": broken}
    provider = api.connect(RESPONSES, broken, [*RESPONSES.text_events[:-1], ended])
    for way in WAYS:
        error = await failed(provider, way)
        assert (error.problem, error.retryable) == ("The model broke.", True)


@pytest.mark.parametrize("ending", ["cut", "whole"])
async def test_a_stream_that_ends_too_soon_is_retryable(kit: Kit, api: Api, ending: str) -> None:
    # A chat completion has ended with its reason to finish, two parts before the stream's end.
    part = streamed(kit.text_events[: -4 if kit is CHAT else -1], ending)
    pieces: list[Chunk | Answer] = []
    with pytest.raises(eventctx.ProviderFailed) as caught:
        async for piece in api.connect(kit, part).stream(HELLO):
            pieces.append(piece)  # noqa: PERF401 - what came before the failure counts
    assert pieces and all(isinstance(piece, Chunk) for piece in pieces)
    assert caught.value.retryable and caught.value.status is None


async def test_a_server_that_stalls_is_given_up(kit: Kit, api: Api) -> None:
    stalled = streamed(kit.text_events[:3], "stalled")
    error = await failed(api.connect(kit, stalled, timeout=1), "stream")
    assert error.retryable and "Timeout" in error.problem
    await api.closed.wait()


@pytest.mark.parametrize("status", [200, 502])
async def test_a_page_in_place_of_an_answer_is_quoted(kit: Kit, api: Api, status: int) -> None:
    page = b"<html>\n<h1>Bad gateway</h1>" + b"x" * 10_000
    answer = Reply([page], status, {"content-type": "text/html"})
    error = await failed(api.connect(kit, answer), "complete")
    assert error.retryable and "<html> <h1>Bad gateway</h1>" in error.problem
    assert len(error.problem) <= PROBLEM_CHARACTERS + 1


@pytest.mark.parametrize(
    "body",
    [
        "text",
        {},
        {"content": "text", "choices": [], "output": 1},
        {"content": [1], "choices": [1], "output": [1], "status": "completed"},
        {"content": None, "choices": [{"message": None}], "output": None},
        {"choices": [{"message": {"tool_calls": [{"function": "f"}]}}], "content": 1, "output": 1},
        {"choices": [{"message": {"tool_calls": 3}}], "content": {}, "output": {}},
    ],
)
async def test_json_that_is_no_answer_is_not_retryable(kit: Kit, api: Api, body: object) -> None:
    error = await failed(api.connect(kit, body), "complete")
    assert not error.retryable and "base_url" in error.problem


@pytest.mark.parametrize("event", ["{not json", '{"type": "message_delta"}', "3", "[]"])
async def test_a_stream_of_something_else_is_a_failed_call(kit: Kit, api: Api, event: str) -> None:
    head = "event: message_start\n" if kit is ANTHROPIC else ""
    sent = f"{head}data: {event}\n\n".encode()
    await failed(api.connect(kit, Reply([sent], 200, streamed([]).headers)), "stream")


@pytest.mark.parametrize(
    ("code", "retryable"), [(502, True), (429, True), (402, False), ("x", True)]
)
async def test_an_error_of_a_router_under_status_200(
    api: Api, code: object, retryable: bool
) -> None:
    broken = {"error": {"code": code, "message": "Upstream said no."}}
    error = await failed(api.connect(CHAT, broken), "complete")
    assert (error.problem, error.retryable) == ("Upstream said no.", retryable)


async def test_an_account_without_money_is_not_asked_again(api: Api) -> None:
    refusal = CHAT.refusal("insufficient_quota", "You exceeded your current quota.")
    assert not (await failed(api.connect(CHAT, json_reply(refusal, 429)), "complete")).retryable


# -- where a provider's client comes from ----------------------------------------------------------


LOWEST = {"anthropic": anthropic_module.LOWEST, "openai": openai_chat.LOWEST}


def sdk_of(kit: Kit) -> str:
    return "anthropic" if kit is ANTHROPIC else "openai"


def test_without_the_sdk_its_extra_is_named(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sdk_of(kit), None)
    with pytest.raises(eventctx.InvalidSetting, match=rf"eventctx\[{sdk_of(kit)}\]"):
        kit.provider(None)


def test_an_sdk_that_is_too_old_is_named(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module(sdk_of(kit)), "__version__", "0.9.1")
    with pytest.raises(eventctx.InvalidSetting, match=r"0\.9\.1 is too old"):
        kit.provider(None)


def test_the_lowest_releases_are_those_of_the_extras() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    for name, lowest in LOWEST.items():
        assert project["optional-dependencies"][name] == [f"{name}>={lowest}"]


async def test_without_a_client_one_is_made_from_the_environment(
    kit: Kit, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = api.url if kit is ANTHROPIC else f"{api.url}/v1"
    monkeypatch.setenv(f"{sdk_of(kit).upper()}_BASE_URL", base)
    monkeypatch.setenv(f"{sdk_of(kit).upper()}_API_KEY", "from-the-environment")
    api.answers(kit.text)
    provider: Any = kit.provider(None)
    assert (await provider.complete(HELLO)).text == "Fair enough."
    headers = api.requests[0].headers
    keys = headers.get("x-api-key", ""), headers.get("authorization", "")
    assert "from-the-environment" in "".join(keys)
    await provider.aclose()


@pytest.mark.parametrize("thing", [3, "key", object()])
def test_what_is_no_client_is_refused(kit: Kit, thing: object) -> None:
    with pytest.raises(eventctx.InvalidSetting, match="Async"):
        kit.provider(thing)


def test_importing_the_providers_loads_no_sdk() -> None:
    program = (
        "import sys; from eventctx.orchestrators.providers import "
        "anthropic, openai_chat, openai_responses; "
        "print(*{'anthropic', 'openai'} & sys.modules.keys())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout.strip() == b""
