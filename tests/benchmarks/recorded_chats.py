"""Recorded sessions in the plainest chat dialect, of which any neighbour's messages are made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eventctx.comparison.recording import Recording, recordings_of
from eventctx.importers.many import import_paths
from eventctx.messages.parts import read_parts, role_of
from eventctx.messages.tool_results import text_of_result
from eventctx.stores.memory import MemoryStore

Message = dict[str, Any]

MESSAGES: Final = (40, 700)
"""Sessions with fewer messages are never compacted; those with more take minutes each."""


async def recorded_chats(folder: Path, most: int) -> list[Recording]:
    """So many sessions below a folder, each up to its first compaction."""
    store = MemoryStore()
    imported = await import_paths(store, [folder], complete=True)
    names = [one.session for one in imported.sessions if one.session is not None]
    found, _ = await recordings_of(store, names)
    chats = [Recording(chat_of(one.messages), name=one.name) for one in found]
    chosen = [one for one in chats if MESSAGES[0] <= len(one) <= MESSAGES[1] and one.needs]
    return sorted(chosen, key=lambda one: -len(one.needs))[:most]


def chat_of(messages: Sequence[Message]) -> list[Message]:
    """The messages with texts, calls and results alone: one call a row, then its result."""
    parts = [(role_of(one) or "user", read_parts(one)) for one in messages]
    results = {
        call_id: text_of_result(part)
        for _, found in parts
        for part in found
        if part.kind == "result"
        for call_id in part.ids
    }
    rows: list[Message] = []
    for role, found in parts:
        texts = [str(one.value) for one in found if one.kind == "text" and str(one.value).strip()]
        if texts and role != "tool":
            known = role if role in ("system", "assistant") else "user"
            rows.append({"role": known, "content": "\n".join(texts)})
        for part in found:
            if part.kind == "call" and part.ids and part.ids[0] in results:
                rows += _round(
                    f"call_{len(rows)}", part.name or "tool", part.value, results.pop(part.ids[0])
                )
    return rows


def _round(call_id: str, name: str, arguments: Any, result: str) -> list[Message]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {
        "name": name,
        "arguments": text if text.startswith("{") else json.dumps({"input": text}),
    }
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result or "(nothing)"},
    ]
