"""The tree of a pi session: entries with parents, and which of them are in the conversation.

A person can go back to an earlier entry and continue from there; then the parent of the next entry
is not the previous entry of the file. From version 2 on each entry names itself and its parent. The
tree keeps all messages, because a person may return to a branch that was left. They lie encoded on
a spill file, since they are the whole file.

The log of the session has one order of messages. ``_present`` names the entries whose messages are
in it now, ``_in_force`` the compaction that it applies. When a path needs another compaction, the
whole conversation is spelled out again (``_spelled_out``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from eventctx.importers.source.spill_file import SpillFile
from eventctx.importers.source.values import decode, encode


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
    """Entries in file order. ``leaf`` is the last entry of the conversation."""

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
            path = _kept(path, last)
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


def _kept(path: list[TreeEntry], compaction: TreeEntry) -> list[TreeEntry]:
    """The entries of a path that are in the conversation after its last compaction."""
    place = path.index(compaction)
    start = next((n for n, entry in enumerate(path) if entry.id == compaction.first_kept), place)
    return path[start:]
