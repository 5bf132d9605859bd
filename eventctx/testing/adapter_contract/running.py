"""One run of a driver on an engine, and what the log says of it afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import pytest

from eventctx.engine import Engine, open_engine
from eventctx.errors import StreamNotFound
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.projections.trace.semconv import CHAT, OPERATION
from eventctx.queries.spans import spans
from eventctx.testing.adapter_contract import findings
from eventctx.testing.driving import SESSION, AdapterDriver, JoiningDriver, ScriptedAgent
from eventctx.testing.requests import check_request
from eventctx.testing.script import Reply

SMALL = {"max_tokens": 4_000, "reserve_tokens": 0}
"""Settings of a session that has to compact when a few pages were read."""

HOW = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])

Retries = Literal["calls", "one call", "none"]


class HostTraits:
    """A subclass's facts of its host."""

    driver: ClassVar[type[AdapterDriver]]
    streams: ClassVar[bool] = True
    """Whether a run can be streamed."""
    trims: ClassVar[bool] = True
    """Whether the host can send less than its conversation."""
    retries: ClassVar[Retries] = "calls"
    """Whether each attempt of the host to call the model is a call, or all of them are one."""
    says_again: ClassVar[bool] = False
    """Whether the host's own messages say an answer again, as a ``final_answer`` tool does."""
    untold: ClassVar[frozenset[str] | set[str]] = frozenset()
    """Of what the host does not say why it failed: ``calls``, ``tools``."""
    knows: ClassVar[frozenset[str] | set[str] | None] = None
    """The attributes of ``KNOWN_OF_CALLS`` that the span of a model call has; None is not tested.

    ``gen_ai.request.stream`` is that of a streamed run.
    """

    @pytest.fixture(autouse=True)
    def _traits_are_sound(self) -> None:
        self.check_traits()

    def check_traits(self) -> None:
        """Refuse what would fail each test without a word of why."""
        name, driver = type(self).__name__, getattr(self, "driver", None)
        if driver is None:
            pytest.fail(
                f"{name} names no driver: expected `driver = MyDriver`, a class like AdapterDriver",
                pytrace=False,
            )
        if self.retries not in get_args(Retries):
            pytest.fail(
                f"{name}.retries: expected one of {get_args(Retries)}, found {self.retries!r}",
                pytrace=False,
            )
        if not self.untold <= {"calls", "tools"}:
            pytest.fail(
                f"{name}.untold: expected some of 'calls' and 'tools', found {self.untold!r}",
                pytrace=False,
            )
        if not (self.knows or set()) <= findings.KNOWN_OF_CALLS.keys():
            pytest.fail(
                f"{name}.knows: expected some of {sorted(findings.KNOWN_OF_CALLS)}, "
                f"found {self.knows!r}",
                pytrace=False,
            )
        if "<locals>" in driver.__qualname__:
            pytest.fail(
                f"{name}.driver: expected a class that another process can import, "
                f"found {driver.__qualname__}: move it to the top of its module",
                pytrace=False,
            )

    def run_of(
        self, folder: Path, agent: ScriptedAgent, store: str = "memory://"
    ) -> AbstractAsyncContextManager[DriverRun]:
        """The driver at work on an engine of its own."""
        return running(self.driver, folder, agent, store, says_again=self.says_again)

    def can_stream(self, stream: bool) -> None:
        """Skip the test of a stream if the host has none."""
        if stream and not self.streams:
            pytest.skip("the host does not stream")


