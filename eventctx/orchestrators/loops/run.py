"""One call of ``execute``: its participants, its totals, and how its turn begins and ends.

``Orchestrator`` is the part that the three loops share. A loop's ``_take_turn`` is its work between
the prompt and the end of the turn. Around that, ``run_turn`` keeps one promise: each start that was
reported to the host's hooks gets its end, whether the turn succeeds, fails or is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.aio import finish
from eventctx.errors import InvalidSetting, TurnError
from eventctx.log.turn_recorder import described, status_of
from eventctx.orchestrators.host.forwarding import Forwarding
from eventctx.orchestrators.host.hooks import Host, Stop, Stopped
from eventctx.orchestrators.loops.recording import ids_of, turn_of
from eventctx.orchestrators.loops.settings import OrchestratorSettings, settings_from
from eventctx.orchestrators.protocol import (
    Answer,
    ContextManager,
    Finish,
    Ids,
    Provider,
    Response,
    ToolDefinition,
    Usage,
)
from eventctx.orchestrators.tools.functions import as_tools, check_name, definition_of
from eventctx.session.turns import Turn

PREVIEW: Final = 200
"""Characters of an answer in the payload of ``prompt:complete``, as in Amplifier's loops."""


class Over(asyncio.CancelledError):
    """Ends a turn early and without an error. ``text`` replaces the turn's text, if it is given.

    It is recorded as a cancellation of what it leaves, where nothing failed; no task is cancelled.
    """

    def __init__(self, finish: Finish, text: str | None = None) -> None:
        super().__init__(finish)
        self.finish = finish
        self.text = text


class Denied(Over):
    """A hook denied a step without which the turn cannot go on."""

    def __init__(self, reason: str) -> None:
        super().__init__("denied", f"Operation denied: {reason}")
        self.args = (f"denied by a hook: {reason}",)


class TurnRun:
    """The participants of a turn, and its totals so far."""

    def __init__(
        self,
        name: str,
        settings: OrchestratorSettings,
        context: Any,
        providers: Any,
        tools: Any,
        hooks: Any,
        coordinator: Any,
    ) -> None:
        self.name = name
        self.settings = settings
        self.context = _checked_context(context)
        self.chosen: Chosen = choose(providers, settings.provider)
        self.tools = _checked_tools(tools)
        self.coordinator = coordinator
        self.stop = Stop(getattr(coordinator, "cancellation", None))
        self.host = Host(hooks, coordinator)
        self.forwarding = Forwarding(context, self.host)
        self.takes_tool_choice = getattr(self.provider, "takes_tool_choice", False) is True
        self.usage = Usage()
        self.iterations = 0
        self.text = ""
        self.executing = False

    @property
    def provider(self) -> Provider:
        """The provider that this turn asks."""
        return self.chosen.provider

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools in the form in which a provider takes them."""
        return tuple(
            [
                msgspec.structs.replace(definition_of(tool), name=name)
                for name, tool in self.tools.items()
            ]
        )

    async def add(self, *messages: dict[str, Any]) -> None:
        """Add messages. A cancellation in the meantime is raised after all of them were added."""

        async def added() -> None:
            for message in messages:
                await self.context.add_message(message)

        await finish(added())

    async def add_answer(self, answer: Answer) -> None:
        """Add all messages of an answer, with the promise of ``add``."""
        await self.add(*answer.messages)

    async def remind(self, text: str) -> None:
        """Add a message that the program writes in the role ``user``, and mark it as such."""
        await self.add(
            {"role": "user", "content": f"<system-reminder>\n{text}\n</system-reminder>"}
        )

    def spend(self, used: Usage) -> None:
        """Add the cost of an answer to the turn's usage."""
        sums = {
            name: getattr(self.usage, name) + getattr(used, name)
            for name in Usage.__struct_fields__
        }
        self.usage = Usage(**sums)

    def check_stop(self) -> None:
        """Raise Over or Stopped when the host requested a stop."""
        self.stop.check_at_once()
        if self.stop.requested:
            raise Over("stopped")


