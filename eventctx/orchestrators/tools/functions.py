"""Tools from functions, and any mixture of tools by their names."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints, overload

import msgspec

from eventctx.aio import in_own_thread
from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Ids, Tool, ToolDefinition
from eventctx.search.tool import RecallTool

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A tool's name that both Anthropic and OpenAI accept."""

_NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class FunctionTool:
    """A function as a tool, made by ``tool``. Calling it calls the function.

    ``execute_with`` is ``execute`` for a caller that has the ids of the call.
    """

    def __init__(self, function: Callable[..., Any], name: str, description: str) -> None:
        self.name = name
        self.description = description
        self._function = function
        self._signature = Signature(function, name)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self._signature.schema()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the specification's name
        """Run the function with a model's arguments, without ids.

        Raises InvalidSetting, with a text for the model, for arguments that do not fit, and for a
        function that needs ids.
        """
        return await self._run(input, None)

    async def execute_with(self, input: dict[str, Any], ids: Ids) -> Any:  # noqa: A002
        """Run the function with a model's arguments; a parameter of type ``Ids`` gets ``ids``."""
        return await self._run(input, ids)

    async def _run(self, arguments: dict[str, Any], ids: Ids | None) -> Any:
        keywords = self._signature.bind(arguments, ids)
        if _is_async(self._function):
            return await self._function(**keywords)
        # In a thread, so that a blocking function does not stop every other session of the loop.
        call = partial(self._function, **keywords)
        result = await in_own_thread(call, f"eventctx-tool-{self.name}")
        return await result if inspect.isawaitable(result) else result


class _Recall:
    """``recall_tool``'s search with a tool's methods."""

    def __init__(self, search: RecallTool) -> None:
        self.name = search.name
        self.description = search.description
        self.input_schema = search.parameters
        self._search = search

    async def execute(self, input: dict[str, Any]) -> str:  # noqa: A002
        return await self._search(input)


@overload
def tool(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None
) -> FunctionTool: ...


@overload
def tool(
    function: None = None, *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """A tool from a function, sync or async; also as a decorator, with or without arguments.

    The model gets the function's name, the first paragraph of its docstring, and a JSON schema of
    its type hints; ``Annotated[int, msgspec.Meta(description="…", ge=1)]`` adds to the schema. The
    model's arguments are converted to those types. The schema leaves out a parameter of type
    ``Ids``, which gets the ids of the call, and one to which ``functools.partial`` gave a value by
    its name. A sync function runs in a thread; a cancelled call leaves that thread to its end.
    Raises InvalidSetting for a signature that no JSON object fits, for a function that yields, and
    for a name that the APIs refuse.
    """
    if function is None:
        return lambda found: tool(found, name=name, description=description)
    if isinstance(function, type) or not callable(function):
        raise InvalidSetting(f"tool: expected a function, found {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidSetting(
            f"tool: expected a function that returns its result, found {function!r}, which yields; "
            "collect what it yields and return that"
        )
    chosen = name or str(getattr(function, "__name__", ""))
    check_name(chosen, function)
    return FunctionTool(function, chosen, description or _paragraph(function))


def as_tools(tools: Mapping[str, Any] | Iterable[Any] | None) -> dict[str, Tool]:
    """Tools by name, from functions, tools, Amplifier tool modules, and ``recall_tool``'s search.

    A mapping's key names a function; for anything else it must equal the tool's own name. Raises
    InvalidSetting for something that is no tool, for two tools of one name, and for a name that
    the APIs refuse.
    """
    if tools is None:
        return {}
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidSetting(
            f"tools: expected a list of functions and tools, or a mapping by name, found {tools!r}"
        )
    named = tools.items() if isinstance(tools, Mapping) else ((None, one) for one in tools)
    found: dict[str, Tool] = {}
    for key, one in named:
        made = _as_tool(key, one)
        if key is not None and made.name != key:
            raise InvalidSetting(f"tools[{key!r}] is named {made.name!r}: a model calls it by that")
        if made.name in found:
            raise InvalidSetting(f"tools: two are named {made.name!r}; rename one of them")
        found[made.name] = made
    return found


def definition_of(tool: Tool) -> ToolDefinition:
    """A tool in the form for a provider. Without an ``input_schema`` it takes an empty object."""
    schema = getattr(tool, "input_schema", None)
    schema = schema if isinstance(schema, Mapping) else {}
    description = getattr(tool, "description", None)
    name = getattr(tool, "name", "")
    return ToolDefinition(name, str(description or ""), {**_NOTHING, **schema})


async def run_tool(tool: Tool, arguments: dict[str, Any], ids: Ids) -> Any:
    """Run a tool: by ``execute_with(input, ids)`` if it has that method, else by ``execute``."""
    execute_with = getattr(tool, "execute_with", None)
    if execute_with is not None:
        return await execute_with(arguments, ids)
    result: Any = tool.execute(arguments)
    # A host's tool may be a plain method.
    return await result if inspect.isawaitable(result) else result


def _as_tool(key: str | None, one: Any) -> Tool:
    if isinstance(one, RecallTool):
        return _Recall(one)
    if isinstance(one, Tool) and not isinstance(one, type):
        check_name(one.name, one)
        return one
    made: FunctionTool = tool(one, name=key)
    return made


def check_name(name: object, named: object) -> str:
    """Return the name if a model can call ``named`` by it. Raises InvalidSetting."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    raise InvalidSetting(
        f"tool {named!r}: expected a name of 1 to 64 letters, digits, _ and -, found {name!r}"
    )


def _paragraph(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    text = inspect.getdoc(function) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object with an async __call__
    )


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
