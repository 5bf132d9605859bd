"""Objects of SDKs, read as plain dicts: the message in an answer, and the API's report about it.

An object is one that has ``model_dump`` (pydantic, and so the SDKs of Anthropic and OpenAI) or
``to_dict``; no SDK is imported. Its *sent form* is what its SDK would send back. The ``anthropic``
and ``openai`` clients dump a model in a request's messages as it is dumped here: with the fields
that the API named, under the API's names, without those in ``__api_exclude__``. Fields that are
null are left out as well, since both APIs refuse some of their own nulls in what is sent back.

``id``, ``usage``, ``stop_reason`` and the like are the API's words about a message, and no part of
it: an API refuses them in a message that is sent back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from eventctx.errors import InvalidMessage
from eventctx.log.events import InputTransformation
from eventctx.log.turn_recorder import read_transformed
from eventctx.log.usage import Usage, form_of_provider, read_usage
from eventctx.messages.encoding import MAX_DEPTH


@runtime_checkable
class Dumped(Protocol):
    """An object of an SDK that is built on pydantic."""

    def model_dump(self) -> dict[str, Any]:
        """Return its fields."""
        ...


@runtime_checkable
class ToDict(Protocol):
    """An object of another SDK, or of a program's own."""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        ...


SdkObject = Dumped | ToDict
"""An object that is sent as a dict."""


def is_sdk_object(value: object) -> bool:
    """Whether a value is an object that is sent as a dict; a class is none, nor is a plain dict."""
    return isinstance(value, Dumped | ToDict) and not isinstance(value, type)


def sent_form(value: Any, path: str = "$", depth: int = 0) -> Any:
    """``value`` with every SDK object in it, at any depth, in the form in which it is sent.

    Plain dicts and lists without any are returned as they are, and so is what is nested deeper
    than a message may be. Raises InvalidMessage with the path of an object that cannot be dumped.
    """
    return _convert(value, path, depth) if _has_objects(value, depth) else value


def _has_objects(value: Any, depth: int) -> bool:
    """Whether there are objects to dump, and nothing is nested too deeply on the way to them."""
    waiting, found = [(value, depth)], False
    while waiting:
        one, depth = waiting.pop()
        if type(one) is dict or type(one) is list:
            if depth >= MAX_DEPTH:
                return False
            inner = one.values() if type(one) is dict else one
            waiting += [(item, depth + 1) for item in inner if type(item) is not str]
        else:
            found = found or is_sdk_object(one)
    return found


