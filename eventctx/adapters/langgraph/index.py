"""The fold of a thread's session: where its messages, checkpoints, writes and values lie.

It holds addresses and digests, no contents but the controls of checkpoints. Records of others in
the session, such as a middleware's requests, change nothing here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.adapters.langgraph.parts import (
    CONTROL,
    SOURCE,
    STATE,
    WHOLE_AFTER,
    Control,
    State,
    Whole,
    decode_control,
    decode_state,
    whole_of,
)
from eventctx.adapters.langgraph.values import said_in
from eventctx.log.codec import decode_event, decode_known, raw_of
from eventctx.log.events import ImportRaw
from eventctx.log.record import Record
from eventctx.log.store import Address

_MOST_WHOLE: Final = 128
"""Controls in full that are kept: enough for a chain of relative ones."""


class Saved(NamedTuple):
    """A checkpoint's place, and its control as it is stored.

    ``base`` is the position of the control that it is relative to. ``chain`` counts the bytes of
    the relative controls since a whole one of ``size`` bytes.
    """

    id: str
    ns: str
    position: int
    data: bytes
    base: int | None
    chain: int
    size: int

    @property
    def grown(self) -> bool:
        """Whether the next control is to be whole."""
        return self.chain >= WHOLE_AFTER * self.size


class StoredWrite(NamedTuple):
    """A write of a task: its place is ``item`` of the writes of the state part at ``position``."""

    channel: str
    path: str
    position: int
    item: int
    number: int


Writes = dict[tuple[str, int], StoredWrite]
"""The writes to a checkpoint, by task and index."""


class ThreadIndex:
    """Folds the records of one session in order, each once.

    ``addresses`` are those of all messages by their numbers, ``order`` the numbers of the
    transcript. ``said`` are digests of rows, empty for an erased one.
    ``sets`` counts the records that set the transcript.
    """

    def __init__(self) -> None:
        self.position = -1
        self.addresses: list[Address] = []
        self.said: list[bytes] = []
        self.rest_prints: dict[int, bytes] = {}
        self.rests: dict[int, int] = {}
        self.by_id: dict[str, int] = {}
        self.order: list[int] = []
        self.checkpoints: dict[str, dict[str, Saved]] = {}
        self.writes: dict[tuple[str, str], Writes] = {}
        self.links: dict[tuple[int, str], int] = {}
        self.parts: set[int] = set()
        self.deleted = False
        self.sets = 0
        self._latest: dict[str, str] = {}
        self._at: dict[int, Saved] = {}
        self._whole: OrderedDict[int, Whole] = OrderedDict()

    # -- folding ---------------------------------------------------------------------------------

    def fold(self, record: Record) -> None:
        """Fold a record, which has its bodies."""
        self.position = record.position
        kind = record.type
        if kind == "context:message_added":
            self.order.append(len(self.addresses))
            self._message(record, 0)
        elif kind == "context:messages_set":
            self._set(record)
        elif kind == "context:cleared":
            self.order = []
            self.sets += 1
        elif kind == "context:erased":
            event: Any = decode_known(record)
            self.forget([position for position, _ in event.bodies])
            for number in event.numbers:
                self.said[number] = b""
        elif kind == "import:raw":
            self._raw(record)
        elif kind == "session:deleted":
            self.deleted = True

    def _message(self, record: Record, index: int) -> None:
        data = record.bodies[index].data
        number = len(self.addresses)
        self.addresses.append(Address(record.position, index))
        self.said.append(b"" if data is None else said_in(data))
        name = None if data is None else _id_in(data)
        if name:
            self.by_id[name] = number

    def _set(self, record: Record) -> None:
        event: Any = decode_known(record)
        self.order = [n for first, last in event.order for n in range(first, last + 1)]
        self.sets += 1
        for index in range(len(record.bodies)):
            self._message(record, index)

    def _raw(self, record: Record) -> None:
        event = decode_event(record)
        if not isinstance(event, ImportRaw) or event.source != SOURCE:
            return
        self.parts.add(record.position)
        data = raw_of(record)
        if data is None:
            return  # it was erased
        if CONTROL in event.kinds:
            self._control(record.position, data)
        elif STATE in event.kinds:
            self._state(record.position, decode_state(data).state)

    def _control(self, position: int, data: bytes) -> None:
        control = decode_control(data)
        if control.state is not None:
            self._state(position, control.state)
        base = None if control.base is None else self._at.get(control.base)
        if control.base is not None and base is None:
            return  # what it is relative to was erased
        chain = 0 if base is None else base.chain + len(data)
        size = len(data) if base is None else base.size
        saved = Saved(control.id, control.ns, position, data, control.base, chain, size)
        self._at[position] = saved
        self.checkpoints.setdefault(control.ns, {})[control.id] = saved
        self._latest[control.ns] = max(control.id, self._latest.get(control.ns, ""))

    def _state(self, position: int, state: State) -> None:
        for item, task in enumerate(state.writes):
            writes = self.writes.setdefault((task.ns, task.id), {})
            for number, (channel, index, _) in enumerate(task.writes):
                if index < 0 or task.again or (task.task, index) not in writes:
                    found = StoredWrite(channel, task.path, position, item, number)
                    writes[task.task, index] = found
        for channel, value in state.values.items():
            if value.base is not None:
                self.links[position, channel] = value.base
        for text, rest in state.rest.items():
            self.rests[int(text)] = position
            self.rest_prints[int(text)] = bytes.fromhex(rest["p"])

    def forget(self, positions: list[int]) -> None:
        """Forget the checkpoints, and the writes, whose parts were erased."""
        gone = set(positions) & self.parts
        if not gone:
            return
        for position in gone:
            saved = self._at.get(position)
            if saved is not None and self.checkpoints[saved.ns].get(saved.id) is saved:
                del self.checkpoints[saved.ns][saved.id]
        for key, writes in list(self.writes.items()):
            self.writes[key] = {k: one for k, one in writes.items() if one.position not in gone}
        self._latest = {ns: max(of) for ns, of in self.checkpoints.items() if of}

    # -- questions -------------------------------------------------------------------------------

    def latest(self, ns: str) -> Saved | None:
        """The newest checkpoint of a namespace."""
        return self.checkpoints.get(ns, {}).get(self._latest.get(ns, ""))

    def find(self, ns: str, checkpoint: str) -> Saved | None:
        """The checkpoint of this id."""
        return self.checkpoints.get(ns, {}).get(checkpoint)

    def whole(self, saved: Saved) -> Whole:
        """The control of a checkpoint in full."""
        chain: list[Saved] = []
        at: Saved | None = saved
        while at is not None and at.position not in self._whole:
            chain.append(at)
            at = None if at.base is None else self._at[at.base]
        found = None if at is None else self._whole[at.position]
        for one in reversed(chain):
            found = whole_of(decode_control(one.data), one.position, found)
            self._whole[one.position] = found
        while len(self._whole) > _MOST_WHOLE:
            self._whole.popitem(last=False)
        if found is None:
            raise LookupError(saved.id)
        return found

    def hold_whole(self, control: Control, position: int) -> None:
        """Hold a control in full that was just stored at ``position``, relative or not."""
        self._whole[position] = whole_of(control, position, None)

    def chain(self, channel: str, position: int) -> Iterator[int]:
        """The positions of the parts that a value at ``position`` is made of, the last first."""
        at: int | None = position
        while at is not None:
            yield at
            at = self.links.get((at, channel))


class _Named(msgspec.Struct):
    id: str | None = None


_named: Final = msgspec.json.Decoder(_Named)


def _id_in(data: bytes) -> str | None:
    """The id in a stored row."""
    try:
        return _named.decode(data).id
    except msgspec.DecodeError:  # another writer's message
        return None
