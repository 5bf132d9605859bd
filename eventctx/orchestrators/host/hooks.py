"""Telling a host's hooks of each step, and reading their answers.

A host's hooks are an object with ``async emit(event, data)``, as Amplifier's ``HookRegistry``, or
an iterable of callables ``(event, data)``. They return Amplifier's ``HookResult`` or nothing. The
turn goes on when a hook raises; the error is logged. Hooks may deny a step, change its payload and
inject messages. A message injected between two requests is carried to the next request only.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec

from eventctx.aio import end_within, finish
from eventctx.errors import EventctxError, InvalidSetting, TurnError
from eventctx.log.turn_recorder import failure_of, words_of
from eventctx.orchestrators.protocol import Ids

_log = logging.getLogger("eventctx.orchestrators")


def error_payload(error: BaseException) -> dict[str, str]:
    """An error in the form that Amplifier's loops put into a payload."""
    return {"type": type(error).__name__, "msg": words_of(error)}


class HookAnswers(msgspec.Struct, frozen=True):
    """The answers of the hooks to one event, joined.

    ``denied`` is the reason of a denial. ``data`` is the payload that they changed, None if they
    changed nothing. ``injected`` are messages for one request only, sent after the others;
    ``appended`` are texts for the end of the last tool result.
    """

    denied: str | None = None
    data: Mapping[str, Any] | None = None
    injected: tuple[dict[str, Any], ...] = ()
    appended: tuple[str, ...] = ()

    def added_to(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages of a request, with the appended texts and the injected messages."""
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

    ``register`` is that of Amplifier's registry, on which others emit, too; None elsewhere.
    Raises InvalidSetting for hooks of another kind.
    """

    def __init__(self, hooks: Any, coordinator: Any = None) -> None:
        self._coordinator = coordinator
        self._carried = HookAnswers()
        self._handlers: list[Callable[[str, dict[str, Any]], Any]] = []
        self.register: Callable[..., Any] | None = None
        if hooks is None or _receives_records(hooks):
            return
        if callable(getattr(hooks, "emit", None)):
            self._handlers = [hooks.emit]
            register = getattr(hooks, "register", None)
            self.register = register if callable(register) else None
            return
        if not isinstance(hooks, Iterable):
            raise InvalidSetting(
                "hooks: expected an object with async emit(event, data), an iterable of callables "
                f"(event, data), or None, found {hooks!r}"
            )
        self._handlers = [_handler(one) for one in hooks]

    @property
    def session_id(self) -> Any:
        """The host's own id of the session, which a registry adds to every payload."""
        return getattr(self._coordinator, "session_id", None)

    @property
    def listens(self) -> bool:
        """Whether there are any hooks."""
        return bool(self._handlers)

    async def tell(
        self, event: str, ids: Ids, fields: Mapping[str, Any], *, about: str = "orchestrator"
    ) -> HookAnswers:
        """Tell the hooks of an event; ``about`` names its subject where a person must approve."""
        answers = HookAnswers()
        payload = {**fields, **ids.as_fields()}
        for handler in self._handlers:
            result = await self._called(handler, event, payload)
            result = await self._processed(result, event, about)
            answers = _join(answers, result)
            if answers.denied is not None:
                break
            payload = {**payload, **(answers.data or {})}
        if event != "provider:request" and (answers.injected or answers.appended):
            self._carried = HookAnswers(
                injected=(*self._carried.injected, *answers.injected),
                appended=(*self._carried.appended, *answers.appended),
            )
        return answers

    def take_carried(self) -> HookAnswers:
        """Take the injections since the last request; they go into the next one only."""
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
        """Tell the hooks how a step ended.

        A cancellation in the meantime is raised when they have ended, or after GRACE seconds. With
        ``broken_off`` the hooks get at most GRACE seconds even without a further cancellation.
        """
        if not self._handlers:
            return HookAnswers()
        telling = self.tell(event, ids, fields, about=about)
        if broken_off or _cancelled():
            telling = _hurried(event, telling)
        return await finish(telling, GRACE)

    @asynccontextmanager
    async def telling_errors(
        self, event: str, ids: Ids, facts: Mapping[str, Any], *, about: str = "orchestrator"
    ) -> AsyncIterator[None]:
        """Tell the hooks of an error raised inside of this block, with the facts of then."""
        try:
            yield
        except BaseException as error:
            status = failure_of(type(error))
            fields = {**facts, "error": error_payload(error), "status": status}
            broken_off = status == "cancelled"
            await self.tell_end(event, ids, fields, about=about, broken_off=broken_off)
            raise

    async def _called(
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
        """Let Amplifier's kernel carry out a result: inject, ask the user, show messages."""
        process = getattr(self._coordinator, "process_hook_result", None)
        if result is None or not callable(process) or not hasattr(result, "action"):
            return result
        try:
            return await process(result, event, about)
        except EventctxError:
            raise  # from our own context, into which the kernel injects: it ends the turn
        except Exception:
            _log.warning("the result of a hook of %s was refused", event, exc_info=True)
            # A fault here must not let through what a hook denies or wants a person to approve.
            return result if getattr(result, "action", None) in ("deny", "ask_user") else None


async def _hurried(event: str, telling: Coroutine[Any, Any, HookAnswers]) -> HookAnswers:
    try:
        async with asyncio.timeout(GRACE):
            return await telling
    except TimeoutError:
        _log.warning("the hooks of %s took longer than %g s; the turn goes on", event, GRACE)
        return HookAnswers()


def _receives_records(hooks: Any) -> bool:
    """Whether these are an engine's hooks, which receive each record after its append."""
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


def _join(answers: HookAnswers, result: Any) -> HookAnswers:
    """The answers with those of one more hook."""
    action = getattr(result, "action", None)
    if action == "deny":
        reason = getattr(result, "reason", None)
        return msgspec.structs.replace(answers, denied=str(reason or "no reason was given"))
    if action == "ask_user" and getattr(result, "approval_default", None) != "allow":
        return msgspec.structs.replace(answers, denied=f"{_NOBODY_TO_ASK}: {_question(result)}")
    # Amplifier's registry answers a chain that modified something with "continue" and its data.
    if action in ("modify", "continue") and isinstance(getattr(result, "data", None), Mapping):
        return msgspec.structs.replace(answers, data=result.data)
    if action != "inject_context":
        return answers
    # Amplifier's registry lists the injections of several hooks, and joins them for older loops.
    for one in getattr(result, "context_injections", None) or [_Injection.of(result)]:
        if not one.ephemeral or not one.content:
            continue
        if one.append_to_last_tool_result:
            answers = msgspec.structs.replace(answers, appended=(*answers.appended, one.content))
        else:
            row = {"role": one.role, "content": one.content}
            answers = msgspec.structs.replace(answers, injected=(*answers.injected, row))
    return answers


_NOBODY_TO_ASK: Final = "the user is to be asked, and nobody here could"


def _question(result: Any) -> str:
    question = getattr(result, "approval_prompt", None) or getattr(result, "reason", None)
    return str(question or "no question was given")


class _Injection(msgspec.Struct, frozen=True):
    """The injection of a single hook, with the field names of Amplifier's ``ContextInjection``."""

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


T = TypeVar("T")

GRACE: Final = 5.0
"""Seconds that foreign code may take to end after it was cancelled; then it is left to itself."""


class Stopped(asyncio.CancelledError):
    """The host requested a stop at once. Recorded as a cancellation; no task is cancelled."""


class Stop:
    """A host's wish to stop, read from Amplifier's ``coordinator.cancellation``.

    Without a token no stop can be requested. The token has no callback for a change, so running
    work reads it again and again (``within``).
    """

    def __init__(self, token: Any = None) -> None:
        self._token = token

    @property
    def possible(self) -> bool:
        """Whether anybody can request a stop."""
        return self._token is not None

    @property
    def requested(self) -> bool:
        """Whether the turn must begin nothing new."""
        return bool(getattr(self._token, "is_cancelled", False))

    @property
    def at_once(self) -> bool:
        """Whether running work must end, too."""
        return bool(getattr(self._token, "is_immediate", False))

    def check_at_once(self) -> None:
        """Raise Stopped when the host requested a stop at once."""
        if self.at_once:
            raise Stopped("the host asked to stop")

    def tool_started(self, call_id: str, name: str) -> None:
        """Tell the host that a tool runs."""
        _call(self._token, "register_tool_start", call_id, name)

    def tool_ended(self, call_id: str) -> None:
        """Tell the host that the tool runs no longer."""
        _call(self._token, "register_tool_complete", call_id)


def _call(token: Any, method: str, *arguments: str) -> None:
    known = getattr(token, method, None)
    if callable(known):
        known(*arguments)


async def within(work: Coroutine[Any, Any, T], seconds: float | None, stop: Stop) -> T:
    """Run ``work`` in a task of its own, with the caller's context variables; return its result.

    Raises TimeoutError after ``seconds``, Stopped when the host asks to stop at once, TurnError
    when the work cancels itself, and what the work raises. In the first two cases, and when the
    caller is cancelled, the work is cancelled and given ``GRACE`` seconds to end.
    """
    task = asyncio.ensure_future(work)
    await end_within(task, seconds, stop.check_at_once if stop.possible else None, grace=GRACE)
    if task.cancelled():
        raise TurnError("it was cancelled from inside: expected a result or an error")
    return task.result()
