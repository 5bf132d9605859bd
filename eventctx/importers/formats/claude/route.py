"""The lines of a Claude Code file as a graph: which messages the conversation still holds.

Each line with a ``uuid`` names the line that it follows (``parentUuid``). Where a prompt follows an
earlier line than the last one, the person went back (``/rewind``, or an edited prompt), and what is
not on the way from the first line to the prompt was taken back.

The graph alone is not the order. Results of parallel calls look like branches in it. The line of an
API error takes the place of the answer that came after a retry, parents may be lines that were
never written, and a compaction begins a new root. Where a link is not sound, the order of the file
counts: the line follows the last message before it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import list_or_empty, object_or_empty

_NONE: Final = -1
_MESSAGE: Final = 1
_API_ERROR: Final = 2
_GONE: Final = 1
_SPOKEN: Final = 2


class _Path(NamedTuple):
    """Lines with messages on the route, after line ``since``, and the prompt where it ends."""

    lines: set[int]
    since: int
    prompt: int


class Route:
    """Nodes are lines with a ``uuid``, counted in file order; messages are named by their place.

    A node costs about 100 bytes, so names are kept as hashes.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}
        self._parents = array("q")
        self._lines = array("q")
        self._kinds = bytearray()
        self._message_lines = array("q")
        self._call_lines = array("q")
        self._marks = bytearray()
        self._calls: dict[str, int] = {}
        self._prompts: list[int] = []
        self._leaf = _NONE
        self._compacted = 0

    def knows(self, uuid: object) -> bool:
        """Whether a line of this name came before."""
        return self._node(uuid) is not None

    # -- lines -----------------------------------------------------------------------------------

    def enter(
        self,
        uuid: object,
        parent: object,
        line: int,
        *,
        message: bool = False,
        prompt: bool = False,
        api_error: bool = False,
        root: bool = False,
    ) -> None:
        """Take the next line. ``line`` is that of its message: the first one of an answer.

        ``prompt``: a message that a person, or the program for one, put at the end of the route.
        ``root``: the first line after a compaction.
        """
        if not isinstance(uuid, str):
            return
        known = self._sound(parent) if prompt else self._node(parent)
        before = _NONE if root else self._leaf if known is None else known
        node = self._nodes[hash(uuid)] = len(self._lines)
        self._parents.append(before)
        self._lines.append(line)
        self._kinds.append(_API_ERROR if api_error else _MESSAGE if message else 0)
        if message:
            self._leaf = node
        if prompt:
            self._prompts = [*self._prompts[: bisect_right(self._prompts, before)], node]

    def note_summary(self, line: int) -> None:
        """A summary replaces all messages so far."""
        self._compacted = line
        self._prompts = []
        self._calls.clear()

    def place(self, line: int, message: dict[str, Any], *, spoken: bool) -> int:
        """Take the next message and return its place; ``spoken``: an answer, or a person's."""
        call_line = _NONE
        for block in list_or_empty(message.get("content")):
            one = object_or_empty(block)
            if one.get("type") == "tool_use":
                self._calls[str(one.get("id"))] = line
            elif one.get("type") == "tool_result":
                call_line = self._calls.pop(str(one.get("tool_use_id")), call_line)
        self._message_lines.append(line)
        self._call_lines.append(call_line)
        self._marks.append(_SPOKEN if spoken else 0)
        return len(self._marks) - 1

    # -- what was taken back ---------------------------------------------------------------------

    def leaves_turn(self, parent: object) -> bool:
        """Whether a prompt after ``parent`` leaves the last one."""
        found = self._path(parent)
        return found is not None and bool(self._prompts) and found.prompt != self._prompts[-1]

    def left_by(self, parent: object) -> frozenset[int]:
        """The places of the messages that a prompt after ``parent`` leaves; none in file order."""
        found = self._path(parent)
        if found is None:
            return frozenset()
        places = [
            place
            for place in range(bisect_right(self._message_lines, found.since), len(self._marks))
            if not self._marks[place] & _GONE
            and self._message_lines[place] not in found.lines
            and self._call_lines[place] not in found.lines
        ]
        # The program leaves its own notes off the route.
        if not any(self._marks[place] & _SPOKEN for place in places):
            return frozenset()
        return self._take(places)

    def _path(self, parent: object) -> _Path | None:
        """The way back from a prompt after ``parent`` to an earlier one; None if it is not sound.

        All before that one is on the route already.
        """
        node = self._sound(parent)
        if node is None:
            return None
        prompts, lines = set(self._prompts), set()
        while node != _NONE and node not in prompts:
            lines.add(self._lines[node])
            node = self._parents[node]
        if node == _NONE:
            if self._compacted and max(lines, default=0) < self._compacted:
                return None
            return _Path(lines, self._compacted, node)
        lines.add(self._lines[node])
        return _Path(lines, self._lines[node], node)

    def of(self, uuids: Iterable[object]) -> frozenset[int]:
        """The places of the messages of these lines, which are taken back."""
        nodes = map(self._node, uuids)
        lines = {self._lines[node] for node in nodes if node is not None}
        return self._take(
            [
                place
                for place in range(
                    bisect_right(self._message_lines, min(lines, default=0) - 1), len(self._marks)
                )
                if not self._marks[place] & _GONE
                and (self._message_lines[place] in lines or self._call_lines[place] in lines)
            ]
        )

    def _take(self, places: list[int]) -> frozenset[int]:
        for place in places:
            self._marks[place] |= _GONE
        return frozenset(places)

    def _node(self, uuid: object) -> int | None:
        return self._nodes.get(hash(uuid)) if isinstance(uuid, str) else None

    def _sound(self, parent: object) -> int | None:
        """The node that a prompt follows, ``-1`` for the start; None where the link is not sound.

        After an API error that a retry mended, the next prompt follows the error, and the answer of
        the retry looks as if it had been left.
        """
        if parent is None:
            return None if _API_ERROR in self._kinds[self._leaf + 1 :] else _NONE
        found = self._node(parent)
        node = _NONE if found is None else found
        while node != _NONE and self._kinds[node] != _MESSAGE:
            if self._kinds[node] == _API_ERROR:
                return None
            node = self._parents[node]
        return found
