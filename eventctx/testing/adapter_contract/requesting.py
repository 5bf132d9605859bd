"""The model receives the view that the log derives; turns, calls, usage and tools are recorded."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from eventctx.log.usage import Usage
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.projections.trace.semconv import REQUEST_STREAM
from eventctx.testing.adapter_contract.running import (
    HOW,
    SMALL,
    HostTraits,
    answers,
    questions,
    read,
    reads,
)
from eventctx.testing.driving import SESSION, ScriptedAgent
from eventctx.testing.script import Reply


class RequestingContract(HostTraits):
    """The request that the model received is the view that the log derives for it."""

    pytestmark = pytest.mark.asyncio

    @HOW
    async def test_turns_of_talk(self, tmp_path: Path, stream: bool) -> None:
        self.can_stream(stream)
        talk = questions(3)
        agent = ScriptedAgent(answers(*[answer for _, answer in talk]))
        async with self.run_of(tmp_path, agent) as run:
            for question, answer in talk:
                assert await run.driver.ask(question, stream=stream) == answer
            await run.check_received()
            await run.check_transcript(*itertools.chain(*talk))
            await run.check_counts({"context:request_prepared": 3, "context:messages_set": 0})

    @HOW
    async def test_a_run_that_outgrows_its_budget_is_compacted_while_it_goes_on(
        self, tmp_path: Path, stream: bool
    ) -> None:
        self.can_stream(stream)
        pages = [(page, page + 100) for page in range(100, 108)]  # in order also as texts
        rounds = [reads(*each) for each in pages]
        agent = ScriptedAgent(
            [*rounds, *answers("all-read.", "page-3-it-was.")], [read], settings=SMALL
        )
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("read-all.", stream=stream)
            (compacted,) = await run.count("context:post_compact")
            assert compacted >= 1, (
                "nothing was compacted: the driver opens engine.session(…, **agent.settings), the "
                "messages are in the log before prepare() (take() or mirror()), with texts that "
                "the engine can count (check_dialect finds what it cannot)"
            )
            assert await run.driver.ask("which-one?", stream=stream) == "page-3-it-was."
            await run.check_received()
            whole = [f"page-{page}: " for page in itertools.chain(*pages)]
            await run.check_transcript("read-all.", *whole, "all-read.", "which-one?")
            await run.check_counts({"context:messages_set": 0})

    @HOW
    async def test_tools_in_parallel_whose_results_come_in_another_order(
        self, tmp_path: Path, stream: bool
    ) -> None:
        self.can_stream(stream)

        async def look(place: str) -> str:
            """Look somewhere; near is seen last."""
            if place == "near":
                for _ in range(100):
                    await asyncio.sleep(0)
            return f"seen-{place}."

        places = ("near", "far", "above")
        calls = [ToolRequest(f"call_{place}", "look", {"place": place}) for place in places]
        agent = ScriptedAgent([Reply(calls=calls), *answers("seen-all.", "yes.")], [look])
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("look-around.", stream=stream)
            await run.driver.ask("really?", stream=stream)
            await run.check_received()
            await run.check_transcript("look-around.", "seen-all.", "really?")
            shown = str(run.driver.received()[1])
            unseen = [place for place in places if f"seen-{place}." not in shown]
            assert not unseen, (
                f"the model did not receive the results of {unseen}: results need the ids of their "
                f"calls, and come after them; it received {shown}"
            )

    async def test_a_list_that_the_host_cut_is_sent_as_it_is_and_recorded(
        self, tmp_path: Path
    ) -> None:
        if not self.trims:
            pytest.skip("the host always sends its whole conversation")
        talk = questions(4)
        agent = ScriptedAgent(answers(*[answer for _, answer in talk]), keep_last=1)
        async with self.run_of(tmp_path, agent) as run:
            for question, _ in talk:
                await run.driver.ask(question)
            received, views = run.driver.received(), await run.views()
            await run.check_counts({"context:request_prepared": len(received)})
            for (question, _), request, view in zip(talk, received, views, strict=True):
                assert request == [view[0], view[-1]], (
                    "keep_last is 1, so the model has to get the system prompt and the last "
                    f"message, as the host cut them; it received {request}. The driver has its "
                    "host cut, the adapter sends that list; a host that cannot: trims = False"
                )
                assert question in str(request[-1])
            await run.check_counts({"context:messages_set": 0})
            rows = (await run.engine.audit(SESSION)).requests
            found = [(row.additions, row.missing) for row in rows]
            whole = [await run.engine.transcript(SESSION, at=row.position) for row in rows]
            assert found == [(0, len(messages) - 1) for messages in whole], (
                f"(additions, missing) of the requests are {found}: where take() says that the "
                "list is not whole, give sent() what prepare() returned, and the list that is sent"
            )
            await run.check_transcript(*itertools.chain(*talk))


class RecordingContract(HostTraits):
    """Turns, calls, usage and tools are recorded with the messages."""

    pytestmark = pytest.mark.asyncio

    @HOW
    async def test_a_run_is_a_turn_with_its_calls_usage_and_tools(
        self, tmp_path: Path, stream: bool
    ) -> None:
        self.can_stream(stream)
        last = Reply("read-both.", usage=Usage(prompt=310, output=12))
        agent = ScriptedAgent([reads(1, 2), last], [read])
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("read-two.", stream=stream)
            await run.check_counts({"prompt:submit": 1, "prompt:complete": 1})
            await run.check_counts({"provider:request": 2, "provider:response": 2})
            await run.check_counts({"tool:pre": 2, "tool:post": 2, "tool:error": 0})
            # A host that keeps its state in the log may save it once more after its turn.
            records = [one for one in await run.records() if one.type != "import:raw"]
            assert records[-1].type == "prompt:complete"
            await run.check_counts({"context:request_prepared": 2})
            reported = (await run.engine.audit(SESSION)).requests[-1].reported
            assert reported == 310, (
                f"expected a reported prompt of 310 tokens, found {reported}: give "
                "HostSession.turns.model_known(usage=…) the Usage of the answer, before its "
                "model_answered(); the driver's model answers with Reply.usage"
            )
            turns = {one.turn_id for one in records if one.type.startswith(("provider:", "tool:"))}
            tools = [one for one in records if one.type.startswith("tool:")]
            assert len(turns) == 1
            assert len({one.span_id for one in tools}) == 2
            assert len({one.parent_span_id for one in tools}) == 1

    @HOW
    async def test_the_span_of_a_call_says_what_the_host_knows(
        self, tmp_path: Path, stream: bool
    ) -> None:
        self.can_stream(stream)
        if self.knows is None:
            pytest.skip("knows is not set")
        agent = ScriptedAgent([Reply("said.", finish_reason="stop", response_id="response-1")])
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("say-it.", stream=stream)
            # A host may stream from its model although nobody streams from the host.
            await run.check_known(self.knows, but=set() if stream else {REQUEST_STREAM})

    async def test_every_turn_has_requests_of_its_own(self, tmp_path: Path) -> None:
        agent = ScriptedAgent([Reply("a."), reads(1), Reply("b.")], [read])
        async with self.run_of(tmp_path, agent) as run:
            await run.driver.ask("first.")
            await run.driver.ask("second.")
            prepared = [
                one for one in await run.records() if one.type == "context:request_prepared"
            ]
            await run.check_counts({"prompt:submit": 2, "context:request_prepared": 3})
            first, second, third = [one.turn_id for one in prepared]
            assert None not in (first, second, third), (
                "a request is in no turn: turn_began() comes before prepare(), and a run ends its "
                "own turn alone, once. A stream that the host left in its middle raises "
                "GeneratorExit later: report its end before you yield its last piece"
            )
            assert first != second == third
