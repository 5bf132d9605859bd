"""Examples of every item of the Responses API in the installed ``openai``, by reflection.

A later release's items are found without a change here: an example is made from a type's own
annotations, with all its keys or with the required ones.
"""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import pytest

pytest.importorskip("openai")

from typing import NotRequired, Required

from openai.types import responses
from pydantic import BaseModel, TypeAdapter
from typing_extensions import get_type_hints, is_typeddict

Item = dict[str, Any]
TEXT = "word " * 60
DEPTH = 4


def members(annotation: Any) -> Iterator[Any]:
    """The classes of a union, however it is nested or annotated."""
    if hasattr(annotation, "__metadata__"):
        yield from members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from members(one)
    else:
        yield annotation


def example(annotation: Any, name: str, *, whole: bool, depth: int = 0) -> Any:
    """A value of a type; texts say a bit, ids their name."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__") or origin in (Required, NotRequired):
        return example(arguments[0], name, whole=whole, depth=depth)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        given = [one for one in arguments if one is not type(None)]
        return example(given[0], name, whole=whole, depth=depth)
    if is_typeddict(annotation) or (
        isinstance(annotation, type) and issubclass(annotation, BaseModel)
    ):
        return fields(annotation, whole=whole, depth=depth)
    if origin in (dict, collections.abc.Mapping):
        return {"key": example(arguments[1], "value", whole=whole, depth=depth + 1)}
    if arguments:  # a list, an iterable, a sequence
        return [example(arguments[0], name, whole=whole, depth=depth + 1)]
    plain: dict[Any, Any] = {str: text(name), int: 1, float: 0.5, bool: True}
    return plain.get(annotation, {"any": "object"})


def text(name: str) -> str:
    short = name in ("id", "name", "namespace", "path") or name.endswith("_id")
    return f"{name}-1" if short else TEXT


def fields(owner: Any, *, whole: bool, depth: int = 0) -> Item:
    """The keys of a typed dict or model: all of them or the required ones."""
    made: Item = {}
    if not is_typeddict(owner):
        for key, field in owner.model_fields.items():
            if field.is_required() or (whole and depth < DEPTH):
                value = example(field.annotation, key, whole=whole, depth=depth + 1)
                made[field.alias or key] = value
        return made
    for key, hint in get_type_hints(owner, include_extras=True).items():
        required: Any = get_origin(hint)
        if required is Required or (whole and depth < DEPTH):
            made[key] = example(hint, key, whole=whole, depth=depth + 1)
    return made


@cache
def item_classes() -> dict[str, Any]:
    """The class of every type of item, by the type's name: what can be sent, then what comes."""
    found: dict[str, Any] = {}
    unions = (responses.ResponseInputItemParam, responses.ResponseOutputItem)
    for union in (*unions, responses.ResponseItem):
        for owner in members(union):
            made = fields(owner, whole=True)
            found.setdefault(f"{made['type']}/{'role' in made}", owner)
    return found


def items(*, whole: bool) -> list[Item]:
    return [fields(owner, whole=whole) for owner in item_classes().values()]


@cache
def without_roles() -> dict[str, Item]:
    return {one["type"]: one for one in items(whole=True) if "role" not in one}


def pairs() -> dict[str, str]:
    """The types that a client answers, with the types of the answers: those that share an id."""
    known = without_roles()
    found = {"mcp_approval_request": "mcp_approval_response"}
    for call, one in known.items():
        names = (f"{call}_output", f"{call.removesuffix('_call')}_output")
        answer = next((name for name in names if name in known), None)
        if answer is not None and "call_id" in one:
            found[call] = answer
    # A program and its output come from the provider, with the client's calls between them.
    found.pop("program", None)
    return found


def pair(call: str, answer: str, number: int) -> tuple[Item, Item]:
    known, call_id = without_roles(), f"call_{number}"
    first = {**known[call], "id": call_id, "call_id": call_id}
    second = {**known[answer], "id": f"out_{number}", "call_id": call_id}
    if "call_id" not in known[call]:
        del first["call_id"]
    if "call_id" not in known[answer]:
        del second["call_id"]
        key = "approval_request_id" if "approval_request_id" in second else "id"
        second[key] = call_id
    if second.get("execution"):
        first["execution"] = second["execution"] = "client"
    return first, second


@cache
def _inputs() -> TypeAdapter[Any]:
    return TypeAdapter(responses.ResponseInputItemParam)


def check_type(item: Item) -> None:
    """Raise if an item is none that the API's types allow as input."""
    _inputs().validate_python(item)
