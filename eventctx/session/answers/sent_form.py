"""The sent form of SDK objects: plain dicts and lists, as their SDK would send them back.

An object is one that has ``model_dump`` (pydantic, and so the SDKs of Anthropic and OpenAI) or
``to_dict``. No SDK is imported. The ``anthropic`` and ``openai`` clients dump a model that stands
in a request's messages as it is dumped here: with the fields that the API named, under the API's
names, without those in ``__api_exclude__``. Fields that are null are left out besides, since both
APIs refuse some of their own nulls in what is sent back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from eventctx.errors import InvalidMessage
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
"""An object that stands for a dict."""


def is_sdk_object(value: object) -> bool:
    """Whether a value is an object that stands for a dict; a class is none, nor is a plain dict."""
    return isinstance(value, Dumped | ToDict) and not isinstance(value, type)


def sent_form(value: Any, path: str = "$", depth: int = 0) -> Any:
    """``value`` with every SDK object in it, at any depth, in the form in which it is sent.

    Plain dicts and lists without any are returned as they are, and so is what is nested deeper
    than a message may be. Raises InvalidMessage with the path of an object that cannot be dumped.
    """
    return _converted(value, path, depth) if _has_objects(value, depth) else value


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


def _converted(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is dict or kind is list:
        made = value.copy()
        changed = False
        # A loop, for a comprehension would take twice the stack.
        for key, item in value.items() if kind is dict else enumerate(value):
            below = f"{path}.{key}" if kind is dict else f"{path}[{key}]"
            made[key] = _converted(item, below, depth + 1)
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
