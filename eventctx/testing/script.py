"""A script: the answers to the first request, the second, and so on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import ToolRequest, Usage

Call = ToolRequest | tuple[str, Mapping[str, Any]]


class ServerCall(msgspec.Struct, frozen=True):
    """A call of a tool that the provider runs itself, with the content of its result.

    ``result`` None leaves the call open, as an answer does that ends in ``pause_turn``. The answer
    after that has the call again with its ``id``, the result, and None for ``arguments``.
    """

    name: str
    arguments: Mapping[str, Any] | None
    result: Any = None
    id: str = ""


class Reply(msgspec.Struct, frozen=True):
    """A model's answer in a script, independent of dialects.

    ``calls`` are tools with their arguments, ``("read", {"path": "x"})``, which get the ids
    ``call_1``, ``call_2`` … in the order of the session, or ``ToolRequest`` with ids of their own.
    ``server_calls`` get ``srvtoolu_1`` …; Anthropic's dialect alone has them.
    ``thinking`` is sent with its ``signature``. ``finish_reason`` is the dialect's own unless
    given. ``compaction`` is the summary of a compaction that the API makes before the answer, and
    ``edits`` are its other edits of the request (``applied_edits``); only the strict server sends
    them.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    thinking: str | None = None
    signature: str = "c2lnbmVk"
    usage: Usage | None = None
    finish_reason: str | None = None
    response_id: str | None = None
    server_calls: Sequence[ServerCall] = ()
    compaction: str | None = None
    edits: Sequence[Mapping[str, Any]] = ()


Step = str | Reply | BaseException | Callable[[Any], Any]
"""An answer's text, an answer, an error to raise, or a function of the request that returns one."""

_MOST: Final = 8
"""Functions that may return a function, one after the other, before a step counts as wrong."""


class Script:
    """Steps that are played one by one; ``remaining`` is the number that is left."""

    def __init__(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if not isinstance(step, str | Reply | BaseException) and not callable(step):
                raise InvalidSetting(
                    "script: expected texts, Reply, errors or functions of the request, "
                    f"found {step!r}"
                )
        self._steps = list(steps)
        self._played = 0
        self._calls = 0
        self._server_calls = 0

    @property
    def remaining(self) -> int:
        """Steps that were not played yet."""
        return len(self._steps) - self._played

    async def next(self, request: Any) -> Reply:
        """The next answer. Raises the step's error, or AssertionError when the script is over."""
        if not self.remaining:
            raise AssertionError(
                f"the script has {len(self._steps)} steps, and request {self._played + 1} came: "
                "let the script go on, or find out why the orchestrator asked once more"
            )
        step: Any = self._steps[self._played]
        self._played += 1
        for _ in range(_MOST):
            if isinstance(step, type) and issubclass(step, BaseException):
                raise step()
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, str):
                return Reply(step)
            if isinstance(step, Reply):
                return self._with_ids(step)
            if not callable(step):
                break
            step = step(request)
            if inspect.isawaitable(step):
                step = await step
        raise AssertionError(f"expected a text, a Reply or an error in a script, found {step!r}")

    def _with_ids(self, reply: Reply) -> Reply:
        calls = [self._request_of(call) for call in reply.calls]
        served = [self._numbered(call) for call in reply.server_calls]
        return msgspec.structs.replace(reply, calls=tuple(calls), server_calls=tuple(served))

    def _request_of(self, call: Call) -> ToolRequest:
        self._calls += 1
        if isinstance(call, ToolRequest):
            return call
        name, arguments = call
        return ToolRequest(f"call_{self._calls}", name, dict(arguments))

    def _numbered(self, call: ServerCall) -> ServerCall:
        self._server_calls += 1
        return (
            call if call.id else msgspec.structs.replace(call, id=f"srvtoolu_{self._server_calls}")
        )


def requests_of(reply: Reply) -> tuple[ToolRequest, ...]:
    """The calls of a reply that ``Script.next`` returned."""
    return tuple(call for call in reply.calls if isinstance(call, ToolRequest))
