"""The items of OpenAI's Responses API: what each is, which item answers it, what may be cut in it.

The one table of item types, read in openai 3.54 (``openai.types.responses``). An item has a
``type`` where other dialects have a role. A type that is not in the table is kept and passed
through all the same; with a ``call_id`` it forms a pair with the item that has the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

Sort = Literal["call", "result", "thinking", "hosted", "other"]


class ItemType(NamedTuple):
    """A type of item: its sort, its role, and the keys that its content may have.

    ``answer`` is the type of the item that answers a call.
    """

    sort: Sort
    role: str
    keys: tuple[str, ...] = ()
    answer: str = ""


def _call(answer: str, *keys: str) -> ItemType:
    return ItemType("call", "assistant", keys, answer)


def _result(key: str) -> ItemType:
    return ItemType("result", "tool", (key,))


_THINKING: Final = ItemType("thinking", "assistant")
_HOSTED: Final = ItemType("hosted", "assistant")
_SHOWN: Final = ItemType("other", "assistant")

REFERENCE: Final = "item_reference"
"""An item that the provider stores: a call, an answer, words; nobody here can say which."""

TABLE: Final[dict[str, ItemType]] = {
    "function_call": _call("function_call_output", "arguments"),
    "custom_tool_call": _call("custom_tool_call_output", "input"),
    "local_shell_call": _call("local_shell_call_output", "action"),
    "shell_call": _call("shell_call_output", "action"),
    "apply_patch_call": _call("apply_patch_call_output", "operation"),
    "computer_call": _call("computer_call_output", "actions", "action"),
    "tool_search_call": _call("tool_search_output", "arguments"),
    "mcp_approval_request": _call("mcp_approval_response", "arguments"),
    "function_call_output": _result("output"),
    "custom_tool_call_output": _result("output"),
    "local_shell_call_output": _result("output"),
    "shell_call_output": _result("output"),
    "apply_patch_call_output": _result("output"),
    "computer_call_output": _result("output"),
    "tool_search_output": _result("tools"),
    "tool_search_call_output": _result("output"),  # Codex
    "mcp_approval_response": ItemType("result", "tool"),
    "reasoning": _THINKING,
    "compaction": ItemType("thinking", "user"),
    "web_search_call": _HOSTED,
    "file_search_call": _HOSTED,
    "code_interpreter_call": _HOSTED,
    "image_generation_call": _HOSTED,
    "mcp_call": _HOSTED,
    "mcp_list_tools": _SHOWN,
    "program": _SHOWN,
    "program_output": _SHOWN,
    # It holds for all that comes after it, so it stays, as system messages do.
    "configuration_update": ItemType("other", "system"),
    "compaction_trigger": ItemType("other", "item"),
}

_BY_SERVER: Final = ("tool_search_call", "tool_search_output")
"""Items that the provider writes by itself, one after the other, without a ``call_id``."""


def is_item(message: dict[str, Any]) -> bool:
    """Whether a message is an item: a type and no role, or a reference, which may lack both."""
    if message.get("role") is not None:
        return False
    return isinstance(message.get("type"), str) or _is_bare_reference(message)


def is_known(message: dict[str, Any]) -> bool:
    """Whether a message without a role is an item of a type that this release knows."""
    item = message.get("type")
    known = item in TABLE or (item.endswith("_call") if isinstance(item, str) else False)
    return known or item == REFERENCE


def type_of(message: dict[str, Any]) -> str:
    """The type of an item; a reference may leave it out."""
    item = message.get("type")
    return item if isinstance(item, str) else REFERENCE


def _is_bare_reference(message: dict[str, Any]) -> bool:
    bare = message.keys() <= {"id", "type"} and message.get("type") is None
    return bare and isinstance(message.get("id"), str)


def describe(message: dict[str, Any]) -> ItemType:
    """The type of an item: by the table, else by its name and whether it has a ``call_id``."""
    item = type_of(message)
    found = TABLE.get(item)
    paired = isinstance(message.get("call_id"), str)
    if found is not None:
        # The provider's own search answers itself, whatever ids it has.
        return _SHOWN if item in _BY_SERVER and not paired else found
    if item == REFERENCE:
        return ItemType("other", "assistant")
    if paired:
        answers = item.endswith(("_output", "_response", "_result"))
        return ItemType("result", "tool") if answers else ItemType("call", "assistant")
    return _HOSTED if item.endswith("_call") else ItemType("other", "item")


ID_OF_CALL: Final = ("local_shell_call_output", "tool_search_call_output")
"""Outputs whose ``id`` is their call's; that of all others is their own."""


def id_of(message: dict[str, Any]) -> str | None:
    """The id that a call and its answer share; None where there is none."""
    item = type_of(message)
    key = "approval_request_id" if item == "mcp_approval_response" else "call_id"
    shared = message.get(key)
    if not shared and (describe(message).sort != "result" or item in ID_OF_CALL):
        shared = message.get("id")
    return shared if isinstance(shared, str) else None


def has_failed(message: dict[str, Any]) -> bool:
    """Whether a typed output says that its command or patch failed."""
    item = message.get("type")
    if item == "apply_patch_call_output":
        return message.get("status") == "failed"
    output = message.get("output") if item == "shell_call_output" else None
    chunks = [one for one in output if isinstance(one, dict)] if isinstance(output, list) else []
    outcomes = [one["outcome"] for one in chunks if isinstance(one.get("outcome"), dict)]
    return any(one.get("type") == "timeout" or one.get("exit_code") for one in outcomes)


def referenced_ids(item: str, message: dict[str, Any]) -> tuple[str, ...]:
    """The id of the item that is referred to, as of a call: its answer may follow.

    Without it, that answer would look like one without a call.
    """
    return (str(message.get("id")),) if item == REFERENCE else ()


