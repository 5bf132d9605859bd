"""The two parts of a step that are no messages, each an ``import:raw`` record of the session.

A *control* part is one checkpoint: ids, versions, short metadata, and where its values lie. It is
relative to the control of its parent. It holds no words of a message, so no erasure takes it along:
MessagePack, whose texts stand next to each other, is never taken for a short text.

A *state* part before it has what may hold words: one has writes of tasks and rests of messages, one
the values of channels. A value is relative to that of the parent, where it is a list or a dict. A
rest has the digest of its message, by which an erasure of the message finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.adapters.langgraph.values import Blob, Box, Piece, Runs
from eventctx.messages.encoding import message_digest
from eventctx.session.host_state import HostPart

SOURCE: Final = "langgraph"
CONTROL: Final = "checkpoint"
STATE: Final = "state"
META: Final = "\0metadata"
"""The name under which long metadata lies among the values."""

WHOLE_AFTER: Final = 4
"""A control is written whole when those since the last whole one take so many times its size."""

Resolve = Callable[[Piece], int | None]


class TaskWrites(msgspec.Struct, frozen=True, omit_defaults=True):
    """The writes of a task to the checkpoint ``id``: channel, index and box of each.

    Of two writes of one task and index the first counts, but for one that is written ``again``.
    """

    id: str
    task: str
    writes: list[tuple[str, int, dict[str, Any]]]
    path: str = ""
    ns: str = ""
    again: bool = False


class ChannelValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel's value: whole, or the value in the part at ``base`` with changes.

    A list keeps its first ``keep`` items, followed by ``items``; a dict gets ``keys``, and loses
    those in ``gone``.
    """

    whole: dict[str, Any] | None = None
    base: int | None = None
    keep: int = 0
    items: list[dict[str, Any]] | None = None
    keys: dict[str, dict[str, Any]] | None = None
    gone: list[str] = []


class State(msgspec.Struct, omit_defaults=True):
    """The JSON of a state part. ``rest`` are rests of messages by number, ``b`` kinds and sizes.

    ``b`` are those of the blobs, whose bytes follow the JSON and a line end.
    """

    writes: list[TaskWrites] = []
    values: dict[str, ChannelValue] = {}
    rest: dict[str, dict[str, Any]] = {}
    b: list[tuple[str, int]] = []


class Control(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A stored checkpoint. ``base`` is the position of the control that it is relative to.

    ``parent`` is the id of the checkpoint before it, and of a relative one that of its base.
    ``stored`` are the channels that have a new value, ``gone`` the keys that the base
    has and this one has not: of versions, seen, metadata, values. ``runs`` are the numbers of the
    state's messages; None: it has no list of messages. ``at`` are the positions of the values that
    a whole one has in common with its parent. ``state`` is in place of state parts in which nothing
    could be words; ``apart``: the values are in the record before.
    """

    id: str
    ns: str = ""
    base: int | None = None
    parent: str | None = None
    thread: str = ""
    head: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    seen: dict[str, dict[str, Any]] = {}
    meta: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    stored: tuple[str, ...] = ()
    gone: tuple[tuple[str, ...], ...] = ()
    runs: Runs | None = None
    at: dict[str, int] = {}
    state: State | None = None
    apart: bool = False


class Whole(NamedTuple):
    """A checkpoint's control in full. ``at`` has the positions of the values that are stored."""

    id: str
    ns: str
    parent: str | None
    head: dict[str, Any]
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    meta: dict[str, Any]
    plain: dict[str, Any]
    at: dict[str, int]
    runs: Runs | None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Control)


def decode_control(data: bytes) -> Control:
    """The control of a part. Raises msgspec.DecodeError."""
    return _decoder.decode(data)


def control_part(control: Control) -> HostPart:
    """The part of a control."""
    return HostPart(CONTROL, _encoder.encode(control))


def whole_of(control: Control, position: int, base: Whole | None) -> Whole:
    """The control in full; it stands at ``position``."""
    where = position - 1 if control.apart else position
    stored = dict.fromkeys(control.stored, where)
    if base is None:
        parent = control.parent
        parts = (control.versions, control.seen, control.meta, control.plain)
        at = {**control.at, **stored}
        return Whole(control.id, control.ns, parent, control.head, *parts, at, control.runs)
    gone = (*control.gone, (), (), (), ())
    seen = _merged(base.seen, {}, gone[1])
    for node, versions in control.seen.items():
        seen[node] = {**seen.get(node, {}), **versions}
    fresh = (*gone[3], *control.stored, *control.plain)
    return Whole(
        control.id,
        control.ns,
        base.id,
        control.head,
        _merged(base.versions, control.versions, gone[0]),
        seen,
        _merged(base.meta, control.meta, gone[2]),
        _merged(base.plain, control.plain, fresh),
        _merged(base.at, stored, fresh),
        control.runs,
    )


