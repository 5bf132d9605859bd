"""pi's messages in the form in which pi sends them to Anthropic.

pi has its own roles and blocks (``toolResult``, ``toolCall``, ``bashExecution``) and converts them
before every request; this module does the same. Only role and content are converted; the model,
usage, times and a result's details stay in the rest of the line.
"""

from __future__ import annotations

from typing import Any, Final

BROKEN_OFF: Final = frozenset(("aborted", "error"))

_SUMMARY: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\n{}\n</summary>"
)
_BRANCH: Final = (
    "The following is a summary of a branch that this conversation came back from:\n\n"
    "<summary>\n{}</summary>"
)


def convert(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message as pi sends it; None for one that is never sent, or of an unknown shape."""
    role, content = message.get("role"), message.get("content")
    if not_sent(message):
        return None
    if role == "bashExecution":
        return _ran(message)
    if not isinstance(content, str | list):
        return None
    if role in ("user", "custom", "hookMessage"):
        return {"role": "user", "content": _content(content)}
    if role == "assistant":
        return {"role": "assistant", "content": _content(content)}
    call_id = message.get("toolCallId")
    if role != "toolResult" or not isinstance(call_id, str):
        return None
    block = {"type": "tool_result", "tool_use_id": call_id, "content": _content(content)}
    if isinstance(message.get("isError"), bool):
        block["is_error"] = message["isError"]
    return {"role": "user", "content": [block]}


def not_sent(message: dict[str, Any]) -> bool:
    """Whether pi itself leaves the message out of requests."""
    if message.get("role") == "assistant":
        return _is_empty(message.get("content"))
    return message.get("role") == "bashExecution" and message.get("excludeFromContext") is True


def by_harness(message: dict[str, Any]) -> bool:
    """Whether a message that is sent in the user's role is no person's words to the model.

    An extension's message is none, and neither is the report of a command that the person ran.
    """
    return message.get("role") not in ("user", "assistant", "toolResult")


def _is_empty(content: object) -> bool:
    """Whether an answer has nothing that is sent: it was broken off before its first words."""
    if not isinstance(content, str | list):
        return False
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return all(_is_blank(block) for block in blocks)


def _is_blank(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") not in ("text", "thinking"):
        return False
    text = block.get(block["type"])
    return isinstance(text, str) and not text.strip() and not block.get("thinkingSignature")


def summary_of(text: str) -> dict[str, Any]:
    """The message in place of the messages that a compaction removed."""
    return _text_message(_SUMMARY.format(text))


def branch_summary_of(text: str) -> dict[str, Any]:
    """The message about a branch that the conversation left."""
    return _text_message(_BRANCH.format(text))


def _text_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _content(content: str | list[Any]) -> str | list[Any]:
    return content if isinstance(content, str) else [_block(block) for block in content]


def _block(block: Any) -> Any:
    """A block in Anthropic's dialect; keys that it lacks stay as they are."""
    if not isinstance(block, dict):
        return block
    rest = dict(block)
    kind = rest.pop("type", None)
    if kind == "toolCall":
        call = {"type": "tool_use", "id": rest.pop("id", None), "name": rest.pop("name", None)}
        return {**call, "input": rest.pop("arguments", None), **rest}
    if kind == "thinking" and "thinkingSignature" in rest:
        signature = rest.pop("thinkingSignature")
        if rest.get("redacted") is True:
            return {"type": "redacted_thinking", "data": signature, **rest}
        return {
            "type": "thinking",
            "thinking": rest.pop("thinking", ""),
            "signature": signature,
            **rest,
        }
    if kind == "image" and isinstance(rest.get("data"), str):
        source = {"type": "base64", "media_type": rest.pop("mimeType", None)}
        return {"type": "image", "source": {**source, "data": rest.pop("data")}, **rest}
    return block


def _ran(message: dict[str, Any]) -> dict[str, Any] | None:
    """A command that the person ran, in the text that pi sends to the model."""
    command, output = message.get("command"), message.get("output")
    if not isinstance(command, str):
        return None
    shown = f"```\n{output}\n```" if isinstance(output, str) and output else "(no output)"
    text = f"Ran `{command}`\n{shown}"
    code = message.get("exitCode")
    if message.get("cancelled") is True:
        text += "\n\n(command cancelled)"
    elif code not in (None, 0):
        text += f"\n\nCommand exited with code {code}"
    path = message.get("fullOutputPath")
    if message.get("truncated") is True and isinstance(path, str):
        text += f"\n\n[Output truncated. Full output: {path}]"
    return _text_message(text)
