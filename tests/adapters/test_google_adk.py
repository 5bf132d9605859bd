"""Google ADK's runners with our plugin, where google-adk can be imported: ``make elsewhere``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="an extra that is not in dev: eventctx[google-adk]")

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

import eventctx
from eventctx.adapters.google_adk import EventctxPlugin
from eventctx.adapters.google_adk.plugin import provider_of
from eventctx.adapters.google_adk.rows import CallIds, contents_of, identity, named, rows_of
from eventctx.engine import Engine
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterContract, Reply, check_dialect
from tests.adapters.conftest import engine as engine
from tests.adapters.drivers.base import KNOWN
from tests.adapters.drivers.google_adk import GoogleAdkDriver, Scripted, ask, content, runner_of
from tests.adapters.logs import audited, count, links, names, views
from tests.adapters.test_dialects import Dialect


class TestTheContract(AdapterContract):
    driver = GoogleAdkDriver
    knows = KNOWN["Google ADK"]
    retries = "one call"


def rows_in_log(messages: Sequence[types.Content]) -> list[dict[str, Any]]:
    """The plugin's rows, with a log that names each call."""
    ids = CallIds([])
    return [ids.named(row) for row in rows_of(messages)]


def test_parts_of_genai_are_a_dialect() -> None:
    page, near = "A page. " * 60, "near " * 60
    signed = {"text": "Where?", "thought": True, "thought_signature": b"signed"}
    said = [
        content("user", {"text": "What is there?"}),
        content("model", signed, {"function_call": {"name": "look", "args": {"at": near}}}),
        content("user", {"function_response": {"name": "look", "response": {"result": page}}}),
        content("model", {"text": page}),
    ]
    genai = Dialect(list, rows_in_log, lambda rows: contents_of(rows, [], []), identity)
    check_dialect(genai, said, ["What is there?", "Where?", near, page])


async def run(agent: Any, plugin: EventctxPlugin, *texts: str, user: str = "user") -> None:
    runner = runner_of(agent, plugin)
    for text in texts:
        await ask(runner, text, user)


async def test_each_agent_of_a_session_has_a_session_of_its_own(engine: Engine) -> None:
    transfer = ToolRequest("c", "transfer_to_agent", {"agent_name": "helper"})
    helps = Scripted(model="helps", script=[Reply("Helped."), Reply("Again.")])
    leads = Scripted(model="leads", script=[Reply(calls=[transfer])])
    helper = LlmAgent(name="helper", model=helps, description="Helps.")
    root = LlmAgent(name="root", model=leads, sub_agents=[helper])
    await run(root, EventctxPlugin(engine), "Help.", "More.")
    assert await names(engine) == ["s", "s.helper"]
    for session, model in (("s", leads), ("s.helper", helps)):
        await check_requests(engine, session, model)
    assert await count(engine, "session:linked", session="s.helper") == [1]


@pytest.mark.filterwarnings("ignore:The `plugins` argument")  # ADK warns of its own tool
async def test_an_agent_that_is_a_tool_has_a_session_linked_to_the_call(engine: Engine) -> None:
    asks = [ToolRequest(one, "helper", {"request": f"{one}?"}) for one in ("a", "b")]
    helps = Scripted(model="helps", script=[Reply("One."), Reply("Two.")])
    leads = Scripted(model="leads", script=[Reply(calls=asks), Reply("Done.")])
    helper = LlmAgent(name="helper", model=helps, description="Helps.")
    root = LlmAgent(name="root", model=leads, tools=[AgentTool(helper)])
    await run(root, EventctxPlugin(engine), "Help.")
    linked = [session for session, _ in await links(engine, "s")]
    assert sorted(["s", *linked]) == await names(engine)
    assert await count(engine, "session:linked", "tool:post") == [2, 2]


async def check_requests(engine: Engine, session: str, model: Scripted) -> None:
    """As many verified views as requests, each as long as what the model received."""
    shown = await views(engine, session)
    lengths = [len(one) - (one[0]["role"] == "system") for one in shown]
    assert lengths == [len(one.contents) for one in model.seen] != []


async def test_agents_in_parallel_and_in_a_loop_are_each_recorded(engine: Engine) -> None:
    async def look(place: str) -> str:
        """Look somewhere."""
        return f"{place} " * 300

    steps = [Reply(calls=[ToolRequest("c", "look", {"place": "there"})]), Reply("Nothing there.")]
    models = [Scripted(model="m", script=steps * 6) for _ in range(3)]
    looking = [LlmAgent(name=f"a{at}", model=one, tools=[look]) for at, one in enumerate(models)]
    with pytest.warns(DeprecationWarning):  # ADK 2.13 would rather have a Workflow
        together = ParallelAgent(name="both", sub_agents=looking[:2])
        again = LoopAgent(name="again", sub_agents=looking[2:], max_iterations=3)
        root = SequentialAgent(name="root", sub_agents=[together, again])
    await run(root, EventctxPlugin(engine, max_tokens=2_000, reserve_tokens=0), "Go.", "Again.")
    assert [len(one.seen) for one in models] == [4, 4, 12]
    for at, one in enumerate(models):
        await check_requests(engine, f"s.a{at}", one)


