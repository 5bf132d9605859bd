"""The session of one conversation: the list of each call is compared with its transcript.

The framework hands over a list for each call. Usually that is the conversation, and the session's
view is sent in its place. A list that was cut on the way is sent as it is, and the missing part is
recorded. Where a server keeps the conversation, a list holds what is new: it is observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent_framework import ChatResponse, Message

from eventctx.adapters.agent_framework.rows import KnownContents, Row, identity
from eventctx.adapters.kit.host_list import held_against
from eventctx.adapters.kit.host_run import turn_failed
from eventctx.adapters.kit.host_session import HostSession
from eventctx.log.turn_recorder import CallSettings
from eventctx.log.usage import AGENT_FRAMEWORK, Usage, read_usage
from eventctx.messages.overlap import match_in_order
from eventctx.session.context import Context
from eventctx.session.host_requests import ObservedRequest

_RULE: Final = "anthropic-messages-1"
"""The API whose form rows have: blocks, and the instructions apart from them."""


class ChatCall(NamedTuple):
    """A call that is about to be made.

    ``passing`` are the messages among ``messages`` that a context provider adds to each call. With
    ``only_new`` the messages are those that no call before held; ``on_server``: a server keeps the
    conversation. ``others_decide``: the framework will change the list afterwards.
    """

    messages: Sequence[Message]
    passing: Sequence[Message] = ()
    instructions: str | None = None
    tools: Sequence[Row] = ()
    model: str | None = None
    provider: str | None = None
    settings: CallSettings = CallSettings()
    only_new: bool = False
    on_server: bool = False
    others_decide: bool = False


class AgentConversation(HostSession):
    """One conversation's session. Its runs follow each other."""

    def __init__(self, context: Context, transcript: Sequence[Row]) -> None:
        super().__init__(context, identity)
        self.decides = False
        """Whether a call is under way that was sent the view: the history has nothing to add."""
        self._contents = KnownContents()
        self._rows = list(transcript)
        self._view: list[Row] | None = None
        self._begun: int | None = None
        self._asked: int | None = None
        self._failed: int | None = None

    @classmethod
    async def opened(cls, context: Context) -> AgentConversation:
        """The conversation that a session holds."""
        return cls(context, await context.get_messages())

    def history(self) -> list[Message]:
        """The transcript as messages, never compacted."""
        return self._contents.messages_of(self._rows)

    # -- a run -----------------------------------------------------------------------------------

    async def begin(self, agent: str | None) -> bool:
        """Begin the turn of a run. Whether the conversation begins with it."""
        self._begun = self._asked = None
        self.decides = False
        self._contents.agent = agent
        await self.turns.turn_began(agent=agent)
        return not self._rows

    async def over(self, messages: Sequence[Message] | None) -> None:
        """End the turn of a run that ended with these messages of the model and its tools.

        They are what was recorded, but for an answer that a middleware or an approval changed.
        None: the framework does not say.
        """
        if messages is not None and self._asked is not None:
            asked, produced = self._rows[: self._asked], self._contents.read(messages)
            rows = [*asked, *produced[_overlap(asked, produced) :]]  # a call held approved results
            found = held_against(self._rows, rows, identity)
            if found.new or not found.whole:
                await self._mirror_rows(rows)
        self._failed = None
        await self.turns.turn_ended()

    async def failed(self, error: BaseException) -> None:
        """End the turn of a run that failed. Its host may forget it, and go on from before it."""
        if self._failed is None:
            self._failed = self._begun
        await turn_failed(self.turns, error)

    async def store(self, messages: Sequence[Message]) -> None:
        """Add messages that the framework stores itself."""
        await self._add_rows(self._contents.then(messages))

    # -- a call ----------------------------------------------------------------------------------

    async def decide(self, asked: ChatCall) -> list[Message]:
        """Record a call's request, and return the messages to send."""
        if self._begun is None:
            self._begun = len(self._rows)
        rows = self._contents.then(asked.messages) if asked.only_new else None
        if rows is None:
            rows = self._contents.of(asked.messages)
        passing = {id(one) for one in asked.passing}
        lasting = [
            row for one, row in zip(asked.messages, rows, strict=True) if id(one) not in passing
        ]
        whole = await self._take(lasting, asked.only_new)
        if self._asked is None:
            self._asked = len(self._rows)
        await self.turns.iteration_began(asked.provider, asked.model, asked.settings)
        if asked.on_server:
            await self._observe(asked, rows)
            return list(asked.messages)
        self._view = await self.prepare(
            instructions=asked.instructions, tools=asked.tools, model=asked.model
        )
        if asked.others_decide:
            return list(asked.messages)
        if not whole:
            await self.sent(self._view, rows)
            return list(asked.messages)
        self.decides = asked.only_new
        found = self._contents.messages_of(self._view)
        if passing:
            found = _with_passing(found, asked.messages, passing)
            await self.sent(self._view, self._contents.read(found))
        return found

    async def _observe(self, asked: ChatCall, rows: Sequence[Row]) -> None:
        self._view = None
        request = ObservedRequest(
            rule=_RULE,
            messages=rows,
            system=asked.instructions,
            tools=list(asked.tools) or None,
            model=asked.model,
        )
        await self.context.observe_request(request, call=self.turns)

    async def record_changed(self, messages: Sequence[Message]) -> None:
        """Record the list that was sent, where the framework changed it after ``decide``."""
        if self._view is not None:
            await self.sent(self._view, self._contents.read(messages))

    async def record_answer(self, response: ChatResponse[Any]) -> None:
        """Add the answer before its tools run, whose crash would take it along."""
        self.decides = False
        reason = response.finish_reason
        await self.turns.model_known(
            model=response.model,
            usage=_usage_of(response),
            response_id=response.response_id,
            finish_reason=None if reason is None else str(reason),
        )
        await self.turns.model_answered()
        await self._add_rows(self._contents.then(response.messages))

    # -- the transcript --------------------------------------------------------------------------

    async def _take(self, rows: Sequence[Row], only_new: bool) -> bool:
        """Add what is new in a call's list; whether it is the conversation, whole."""
        if only_new:
            await self._add_rows(rows[_overlap(self._rows, rows) :])
            return True
        found = held_against(self._rows, rows, identity)
        if not found.whole and self._went_back(rows):
            await self._mirror_rows(rows)
            return True
        await self._add_rows(found.new)
        return found.whole

    def _went_back(self, rows: Sequence[Row]) -> bool:
        """Whether the list goes on from before the transcript's end, as after a run that failed.

        A list that was cut at its beginning or in its middle ends as the transcript does.
        """
        beside = zip(self._rows, rows, strict=False)
        head = next(
            (
                at
                for at, (one, other) in enumerate(beside)
                if one != other and identity(one) != identity(other)
            ),
            min(len(self._rows), len(rows)),
        )
        talk = any(one["role"] != "system" for one in self._rows[:head])
        if not talk and (self._failed is None or head < self._failed):
            return False
        left = [identity(one) for one in self._rows[head:]]
        goes_on = [identity(one) for one in rows[head:]]
        return all(place is None for place in match_in_order(left, goes_on))

    async def _add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            await self.add(rows)
            self._rows += [dict(one) for one in rows]

    async def _mirror_rows(self, rows: Sequence[Row]) -> None:
        await self.mirror(rows)
        self._rows = list(rows)


def _overlap(transcript: Sequence[Row], rows: Sequence[Row]) -> int:
    """The number of these rows that end the transcript already, as those of a repeated call."""
    known = [identity(one) for one in transcript[-len(rows) :]] if rows else []
    given = [identity(one) for one in rows]
    return next((size for size in range(len(known), 0, -1) if known[-size:] == given[:size]), 0)


def _with_passing(
    found: list[Message], messages: Sequence[Message], passing: set[int]
) -> list[Message]:
    """The messages of a view, with the passing ones before those that they stood before."""
    places = {id(one): at for at, one in enumerate(found)}
    before: dict[int, list[Message]] = {}
    place = len(found)
    for one in reversed(messages):
        if id(one) in passing:
            before.setdefault(place, []).insert(0, one)
        else:
            place = places.get(id(one), place)
    made = []
    for at, one in enumerate(found):
        made += [*before.get(at, ()), one]
    return made + before.get(len(found), [])


def _usage_of(response: ChatResponse[Any]) -> Usage | None:
    given = response.usage_details
    counts = {name: value for name, value in (given or {}).items() if value is not None}
    return read_usage(counts, AGENT_FRAMEWORK) if counts else None
