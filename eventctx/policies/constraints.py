"""The check of settings: each field must hold a value that its annotation allows.

msgspec checks annotations only where it decodes. ``check`` makes it check Structs made in Python
too; a Struct calls it when it is made. The kinds of values that several settings share are defined
here. An error gives a kind's ``description`` as the expected value.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import LAST, is_text, shown
from eventctx.log.usage import MOST_TOKENS

Count = Annotated[int, Meta(ge=0, le=MOST_TOKENS, description="an int from 0")]
AtLeastOne = Annotated[int, Meta(ge=1, le=LAST, description="an int from 1")]
Position = Annotated[int, Meta(ge=0, le=LAST, description="an int from 0")]
Tokens = Annotated[
    int, Meta(ge=1, le=MOST_TOKENS, description=f"a positive int, at most {MOST_TOKENS}")
]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
WaitSeconds = Annotated[float, Meta(ge=0, description="0 s or more")]
Seconds = Annotated[float, Meta(gt=0, description="more than 0 s")]

_PLAIN: Final = {bool: "a bool", int: "an int", float: "a number", str: "a text", NoneType: "None"}

_WIDENED: Final = {(int, float), (list, tuple)}
"""Types that are accepted for another. msgspec would also take a Decimal, or an unordered set."""


def check(settings: msgspec.Struct) -> None:
    """Check every field against its annotation; a list given for a tuple becomes a tuple.

    Raises InvalidSetting, which names the field, what was expected and what was found.
    """
    for name, kind in _kinds(type(settings)):
        value = getattr(settings, name)
        found = check_value(name, value, kind)
        if type(found) is tuple is not type(value):
            msgspec.structs.force_setattr(settings, name, found)


def check_value(name: str, value: object, kind: Any) -> Any:
    """The value of a setting as its kind has it. Raises InvalidSetting."""
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        sound = False
    else:
        sound = type(found) is type(value) or (type(value), type(found)) in _WIDENED
    if not sound or (isinstance(value, str) and not is_text(value)):
        raise InvalidSetting(f"{name}: expected {describe_kind(kind)}, found {shown(value)}")
    return found


def describe_kind(kind: Any) -> str:
    """A kind of setting in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return str(kind.__metadata__[-1].description)
    if origin in (Union, UnionType):
        return " or ".join([describe_kind(one) for one in arguments])
    if origin is Literal:
        return " or ".join([repr(one) for one in arguments])
    return _PLAIN.get(kind, "a callable")


@cache
def _kinds(settings: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple([(field.name, field.type) for field in msgspec.structs.fields(settings)])
