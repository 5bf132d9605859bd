"""The words of a message: what somebody wrote, without calls, results, thinking and images."""

from __future__ import annotations

from typing import Any

from eventctx.messages.facts_reader import as_list


def words_of(message: dict[str, Any]) -> str:
    """The texts of a message in order, one after the other on lines of their own."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [
        block if isinstance(block, str) else block.get("text")
        for block in as_list(content)
        if isinstance(block, str | dict)
    ]
    return "\n".join([text for text in texts if isinstance(text, str)])