def _merged(old: Mapping[str, Any], new: Mapping[str, Any], gone: Iterable[str]) -> dict[str, Any]:
    found = dict(old)
    for key in gone:
        found.pop(key, None)
    return {**found, **new}


def relative(control: Control, base: Whole, position: int) -> Control | None:
    """A whole control as one relative to ``base`` at ``position``; None where it cannot be."""
    seen: dict[str, dict[str, Any]] = {}
    for node, versions in control.seen.items():
        old = base.seen.get(node)
        if old is None or old != versions:
            if old is not None and old.keys() - versions.keys():
                return None  # a node has forgotten a channel
            seen[node] = versions if old is None else _changed(old, versions)
    gone = (
        _gone(base.versions, control.versions),
        _gone(base.seen, control.seen),
        _gone(base.meta, control.meta),
        (
            *[one for one in base.plain if not _has(control, one)],
            *[one for one in base.at if not _has(control, one)],
        ),
    )
    return Control(
        id=control.id,
        ns=control.ns,
        base=position,
        head=control.head,
        versions=_changed(base.versions, control.versions),
        seen=seen,
        meta=_changed(base.meta, control.meta),
        plain=_changed(base.plain, control.plain),
        stored=control.stored,
        gone=gone if any(gone) else (),
        runs=control.runs,
        state=control.state,
        apart=control.apart,
    )


def _gone(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([key for key in old if key not in new])


def _has(control: Control, name: str) -> bool:
    return name in control.plain or name in control.at or name in control.stored


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in new.items() if key not in old or not _same(old[key], one)}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)  # True is no 1


# -- the state part ------------------------------------------------------------------------------


_state: Final = msgspec.json.Decoder(State)


class StoredState(NamedTuple):
    """A state part as it was read."""

    state: State
    blobs: list[Blob]


def decode_state(data: bytes) -> StoredState:
    """The state of a part, or in a control. Raises msgspec.DecodeError."""
    if data[:1] != b"{":
        return StoredState(decode_control(data).state or State(), [])
    json, _, rest = data.partition(b"\n")
    state = _state.decode(json)
    blobs: list[Blob] = []
    for kind, size in state.b:
        blobs.append((kind, rest[:size]))
        rest = rest[size:]
    return StoredState(state, blobs)


class PartWriter:
    """Makes a state part. ``resolve`` gives the number of a message's event, if it has one."""

    def __init__(self, resolve: Resolve) -> None:
        self.state = State()
        self._resolve = resolve
        self._blobs: list[Blob] = []
        self._says = False

    def stored(self, box: Box) -> dict[str, Any]:
        """A box as it is stored in this part."""
        self._says = self._says or box.says
        found: dict[str, Any] = {"j": box.json}
        if box.blobs:
            found["o"] = len(self._blobs)
            self._blobs += box.blobs
        if box.messages:
            found["m"] = self._table(box.messages)
        return found

    def _table(self, messages: Iterable[Piece]) -> list[Any]:
        table: list[Any] = []
        for piece in messages:
            number = self._resolve(piece)
            if number is None:
                self._says = True
                inline: dict[str, Any] = {"r": piece.row}
                if piece.rest is not None:
                    inline["x"] = self.stored(piece.rest)
                table.append(inline)
            elif table and isinstance(table[-1], list) and table[-1][1] == number - 1:
                table[-1][1] = number
            else:
                table.append([number, number])
        return table

    @property
    def is_small(self) -> bool:
        """Whether a control may hold the state: no text in it is one that an erasure looks for."""
        return not self._says

    def write_rest(self, number: int, piece: Piece) -> None:
        """Write the rest of the message with this number."""
        self._says = True
        rest = piece.rest if piece.rest is not None else Box({})
        known = {"p": piece.rest_print.hex(), "d": message_digest(piece.row).hex()}
        self.state.rest[str(number)] = {**known, **self.stored(rest)}

    def part(self) -> HostPart | None:
        """The part; None where nothing is in it."""
        state = self.state
        if not (state.writes or state.values or state.rest):
            return None
        state.b = [(kind, len(data)) for kind, data in self._blobs]
        json = msgspec.json.encode(state)
        return HostPart(STATE, b"\n".join((json, b"".join([data for _, data in self._blobs]))))
