"""The lines of a Claude Code file as a graph: which messages the conversation still holds.

Each line with a ``uuid`` names the line that it follows (``parentUuid``). Where a prompt follows an
earlier line than the last one, the person went back (``/rewind``, or an edited prompt), and what is
not on the way from the first line to the prompt was taken back.

The graph alone is not the order. Results of parallel calls look like branches in it. The line of an
API error takes the place of the answer that came after a retry, parents may be lines that were
never written, and a compaction begins a new root. Where a link is not sound, the order of the file
counts: the line follows the last message before it.

A step back may lead behind a compaction, which is taken back then. Links across a compaction are
often wrong, so one is sound only where the prompt takes the place of an earlier one: it hangs on
the message on which that one hung. A link to a line that was written a second time is a fault of
the program (anthropics/claude-code#92089), and so is one to the last message before a compaction.
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


class KeptLines(NamedTuple):
    """Lines before a compaction that stay in the conversation after it, as nodes in their order.

    ``places`` are those of their messages, ``summaries`` the numbers of earlier compactions whose
    summaries are among them.
    """

    nodes: tuple[int, ...] = ()
    places: frozenset[int] = frozenset()
    summaries: tuple[int, ...] = ()


class StepBack(NamedTuple):
    """The places of messages that a prompt leaves, and the compactions that it takes back."""

    places: frozenset[int] = frozenset()
    compactions: frozenset[int] = frozenset()


class _Epoch(NamedTuple):
    """The part of the route since a compaction, or since the beginning.

    ``line`` is that of its summary, ``number`` that of the compaction. ``kept`` are the nodes that
    follow the summary though they are before it in the file, ``kept_lines`` the lines of their
    messages, ``parent`` is the node that the first of them follows otherwise. ``prompts`` are the
    nodes of its prompts in their order.
    """

    number: int = -1
    line: int = 0
    kept: frozenset[int] = frozenset()
    kept_lines: frozenset[int] = frozenset()
    parent: tuple[int, int] | None = None
    prompts: tuple[int, ...] = ()

    def holds(self, line: int) -> bool:
        """Whether the message of a line came in it, or stayed in it."""
        return line > self.line or line in self.kept_lines


class _Path(NamedTuple):
    """Lines on the route, after line ``since``, and the prompt where it ends.

    ``epoch`` is the place of its epoch among those in force.
    """

    lines: set[int]
    since: int
    prompt: int
    epoch: int


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
        self._hung_on: dict[int, int] = {}
        self._repeated: set[int] = set()
        self._epochs = [_Epoch()]
        self._summaries: list[int] = []
        self._leaf = _NONE

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
        path = self._path(parent) if prompt else None
        if prompt:
            known = None if path is None else self._sound(parent)
        else:
            known = self._in_epoch(self._node(parent))
        before = _NONE if root else self._leaf if known is None else known
        node = self._nodes[hash(uuid)] = len(self._lines)
        self._parents.append(before)
        self._lines.append(line)
        self._kinds.append(_API_ERROR if api_error else _MESSAGE if message else 0)
        if message:
            self._leaf = node
        if prompt:
            epoch = self._epochs[-1]
            stay = epoch.prompts if path is None else _until(epoch.prompts, path.prompt)
            self._epochs[-1] = epoch._replace(prompts=(*stay, node))
            named = self._node(parent)
            self._hung_on[node] = self._message_at(before if named is None else named)

    def note_repetition(self, uuid: object) -> None:
        """Note a line that is written again."""
        node = self._node(uuid)
        if node is not None:
            self._repeated.add(node)

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

    # -- compactions -----------------------------------------------------------------------------

    def named(self, uuids: Iterable[object]) -> KeptLines:
        """The lines with these names, which a compaction keeps."""
        return self._kept([node for node in map(self._node, uuids) if node is not None])

    def between(self, head: object, tail: object) -> KeptLines:
        """The lines from ``head`` to ``tail``, which a compaction keeps; none if no way is."""
        first, node = self._node(head), self._node(tail)
        found: list[int] = []
        while node is not None and node != _NONE:
            found.append(node)
            if node == first:
                return self._kept(found[::-1])
            node = self._parents[node]
        return KeptLines()

    def _kept(self, nodes: list[int]) -> KeptLines:
        lines = {self._lines[node] for node in nodes if self._kinds[node] == _MESSAGE}
        places = [
            place
            for place in range(
                bisect_right(self._message_lines, min(lines, default=0) - 1), len(self._marks)
            )
            if not self._marks[place] & _GONE and self._message_lines[place] in lines
        ]
        summaries = [number for number, line in enumerate(self._summaries) if line in lines]
        return KeptLines(tuple(nodes), frozenset(places), tuple(summaries))

    @property
    def count(self) -> int:
        """The number of messages so far."""
        return len(self._marks)

    def others(self, places: frozenset[int]) -> frozenset[int]:
        """The places of all other messages so far."""
        return frozenset(range(len(self._marks))) - places

    def note_summary(self, uuid: object, parent: object, line: int, kept: KeptLines) -> None:
        """A summary replaces all messages so far but those ``kept``, which follow it."""
        self._calls.clear()
        self.enter(uuid, parent, line, message=True)
        summary, nodes, moved = self._node(uuid), kept.nodes, None
        if summary is not None and nodes:
            moved = nodes[0], self._parents[nodes[0]]
            self._parents[nodes[0]] = summary
        messages = [node for node in nodes if self._kinds[node] == _MESSAGE]
        self._leaf = messages[-1] if messages else self._leaf
        self._epochs.append(
            _Epoch(
                len(self._summaries),
                line,
                frozenset(nodes),
                frozenset([self._lines[node] for node in messages]),
                moved,
                tuple([node for node in nodes if node in self._hung_on]),
            )
        )
        self._summaries.append(line)

    # -- what was taken back ---------------------------------------------------------------------

    def leaves_turn(self, parent: object) -> bool:
        """Whether a prompt after ``parent`` leaves the last one."""
        found = self._path(parent) or self._path_across(parent)
        if found is None or found.epoch < len(self._epochs) - 1:
            return found is not None
        prompts = self._epochs[-1].prompts
        return bool(prompts) and found.prompt != prompts[-1]

    def left_by(self, parent: object) -> StepBack:
        """What a prompt after ``parent`` leaves; nothing in file order."""
        found = self._path(parent) or self._path_across(parent)
        if found is None:
            return StepBack()
        epoch = self._epochs[found.epoch]
        places = [
            place
            for place in range(bisect_right(self._message_lines, found.since), len(self._marks))
            if not self._marks[place] & _GONE
            and epoch.holds(self._message_lines[place])
            and self._message_lines[place] not in found.lines
            and self._call_lines[place] not in found.lines
        ]
        # The program leaves its own notes off the route.
        if not any(self._marks[place] & _SPOKEN for place in places):
            return StepBack()
        undone: set[int] = set()
        while len(self._epochs) > found.epoch + 1:
            last = self._epochs.pop()
            undone.add(last.number)
            if last.parent is not None:
                self._parents[last.parent[0]] = last.parent[1]
        return StepBack(self._take(places), frozenset(undone))

    def _path(self, parent: object) -> _Path | None:
        """The way back from a prompt after ``parent`` to an earlier one; None if it is not sound.

        All before that one is on the route already.
        """
        node, last = self._sound(parent), len(self._epochs) - 1
        path = None if node is None else self._walk(node, last)
        epoch = self._epochs[last]
        if path is None or node is None or path.since >= epoch.line:
            return path
        return path if self._replaces_prompt(node, path) else None  # it may leave what was kept

    def _path_across(self, parent: object) -> _Path | None:
        """The way back to a prompt before a compaction, which is taken back; None if not sound."""
        node = self._sound(parent)
        if node is None or node == _NONE or self._was_repeated(node):
            return None
        for epoch in reversed(range(len(self._epochs) - 1)):
            path = self._walk(node, epoch)
            if path is not None:
                return path if self._replaces_prompt(node, path) else None
        return None

    def _walk(self, node: int, place: int) -> _Path | None:
        """The way back from a node to a prompt of an epoch, or to its beginning."""
        epoch, lines = self._epochs[place], set()
        prompts = set(epoch.prompts)
        while node != _NONE and node not in prompts:
            lines.add(self._lines[node])
            node = self._parents[node]
        if node != _NONE:
            lines.add(self._lines[node])
            return _Path(lines, self._lines[node], node, place)
        if epoch.line and epoch.line not in lines:
            return None
        since = min(epoch.kept_lines, default=epoch.line + 1) - 1
        return _Path(lines, since, node, place)

    def _replaces_prompt(self, node: int, path: _Path) -> bool:
        """Whether a prompt after ``node`` hangs where the first prompt that it leaves hung."""
        prompts = self._epochs[path.epoch].prompts
        after = len(_until(prompts, path.prompt))
        if after == len(prompts):
            return False
        replaced, message = prompts[after], self._message_at(node)
        return message in (self._hung_on[replaced], self._message_at(self._parents[replaced]))

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

    # -- nodes -----------------------------------------------------------------------------------

    def _node(self, uuid: object) -> int | None:
        return self._nodes.get(hash(uuid)) if isinstance(uuid, str) else None

    def _in_epoch(self, node: int | None) -> int | None:
        """The node, if it is no line from before the last compaction."""
        epoch = self._epochs[-1]
        if node is None or node in epoch.kept or not epoch.line:
            return node
        return node if self._lines[node] >= epoch.line else None

    def _message_at(self, node: int) -> int:
        """The message that a node is, or follows; ``-1`` for the start."""
        while node != _NONE and self._kinds[node] != _MESSAGE:
            node = self._parents[node]
        return node

    def _was_repeated(self, node: int) -> bool:
        """Whether a node, or one between it and its message, was written again."""
        while node != _NONE and node not in self._repeated and self._kinds[node] != _MESSAGE:
            node = self._parents[node]
        return node in self._repeated

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


def _until(prompts: tuple[int, ...], last: int) -> tuple[int, ...]:
    """The prompts up to ``last``; none if it is none of them."""
    if prompts and prompts[-1] == last:
        return prompts
    return prompts[: prompts.index(last) + 1] if last in prompts else ()
