"""The answer of an API: the message in it, and what the API says about it.

``id``, ``usage``, ``stop_reason`` and the like are the API's words about a message. They are no
part of it: an API refuses them in a message that is sent back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.errors import InvalidMessage
from eventctx.log.events import InputTransformation
from eventctx.log.turn_recorder import read_transformed
from eventctx.log.usage import Usage, read_provider_usage
from eventctx.session.answers.sent_form import is_sdk_object, sent_form

_ABOUT: Final = frozenset(("usage", "stop_reason", "stop_sequence"))
"""Fields that a message of Anthropic's API has, and an item of OpenAI's responses has not."""


class ApiReport(NamedTuple):
    """What an API says of an answer; None where it does not say it."""

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
    choices = _field(answer, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    reasons = (
        _field(answer, "stop_reason"),
        _field(choice, "finish_reason"),
        _field(_field(answer, "incomplete_details"), "reason"),
        _field(answer, "status"),
    )
    return ApiReport(
        read_provider_usage(sent_form(_field(answer, "usage"))),
        _text(_field(answer, "model")),
        _text(_field(answer, "id")),
        next((reason for reason in map(_text, reasons) if reason is not None), None),
        read_transformed(sent_form(_field(answer, "input_transformations"))),
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