Body = Callable[[TurnRun, Turn], Awaitable[Finish]]
"""The part of a turn that differs between loops: from the added prompt to how the turn ended."""


class Orchestrator:
    """The settings of an orchestrator, and a turn around its ``_take_turn``."""

    NAME = ""
    """The name in the payload of ``orchestrator:complete``."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings_from(settings)

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: Any,
        tools: Any = None,
        hooks: Any = None,
        *,
        turn_id: str | None = None,
        coordinator: Any = None,
    ) -> Response:
        """Run a turn to its end.

        ``turn_id`` is the host's, else a random one. ``coordinator`` is Amplifier's, which
        carries out what hooks ask for and may ask to stop. Raises ProviderFailed, TurnError when
        the turn takes too long, InvalidSetting, and what the context raises.
        """
        run = TurnRun(self.NAME, self.settings, context, providers, tools, hooks, coordinator)
        self.check_tools(list(run.tools))
        return await run_turn(run, prompt, turn_id, self._take_turn)

    def check_tools(self, names: Sequence[str]) -> None:
        """Raise InvalidSetting for tools that this orchestrator would not run."""

    async def _take_turn(self, run: TurnRun, turn: Turn) -> Finish:
        """Ask, answer and act, after the prompt was added. Returns how the turn ended."""
        raise NotImplementedError


async def run_turn(run: TurnRun, prompt: str, turn_id: str | None, body: Body) -> Response:
    """Run a turn to its end and tell the hooks. An error that ends it is recorded, then raised."""
    if not isinstance(prompt, str):
        raise InvalidSetting(f"prompt: expected a text, found {prompt!r}")
    session = getattr(run.coordinator, "session_id", None)
    known = session if isinstance(session, str) else None
    turn = turn_of(run.context, turn_id, known, run.settings.agent)
    ended: Finish = "stopped"
    try:
        async with turn:
            ended = await _run_reported(run, turn, prompt, body)
    except Stopped:
        # The running steps were broken off, and recorded as cancelled; this task was not cancelled.
        pass
    return Response(run.text, turn.turn_id, ended, run.iterations, run.usage)


async def _run_reported(run: TurnRun, turn: Turn, prompt: str, body: Body) -> Finish:
    """Run the inside of a turn, and tell the hooks how it ended in every case."""
    ids = ids_of(turn.scope)
    raised: BaseException | None = None
    ended: Finish | None = None
    try:
        async with run.forwarding.listening(ids):
            ended = await _run_limited(run, turn, prompt, body)
        return ended
    except BaseException as error:
        raised = error
        raise
    finally:
        await _tell_end(run, ids, ended, raised)


async def _tell_end(
    run: TurnRun, ids: Ids, ended: Finish | None, raised: BaseException | None
) -> None:
    status = status_of(None if raised is None else type(raised))
    # Also after turn_timeout, which promises when the turn is over.
    broken_off = raised is not None
    complete: dict[str, Any] = {
        "response_preview": run.text[:PREVIEW],
        "length": len(run.text),
        "status": status,
        "error": described(raised),
        "finish": ended,
    }
    execution: dict[str, Any] = {
        "response": run.text,
        "status": "completed" if status == "ok" else status,
    }
    whole: dict[str, Any] = {
        "orchestrator": run.name,
        "turn_count": run.iterations,
        "status": _outcome(status, ended),
    }
    ends = [("prompt:complete", complete), ("orchestrator:complete", whole)]
    if run.executing:
        ends.insert(1, ("execution:end", execution))
    await _tell_each(run, ids, ends, broken_off)


async def _tell_each(
    run: TurnRun, ids: Ids, ends: Sequence[tuple[str, dict[str, Any]]], broken_off: bool
) -> None:
    """Tell the hooks of each end; a cancellation in the meantime is raised after the last."""
    (event, fields), *more = ends
    try:
        await run.host.tell_end(event, ids, fields, broken_off=broken_off)
    finally:
        if more:
            await _tell_each(run, ids, more, broken_off)


async def _run_limited(run: TurnRun, turn: Turn, prompt: str, body: Body) -> Finish:
    """Tell the hooks of the prompt, add it, and run the body, within ``turn_timeout``."""
    ids = ids_of(turn.scope)
    answers = await run.host.tell("prompt:submit", ids, {"prompt": prompt})
    if answers.denied is not None:
        run.text = f"Operation denied: {answers.denied}"
        return "denied"
    run.executing = True
    await run.host.tell("execution:start", ids, {"prompt": prompt})
    seconds = run.settings.turn_timeout
    try:
        async with asyncio.timeout(seconds) as limit:
            await run.add({"role": "user", "content": prompt})
            return await body(run, turn)
    except Over as over:
        run.text = run.text if over.text is None else over.text
        return over.finish
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TurnError(
            f"the turn took longer than {seconds:g} s and was ended: raise turn_timeout, or set "
            "tool_timeout so that one tool cannot take it all"
        ) from error


def _outcome(status: str, ended: Finish | None) -> str:
    if status != "ok":
        return status
    if ended == "answered":
        return "success"
    return "cancelled" if ended == "stopped" else "incomplete"


def _checked_context(context: Any) -> Any:
    for method in ("add_message", "get_messages_for_request"):
        if not callable(getattr(context, method, None)):
            raise InvalidSetting(
                f"context: expected a context manager with {method}(), found {context!r}"
            )
    return context


def _checked_tools(tools: Any) -> dict[str, Any]:
    """Tools by name. A tool that a host keeps under another name is called by the host's name."""
    if not isinstance(tools, Mapping):
        return dict(as_tools(tools))
    found: dict[str, Any] = {}
    for name, one in tools.items():
        if isinstance(name, str) and callable(getattr(one, "execute", None)):
            found[check_name(name, one)] = one
        else:
            found |= as_tools({name: one})
    return found