def _convert(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is dict or kind is list:
        made = value.copy()
        changed = False
        # A loop, for a comprehension would take twice the stack.
        for key, item in value.items() if kind is dict else enumerate(value):
            below = f"{path}.{key}" if kind is dict else f"{path}[{key}]"
            made[key] = _convert(item, below, depth + 1)
            changed = changed or made[key] is not item
        return made if changed else value
    if is_sdk_object(value):
        return _of_object(value, path, depth)
    return value


def _of_object(value: Any, path: str, depth: int) -> Any:
    dump = getattr(value, "model_dump", None)
    try:
        found = value.to_dict() if dump is None else _as_sent(value, dump)
    except Exception as error:  # it is the SDK's code, or the caller's
        raise InvalidMessage(
            path, f"a {type(value).__name__} that fails with {error!r}", "an object that is dumped"
        ) from error
    if is_sdk_object(found):
        raise InvalidMessage(path, f"a {type(value).__name__} that gives none", "a dict")
    found = sent_form(found, path, depth)
    return api_form(found) if type(found) is dict else found


def _as_sent(value: Any, dump: Callable[..., Any]) -> Any:
    excluded = getattr(value, "__api_exclude__", None)
    try:
        # A model of a caller's own keeps its defaults: no API has named its fields.
        named = hasattr(value, "to_dict")
        return dump(mode="json", by_alias=True, exclude_unset=named, exclude=excluded)
    except TypeError:
        return dump()  # not pydantic's


def api_form(found: dict[str, Any]) -> dict[str, Any]:
    """A message without what an API or its SDK adds to it or its blocks, and what no API takes."""
    kept = _without_nulls(found)
    content = kept.get("content")
    if isinstance(content, list):
        kept["content"] = [_without_nulls(one) if type(one) is dict else one for one in content]
    if kept.get("role") == "assistant" and "type" not in kept:
        kept = {key: item for key, item in kept.items() if item != [] and key != "parsed"}
        if isinstance(kept.get("tool_calls"), list):
            kept["tool_calls"] = [_call(one) for one in kept["tool_calls"]]
    return kept


def _without_nulls(found: dict[str, Any]) -> dict[str, Any]:
    # OpenAI's chat API wants the content of a message with calls, though it is null.
    return {key: item for key, item in found.items() if item is not None or key == "content"}


def _call(call: Any) -> Any:
    """A call of a chat message, without its place in a stream and its parsed arguments."""
    if type(call) is not dict:
        return call
    kept = {key: item for key, item in call.items() if key != "index"}
    if type(kept.get("function")) is dict:
        function = kept["function"]
        kept["function"] = {k: v for k, v in function.items() if k != "parsed_arguments"}
    return kept


_ABOUT: Final = frozenset(("usage", "stop_reason", "stop_sequence"))
"""Fields that a message of Anthropic's API has, and an item of OpenAI's responses has not."""


class ApiReport(NamedTuple):
    """The report of an API about an answer; None where it says nothing."""

    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    transformed: tuple[InputTransformation, ...] = ()


def report_of(answer: Any) -> ApiReport:
    """Read what an API says of its answer: an object of an SDK, or the decoded body.

    Those of Anthropic's Messages API and OpenAI's chat completions and responses, and the last
    chunk of a streamed completion, are known. Never raises.
    """
    usage = sent_form(_field(answer, "usage"))
    counted = None
    if isinstance(usage, Mapping) and not usage.keys().isdisjoint(
        ("prompt_tokens", "input_tokens")
    ):
        counted = read_usage(usage, form_of_provider(usage))
    choices = _field(answer, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    reasons = (
        _field(answer, "stop_reason"),
        _field(choice, "finish_reason"),
        _field(_field(answer, "incomplete_details"), "reason"),
        _field(answer, "status"),
    )
    return ApiReport(
        counted,
        _text(_field(answer, "model")),
        _text(_field(answer, "id")),
        next((reason for reason in map(_text, reasons) if reason is not None), None),
        read_transformed(
            sent_form(_field(answer, "input_transformations")),
            sent_form(_field(answer, "context_management")),
        ),
    )


class Incoming(NamedTuple):
    """A message as a plain dict, and what an API says of it; None where it is no whole answer."""

    message: Any
    report: ApiReport | None = None


def incoming(message: Any) -> Incoming:
    """Read a message that may be, or hold, objects of an SDK. Plain dicts are left as they are.

    Raises InvalidMessage for an answer that holds no message, or more than one.
    """
    if not is_sdk_object(message):
        return Incoming(sent_form(message))
    if isinstance(_field(message, "choices"), list):
        return Incoming(sent_form(_only_choice(message.choices)), report_of(message))
    if _field(message, "object") == "response" and isinstance(_field(message, "output"), list):
        return Incoming(sent_form(_only_item(message.output)), report_of(message))
    if is_sdk_object(_field(message, "message")) and hasattr(message, "finish_reason"):
        return Incoming(sent_form(message.message))
    found = sent_form(message)
    if type(found) is not dict or found.get("type") != "message" or _ABOUT.isdisjoint(found):
        return Incoming(found)
    return Incoming({key: found.get(key) for key in ("role", "content")}, report_of(message))


def plain(messages: Sequence[Any], refused: InvalidMessage) -> list[Any]:
    """The messages as plain dicts. Raises ``refused`` where they are no less plain already."""
    made = [incoming(message).message for message in messages]
    if all(a is b for a, b in zip(made, messages, strict=True)):
        raise refused
    return made


def _only_choice(choices: list[Any]) -> Any:
    messages = [_field(one, "message") for one in choices]
    if len(messages) == 1 and messages[0] is not None:
        return messages[0]
    if any(_field(one, "delta") is not None for one in choices) or not choices:
        raise InvalidMessage("$", "a chunk of a stream", "the message that the stream ends with")
    raise InvalidMessage(
        "$", f"a completion with {len(messages)} choices", "one: add response.choices[…].message"
    )


def _only_item(output: list[Any]) -> Any:
    if len(output) == 1:
        return output[0]
    raise InvalidMessage(
        "$",
        f"a response with {len(output)} output items",
        "one message: add each item of response.output, and take the usage with "
        "`await call.usage_from(response)`",
    )


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _text(value: Any) -> str | None:
    return str.__str__(value) if isinstance(value, str) and value else None
