"""A provider's response in the forms of Amplifier's event logs: its answer and its usage."""

from __future__ import annotations

from typing import Any

from eventctx.importers.formats import chat
from eventctx.importers.source.lines import object_or_empty
from eventctx.log.usage import AMPLIFIER, Usage, read_usage
from eventctx.messages.facts_reader import read_facts


def answers(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a response of Anthropic, OpenAI's chat or the Responses API."""
    choice = chat.first_choice(response)
    if isinstance(choice.get("message"), dict):
        found = [choice["message"]]
    elif isinstance(response.get("output"), list):
        found = response["output"]
    else:
        content = response.get("content")
        filled = isinstance(content, str | list) and bool(content)
        found = [{"role": "assistant", "content": content}] if filled else []
    return [one for one in found if chat.is_message(one) and read_facts(one).kind == "assistant"]


def as_block(block: dict[str, Any]) -> dict[str, Any]:
    """A streamed block in the form of Amplifier's messages."""
    rest = dict(block)
    if rest.get("type") == "thinking" and "text" in rest:
        return {"type": "thinking", "thinking": rest.pop("text"), **rest}
    if rest.get("type") == "tool_call" and "arguments" in rest:
        arguments = rest.pop("arguments")
        return {**rest, "input": arguments}
    return rest


def usage_of(data: dict[str, Any], response: dict[str, Any]) -> Usage | None:
    """Amplifier's own counts, else the provider's; None where they count no prompt."""
    usage = object_or_empty(data.get("usage"))
    if "cache_creation_input_tokens" in usage or not ("input_tokens" in usage or "input" in usage):
        found = chat.usage_of(usage or response.get("usage"))
    else:
        found = read_usage(usage, AMPLIFIER)
    return found if found is not None and found.prompt else None
