"""The mounted object: a session's context manager with the methods that Amplifier's hosts use.

The session is opened by the first call that needs it, never by mounting. Every call first records
the host's events that were only noted until then (``EventListener.caught_up``), so the log has the
order of the host. A host that resumes a child session adds the child's old messages once more;
until the host runs the session, such messages are recognised and not added (``_came_again``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from eventctx.adapters.amplifier.compaction_events import CompactionEvents
from eventctx.adapters.amplifier.config import Config
from eventctx.adapters.amplifier.engines import ENGINES, LateEmitter
from eventctx.adapters.amplifier.event_listener import EventListener, LastCalls, SentReports
from eventctx.adapters.amplifier.memory_files import put_before
from eventctx.adapters.amplifier.plan_adviser import SCORER, SUMMARIZER, PlanAdviser
from eventctx.adapters.amplifier.rewind import HostTranscript, last_record
from eventctx.adapters.amplifier.rows import as_dict, converted_to_json, stamped, text_of
from eventctx.adapters.amplifier.sent import LastRequest, Sent
from eventctx.adapters.amplifier.transcript_file import (
    TranscriptFile,
    command_to_take_over,
)
from eventctx.aio import KeyedLock, finish
from eventctx.engine import Engine
from eventctx.errors import (
    ImportedSession,
    InvalidMessage,
    InvalidSessionId,
    InvalidSetting,
    StoreUnavailable,
)
from eventctx.log.events import SetIgnored
from eventctx.log.ids import agent_in, check_session_id, chosen_turn_id, random_bytes
from eventctx.log.record import Record
from eventctx.session.context import Context
from eventctx.session.host_turns import HostReporter
from eventctx.session.reconcile import AddedAgain
from eventctx.session.result import CompactionResult
from eventctx.session.scope import scope_of
from eventctx.session.turns import ProviderCall, Turn

HOST_REASON: Final = "the host asked for it"

MAX_OWNED: Final = 256
"""Turns of our orchestrators that are remembered, because late events of them may come."""

Factory = Callable[[], Awaitable[str]]

_log = logging.getLogger("eventctx.adapters.amplifier")


class AmplifierContext:
    """Context manager of one Amplifier session, made by ``mount``.

    It has the five methods of the contract and others that hosts look for. The first call
    that needs the store opens it. Raises the errors of ``eventctx.Context``, and StoreUnavailable
    after the session's cleanup.
    """

    emits_to_host: Final = True
    """Orchestrators need not tell hooks of compactions, because this object does."""

    def __init__(
        self,
        session: str,
        parent: str | None,
        hooks: Any,
        config: Config,
        display: Callable[[], Any] = lambda: None,
        providers: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> None:
        self.session_id = usable_id(session)
        self._host_session = session
        self._parent = parent
        self._config = config
        self._opening = KeyedLock()
        self._engine: Engine | None = None
        self._context: Context | None = None
        self._follow: HostReporter | None = None
        self._stop: list[Callable[[], None]] = []
        self._closed = False
        self._factory: Factory | None = None
        self._memory_read = False
        self._file: TranscriptFile | None = None
        if config.transcript_path is not None:
            self._file = TranscriptFile(config.transcript_path, config.memory_files)
        self._owned: dict[object, None] = {}
        self._again: AddedAgain | None = None
        self._runs = False
        self._untouched = False
        """Whether the session had records before, and the host has not set or used it since."""
        self._calls = LastCalls()
        self._compactions = CompactionEvents(self.session_id, hooks)
        self._kept = HostTranscript(self.session_id, session, config.store, display)
        self._last = LastRequest()
        self._retained: set[int] = set()
        self._adviser = PlanAdviser(config.adviser, providers, config.settings.limit)
        self.listener = EventListener(
            session,
            self._following,
            self._owns,
            self._calls.taken,
            SentReports(self._compare, self._note_untold) if config.record_sent else None,
            lambda: self._adviser.is_asking,
        )

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, with the budget for providers that name none."""
        return {**self._config.given, "max_tokens": self._config.settings.limit}

    # -- the contract ----------------------------------------------------------------------------

    async def add_message(self, message: dict[str, Any]) -> None:
        """Store a message; returns when it is on disk. Raises ValueError without a role.

        Before a resumed child runs, its host adds the messages that it kept of the child. These
        are in the log already and are not added again.
        """
        context = await self._to_write()
        row = as_dict(message)
        if self._follow is not None and self._follow.open_tools:
            await self.listener.result_added(self._follow, row)
        try:
            if await self._came_again(context, row):
                return
            await context.add_message(row)
        except InvalidMessage as error:
            row = converted_to_json(row, error)
            if await self._came_again(context, row):
                return
            await context.add_message(row)
        self._calls.noted(row)
        if self._file is not None:
            await self._file.added(context, row)
        # A host may put its system prompt in before it sets the transcript that it kept.
        self._untouched = self._untouched and row.get("role") in ("system", "developer")

    async def get_messages_for_request(
        self,
        token_budget: int | None = None,
        provider: Any | None = None,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        model: str | None = None,
        thinking: Mapping[str, Any] | None = None,
        call: ProviderCall | None = None,
    ) -> list[dict[str, Any]]:
        """The messages to send now, compacted if necessary; recorded before they are returned.

        The system prompt's factory, if there is one, is called once.
        """
        context = await self._to_write()
        await self._nothing_comes_again(context)
        if not self._memory_read:
            room = self._config.room_for_memory
            changed = await put_before(context, self._config.memory_files, room)
            self._memory_read = True
            if changed and self._file is not None:
                await self._file.replaced(context)
        if self._factory is not None:
            await self._set_prompt(context, self._factory)
        try:
            with self._adviser.serving(provider):
                messages = await context.get_messages_for_request(
                    token_budget,
                    provider,
                    tools=tools,
                    model=model,
                    thinking=thinking,
                    call=call or self._follow,
                )
        finally:
            await self._compactions.tell()
        if self._config.record_sent:
            reported = self._follow is not None and self._follow.awaits_answer
            self._last.returned(messages, to_host=call is None and reported)
        if self._follow is not None:
            await self._follow.request_prepared()
        self._untouched = False
        return messages

    async def get_messages_for_request_retaining(
        self,
        *,
        retain_contents: Sequence[str],
        provider: Any | None = None,
        token_budget: int | None = None,
        hard_fit: bool = False,
    ) -> list[dict[str, Any]]:
        """As ``get_messages_for_request``, with the newest message of each of these contents whole.

        Newer loops call it (capability ``context.request_retention``) for reminders that they put
        into the transcript, and, with ``hard_fit``, for a request that their provider finds too
        long. The budget is kept in both cases.
        """
        rows = await self.get_messages_for_request(token_budget, provider)
        lacking = set(retain_contents).difference([str(row.get("content")) for row in rows])
        if not lacking and not self._retained:
            return rows
        context = await self._to_write()
        numbers = await self._numbers_of(lacking)
        let_go = self._retained - await self._numbers_of(set(retain_contents))
        await context.unpin(*let_go)
        await context.pin(*numbers)
        self._retained = (self._retained - let_go) | numbers
        if not numbers:
            return rows
        return await self.get_messages_for_request(token_budget, provider)

    async def _numbers_of(self, contents: set[str]) -> set[int]:
        """The number of the newest message of each content that was added."""
        if not contents or self._engine is None:
            return set()
        newest: dict[str, int] = {}
        for one in await self._engine.transcript(self.session_id):
            content = None if one.message is None else one.message.get("content")
            if isinstance(content, str) and content in contents:
                newest[content] = one.number
        return set(newest.values())

    async def get_messages(self) -> list[dict[str, Any]]:
        """The whole transcript, never compacted."""
        context = await self._opened()
        if self._config.stamp_messages:
            return stamped(await context.get_timed_messages())
        return await context.get_messages()

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Resume from a transcript that the host kept; the log restores what the host left out.

        The first one after a resume may end before ours does, and is then ignored; a later one
        undoes what it lacks. See ``Context.resume_messages``.
        """
        rows = [as_dict(message) for message in messages]
        context = await self._to_write()
        await self._nothing_comes_again(context)
        try:
            if self._untouched:
                await self._kept.tell_what_stays(context, rows)
            changed = await context.resume_messages(rows, may_be_behind=self._untouched)
        except InvalidMessage as error:
            rows = [converted_to_json(row, error) for row in rows]
            changed = await context.resume_messages(rows, may_be_behind=self._untouched)
        self._untouched = False
        if changed and self._file is not None:
            await self._file.replaced(context)

    async def clear(self) -> None:
        """Empty the transcript; the log keeps it."""
        context = await self._to_write()
        await self._nothing_comes_again(context)
        await context.clear()
        if self._file is not None:
            await self._file.replaced(context)
        self._untouched = False

    # -- further methods that hosts look for -----------------------------------------------------

    async def set_system_prompt_factory(self, factory: Factory | None) -> None:
        """Let ``factory`` make the system prompt of every later request."""
        if factory is not None and not callable(factory):
            raise InvalidSetting(f"factory: expected an async function, found {factory!r}")
        self._factory = factory

    async def compact(self) -> CompactionResult:
        """Compact now; the tokens saved, as an int."""
        context = await self._to_write()
        try:
            with self._adviser.serving():
                return await context.compact(reason=HOST_REASON)
        finally:
            await self._compactions.tell()

    async def should_compact(self) -> bool:
        """Whether the next request would be compacted, under the last request's budget."""
        context = await self._opened()
        settings = context.settings
        limit = self._last.budget or settings.limit
        share = settings.compact_threshold if settings.auto_compact else 1.0
        return await context.get_token_count() >= limit * share

    async def get_token_count(self) -> int:
        """Estimated tokens of a request with the current view."""
        return await (await self._opened()).get_token_count()

    def turn(self, turn_id: str | None = None, *, agent: str | None = None) -> Turn:
        """A turn that its orchestrator records; the host's events of this turn are not recorded.

        ``agent`` is by default the one that the session's id names.
        """
        chosen = chosen_turn_id(turn_id, random_bytes)
        self._owned[chosen] = None
        if len(self._owned) > MAX_OWNED:
            del self._owned[next(iter(self._owned))]
        return Turn(
            LateEmitter(self.session_id, self._to_write), chosen, agent or agent_in(self.session_id)
        )

    async def record_sent(
        self,
        prepared: int,
        messages: int,
        additions: Sequence[tuple[int, dict[str, Any]]],
        missing: int | Sequence[dict[str, Any]] = 0,
    ) -> None:
        """Record how a sent request differs from the prepared one: ``Context.record_sent``."""
        await (await self._opened()).record_sent(prepared, messages, additions, missing)
        self._last.recorded(prepared, additions)

    def capabilities(self) -> dict[str, Callable[..., Any]]:
        """What newer loops look for by these names; they use the last two only together."""
        found: dict[str, Callable[..., Any]] = {
            "context.request_retention": self.get_messages_for_request_retaining
        }
        if self._config.record_sent:
            found["context.final_request_record"] = self.listener.final_request
            found["context.signed_replay"] = lambda ticket: None
        return found

    # -- life ------------------------------------------------------------------------------------

    async def session_began(self, event: str, data: Mapping[str, Any]) -> None:
        """Note that the host runs the session: messages added from here on are new."""
        if data.get("session_id") in (None, self._host_session):
            self._runs = True
            self._adviser.check()

    async def session_ended(self, event: str, data: Mapping[str, Any]) -> None:
        """Record that the host ended the session, if the session was opened."""
        if self._context is not None and data.get("session_id") in (None, self._host_session):
            await self.listener.caught_up()
            ended = await self.listener.end_session(await self._following())
            # The turn was refused with the same error, so the registry need not print it, too.
            with contextlib.suppress(ImportedSession):
                await self._context.emit(ended)

    async def close(self) -> None:
        """Release the store. The mount's cleanup calls it; a second call does nothing."""
        await finish(self._close())

    async def _close(self) -> None:
        # Before the lock is taken: recording a noted event may open the session.
        await self.listener.caught_up()
        self._closed = True
        async with self._opening(self.session_id):
            context, self._context = self._context, None
            engine, self._engine = self._engine, None
            for stop in self._stop:
                stop()
            self._stop.clear()
            if engine is None:
                return
            try:
                if self._follow is not None:
                    await self._follow.turn_ended("cancelled", "the host let go of the session")
                if context is not None:
                    await context.close()
            finally:
                await ENGINES.release(self._config.store, engine, self.session_id)

    async def _opened(self) -> Context:
        """The session's context, after the host's events so far were recorded."""
        context = await self._open_once()
        await self.listener.caught_up()
        return context

    async def _to_write(self) -> Context:
        """The session's context. Raises ImportedSession for a mirror, with the way to take it."""
        context = await self._opened()
        # Another process may have taken the session over since it was read here.
        if context.mirror is not None and self._engine is not None:
            mirror = await self._engine.mirror_of(self.session_id)
            if mirror is not None:
                command = command_to_take_over(self._host_session, mirror, self._config.store)
                asked = "go on under Amplifier"
                raise ImportedSession(self.session_id, mirror, asked, command)
        return context

    async def _open_once(self) -> Context:
        if self._context is not None:
            return self._context
        async with self._opening(self.session_id):
            if self._context is None:
                if self._closed:
                    raise StoreUnavailable(
                        f"session {self.session_id!r}: expected a mounted context, found one after "
                        "its cleanup; mount it again, or open its store with eventctx.open"
                    )
                # A cancellation must not leave the session half open, or new without its link.
                await finish(self._open())
            assert self._context is not None  # noqa: S101 - opened above
            return self._context

    async def _open(self) -> None:
        config = self._config
        engine = await ENGINES.acquire(
            config.store, config.durability, self.session_id, config.sinks
        )
        try:
            last = await last_record(engine, self.session_id)
            is_new = last is None
            self._untouched = not is_new
            settings = msgspec.structs.asdict(config.settings)
            context = await engine.session(
                self.session_id,
                policy=config.policy,
                summarizer=SUMMARIZER,
                scorer=SCORER,
                **settings,
            )
            if self._file is not None:
                self._untouched = await self._file.opened(context) or self._untouched
            if last is not None:
                await self._take_back(context, last)
            if is_new and self._parent:
                await engine.link(usable_id(self._parent), self.session_id)
            elif self._parent:
                self._again = AddedAgain(await context.get_messages())
        except BaseException:
            await ENGINES.release(config.store, engine, self.session_id)
            raise
        self._engine = engine
        self._follow = context.following()
        self._stop = [
            *self._compactions.follow(engine, context),
            context.on("context:request_prepared", self._last.prepared),
        ]
        self._context = context

    async def _take_back(self, context: Context, last: Record) -> None:
        taken_back = await self._kept.take_back(context, last)
        if taken_back and self._file is not None:
            await self._file.replaced(context)

    async def _following(self) -> HostReporter:
        await self._open_once()
        assert self._follow is not None  # noqa: S101 - opened above
        return self._follow

    async def _came_again(self, context: Context, row: Any) -> bool:
        if self._again is None:
            return False
        in_turn = self._follow is not None and self._follow.in_turn
        if self._runs or in_turn or scope_of(self.session_id).turn_id is not None:
            await self._nothing_comes_again(context)
            return False
        return isinstance(row, dict) and self._again.holds(row)

    async def _nothing_comes_again(self, context: Context) -> None:
        again, self._again = self._again, None
        if again is not None and again.count:
            await context.emit(SetIgnored(messages=again.count, missing_roles=again.missing_roles))

    def _owns(self, turn_id: object) -> bool:
        return isinstance(turn_id, str) and turn_id in self._owned

    async def _set_prompt(self, context: Context, factory: Factory) -> None:
        try:
            text = await factory()
        except Exception as error:
            # The previous prompt is better than no turn; the warning asks for a repair of the host.
            _log.warning("the system prompt's factory raised %r; the last prompt stays", error)
            return
        if isinstance(text, str):
            await context.set_system_prompt(text_of(text) or None, replaces_stored=True)
        else:
            _log.warning("the system prompt's factory gave %r; expected a text", type(text))

    async def _compare(self, data: Mapping[str, Any]) -> None:
        """Record how the provider's request differs from the prepared one."""
        await self._record_difference(self._last.compared(data))

    async def _note_untold(self) -> None:
        """Record that the host sent the last request, and told nothing of it."""
        await self._record_difference(self._last.untold())

    async def _record_difference(self, found: Sent | None) -> None:
        if found is None:
            return
        context = await self._open_once()  # it is called while events are recorded
        await context.record_sent(*found)
        if not isinstance(found.additions, int):
            self._last.recorded(found.prepared, found.additions)


def usable_id(session: str) -> str:
    """The host's session id; an id that cannot name a session is percent-encoded."""
    try:
        return check_session_id(session)
    except InvalidSessionId:
        return check_session_id(quote(str(session), safe=" :@")[:256])