class DriverRun:
    """A driver at work, and the log that it leaves."""

    def __init__(self, engine: Engine, driver: AdapterDriver, *, says_again: bool = False) -> None:
        self.engine = engine
        self.driver = driver
        self._says_again = says_again

    async def records(self) -> list[Record]:
        """All records of the session."""
        try:
            return [one async for one in self.engine.records(SESSION)]
        except StreamNotFound as error:
            raise AssertionError(
                f"nothing was recorded in session {SESSION!r}: the driver has to open "
                "engine.session(agent.session, **agent.settings) of the agent that it is given"
            ) from error

    async def count(self, *types: str) -> list[int]:
        """The number of records of each type."""
        made = [one.type for one in await self.records()]
        return [made.count(one) for one in types]

    async def check_counts(self, expected: Mapping[str, int]) -> None:
        """Check the number of records of each type."""
        found = dict(zip(expected, await self.count(*expected), strict=True))
        _raise_if(findings.of_counts(expected, found))

    async def check_ends(self, expected: Mapping[str, str], error_type: str | None = None) -> None:
        """Check the status of the first record of each type, and its type of error."""
        found: dict[str, Any] = {}
        for one in await self.records():
            found.setdefault(one.type, decode_known(one))
        _raise_if(findings.of_ends(expected, found, error_type))

    async def check_known(self, expected: Set[str], *, but: Set[str]) -> None:
        """Check which attributes the span of the last model call has, but for those of ``but``."""
        async for span in spans(self.engine.store, SESSION):
            if span.attributes[OPERATION] == CHAT:
                found = span.attributes.keys() & findings.KNOWN_OF_CALLS.keys()
        _raise_if(findings.of_known(expected - but, found - but))

    async def views(self) -> list[list[Any]]:
        """The verified view of every request, as the model is shown it."""
        found = []
        for one in await self.records():
            if one.type == "context:request_prepared":
                view = await self.engine.request_view(SESSION, position=one.position)
                assert view.verified, f"the view of the request at {one.position} is not verified"
                check_request(view.messages, f"the request at {one.position}")
                found.append(self._shown(view.messages))
        return found

    def _shown(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        if isinstance(self.driver, JoiningDriver):
            return self.driver.shown_view(rows)
        return [self.driver.shown(row) for row in rows]

    async def check_received(self) -> None:
        """Check that each request of this driver was the view that the log derives for it."""
        prepared = [one for one in await self.records() if one.type == "context:request_prepared"]
        transcripts = [
            self._shown([one.message for one in rows if one.message is not None])
            for rows in [await self.engine.transcript(SESSION, at=one.position) for one in prepared]
        ]
        views = await self.views()
        _raise_if(findings.of_requests(views, self.driver.received(), transcripts))

    async def check_transcript(self, *texts: str) -> None:
        """Check that the log holds each text once, and all in this order."""
        _raise_if(findings.of_texts(texts, await self.transcript(), again=self._says_again))

    async def transcript(self) -> list[Any]:
        """The messages of the log, never compacted."""
        await self.records()
        return [message.message for message in await self.engine.transcript(SESSION)]


def _raise_if(finding: str | None) -> None:
    if finding is not None:
        raise AssertionError(finding)


@asynccontextmanager
async def running(
    driver: type[AdapterDriver],
    folder: Path,
    agent: ScriptedAgent,
    store: str = "memory://",
    *,
    says_again: bool = False,
) -> AsyncIterator[DriverRun]:
    """A driver on an engine of its own; both are closed after the block."""
    async with open_engine(store) as engine:
        made = driver(engine, folder, agent)
        try:
            yield DriverRun(engine, made, says_again=says_again)
        finally:
            await made.close()


def store_in(folder: Path) -> str:
    """The store of a test whose subject is the disk."""
    return str(folder / "adapter.db")


# -- what the agents do --------------------------------------------------------------------------


async def read(page: int) -> str:
    """Read a page."""
    return f"page-{page}: " + "x" * 1_500


def reads(*pages: int) -> Reply:
    """An answer that reads pages, all at once."""
    return Reply(calls=[ToolRequest(f"call_{page}", "read", {"page": page}) for page in pages])


def answers(*texts: str) -> list[Reply]:
    """Answers of one text each."""
    return [Reply(text) for text in texts]


def questions(number: int) -> Sequence[tuple[str, str]]:
    """Questions, and the answers to them; no text of them is within another."""
    return [(f"question-{place}.", f"answer-{place}.") for place in range(number)]
