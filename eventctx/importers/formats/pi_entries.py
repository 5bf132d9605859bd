"""pi's entries: their messages as pi sends them to Anthropic, and the tree that they are in.

pi has its own roles and blocks (``toolResult``, ``toolCall``, ``bashExecution``) and converts them
before every request; this module does the same. Only role and content are converted; the model,
usage, times and a result's details stay in the rest of the line.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eventctx.importers.source.spill_file import SpillFile
from eventctx.importers.source.values import decode, encode

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


class TreeEntry(msgspec.Struct):
    """One entry. ``place`` is the place of its message among all messages, if it has one.

    ``message`` is where the message is in the spill file; ``by_harness`` as in ``MessageItem``.

    ``first_kept`` is set on compactions only: the first entry that the compaction keeps.
    """

    id: str
    parent: str | None
    place: int | None = None
    message: int | None = None
    compacts: bool = False
    first_kept: object = None
    by_harness: bool = False


class Tree:
    """The entries of a session with their parents, and which of them are in the conversation.

    A person can go back to an earlier entry and continue from there; then the parent of the next
    entry is not the previous entry of the file. From version 2 on each entry names itself and its
    parent. The tree keeps all messages, because a person may return to a branch that was left; they
    are the whole file, so they are in a spill file. ``leaf`` is the last entry of the conversation.

    The log of the session has one order of messages. ``_present`` names the entries whose messages
    are in it now, ``_in_force`` the compaction that it applies. When a path needs another
    compaction, the whole conversation is spelled out again (``_spelled_out``).
    """

    def __init__(self) -> None:
        self.leaf: str | None = None
        self._entries: dict[str, TreeEntry] = {}
        self._present: set[str] = set()
        self._in_force: str | None = None
        self._spelled_out = False
        self._spill = SpillFile()

    def close(self) -> None:
        """Give the space of the messages back. The tree must not be used any more."""
        self._spill.close()

    def known(self, entry_id: object) -> bool:
        """Whether there is an entry of this id."""
        return isinstance(entry_id, str) and entry_id in self._entries

    def add(
        self,
        entry: TreeEntry,
        message: dict[str, Any] | None = None,
    ) -> None:
        """Take the next entry, with its message if it has one."""
        if message is not None:
            entry.message = self._spill.put(encode(message))
            if not entry.compacts:
                self._present.add(entry.id)
        if entry.compacts:
            self._in_force, self._spelled_out = entry.id, False
        self.leaf = entry.id
        self._entries.setdefault(entry.id, entry)

    def kept_from(self, first_kept: object) -> int | None:
        """The place from which on messages of the conversation stay; None if none stays."""
        found = False
        for entry in self._path(self.leaf):
            found = found or entry.id == first_kept
            if found and entry.place is not None:
                return entry.place
        return None

    def go_to(
        self, entry_id: str | None, next_place: int
    ) -> tuple[list[int | dict[str, Any]], frozenset[int]]:
        """The conversation at an earlier entry, as ``Branched.order`` and ``Branched.harness``."""
        self.leaf = entry_id
        path = self._path(entry_id)
        last = next((entry for entry in reversed(path) if entry.compacts), None)
        order: list[int | dict[str, Any]] = []
        harness: set[int] = set()
        if last is not None and (last.id != self._in_force or self._spelled_out):
            # The log applies another compaction: spell out this one's summary and kept messages.
            order.append(self._message(last))
            next_place += 1
            path = _kept_entries(path, last)
            self._present.clear()
            self._spelled_out = True
        elif last is None and self._in_force is not None:
            self._present.clear()
            self._in_force, self._spelled_out = None, False
        present = set()
        for entry in path:
            if entry.place is None:
                continue
            if entry.id in self._present:
                order.append(entry.place)
            else:
                if entry.by_harness:
                    harness.add(len(order))
                order.append(self._message(entry))
                entry.place = next_place
                next_place += 1
            present.add(entry.id)
        self._present = present
        return order, frozenset(harness)

    def _message(self, entry: TreeEntry) -> Any:
        assert entry.message is not None  # noqa: S101 - an entry with a place has a message
        return decode(self._spill.get(entry.message))

    def _path(self, entry_id: str | None) -> list[TreeEntry]:
        """The entries from the root to this one; a cycle of parents is cut."""
        path: dict[str, TreeEntry] = {}
        while entry_id is not None and entry_id in self._entries and entry_id not in path:
            path[entry_id] = self._entries[entry_id]
            entry_id = path[entry_id].parent
        return list(reversed(path.values()))


def _kept_entries(path: list[TreeEntry], compaction: TreeEntry) -> list[TreeEntry]:
    """The entries of a path that are in the conversation after its last compaction."""
    place = path.index(compaction)
    start = next((n for n, entry in enumerate(path) if entry.id == compaction.first_kept), place)
    return path[start:]
