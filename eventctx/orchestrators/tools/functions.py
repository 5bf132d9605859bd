"""Tools from functions, and any mixture of tools by their names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, overload

from eventctx.aio import in_own_thread
from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Ids, Tool, ToolDefinition
from eventctx.orchestrators.tools.signatures import Signature
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
