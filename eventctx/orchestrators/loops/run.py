"""One call of ``execute``: who takes part, what it adds up to, and how its turn begins and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from eventctx.aio import undisturbed
from eventctx.errors import InvalidSetting, TurnError
from eventctx.log.outcomes import described, status_of
from eventctx.orchestrators.host.forwarding import Forwarding
from eventctx.orchestrators.host.hooks import Host
from eventctx.orchestrators.limits import Stop, Stopped
from eventctx.orchestrators.loops.recording import ids_of, turn_of
from eventctx.orchestrators.loops.settings import OrchestratorSettings
from eventctx.orchestrators.protocol import (
    Answer,
    Finish,
    Ids,
    Provider,
    Response,
    ToolDefinition,
    Usage,
)
from eventctx.orchestrators.providers.choice import Chosen, choose
from eventctx.orchestrators.tools.functions import as_tools, check_name, definition_of
from eventctx.session.turns import Turn

PREVIEW: Final = 200
"""Characters of an answer in the payload of ``prompt:complete``, as Amplifier's loops have it."""


class Over(Exception):
    """Ends a turn early, but well."""

    def __init__(self, finish: Finish, text: str | None = None) -> None:
        super().__init__(finish)
        self.finish = finish
        self.text = text


class TurnRun:
    """Who takes part in a turn, and what it has come to so far."""

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
        self.usage = Usage()
        self.iterations = 0
        self.text = ""

    @property
    def provider(self) -> Provider:
        """The provider that is asked."""
        return self.chosen.provider

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools as a model is told of them."""
        return tuple(
            [
                msgspec.structs.replace(definition_of(tool), name=name)
                for name, tool in self.tools.items()
            ]
        )

    async def add(self, message: dict[str, Any]) -> None:
        """Add a message. When a cancellation is raised, it was added all the same."""
        await undisturbed(self.context.add_message(message))

    async def add_answer(self, answer: Answer) -> None:
        """Add all of an answer. When a cancellation is raised, it was added all the same."""

        async def added() -> None:
            for message in answer.messages:
                await self.context.add_message(message)

        await undisturbed(added())

    async def add_prompt(self, prompt: str) -> None:
        """Add what the person said."""
        await self.add({"role": "user", "content": prompt})

    async def remind(self, text: str) -> None:
        """Add a message that the machine writes in the person's role, marked as such."""
        await self.add(
            {"role": "user", "content": f"<system-reminder>\n{text}\n</system-reminder>"}
        )

    def spent(self, used: Usage) -> None:
        """Add up what answers cost."""
        sums = {
            name: getattr(self.usage, name) + getattr(used, name)
            for name in Usage.__struct_fields__
        }
        self.usage = Usage(**sums)

    def check_stop(self) -> None:
        """Raise Over or Stopped when the host asked to stop."""
        if self.stop.at_once:
            raise Stopped("the host asked to stop")
        if self.stop.asked:
            raise Over("stopped")


Body = Callable[[TurnRun, Turn], Awaitable[Finish]]
"""What an orchestrator does in a turn after the prompt was added; returns how the turn ended."""


async def run_turn(run: TurnRun, prompt: str, turn_id: str | None, body: Body) -> Response:
    """Run a turn to its end and say so. Raises what ends it badly, after it was recorded."""
    if not isinstance(prompt, str):
        raise InvalidSetting(f"prompt: expected a text, found {prompt!r}")
    session = getattr(run.coordinator, "session_id", None)
    turn = turn_of(run.context, turn_id, session if isinstance(session, str) else None)
    finish: Finish = "stopped"
    try:
        async with turn:
            finish = await _told(run, turn, prompt, body)
    except Stopped:
        # It broke off what was running, which is recorded as cancelled; nobody cancelled us.
        pass
    return Response(run.text, turn.turn_id, finish, run.iterations, run.usage)


async def _told(run: TurnRun, turn: Turn, prompt: str, body: Body) -> Finish:
    """A turn's inside, between what the host is told of its beginning and its end."""
    ids = ids_of(turn.scope)
    raised: BaseException | None = None
    finish: Finish | None = None
    try:
        with run.forwarding.listening():
            finish = await _begun(run, turn, prompt, body)
        return finish
    except BaseException as error:
        raised = error
        raise
    finally:
        await _ended(run, ids, finish, raised)


async def _ended(
    run: TurnRun, ids: Ids, finish: Finish | None, raised: BaseException | None
) -> None:
    status = status_of(None if raised is None else type(raised))
    # Also after turn_timeout, which is a promise of when the turn is over.
    broken_off = raised is not None
    complete = {
        "response_preview": run.text[:PREVIEW],
        "length": len(run.text),
        "status": status,
        "error": described(raised),
        "finish": finish,
    }
    await run.host.tell_end("prompt:complete", ids, complete, broken_off=broken_off)
    execution = {"response": run.text, "status": "completed" if status == "ok" else status}
    await run.host.tell_end("execution:end", ids, execution, broken_off=broken_off)
    whole = {"orchestrator": run.name, "turn_count": run.iterations}
    outcome = {"status": _outcome(status, finish)}
    await run.host.tell_end("orchestrator:complete", ids, whole | outcome, broken_off=broken_off)


async def _begun(run: TurnRun, turn: Turn, prompt: str, body: Body) -> Finish:
    ids = ids_of(turn.scope)
    said = await run.host.tell("prompt:submit", ids, {"prompt": prompt})
    if said.denied is not None:
        run.text = f"Operation denied: {said.denied}"
        return "denied"
    await run.host.tell("execution:start", ids, {"prompt": prompt})
    seconds = run.settings.turn_timeout
    try:
        async with asyncio.timeout(seconds) as limit:
            await run.add_prompt(prompt)
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


def _outcome(status: str, finish: Finish | None) -> str:
    if status != "ok":
        return status
    if finish == "answered":
        return "success"
    return "cancelled" if finish == "stopped" else "incomplete"


def _checked_context(context: Any) -> Any:
    for method in ("add_message", "get_messages_for_request"):
        if not callable(getattr(context, method, None)):
            raise InvalidSetting(
                f"context: expected a context manager with {method}(), found {context!r}"
            )
    return context


def _checked_tools(tools: Any) -> dict[str, Any]:
    """Tools by name. One that a host has under a name of its own is called by that."""
    if not isinstance(tools, Mapping):
        return dict(as_tools(tools))
    found: dict[str, Any] = {}
    for name, one in tools.items():
        if isinstance(name, str) and callable(getattr(one, "execute", None)):
            found[check_name(name, one)] = one
        else:
            found |= as_tools({name: one})
    return found
