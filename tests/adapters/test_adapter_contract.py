"""The contract of adapters: a sound adapter passes it, and each wrong one fails it; its pages."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventctx.log.usage import Usage
from eventctx.testing import AdapterContract, ScriptedAgent
from tests.adapters.drivers.base import ALL, KNOWN
from tests.adapters.drivers.plain import Adapter, PlainDriver, Row, Seams


class TestAPlainHost(AdapterContract):
    driver = PlainDriver
    streams = False


# -- adapters that are wrong ---------------------------------------------------------------------


class SendsTheHostsList(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        await super().before_call(messages, sends)
        return sends


class SendsItsViewWhereTheHostCut(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        return await super().before_call(messages, messages)


class SaysNotWhatTheHostCut(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        rows = await super().before_call(messages, messages)
        return rows if sends == messages else sends


class TakesACutListForTheConversation(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        return await super().before_call(sends, sends)


class LeavesOutTheSystemPrompt(Adapter):
    def __init__(self, session: Any, instructions: str) -> None:
        super().__init__(session, "")


class AddsTheQuestionTwice(Adapter):
    async def turn_begins(self, messages: Sequence[Row]) -> None:
        await super().turn_begins(messages)
        await self.session.context.add_message(messages[-1])


class RecordsAnAnswerWithItsResults(Adapter):
    async def model_answered(self, messages: Sequence[Row], usage: Usage | None) -> None:
        await super().model_answered(messages[:-1], usage)


class TakesAttemptsForOneCall(Adapter):
    rows: list[Row] | None = None

    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        self.rows = self.rows or await super().before_call(messages, sends)
        return self.rows

    async def model_failed(self, error: BaseException) -> None: ...

    async def model_answered(self, messages: Sequence[Row], usage: Usage | None) -> None:
        self.rows = None
        await super().model_answered(messages, usage)


class HidesAFailedCall(Adapter):
    async def model_failed(self, error: BaseException) -> None:
        await self.turns.model_answered()


class SaysNotWhyACallFailed(Adapter):
    async def model_failed(self, error: BaseException) -> None:
        await self.turns.model_failed("Error", "")


class TakesAFailedToolForACancelledOne(Adapter):
    async def tool_ended(self, call_id: str, error: BaseException | None) -> None:
        if error is not None:
            await self.turns.tool_failed(call_id, "NotTold", str(error), cancelled=True)


class TakesAFailedRunForACancelledOne(Adapter):
    async def turn_failed(self, error: BaseException) -> None:
        await self.turns.turn_ended("cancelled", str(error))


class KnowsNoUsage(Adapter):
    async def model_answered(self, messages: Sequence[Row], usage: Usage | None) -> None:
        await super().model_answered(messages, None)


class SeesNoTools(Adapter):
    async def tool_begins(self, call_id: str, name: str) -> None: ...
    async def tool_ended(self, call_id: str, error: BaseException | None) -> None: ...


class SeesNoTurns(Adapter):
    async def turn_begins(self, messages: Sequence[Row]) -> None:
        await self.session.mirror(messages)


class EndsTheTurnOfTheNextRun(Adapter):
    calls = 0

    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        self.calls += 1
        if self.calls == 2:  # as a generator of the first run that is closed only now
            await self.turns.turn_ended("cancelled")
        return await super().before_call(messages, sends)


class ChangesWhatIsSent(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        rows = await super().before_call(messages, sends)
        return [*rows[:-1], {**rows[-1], "content": "Else."}]


class PreparesNothing(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        await self.session.mirror(messages)
        return sends


class AnswersTwice(Adapter):
    async def turn_ended(self, messages: Sequence[Row]) -> None:
        await self.session.context.add_message(messages[-1])
        await self.turns.turn_ended()


class AddsARoundAgainWhereACallIsOpen(Adapter):
    async def turn_ended(self, messages: Sequence[Row]) -> None:
        await super().turn_ended(messages)
        answered = {one.get("tool_call_id") for one in messages}
        rounds = [one for one in messages if one.get("tool_calls")]
        if rounds and rounds[0]["tool_calls"][0]["id"] not in answered:
            await self.session.context.add_message(rounds[-1])


class LosesResultsOfParallelTools(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        rows = await super().before_call(messages, sends)
        results = [one for one in rows if one["role"] == "tool"]
        return [one for one in rows if one not in results[1:]]


# -- drivers that are wrong ----------------------------------------------------------------------


class LeavesOutThePromptOfRequests(PlainDriver):
    def received(self) -> list[list[Any]]:
        return [request[1:] for request in super().received()]


class ReceivesNothing(PlainDriver):
    def received(self) -> list[list[Any]]:
        return []


class ForgetsTheSettings(PlainDriver):
    def __init__(self, engine: Any, folder: Path, agent: ScriptedAgent) -> None:
        super().__init__(engine, folder, msgspec.structs.replace(agent, settings={}))


class RepeatsNothing(PlainDriver):
    def __init__(self, engine: Any, folder: Path, agent: ScriptedAgent) -> None:
        super().__init__(engine, folder, msgspec.structs.replace(agent, retries=0))


class SaysItAgain(PlainDriver):
    """Its agent answers by a tool: the call and its result hold the same text."""

    async def ask(self, text: str, *, stream: bool = False) -> str:
        self._host.echoes = True
        return await super().ask(text)


class TestAHostThatSaysAnAnswerAgain(AdapterContract):
    driver = SaysItAgain
    streams = False
    says_again = True

    async def test_an_answer_outlives_the_process_that_is_killed_in_its_tool(
        self, tmp_path: Path
    ) -> None:
        """Another process would ask the same host as ``TestAPlainHost``."""


# -- what the tests say of them ------------------------------------------------------------------


OUTGROWS = "test_a_run_that_outgrows_its_budget_is_compacted_while_it_goes_on"
CUT = "test_a_list_that_the_host_cut_is_sent_as_it_is_and_recorded"
INTERRUPTED = "test_a_run_that_was_interrupted_in_a_tool"
AFTERWARDS = "test_rounds_of_parallel_tools_after_a_run_that_was_interrupted_in_a_tool"
TALK = "test_turns_of_talk"
PARALLEL = "test_tools_in_parallel_whose_results_come_in_another_order"
TURN = "test_a_run_is_a_turn_with_its_calls_usage_and_tools"
OWN = "test_every_turn_has_requests_of_its_own"
REPEATED = "test_a_call_that_failed_and_was_repeated"
FAILED = "test_a_run_whose_call_failed"
CANCELLED = "tool:error with status 'error' of ValueError, found 'cancelled' of NotTold"

WRONG: list[tuple[type[Seams | PlainDriver], str, str]] = [
    (SendsTheHostsList, OUTGROWS, "the host's own list was sent"),
    (SendsItsViewWhereTheHostCut, CUT, "as the host cut them"),
    (SaysNotWhatTheHostCut, CUT, r"give sent\(\) what prepare\(\) returned"),
    (TakesACutListForTheConversation, CUT, "expected 0 of context:messages_set, found 6"),
    (LeavesOutTheSystemPrompt, TALK, "the view has another system prompt"),
    (AddsTheQuestionTwice, TALK, "question-0.'] more than once|was not known again"),
    (AddsARoundAgainWhereACallIsOpen, AFTERWARDS, "more than once"),
    (LosesResultsOfParallelTools, PARALLEL, "the host sent less than the conversation"),
    (EndsTheTurnOfTheNextRun, OWN, "once. A stream"),
    (ChangesWhatIsSent, TALK, "message by message"),
    (RecordsAnAnswerWithItsResults, INTERRUPTED, "answered"),
    (TakesAttemptsForOneCall, REPEATED, "found 3"),
    (SaysNotWhyACallFailed, FAILED, "the words of the error"),
    (TakesAFailedToolForACancelledOne, "test_a_tool_that_failed", CANCELLED),
    (
        TakesAFailedRunForACancelledOne,
        FAILED,
        "prompt:complete with status 'error', found 'cancelled'",
    ),
    (HidesAFailedCall, FAILED, "expected 1 of provider:error, found 0"),
    (KnowsNoUsage, TURN, "model_known"),
    (SeesNoTools, TURN, "expected 2 of tool:pre, found 0: HostSession.turns.tool_began"),
    (SeesNoTurns, OWN, "found 0: .*turn_began"),
    (PreparesNothing, TALK, "call HostSession.prepare"),
    (AnswersTwice, TALK, "more than once"),  # also where texts are said again
    (LeavesOutThePromptOfRequests, TALK, "begins each request with its system prompt"),
    (ReceivesNothing, TALK, "the model received nothing"),
    (ForgetsTheSettings, OUTGROWS, "settings"),
    (RepeatsNothing, REPEATED, "did not repeat the call"),
    (SaysItAgain, TALK, "set says_again = True"),
]


@pytest.mark.parametrize(
    ("wrong", "name", "says"), WRONG, ids=lambda one: getattr(one, "__name__", "")
)
async def test_what_is_wrong_fails_the_test_of_its_rule_and_is_told_what_to_do(
    wrong: type[Any], name: str, says: str, tmp_path: Path
) -> None:
    driver = wrong
    if not issubclass(wrong, PlainDriver):
        driver = type("Driver", (PlainDriver,), {"adapter": wrong})
    traits = {"driver": driver, "says_again": wrong is AnswersTwice}
    contract: Any = type("Contract", (AdapterContract,), traits)
    test: Callable[..., Any] = getattr(contract(), name)
    ways = {"stream", "resumed"} & inspect.signature(test).parameters.keys()
    with pytest.raises(AssertionError, match=says):
        await test(tmp_path=tmp_path, **dict.fromkeys(ways, False))


@pytest.mark.parametrize(
    ("traits", "says"),
    [
        ({}, "names no driver"),
        ({"driver": PlainDriver, "retries": "never"}, "expected one of"),
        ({"driver": type("Local", (), {"__qualname__": "f.<locals>.L"})}, "top of its module"),
    ],
)
def test_a_contract_with_wrong_traits_says_so_once(traits: dict[str, Any], says: str) -> None:
    contract: Any = type("Contract", (AdapterContract,), traits)
    with pytest.raises(pytest.fail.Exception, match=says):
        contract().check_traits()


DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_shows_the_attributes_that_each_contract_holds() -> None:
    page = (DOCS / "reference" / "adapters.md").read_text(encoding="utf-8")
    table = page.partition("## What the span of a model call says")[2]
    head, _, *rows = re.findall(r"^\|(.+)\|$", table.partition("\n## ")[0], re.MULTILINE)
    names = re.findall(r"`([^`]+)`", head)
    shown = {}
    for row in rows:
        adapter, *marks = [one.strip() for one in row.split("|")]
        shown[adapter] = {name for name, mark in zip(names, marks, strict=True) if mark == "✓"}
    assert set(names) == ALL
    assert shown == KNOWN


# -- the how-to's adapter passes the contract, as for a reader who copied it ----------------------


BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def written() -> Any:
    """The page's code as a module of a folder of its own, which another process can import."""
    page = DOCS / "how-to" / "write-an-adapter.md"
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    (Path(FOLDER.name) / "written_adapter.py").write_text("\n".join(blocks), encoding="utf-8")
    sys.path.append(FOLDER.name)
    return importlib.import_module("written_adapter")


FOLDER = tempfile.TemporaryDirectory(prefix="written-adapter-")
module = written()


class TestTheHowTo(AdapterContract):
    driver = module.HostDriver
    streams = module.TestHost.streams
    retries = module.TestHost.retries


def test_the_page_s_own_test_class_is_a_contract() -> None:
    assert issubclass(module.TestHost, AdapterContract)
    assert module.TestHost.driver is module.HostDriver
