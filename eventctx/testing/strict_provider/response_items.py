"""The items of OpenAI's Responses API: their fields, their pairs, and the form of their ids.

From the parameter types of the SDK (openai 3.57).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_FIELDS: Final[dict[str, str]] = {
    "message": "role content id status phase",
    "file_search_call": "queries id results status",
    "computer_call": "actions pending_safety_checks action id status call_id",
    "computer_call_output": "id output acknowledged_safety_checks status call_id",
    "web_search_call": "action status id",
    "function_call": "caller arguments id name status namespace call_id async",
    "function_call_output": "caller id output name status namespace call_id",
    "tool_search_call": "arguments id execution status call_id",
    "tool_search_output": "id tools execution status call_id",
    "additional_tools": "id tools role",
    "configuration_update": "reasoning id text",
    "reasoning": "id content summary status encrypted_content",
    "compaction": "id encrypted_content",
    "compaction_summary": "id encrypted_content",
    "image_generation_call": "revised_prompt size action error svg_usage id quality status "
    "background output_format result",
    "code_interpreter_call": "code container_id id outputs status",
    "local_shell_call": "action id status call_id",
    "local_shell_call_output": "status id output call_id",
    "shell_call": "environment caller action id status call_id",
    "shell_call_output": "caller id output status max_output_length call_id",
    "apply_patch_call": "caller operation id status call_id",
    "apply_patch_call_output": "caller id output status call_id",
    "mcp_list_tools": "server_label error id tools",
    "mcp_approval_request": "server_label arguments id name",
    "mcp_approval_response": "approve approval_request_id reason id",
    "mcp_call": "server_label approval_request_id error arguments id output name status",
    "custom_tool_call": "caller id input name namespace call_id async status",
    "custom_tool_call_output": "caller id output call_id status",
    "compaction_trigger": "id",
    "item_reference": "id",
    "program": "fingerprint id code call_id",
    "program_output": "id status call_id result",
}
FIELDS: Final = {kind: frozenset(names.split()) for kind, names in _FIELDS.items()}

OUTPUTS: Final[dict[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
}
"""Calls that the client answers, and the type of the answer."""

REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "computer_call": ("call_id",),
    "computer_call_output": ("call_id", "output"),
    "shell_call": ("call_id", "action"),
    "shell_call_output": ("call_id", "output"),
    "apply_patch_call": ("call_id", "operation"),
    "apply_patch_call_output": ("call_id", "status"),
    "local_shell_call": ("call_id", "action"),
    "mcp_approval_response": ("approval_request_id", "approve"),
    "reasoning": ("summary",),
    "item_reference": ("id",),
    "compaction": ("encrypted_content",),
}

ID_BEGINS: Final = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
"""The prefixes of ids of items that the API made."""

BY_PERSON: Final = ("user", "system", "developer")

_ISSUED: Final = re.compile(r"[a-z]+_strict\d+_of_(?P<reasoning>rs_strict\d+)\Z")


class InputItem(msgspec.Struct, frozen=True):
    """An input item; ``type`` is ``message`` where the item leaves it out."""

    number: int
    type: str
    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Its place in the request, as errors name it."""
        return f"input[{self.number}]"

    @property
    def id(self) -> str | None:
        """Its own id, if it has one."""
        found = self.fields.get("id")
        return found if isinstance(found, str) else None

    @property
    def call_id(self) -> str:
        """The id of its call; a local shell's output may have it in ``id``."""
        found = self.fields.get("call_id")
        if found is None and self.type == "local_shell_call_output":
            found = self.fields.get("id")
        return str(found)

    @property
    def is_of_model(self) -> bool:
        """Whether the model made the item, reasoning aside."""
        if self.type == "message":
            return self.fields.get("role") == "assistant"
        return self.type.endswith("_call") or self.type in (
            *("item_reference", "mcp_approval_request", "mcp_list_tools", "program"),
            *("tool_search_output", "compaction"),
        )


class ResponsesRequest(msgspec.Struct, frozen=True):
    """A parsed request. ``items`` are all, ``seen`` those after the last compaction."""

    body: Mapping[str, Any]
    items: tuple[InputItem, ...]
    seen: tuple[InputItem, ...]

    @property
    def goes_on(self) -> bool:
        """Whether the server keeps what was said before."""
        return any(self.body.get(name) for name in ("previous_response_id", "conversation"))


def read_responses_request(body: Mapping[str, Any]) -> ResponsesRequest:
    """Parse a request; an input that is a text is a message of the user."""
    sent = body.get("input")
    if isinstance(sent, str) and sent:
        sent = [{"role": "user", "content": sent}]
    items = tuple(
        InputItem(number, _type(row), row)
        for number, row in enumerate(sent if isinstance(sent, list) else ())
        if isinstance(row, Mapping)
    )
    begin = 0
    for place, item in enumerate(items):
        if item.type in ("compaction", "compaction_summary"):
            begin = place + 1
    return ResponsesRequest(body, items, items[begin:])


def _type(row: Mapping[str, Any]) -> str:
    kind = row.get("type")
    if kind is None:
        return "message" if "role" in row else "item_reference"
    return str(kind)


def issued_id(prefix: str, number: int, reasoning: str | None = None) -> str:
    """An item's id; one that was made for a reasoning item names it."""
    return f"{prefix}_strict{number}" + (f"_of_{reasoning}" if reasoning else "")


def reasoning_of(item: InputItem) -> str | None:
    """The id of the reasoning item that an item was made with, as far as its id says it."""
    found = _ISSUED.match(item.id or "")
    return found["reasoning"] if found else None


def runs(items: tuple[InputItem, ...]) -> Iterator[tuple[InputItem, InputItem | None]]:
    """Each reasoning item with the first item after it that is no reasoning."""
    for place, item in enumerate(items):
        if item.type == "reasoning":
            rest = (one for one in items[place + 1 :] if one.type != "reasoning")
            yield item, next(rest, None)