PRIORITY = 100
"""The default rank of a provider; lower ranks come first, as in Amplifier's loops."""


class Chosen(NamedTuple):
    """The provider under its host's name; ``given`` is the host's own object, for the budget."""

    name: str
    provider: Provider
    given: Any


def choose(providers: Any, wanted: str | None) -> Chosen:
    """The provider ``wanted``, else the first by its ``priority``.

    An Amplifier provider (``complete(ChatRequest)``) is wrapped. Raises InvalidSetting.
    """
    if not isinstance(providers, Mapping) or not providers:
        raise InvalidSetting(
            f"providers: expected a mapping of names to at least one provider, found {providers!r}"
        )
    if wanted is not None and wanted not in providers:
        raise InvalidSetting(
            f"provider: expected one of {sorted(map(str, providers))}, found {wanted!r}"
        )
    names = [wanted] if wanted is not None else sorted(providers, key=lambda n: _rank(providers[n]))
    given = providers[names[0]]
    for method in ("complete", *(("definitions",) if hasattr(given, "result_message") else ())):
        if isinstance(given, type) or not callable(getattr(given, method, None)):
            raise InvalidSetting(
                f"provider {names[0]!r}: expected an object with a {method}() method, "
                f"found {given!r}"
            )
    model = getattr(given, "model", None)
    if callable(getattr(given, "result_message", None)):
        if model is not None and not isinstance(model, str):
            raise InvalidSetting(f"provider {names[0]!r}: expected a model's name, found {model!r}")
        return Chosen(str(names[0]), given, given)
    from eventctx.orchestrators.providers.amplifier import AmplifierProvider

    return Chosen(str(names[0]), AmplifierProvider(given, str(names[0])), given)


def _rank(provider: Any) -> float:
    priority = getattr(provider, "priority", None)
    config = getattr(provider, "config", None)
    if priority is None and isinstance(config, Mapping):
        priority = config.get("priority")
    return priority if isinstance(priority, int | float) else PRIORITY
