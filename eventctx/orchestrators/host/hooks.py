"""Saying each step to a host's hooks, and hearing what they answer.

A host's hooks are an object with ``async emit(event, data)``, as Amplifier's ``HookRegistry``, or
an iterable of callables ``(event, data)``. What they return is Amplifier's ``HookResult`` or
nothing. A hook that raises is logged and the turn goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.aio import undisturbed
from eventctx.errors import EventctxError, InvalidSetting
from eventctx.log.outcomes import words_of
from eventctx.orchestrators.limits import GRACE
from eventctx.orchestrators.protocol import Ids

_log = logging.getLogger("eventctx.orchestrators")


def error_payload(error: BaseException) -> dict[str, str]:
    """An error as Amplifier's loops put it into a payload."""
    return {"type": type(error).__name__, "msg": words_of(error)}


class HookAnswers(msgspec.Struct, frozen=True):
    """What the hooks of one event answered.

    ``denied`` is the reason of a denial. ``data`` is the payload as they left it, None where they
    say nothing of it. ``injected`` are messages for this request alone, to be sent behind the
    others; ``appended`` are texts for the end of the last tool result.
    """

    denied: str | None = None
    data: Mapping[str, Any] | None = None
    injected: tuple[dict[str, Any], ...] = ()
    appended: tuple[str, ...] = ()

    def sent_with(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages of a request, with what was injected into it."""
        sent = list(messages)
        for text in self.appended:
            last = sent[-1] if sent else {}
            if last.get("role") == "tool" and isinstance(last.get("content"), str):
                sent[-1] = {**last, "content": f"{last['content']}\n\n{text}"}
            else:
                sent.append({"role": "user", "content": text})
        return [*sent, *self.injected]


class Host:
    """The hooks of one call of ``execute``, and Amplifier's coordinator where there is one.

    Raises InvalidSetting for hooks of another kind.
    """

    def __init__(self, hooks: Any, coordinator: Any = None) -> None:
        self._coordinator = coordinator
        self._carried = HookAnswers()
        self._handlers: list[Callable[[str, dict[str, Any]], Any]] = []
        if hooks is None or _hears_records(hooks):
            return
        if callable(getattr(hooks, "emit", None)):
            self._handlers = [hooks.emit]
            return
        if not isinstance(hooks, Iterable):
            raise InvalidSetting(
                "hooks: expected an object with async emit(event, data), an iterable of callables "
                f"(event, data), or None, found {hooks!r}"
            )
        self._handlers = [_handler(one) for one in hooks]

    @property
    def listens(self) -> bool:
        """Whether anybody hears what is said."""
        return bool(self._handlers)

    async def tell(
        self, event: str, ids: Ids, fields: Mapping[str, Any], *, about: str = "orchestrator"
    ) -> HookAnswers:
        """Say an event with its ids; ``about`` names what it is about, for an approval."""
        said = HookAnswers()
        payload = {**fields, **ids.as_fields()}
        for handler in self._handlers:
            result = await self._asked(handler, event, payload)
            result = await self._processed(result, event, about)
            said = _joined(said, result)
            if said.denied is not None:
                break
            payload = {**payload, **(said.data or {})}
        if event != "provider:request" and (said.injected or said.appended):
            self._carried = HookAnswers(
                injected=(*self._carried.injected, *said.injected),
                appended=(*self._carried.appended, *said.appended),
            )
        return said

    def taken(self) -> HookAnswers:
        """What was injected since the last request for the next one alone."""
        carried, self._carried = self._carried, HookAnswers()
        return carried

    async def tell_end(
        self,
        event: str,
        ids: Ids,
        fields: Mapping[str, Any],
        *,
        about: str = "orchestrator",
        broken_off: bool = False,
    ) -> HookAnswers:
        """Say how something ended; a cancellation is raised when it was said, or after GRACE.

        What was ``broken_off`` waits no longer than that for its hooks, cancelled again or not.
        """
        if not self._handlers:
            return HookAnswers()
        told = self.tell(event, ids, fields, about=about)
        if broken_off or _cancelled():
            told = _hurried(event, told)
        return await undisturbed(told, GRACE)

    async def _asked(
        self, handler: Callable[[str, dict[str, Any]], Any], event: str, payload: dict[str, Any]
    ) -> Any:
        try:
            result = handler(event, dict(payload))
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            if _cancelled():
                raise
            _log.warning("a hook of %s cancelled itself; the turn goes on", event)
        except Exception:
            _log.warning("a hook of %s raised; the turn goes on", event, exc_info=True)
        return None

    async def _processed(self, result: Any, event: str, about: str) -> Any:
        """Let Amplifier's kernel inject, ask the user and show messages, as the result says."""
        process = getattr(self._coordinator, "process_hook_result", None)
        if result is None or not callable(process) or not hasattr(result, "action"):
            return result
        try:
            return await process(result, event, about)
        except EventctxError:
            raise  # the context that it injects into is ours: what it raises ends the turn
        except Exception:
            _log.warning("the result of a hook of %s was refused", event, exc_info=True)
            # What a hook wants withheld, or asked for, is not to be let through by a fault.
            return result if getattr(result, "action", None) in ("deny", "ask_user") else None


async def _hurried(event: str, telling: Coroutine[Any, Any, HookAnswers]) -> HookAnswers:
    try:
        async with asyncio.timeout(GRACE):
            return await telling
    except TimeoutError:
        _log.warning("the hooks of %s took longer than %g s; the turn goes on", event, GRACE)
        return HookAnswers()


def _hears_records(hooks: Any) -> bool:
    """Whether these are an engine's hooks, which hear of each record when it is appended."""
    return callable(getattr(hooks, "publish", None)) and callable(getattr(hooks, "drain", None))


def _handler(one: Any) -> Callable[[str, dict[str, Any]], Any]:
    emit = getattr(one, "emit", None)
    found = emit if callable(emit) else one
    if not callable(found):
        raise InvalidSetting(f"hooks: expected callables (event, data), found {one!r}")
    return found  # type: ignore[no-any-return]


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _joined(said: HookAnswers, result: Any) -> HookAnswers:
    action = getattr(result, "action", None)
    if action == "deny":
        reason = getattr(result, "reason", None)
        return msgspec.structs.replace(said, denied=str(reason or "no reason was given"))
    if action == "ask_user" and getattr(result, "approval_default", None) != "allow":
        return msgspec.structs.replace(said, denied=f"{_UNASKED}: {_question(result)}")
    # Amplifier's registry answers a chain that modified something with "continue" and its data.
    if action in ("modify", "continue") and isinstance(getattr(result, "data", None), Mapping):
        return msgspec.structs.replace(said, data=result.data)
    if action != "inject_context":
        return said
    # Amplifier's registry lists what several hooks inject, and joins it into one for older loops.
    for one in getattr(result, "context_injections", None) or [_Injection.of(result)]:
        if not one.ephemeral or not one.content:
            continue
        if one.append_to_last_tool_result:
            said = msgspec.structs.replace(said, appended=(*said.appended, one.content))
        else:
            row = {"role": one.role, "content": one.content}
            said = msgspec.structs.replace(said, injected=(*said.injected, row))
    return said


_UNASKED: Final = "the user is to be asked, and nobody here could"


def _question(result: Any) -> str:
    asked = getattr(result, "approval_prompt", None) or getattr(result, "reason", None)
    return str(asked or "no question was given")


class _Injection(msgspec.Struct, frozen=True):
    """What a single hook injects, by the names of Amplifier's ``ContextInjection``."""

    content: str
    role: str
    ephemeral: bool
    append_to_last_tool_result: bool

    @classmethod
    def of(cls, result: Any) -> _Injection:
        return cls(
            str(getattr(result, "context_injection", None) or ""),
            str(getattr(result, "context_injection_role", "user")),
            bool(getattr(result, "ephemeral", False)),
            bool(getattr(result, "append_to_last_tool_result", False)),
        )
