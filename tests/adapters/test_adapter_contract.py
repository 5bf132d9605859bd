"""The contract of adapters: a sound adapter passes it, and each wrong one fails it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eventctx.log.usage import Usage
from eventctx.testing import AdapterContract
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


class KnowsNoUsage(Adapter):
    async def model_answered(self, messages: Sequence[Row], usage: Usage | None) -> None:
        await super().model_answered(messages, None)


class SeesNoTools(Adapter):
    async def tool_begins(self, call_id: str, name: str) -> None: ...
    async def tool_ended(self, call_id: str, error: BaseException | None) -> None: ...


class SeesNoTurns(Adapter):
    async def turn_begins(self, messages: Sequence[Row]) -> None:
        await self.session.mirror(messages)


class ReplacesTheTranscriptEachTime(Adapter):
    async def turn_begins(self, messages: Sequence[Row]) -> None:
        await self.turns.turn_began()
        await self.session.context.set_messages(messages)
        self.session._transcript = None  # as an adapter without the kit would have none


class LosesResultsOfParallelTools(Adapter):
    async def before_call(self, messages: list[Row], sends: list[Row]) -> list[Row]:
        rows = await super().before_call(messages, sends)
        results = [one for one in rows if one["role"] == "tool"]
        return [one for one in rows if one not in results[1:]]


WRONG: Mapping[type[Seams], str] = {
    SendsTheHostsList: "test_a_run_that_outgrows_its_budget_is_compacted_while_it_goes_on",
    SendsItsViewWhereTheHostCut: "test_a_list_that_the_host_cut_is_sent_as_it_is_and_recorded",
    SaysNotWhatTheHostCut: "test_a_list_that_the_host_cut_is_sent_as_it_is_and_recorded",
    TakesACutListForTheConversation: "test_a_list_that_the_host_cut_is_sent_as_it_is_and_recorded",
    LeavesOutTheSystemPrompt: "test_turns_of_talk",
    AddsTheQuestionTwice: "test_turns_of_talk",
    ReplacesTheTranscriptEachTime: "test_turns_of_talk",
    LosesResultsOfParallelTools: "test_tools_in_parallel_whose_results_come_in_another_order",
    RecordsAnAnswerWithItsResults: "test_a_run_that_was_interrupted_in_a_tool",
    TakesAttemptsForOneCall: "test_a_call_that_failed_and_was_repeated",
    HidesAFailedCall: "test_a_run_whose_call_failed",
    KnowsNoUsage: "test_a_run_is_a_turn_with_its_calls_usage_and_tools",
    SeesNoTools: "test_a_run_is_a_turn_with_its_calls_usage_and_tools",
    SeesNoTurns: "test_every_turn_has_requests_of_its_own",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__)
async def test_a_wrong_adapter_fails_the_test_of_its_rule(
    wrong: type[Seams], tmp_path: Path
) -> None:
    class Driver(PlainDriver):
        adapter = wrong  # type: ignore[assignment]

    class Contract(AdapterContract):
        driver = Driver

    test: Callable[..., Any] = getattr(Contract(), WRONG[wrong])
    given = {"stream": False} if "stream" in inspect.signature(test).parameters else {}
    with pytest.raises(AssertionError):
        await test(tmp_path=tmp_path, **given)
