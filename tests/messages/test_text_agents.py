"""Agents whose actions are text: an observation is a result, and a person's paste a person's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.messages.facts import as_observation
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import MARKER_CHARACTERS, Limit, shorten
from eventctx.messages.speaker import is_of_harness
from eventctx.messages.tokens import BY_KIND
from eventctx.messages.tool_rounds import Group, group_rows
from eventctx.policies.policy import Visible
from eventctx.policies.working_set import bound_tokens
from eventctx.projections.view.layout import EMPTY, append, build
from eventctx.projections.view.refs import MessageRef
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.transcripts import refusal

Row = dict[str, Any]

TASK = "Fix the login. NEVER touch main.py. " + "It fails for names with umlauts. " * 200
ACTION = "I look at it.\n\n```bash\ncat login.py\n```"
OUTPUT = "<returncode>0</returncode>\n<output>\n" + "def login(): ...\n" * 300 + "</output>"


def says(role: str, text: str) -> Row:
    return {"role": role, "content": text}


def run(steps: int) -> list[Row]:
    rows = [says("system", "Answer with one bash block."), says("user", TASK)]
    for step in range(steps):
        rows += [says("assistant", f"Step {step}. {ACTION}"), says("user", f"{OUTPUT}\n")]
    return rows


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine(MemoryStore()) as engine:
        yield engine


async def origins(engine: Engine) -> list[str | None]:
    return [line.origin for line in await engine.transcript("s")]


TIMED_OUT = (
    "The last command <command>top</command> timed out and has been killed.\nThe output of the "
    "command was:\n<output>\n</output>\nPlease try another command and make sure to avoid those "
    "requiring interactive input."
)
TOO_LONG = (
    "<returncode>0</returncode>\n<warning>\nlong\n</warning>\n<output_head>\na\n</output_head>\n"
    "<output_tail>\nb\n</output_tail>"
)
CALL = "<function=execute_bash>\n<parameter=command>ls</parameter>\n</function>"
OBSERVATIONS = [
    ("```bash\nls\n```", "<returncode>1</returncode>\n<output>\nNo such file\n</output>"),
    ("```\nls\n```", TOO_LONG),
    ("```bash\nls\n```", '{\n  "returncode": 0,\n  "output": "a.py"\n}'),
    ("```bash\ntop\n```", TIMED_OUT),
    ("Look.\n```\nls\n```", "a.py\n(Open file: n/a)\n(Current directory: /testbed)\nbash-$"),
    (CALL, "EXECUTION RESULT of [execute_bash]:\na.py"),
    ("<execute_bash>ls</execute_bash>", "OBSERVATION:\na.py\n[Command finished with exit code 0]"),
    ("<tool_call>\n{}\n</tool_call>", "<tool_response>\n{}\n</tool_response>"),
    ("Thought: x\nAction: search\nAction Input: y", "Observation: nothing found"),
    ("<code>\nprint(1)\n</code>", "Observation:\nExecution logs:\n1"),
    ("```python\nprint(1)\n```", "exitcode: 0 (execution succeeded)\nCode output: 1"),
]


OF_A_PERSON = [
    "I ran it: <returncode>0</returncode>\n<output>\n</output>",
    "<returncode>0</returncode>\n<output>\n</output>\nNow what? Never touch main.py.",
    "```\nTraceback (most recent call last):\nKeyError: 1\n```",
    *("Observation: the button is red", "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py"),
    *("$ ls\na.py\nb.py\n$", "<tool_response>what does this tag mean?"),
    *("The last command did not work", '{"name": "a"}'),
]


@pytest.mark.parametrize(
    ("action", "text", "origin", "setting"),
    [
        *((action, text, "observation", "by_form") for action, text in OBSERVATIONS),
        *((ACTION, text, None, "by_form") for text in (*OF_A_PERSON, "a.py b.py")),
        *((ACTION, "a.py b.py", "observation", "after_actions"), (ACTION, OUTPUT, None, "never")),
    ],
)
async def test_a_programs_answer_to_an_action_is_an_observation_and_a_paste_behind_code_a_persons(
    action: str, text: str, origin: str | None, setting: Any, engine: Engine
) -> None:
    ctx = await engine.session("s", observations=setting)
    await ctx.add_messages([says("user", "fix it"), says("assistant", action), says("user", text)])
    assert await origins(engine) == [None, None, origin]
    assert (await ctx.get_messages_for_request())[-1] == says("user", text)


async def test_nothing_is_an_observation_without_an_action_just_before_it(engine: Engine) -> None:
    ctx = await engine.session("s")
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    asked, acted = says("assistant", "What is this?"), says("assistant", ACTION)
    output = says("user", OUTPUT)
    rows = [output, asked, output, {**acted, "tool_calls": [call]}, output]
    rows += [acted, says("user", "wait"), output]
    await ctx.add_messages(rows)
    assert set(await origins(engine)) == {None}


async def test_a_list_of_messages_that_is_set_is_judged_like_added_ones(engine: Engine) -> None:
    ctx = await engine.session("s")
    await ctx.set_messages(run(2))
    assert await origins(engine) == [None, None, None, "observation", None, "observation"]
    await ctx.set_messages([*run(3), says("user", "and now?")])
    assert (await origins(engine))[-3:] == [None, "observation", None]
    assert (await engine.verify("s")).ok


async def test_a_host_can_say_what_is_an_observation(engine: Engine) -> None:
    ctx = await engine.session("s")
    await ctx.add_messages([says("user", "fix it"), says("assistant", "RUN ls")])
    await ctx.add_message(says("user", "a.py b.py"), observation=True)
    await ctx.add_message(says("assistant", ACTION))
    await ctx.add_message(says("user", OUTPUT), observation=False)
    assert await origins(engine) == [None, None, "observation", None, None]
    assert (await engine.verify("s")).ok


async def test_the_task_stays_whole_while_observations_come_and_go(engine: Engine) -> None:
    ctx = await engine.session("s", policy="ladder", max_tokens=16_000)
    for row in run(40):
        await ctx.add_message(row)
        if row["role"] == "user":
            view = await ctx.get_messages_for_request()
            assert refusal(view) is None
            assert says("user", TASK) in view
    audit = await engine.audit("s")
    assert len(audit.compactions) > 1
    assert all(row.tokens <= 16_000 for row in audit.requests)
    assert (await engine.verify("s")).ok


def test_an_observation_is_one_round_with_the_action_and_in_progress_while_it_is_last() -> None:
    rows = [read_facts(row) for row in run(2)]
    facts = [as_observation(one) if n in (3, 5) else one for n, one in enumerate(rows)]
    assert group_rows(facts) == [Group((0,)), Group((1,)), Group((2,), (3,)), Group((4,), (5,))]
    refs = [MessageRef(n, n, 0, bytes(32), one, 1) for n, one in enumerate(facts)]
    assert Visible(refs, (), frozenset(), 1).open_round == {4, 5}
    assert group_rows([facts[0], facts[3]]) == [Group((0,)), Group((1,))]


def test_an_observation_asks_for_nothing_and_is_cut_and_counted_as_a_result() -> None:
    text = "<output>\nYou should never call this without a lock, always.\n</output>"
    facts = read_facts(says("user", text))
    assert (facts.demands, facts.demand_characters > 0) == (1, True)
    told = as_observation(facts)
    assert told == read_facts(says("user", text), by_harness=True, observation=True)
    assert (told.demands, told.demand_characters) == (0, 0)
    blocks = [{"type": "text", "text": "a" * 3_000}, {"type": "text", "text": "b" * 3_000}]
    for content in (OUTPUT, blocks):
        message = {"role": "user", "content": content}
        facts = as_observation(read_facts(message))
        assert (facts.kind, facts.human, facts.demands, facts.prose) == ("result", False, 0, 0)
        limit = Limit(outcome=500)
        short = as_observation(read_facts(shorten(message, 7, limit, facts)))
        assert 400 < short.outcome <= 500 + MARKER_CHARACTERS
        assert BY_KIND.tokens(short) <= bound_tokens(facts, limit, BY_KIND)


USE = {"type": "tool_use", "id": "c", "name": "n", "input": {}}
SAID = {"type": "output_text", "text": ACTION}
MADE = {
    "u": read_facts(says("user", "hello there")),
    "p": read_facts(says("assistant", "plain words")),
    "a": read_facts(says("assistant", ACTION)),
    "x": as_observation(read_facts(says("user", OUTPUT))),
    "c": read_facts({"role": "assistant", "content": [USE]}),
    "r": read_facts({"role": "tool", "tool_call_id": "c", "content": "done"}),
    "t": read_facts({"type": "message", "role": "assistant", "content": [SAID]}),
}


@settings(max_examples=some(40, 150))
@given(st.lists(st.sampled_from([*MADE]), max_size=12))
def test_a_layout_with_observations_grows_to_what_is_built_from_nothing(kinds: list[str]) -> None:
    refs = [MessageRef(n, n, 0, bytes([n]) * 32, MADE[kind], 1) for n, kind in enumerate(kinds)]
    assert reduce(append, refs, EMPTY).entries() == build(refs).entries()
    rows = sorted(row for group in group_rows([r.facts for r in refs]) for row in group.rows)
    assert rows == list(range(len(refs)))


def test_a_complaint_about_an_answers_form_is_nobodys() -> None:
    for text in (
        "Please always provide EXACTLY ONE action in triple backticks, found 2 actions.",
        "No tool calls found in the response. Every response MUST include at least one tool call.",
        "Your output was not formatted correctly. You must always include one discussion and one",
    ):
        assert is_of_harness(text)
        assert read_facts(says("user", text)).kind == "user"


async def test_form_alone_finds_every_observation_that_a_recorded_session_has(
    recorded_sessions: Path, engine: Engine
) -> None:
    """All but the diff at the end of mini-swe-agent's first format, which was never sent."""
    found = 0
    for name in ("mini-swe-agent", "swe-agent"):
        for path in sorted((recorded_sessions / name).iterdir()):
            source = Engine(MemoryStore())
            session = (await import_file(source.store, path, complete=True))[0].session
            lines = await source.transcript(session)
            ctx = await engine.session(path.name)
            await ctx.add_messages([line.message for line in lines if line.message])
            said, live = (
                [line.origin == "observation" for line in told[:-1]]
                for told in (lines, await engine.transcript(path.name))
            )
            assert live == said
            found += sum(said)
            assert (await source.verify(session)).ok
    assert found == 144
