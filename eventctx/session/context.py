"""The context manager, which an agent calls. It decides, appends, and only then returns.

``Context`` implements the ContextManager protocol of the Amplifier context contract 2.1.0
(``add_message``, ``get_messages_for_request``, ``get_messages``, ``set_messages``, ``clear``) and
the older guide's ``get_token_count`` and ``compact``. Each method hands its command to a handler
in a file of its own: ``transcript``, ``requests``, ``restore``, ``host_additions``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, Literal

from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.log import events
from eventctx.log.arguments import check_callable, check_optional_text, check_text, shown
from eventctx.log.events import Event, EventPattern
from eventctx.log.ids import CurrentSpan, chosen_turn_id
from eventctx.log.record import Record
from eventctx.log.store import MessageReceipt, Receipt
from eventctx.log.turn_recorder import fit_for_log
from eventctx.messages import calibration
from eventctx.messages.encoding import encode_message
from eventctx.messages.parts import brings_compaction
from eventctx.policies.advisers import Advisers, Intercept
from eventctx.policies.constraints import AtLeastOne, Count, Position, Tokens, check_value
from eventctx.policies.named import PolicyName, as_policy, policy_named
from eventctx.policies.policy import Policy, PolicyFunction, is_policy
from eventctx.session.activity import Emitter, SessionEmitter
from eventctx.session.host_requests import HostAdditions, ObservedRequest, RequestObserver
from eventctx.session.open_session import OpenSession
from eventctx.session.scope import Scope
from eventctx.session.settings import Settings, model_of, resolve_budget, said_by_request
from eventctx.session.transcript import Transcript, TranscriptMark
from eventctx.session.turns import ProviderCall, Turn
from eventctx.text import summary_line

if TYPE_CHECKING:
    from eventctx.messages.thinking import ThinkingSetting
    from eventctx.search.recall import Recall
    from eventctx.search.tool import RecallTool
    from eventctx.session.host_requests import ObservedRequest
    from eventctx.session.host_state import Extension
    from eventctx.session.host_turns import HostReporter
    from eventctx.session.requests import PreparedRequest, RequestHandler, RequestOptions
    from eventctx.session.result import CompactionResult
    from eventctx.session.sdk_objects import SdkObject

Observe = Callable[[EventPattern, Callable[[Record], Any]], Callable[[], None]]
"""Registers an observer of records, as ``Engine.on`` with a handler."""


class Context:
    """One session's context manager. ``Engine.session`` makes it.

    It stays valid for as long as its engine is open. The state in memory may be evicted while it is
    not used, and the next call loads it again (``session/open_session.py``).

    A session that mirrors an imported file raises ImportedSession in every call that would write,
    before anything is written: fork it, or take it over.

    Safe to call from several tasks, threads and event loops. Messages go in as dicts of any
    dialect and come out equal. A caller may change the returned messages: that reaches neither the
    log nor a later request.
    """

    def __init__(
        self,
        session: OpenSession,
        policy: Policy,
        settings: Settings,
        current_span: CurrentSpan | None = None,
        advisers: Advisers | None = None,
        intercept: Intercept | None = None,
        recaller: Callable[[], Recall] | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._session = session
        self.policy = policy
        self.settings = settings
        self._emitter = SessionEmitter(session, current_span)
        self._advisers = advisers or Advisers()
        self._intercept = intercept
        self._transcript = Transcript(session, settings.observations)
        self._additions = HostAdditions(session)
        self._recaller = recaller
        self._observe = observe

    def __repr__(self) -> str:
        """The session, its last position, the policy and its limit; not what was said."""
        limit = self.settings.max_tokens
        return summary_line(
            f"Context {self.session_id}:",
            f"{self._session.appends.head + 1:,} records",
            f"policy {self.policy.name}",
            None if limit is None else f"{limit:,} tokens",
        )

    @cached_property
    def _requests(self) -> RequestHandler:
        """Made by the first request, which loads what prepares and compacts."""
        from eventctx.session.questions import PolicyQuestions
        from eventctx.session.requests import RequestHandler

        questions = PolicyQuestions(self._session, self._emitter, self._advisers)
        return RequestHandler(self._session, self.policy, self.settings, questions, self._intercept)

    @cached_property
    def _observed(self) -> RequestObserver:
        return RequestObserver(self._session)

    @property
    def session_id(self) -> str:
        """The session's id, which is the stream's name."""
        return self._session.stream

    # -- the protocol ----------------------------------------------------------------------------

    async def add_message(
        self, message: Mapping[str, Any] | SdkObject, *, observation: bool | None = None
    ) -> MessageReceipt:
        """Append a message; return its receipt, which knows its number, when it is on disk.

        It is a dict in the form of your API, or an object of its SDK (``anthropic``, ``openai``,
        whatever has ``model_dump`` or ``to_dict``), which may also be in a dict:
        ``{"role": "assistant", "content": response.content}``. Of a whole answer the message is
        added, and its usage recorded, unless that was reported already.

        ``observation`` says whether a message in role user is the result of an action that the
        model wrote into its text; None leaves that to the setting ``observations``.

        Raises InvalidMessage (nothing is stored) and what the store raises.
        """
        try:
            record, number = await self._transcript.add(message, observation)
        except InvalidMessage as refused:
            record, number = await self._add_incoming(message, observation, refused)
        return MessageReceipt(record.stream, record.position, record.digest, number)

    async def _add_incoming(
        self, message: object, observation: bool | None, refused: InvalidMessage
    ) -> tuple[Record, int]:
        """Add a message that was ``refused`` as it is, if an SDK's objects in it are the reason."""
        from eventctx.session.sdk_objects import incoming

        found = incoming(message)
        if found.message is message:
            raise refused
        added = await self._transcript.add(found.message, observation)
        if found.report is not None:
            await self._emitter.take_usage(found.report, self._session.drafts.scope)
        return added

    async def add_messages(
        self, messages: Sequence[Mapping[str, Any] | SdkObject]
    ) -> list[MessageReceipt]:
        """Append messages in one step, all or none; return their receipts when they are on disk.

        For the results of tools that ran in parallel, or a history: one write instead of one for
        each. They may be or hold objects of an SDK, as in ``add_message``; no usage is taken from
        them. Raises InvalidMessage (nothing is stored) and what the store raises.
        """
        _check_messages(messages)
        try:
            added = await self._transcript.add_all(messages)
        except InvalidMessage as refused:
            from eventctx.session.sdk_objects import plain

            added = await self._transcript.add_all(plain(messages, refused))
        return [MessageReceipt(one.stream, one.position, one.digest, at) for one, at in added]

    async def get_messages_for_request(
        self,
        token_budget: int | None = None,
        provider: Any | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        model: str | None = None,
        thinking: Mapping[str, Any] | ThinkingSetting | None = None,
        call: ProviderCall | HostReporter | None = None,
        adding: Sequence[Mapping[str, Any] | SdkObject] = (),
    ) -> list[Any]:
        """The messages to send now, within the budget, recorded before they are returned.

        The budget is ``token_budget``, else what the provider's window leaves, else the session's
        ``max_tokens``, which caps both. ``tools`` are the definitions that will be sent along; they
        count. ``model`` is the name of the model that will be called, where that is known: it
        decides which thinking it is sent. Without it, the last model that reported usage does, or
        else the one that ``provider`` names. So does ``thinking``: the parameter of the request,
        such as ``{"type": "enabled", "budget_tokens": 4096}``, or a value of the setting. Compacts
        when the threshold is reached. Raises ContextOverflow when what must stay exceeds the
        budget, unless the session sends the floor, and InvalidSetting.

        ``call`` is the model call that will send them, to be entered afterwards: its beginning is
        recorded together with the request, which saves a write to the disk. So are the messages of
        ``adding``, added before the request as ``add_messages`` does, but for one that compacts or
        overflows: they are on disk before it then.

        The rows are plain dicts and lists, decoded for this caller. Their type is ``Any``, so that
        each SDK takes them for its own.
        """
        from eventctx.session.requests import RequestOptions

        _check_messages(adding)
        if model is not None:
            check_text("model", model)
        _check_tools(tools)
        await self._session.appends.writable("prepare a request")
        limit = await resolve_budget(
            token_budget, provider, self.settings.max_tokens, self.settings.max_tokens_fallback
        )
        encoded = encode_message({"tools": list(tools)}) if tools else None
        mode, generation = said_by_request(thinking)
        reserve = self.settings.reserve_tokens
        by_default = await model_of(provider) if provider is not None and model is None else None
        options = RequestOptions(limit, reserve, model, encoded, mode, generation, by_default)
        try:
            prepared = await self._prepare(options, call, adding)
            if prepared.compacted is not None:
                await self._export(prepared.compacted)
            return await self._requests.rows(prepared)
        except BaseException as error:
            if isinstance(call, ProviderCall):
                await call.not_entered(error)
            raise

    async def _prepare(
        self,
        options: RequestOptions,
        call: ProviderCall | HostReporter | None,
        messages: Sequence[Any],
    ) -> PreparedRequest:
        sends = None if call is None else call.sends
        if any(map(brings_compaction, messages)):
            # What the provider summarised leaves the view before the request is decided.
            await self.add_messages(messages)
            messages = ()
        if not messages:
            return await self._requests.prepare(options, sends)
        scope = None if call is None else call.came_in
        adding = partial(self._transcript.additions, scope=scope)
        try:
            return await self._requests.prepare(options, sends, partial(adding, messages=messages))
        except InvalidMessage as refused:
            from eventctx.session.sdk_objects import plain

            rows = plain(messages, refused)
            return await self._requests.prepare(options, sends, partial(adding, messages=rows))

    async def get_messages(self) -> list[dict[str, Any]]:
        """The whole transcript, never compacted."""
        return await self._transcript.messages()

    async def get_timed_messages(self) -> list[tuple[dict[str, Any], int]]:
        """The whole transcript, each message with the time of its record in UTC nanoseconds."""
        return await self._transcript.timed_messages()

    async def transcript_mark(self) -> TranscriptMark:
        """A mark of the present transcript, with all that other processes have written.

        For a caller who holds a copy of the messages: a later mark tells whether the copy is out of
        date, without reading the messages again.
        """
        return await self._transcript.mark()

    async def get_messages_after(self, mark: TranscriptMark) -> list[dict[str, Any]] | None:
        """The messages that were added since a mark; None where something else may have changed."""
        return await self._transcript.messages_after(mark)

    async def set_messages(self, messages: Sequence[Mapping[str, Any] | SdkObject]) -> None:
        """Replace the transcript. Messages that an ordered diff recognises keep their numbers.

        They may be or hold objects of an SDK, as in ``add_message``; no usage is taken from them.
        Raises InvalidMessage (nothing changes), and WrongExpectedVersion when another process
        wrote records that this one has not seen.
        """
        _check_messages(messages)
        try:
            await self._transcript.replace(messages)
        except InvalidMessage as refused:
            from eventctx.session.sdk_objects import plain

            await self._transcript.replace(plain(messages, refused))

    @property
    def mirror(self) -> str | None:
        """The name of the file that the session mirrors, as it was last read; None for ours."""
        return self._session.aggregate.mirror

    async def resume_messages(
        self, messages: Sequence[Mapping[str, Any] | SdkObject], *, may_be_behind: bool = False
    ) -> bool:
        """Take over the transcript that a host kept of this session, where it differs from ours.

        A copy that lacks only system or developer messages, or keys that storage drops, is recorded
        as ``context:set_ignored`` and changes nothing. Any other takes effect as ``set_messages``
        does, but system and developer messages that it left out stay
        (``eventctx.session.reconcile``). With ``may_be_behind``, a copy that only ends before ours
        does is ignored, too: a host that was killed has saved less than the log. Without it, such a
        list is an undo. Returns whether anything changed. Raises as ``set_messages``.
        """
        _check_messages(messages)
        check_value("may_be_behind", may_be_behind, bool)
        try:
            return await self._transcript.resume(messages, may_be_behind)
        except InvalidMessage as refused:
            from eventctx.session.sdk_objects import plain

            return await self._transcript.resume(plain(messages, refused), may_be_behind)

    async def extend(self, decide: Callable[[int], Awaitable[Extension]]) -> tuple[Record, ...]:
        """Append messages, and parts of a host's state, in one step; return when they are on disk.

        For a host that keeps its whole state here, as LangGraph does. Each part is an
        ``import:raw``, so that the state and the messages that it has are in one append, or none
        is. ``decide`` is given the position of the last record in the store, and says what to
        append; when somebody else appends in between, it is called again. Raises InvalidMessage and
        what the store raises.
        """
        from eventctx.session.host_state import HostState

        return await HostState(self._session, self._transcript).extend(decide)

    async def clear(self) -> None:
        """Empty the transcript; history stays in the log.

        Raises WrongExpectedVersion when another process wrote records that this one has not seen.
        """
        await self._transcript.clear()

    async def set_system_prompt(self, text: str | None, *, replaces_stored: bool = False) -> bool:
        """Put ``text`` before every view from here on; None: nothing. Returns whether it changed.

        For hosts that make their system prompt anew for every request: it is no message of the
        transcript, and is recorded when it differs from the one before. With ``replaces_stored``
        the views leave out the transcript's messages of role ``system`` that are there by now,
        but for pinned ones and those that a hook added (``metadata.source`` is ``hook``); they are
        back when the prompt is set without it. Raises InvalidMessage and InvalidSetting.
        """
        if text is not None and not isinstance(text, str):
            raise InvalidSetting(f"system prompt: expected a text or None, found {shown(text)}")
        check_value("replaces_stored", replaces_stored, bool)
        return await self._additions.set_system_prompt(text, replaces_stored)

    async def set_memory(self, texts: Sequence[str]) -> bool:
        """Put each text before every view, as a system row of its own after the system prompt.

        For files that a host puts into every request, such as an ``AGENTS.md``: they are no
        messages of the transcript, stay through compactions and ``clear``, and are recorded when
        one differs from before. Returns whether one did. Raises InvalidMessage and InvalidSetting.
        """
        sound = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        if not sound:
            raise InvalidSetting(f"memory: expected a list of texts, found {shown(texts)}")
        return await self._additions.set_memory(texts)

    async def memory(self) -> tuple[str, ...]:
        """The texts that ``set_memory`` put before the view, without erased ones."""
        return await self._additions.memory()

    # -- the older guide's, and pins -------------------------------------------------------------

    async def get_token_count(self) -> int:
        """Estimated tokens of the present view, and of all that is sent with its messages."""
        view, _ = await self._session.appends.synchronise()
        scale = calibration.scale(view.calibration, self.settings.reserve_tokens)
        return scale.tokens(view.layout.tokens)

    async def compact(
        self,
        *,
        reason: str | None = None,
        keep: str | None = None,
        policy: PolicyName | Policy | PolicyFunction | None = None,
        budget: int | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> CompactionResult:
        """Compact now, whatever the threshold. Where nothing can go, the result is 0 and skipped.

        ``reason`` is recorded. ``keep`` describes what matters, in words for a summarizer or
        scorer. ``policy`` decides instead of the session's this once. ``budget`` is in tokens;
        without it the last request's holds, or the session's ``max_tokens`` where there was none.
        A ``dry_run`` records nothing and calls no model. Raises ContextOverflow for a ``budget``
        below what must stay (its ``floor`` is the smallest that works; nothing is recorded), and
        CompactionRefused for one that would lose a summary or notice, or all that came before the
        last message; with ``force`` neither is raised, and as much goes as has to. Also raises
        InvalidSetting, and WrongExpectedVersion when another process wrote in between.
        """
        from eventctx.session.compaction_run import CompactionCause

        if reason is not None and not isinstance(reason, str):
            raise InvalidSetting(f"compact: expected reason to be a text, found {shown(reason)}")
        check_optional_text("keep", keep)
        check_value("budget", budget, Tokens | None)
        check_value("dry_run", dry_run, bool)
        check_value("force", force, bool)
        if not dry_run:
            await self._session.appends.writable("compact it")
        recorded = None if reason is None else fit_for_log(reason)
        cause = CompactionCause("manual", "caller", recorded, keep)
        chosen: object = self.policy
        if policy is not None:
            chosen = policy_named(policy) if isinstance(policy, str) else as_policy(policy)
        if not is_policy(chosen):
            raise InvalidSetting(f"compact: expected a policy or its name, found {shown(policy)}")
        result = await self._requests.compact(
            chosen, cause, limit=budget, dry_run=dry_run, force=force
        )
        if result.outcome == "applied" and result.position is not None:
            await self._export(result.position)
        return result

    async def pin(self, *numbers: int) -> None:
        """Keep these messages in every view; one that a compaction left out comes back.

        Raises InvalidSetting for a number that is not in the transcript, and WrongExpectedVersion
        when another process wrote in between.
        """
        from eventctx.session.restore import show

        if numbers:
            await self._session.appends.writable("pin messages")
            await show(self._session, numbers, "pin", [events.Pinned(numbers=numbers)])

    async def restore(self, *numbers: int) -> tuple[int, ...]:
        """Bring messages back into view, whole and with their tool rounds, until a compaction.

        Returns the numbers that came back, without those that were in view already. Use ``pin`` for
        messages that must stay. Raises as ``pin``.
        """
        from eventctx.session.restore import show

        if not numbers:
            return ()
        await self._session.appends.writable("restore messages")
        return await show(self._session, numbers, "restore")

    async def unpin(self, *numbers: int) -> None:
        """Let these messages be compacted again. InvalidSetting for one that is not pinned."""
        from eventctx.session.restore import unpin

        if numbers:
            await self._session.appends.writable("unpin messages")
            await unpin(self._session, numbers)

    async def withdraw_instruction(
        self,
        number: int,
        demand: int = 1,
        *,
        by: int | None = None,
        said_by: Literal["person", "model"] = "person",
    ) -> Receipt:
        """Record that a person's demand no longer holds: number ``demand`` (from 1) of a message.

        ``by`` is the later message that takes it back, where there is one; ``said_by`` says who
        found that. A compaction need not keep it from then on, and it no longer counts as absent.
        ``Engine.instructions`` lists all demands. Raises NoSuchDemand, AlreadyTakenBack,
        and InvalidSetting for a number that is not in the transcript.
        """
        from eventctx.session.restore import withdraw

        check_value("message number", number, Position)
        check_value("demand", demand, AtLeastOne)
        check_value("by", by, Position | None)
        check_value("said_by", said_by, Literal["person", "model"])
        await self._session.appends.writable("take back an instruction")
        event = events.InstructionWithdrawn(number=number, demand=demand, by=by, said_by=said_by)
        record = await withdraw(self._session, event)
        return Receipt(record.stream, record.position, record.digest)

    def recall_tool(self, *, max_characters: int = 8_000, limit: int = 5) -> RecallTool:
        """Make a tool with which an agent searches the transcript and reads a message again.

        It has ``anthropic`` and ``openai`` definitions, and is called with the model's arguments;
        an answer holds at most ``max_characters``, a search ``limit`` messages. Raises
        InvalidSetting for a context that was made without an engine.
        """
        from eventctx.search.tool import RecallTool

        if self._recaller is None:
            raise InvalidSetting("recall_tool: expected a session of an engine, found none")
        self._session.memory.recallable = True
        return RecallTool(
            self.session_id, self._recaller(), max_characters=max_characters, limit=limit
        )

    # -- turns -----------------------------------------------------------------------------------

    @property
    def emitter(self) -> Emitter:
        """How activity events reach the log, for turns that are made elsewhere."""
        return self._emitter

    def turn(self, turn_id: str | None = None, *, agent: str | None = None) -> Turn:
        """A turn: ``async with ctx.turn() as turn``. Without an id it gets a random one.

        Raises InvalidSetting.
        """
        check_optional_text("agent", agent)
        return Turn(self._emitter, chosen_turn_id(turn_id, self._session.random), agent)

    async def record_sent(
        self,
        prepared: int,
        messages: int,
        additions: int | Sequence[tuple[int, dict[str, Any]]],
        missing: int | Sequence[dict[str, Any]] = 0,
    ) -> None:
        """Record how the request that a host sent differs from the one prepared at a position.

        ``additions`` are messages that the host added, each with the number of prepared ones before
        it. An addition that was recorded before is referred to, not stored again. A host that tells
        no text: the number that it added at least (0: perhaps none). ``missing`` are
        the prepared messages that were not sent, or only their number; with the number alone, the
        usage of the request teaches the estimates nothing. Raises InvalidMessage and
        InvalidSetting.
        """
        check_value("prepared", prepared, Position)
        check_value("messages", messages, Count)
        rows = isinstance(missing, list | tuple) and all(isinstance(one, dict) for one in missing)
        if not rows:
            check_value("missing", missing, Count)
        if isinstance(additions, list | tuple):
            _check_additions(additions)
        else:
            check_value("additions", additions, Count)
        await self._additions.record_sent(prepared, messages, additions, missing)

    async def observe_request(
        self, sent: ObservedRequest, *, call: ProviderCall | HostReporter | None = None
    ) -> int:
        """Record a request that the program made itself, as it is sent; return its position.

        It is *observed*: ``Engine.request_view`` rebuilds it, and verifies it by its digest.
        Nothing is compacted. ``call`` is as for ``get_messages_for_request``. Raises
        InvalidMessage and what the store raises.
        """
        await self._session.appends.writable("record a request")
        return await self._observed.record(sent, None if call is None else call.sends)

    async def emit(self, event: Event) -> None:
        """Append an activity event of the catalogue in its place, without waiting for the disk.

        Raises InvalidSetting for an event that a command of the context writes, and for a value
        that the event's payload does not allow.
        """
        await self._emitter.emit(event, self._session.drafts.scope)

    def following(self) -> HostReporter:
        """Record the turns of a host that reports them instead of entering blocks.

        Records made outside of blocks then belong to the turn that the host is in.
        """
        from eventctx.session.host_turns import HostReporter

        def hold(scope: Scope | None) -> None:
            self._session.drafts.held = scope

        return HostReporter(self._emitter, hold, self._session.random)

    def on(self, name: EventPattern, handler: Callable[[Record], Any]) -> Callable[[], None]:
        """Observe this session alone, as ``Engine.on``; returns a function that stops it.

        Raises UnknownEventName, and InvalidSetting for a context that was made without an engine.
        """
        if self._observe is None:
            raise InvalidSetting("on: expected a session of an engine, found none")
        check_callable("handler", handler)
        session = self.session_id

        @wraps(handler, updated=())
        def of_session(record: Record) -> Any:
            return handler(record) if record.stream == session else None

        return self._observe(name, of_session)

    async def close(self) -> None:
        """Wait for appends and compactions under way. The engine does this when it closes."""
        await self._session.close()

    async def _export(self, position: int) -> None:
        if self.settings.export_on_compact:
            from eventctx.stores.transcript_export import write_transcript

            folder = self.settings.storage_path
            await write_transcript(folder, self.session_id, position, await self.get_messages())


def _check_messages(messages: object) -> None:
    """Raise InvalidSetting for a transcript that is no list; its rows are checked one by one."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidSetting(f"messages: expected a list of messages, found {shown(messages)}")


def _check_tools(tools: object) -> None:
    """Raise InvalidSetting for tools that are no list of definitions."""
    sound = isinstance(tools, list | tuple) and all(isinstance(one, dict) for one in tools)
    if tools is not None and not sound:
        raise InvalidSetting(f"tools: expected a list of dicts, found {shown(tools)}")


def _check_additions(additions: object) -> None:
    """Raise InvalidSetting for additions that are no pairs of a place and a message."""
    sound = isinstance(additions, list | tuple) and all(
        isinstance(one, list | tuple) and len(one) == 2 for one in additions
    )
    if not sound:
        raise InvalidSetting(
            f"additions: expected pairs of a number and a message, found {shown(additions)}"
        )
    for after, _ in additions:  # type: ignore[attr-defined]
        check_value("additions", after, Count)