async def test_users_whose_sessions_have_one_id_can_be_told_apart(engine: Engine) -> None:
    model = Scripted(model="m", script=[Reply("One."), Reply("Two.")])
    plugin = EventctxPlugin(engine, session_name=lambda one: f"{one.user_id}-{one.id}")
    for user in ("ann", "ben"):
        await run(LlmAgent(name="a", model=model), plugin, f"I am {user}.", user=user)
    assert await names(engine) == ["ann-s", "ben-s"]
    assert [len(await engine.transcript(f"{user}-s")) for user in ("ann", "ben")] == [2, 2]


def test_it_opens_a_store_of_its_own_for_a_path(tmp_path: Path) -> None:
    async def talk() -> None:
        plugin = EventctxPlugin(tmp_path / "agents.db")
        agent = LlmAgent(name="a", model=Scripted(model="m", script=[Reply("Yes.")]))
        await run(agent, plugin, "There?")
        await plugin.close()
        async with eventctx.open(tmp_path / "agents.db") as engine:
            assert len(await audited(engine)) == 1

    asyncio.run(talk())


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "use-with-google-adk.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    made = compile(code, str(page), "exec", dont_inherit=True)
    exec(made, {"__name__": "agent"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == "All words.\n9 requests, of at most 8\n"


EVERY = [
    content("user", {"text": "hi"}, {"inline_data": {"data": b"abc", "mime_type": "image/png"}}),
    content(
        "model",
        *({"text": "hm", "thought": True}, {"text": "x", "thought_signature": b"sig"}),
        *({"function_call": {"name": "f", "args": {"a": number}}} for number in (1, 2)),
        {"function_call": {"id": "native", "name": "g", "args": {}}},
    ),
    content(
        "user",
        *({"function_response": {"name": "f", "response": {"result": one}}} for one in "ab"),
        {"function_response": {"id": "native", "name": "g", "response": {"r": [1]}}},
    ),
]


def test_every_content_comes_back_whole_from_its_row() -> None:
    back = contents_of(named(rows_of(EVERY)), [], [])
    assert [one.model_dump(exclude_none=True) for one in back] == [
        one.model_dump(exclude_none=True) for one in EVERY
    ]


@pytest.mark.parametrize("calls_before", [0, 3])
def test_rows_of_a_request_are_its_own_contents(calls_before: int) -> None:
    """Each once and in order, also where the ids in the log are others."""
    asked = content("user", {"text": "again"})
    sent = [*EVERY, asked, content("user", {"text": "again"})]
    ids = CallIds([])
    for _ in range(calls_before):
        ids.named(rows_of([content("model", {"function_call": {"name": "f", "args": {}}})])[0])
    view = [ids.named(row) for row in rows_of(sent)]
    back = contents_of(view, sent, named(rows_of(sent)))
    assert [one is other for one, other in zip(back, sent, strict=True)] == [True] * len(sent)
    shortened = {"role": "user", "content": "h…"}
    back = contents_of([shortened, *view[1:-1]], sent, named(rows_of(sent)))
    assert back[0].parts[0].text == "h…"  # type: ignore[index]
    assert [one is other for one, other in zip(back[1:], sent[1:-1], strict=True)] == [True] * 3


def test_calls_without_ids_are_paired_with_their_results_in_order() -> None:
    ids = CallIds([])
    _, calls, results = [ids.named(row)["content"] for row in rows_of(EVERY)]
    made = [one["id"] for one in calls if one["type"] == "tool_use"]
    assert len(set(made)) == 3
    assert [one["tool_use_id"] for one in results] == made
    later = ids.named(rows_of(EVERY)[1])["content"]
    assert not {one["id"] for one in later if one["type"] == "tool_use"} & set(made[:2])
    # A result is that of the last answer's call.
    call = content("model", {"function_call": {"name": "f", "args": {}}})
    result = content("user", {"function_response": {"name": "f", "response": {"result": "one"}}})
    _, second, answered = [row["content"] for row in rows_in_log([call, call, result])]
    assert answered[0]["tool_use_id"] == second[0]["id"]


async def test_calls_of_another_process_have_other_ids(engine: Engine) -> None:
    async def look(place: str) -> str:
        """Look somewhere."""
        return f"seen {place}"

    for place in ("here", "there"):
        calls = [Reply(calls=[ToolRequest("c", "look", {"place": place})]), Reply("Seen.")]
        agent = LlmAgent(name="a", model=Scripted(model="m", script=calls), tools=[look])
        await run(agent, EventctxPlugin(engine), f"Look {place}.")
    blocks = [block for one in await engine.transcript("s") for block in one.message["content"]]
    made = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(made) == len(set(made)) == 2
    assert [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"] == made


@pytest.mark.parametrize(
    ("model", "cloud", "provider"),
    [
        ("gemini-3-pro", "", "gcp.gemini"),
        ("gemini-3-pro", "true", "gcp.vertex_ai"),
        ("projects/p/locations/l/publishers/google/models/gemini-3-pro", "1", "gcp.vertex_ai"),
        ("openai/gpt-5.2", "", "openai"),
        ("claude-opus-5-5", "", "anthropic"),
        ("my-model", "", None),
        (None, "", None),
    ],
)
def test_the_provider_of_a_model_is_known_by_its_name(
    monkeypatch: pytest.MonkeyPatch, model: str | None, cloud: str, provider: str | None
) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", cloud)
    assert provider_of(model) == provider
