"""From a function's parameters to a JSON schema, and from a model's arguments to parameters."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Ids

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLACE: Final = "#/$defs/"


class Signature:
    """The parameters of ``function``, for the tool ``name``. Raises InvalidSetting."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        self._takes_ids: dict[str, bool] = {}
        fields: list[tuple[str, Any, Any]] = []
        hints = _hints(function, name)
        # The model must not set a value that the program has fixed.
        fixed = function.keywords if isinstance(function, functools.partial) else {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in fixed:
                continue
            if parameter.kind not in _BY_NAME:
                raise InvalidSetting(
                    f"tool {name!r}: {parameter} cannot be given by name, and a model's arguments "
                    "are a JSON object: name each parameter"
                )
            given = parameter.default is not parameter.empty
            if _is_ids(hints.get(parameter.name)):
                self._takes_ids[parameter.name] = given
            else:
                default = _field(parameter.default) if given else msgspec.field()
                fields.append((parameter.name, hints.get(parameter.name, Any), default))
        try:
            self._arguments = msgspec.defstruct(
                "arguments", fields, kw_only=True, forbid_unknown_fields=True
            )
            self._schema = _schema(self._arguments)
        except (TypeError, ValueError) as error:
            raise InvalidSetting(
                f"tool {name!r}: no JSON schema says its types: {error}"
            ) from error

    def schema(self) -> dict[str, Any]:
        """A fresh copy of the JSON schema."""
        copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._schema))
        return copy

    def bind(self, arguments: Mapping[str, Any], ids: Ids | None) -> dict[str, Any]:
        """The converted keyword arguments of a call.

        Raises InvalidSetting with a text from which a model learns what is wrong.
        """
        try:
            converted = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            raise InvalidSetting(f"arguments of {self._name}: {error}") from error
        keywords = {name: getattr(converted, name) for name in self._arguments.__struct_fields__}
        for name, given in self._takes_ids.items():
            if ids is not None:
                keywords[name] = ids
            elif not given:
                raise InvalidSetting(
                    f"tool {self._name!r} needs the ids of its call: run it by execute_with"
                )
        return keywords


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    # The hints of a callable object are those of its method.
    hinted = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004
    try:
        return get_type_hints(hinted, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidSetting(f"tool {name!r}: a type hint cannot be read: {error}") from error


def _is_ids(hint: Any) -> bool:
    """Whether the hint is ``Ids`` or ``Ids | None``."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        return set(get_args(hint)) == {Ids, type(None)}
    return hint is Ids


def _field(default: Any) -> Any:
    """A field with its default, which no two calls share."""
    if isinstance(default, list | dict | set):
        return msgspec.field(default_factory=lambda: default.copy())
    return msgspec.field(default=default)


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The struct's own schema at the top, with the other types that it mentions in ``$defs``."""
    (reference,), found = msgspec.json.schema_components(
        [arguments], ref_template=_PLACE + "{name}"
    )
    own = found.pop(reference["$ref"].removeprefix(_PLACE))
    schema = {key: value for key, value in own.items() if key != "title"}
    return {**schema, "$defs": found} if found else schema