# -- calls that nobody answered ------------------------------------------------------------------


def _text_output(item: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda call_id, text: {"type": item, "call_id": call_id, "output": text}


def _local_shell(call_id: str, text: str) -> dict[str, Any]:
    # The API's type has the call's id in ``id``, and no ``call_id``.
    return {"type": "local_shell_call_output", "id": call_id, "output": text}


def _shell(call_id: str, text: str) -> dict[str, Any]:
    outcome = {"type": "exit", "exit_code": 1}
    chunk = {"stdout": "", "stderr": text, "outcome": outcome}
    return {"type": "shell_call_output", "call_id": call_id, "output": [chunk]}


def _patch(call_id: str, text: str) -> dict[str, Any]:
    made = {"type": "apply_patch_call_output", "call_id": call_id}
    return {**made, "status": "failed", "output": text}


def _search(call_id: str, text: str) -> dict[str, Any]:
    # The type has no place for a text; ``incomplete`` is the mark.
    made: dict[str, Any] = {"type": "tool_search_output", "call_id": call_id}
    return {**made, "execution": "client", "status": "incomplete", "tools": []}


_SYNTHETIC: Final[dict[str, Callable[[str, str], dict[str, Any]]]] = {
    "function_call": _text_output("function_call_output"),
    "custom_tool_call": _text_output("custom_tool_call_output"),
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _patch,
    "tool_search_call": _search,
}


def synthetic_output(item: str, call_id: str, text: str) -> dict[str, Any] | None:
    """An output with ``text`` for a call of this type; None where none can be written."""
    make = _SYNTHETIC.get(item)
    return None if make is None else make(call_id, text)


def output_of_type(item: str, call_id: str, text: str) -> dict[str, Any]:
    """An output of this type with ``text``: the placeholder of an erased one."""
    call = next((name for name, one in TABLE.items() if one.answer == item), "function_call")
    if item == "computer_call_output":
        return {"type": item, "call_id": call_id, "output": {"type": "computer_screenshot"}}
    if item == "mcp_approval_response":
        return {"type": item, "approval_request_id": call_id, "approve": False, "reason": text}
    return synthetic_output(call, call_id, text) or _text_output(item)(call_id, text)


_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "custom_tool_call": {"name": "erased", "input": ""},
    "local_shell_call": {"action": {"type": "exec", "command": [], "env": {}}},
    "shell_call": {"action": {"commands": []}},
    "apply_patch_call": {"operation": {"type": "delete_file", "path": "erased"}},
    "computer_call": {"action": {"type": "screenshot"}, "pending_safety_checks": []},
    "tool_search_call": {"arguments": {}, "execution": "client"},
}


def call_of_type(item: str, call_id: str) -> dict[str, Any]:
    """A call of this type without content: the placeholder of an erased one."""
    if item == "mcp_approval_request":
        made = {"name": "erased", "server_label": "erased", "arguments": "{}"}
        return {"type": item, "id": call_id, **made}
    if item not in _ARGUMENTS:
        return {"type": "function_call", "call_id": call_id, "name": "erased", "arguments": "{}"}
    status = {} if item == "custom_tool_call" else {"status": "completed"}
    identity = {"id": call_id} if item in ("local_shell_call", "computer_call") else {}
    return {"type": item, **identity, "call_id": call_id, **status, **_ARGUMENTS[item]}


UnansweredCall = Literal["synthetic", "left_out", "passed_through"]


def when_unanswered(item: str) -> UnansweredCall:
    """The treatment of a call of this type that nobody answered.

    A screenshot and a person's answer cannot be made up, so a call for one is left out. Of an item
    that this release does not know, and of a reference, nobody can say whether it waits.
    """
    if not item or item in _SYNTHETIC:
        return "synthetic"
    known = TABLE.get(item)
    return "passed_through" if known is None or known.sort != "call" else "left_out"


# -- texts that may be cut -----------------------------------------------------------------------


def cuttable(item: str, value: Any) -> list[tuple[Any, Any]] | None:
    """Holders and keys of the texts of a typed value that may be cut; None for any other item.

    ``value`` is the arguments of a call or the output of a result. The rest must stay as it is,
    since the API checks it: the names of operations, exit codes, paths, definitions of tools.
    """
    match item:
        case "shell_call" if isinstance(value, dict):
            return _texts_in(value.get("commands"))
        case "local_shell_call" if isinstance(value, dict):
            return _texts_in(value.get("command"))
        case "apply_patch_call" if isinstance(value, dict):
            return [(value, "diff")] if isinstance(value.get("diff"), str) else []
        case "shell_call_output" if isinstance(value, list):
            chunks = [one for one in value if isinstance(one, dict)]
            keys = ("stdout", "stderr")
            return [(one, key) for one in chunks for key in keys if isinstance(one.get(key), str)]
        case "computer_call" | "computer_call_output" | "tool_search_output":
            return []
    return None


def _texts_in(values: Any) -> list[tuple[Any, Any]]:
    if not isinstance(values, list):
        return []
    return [(values, place) for place, one in enumerate(values) if isinstance(one, str)]


def joined(item: str, value: Any, text: str) -> None:
    """Put one text in place of all the texts that ``cuttable`` finds, in place.

    For a value of so many texts that cutting each is not enough.
    """
    if item == "shell_call":
        value["commands"] = [text]
    elif item == "local_shell_call":
        value["command"] = [text]
    elif item == "apply_patch_call":
        value["diff"] = text
    elif item == "shell_call_output":
        chunks = [one for one in value if isinstance(one, dict)]
        outcome = chunks[-1].get("outcome") if chunks else None
        value[:] = [{"stdout": text, "stderr": "", "outcome": outcome}]
