"""Key frames of a timeline as bytes: the items since the frame before, and the rest of the state.

The messages in view are nearly all as they were added, so a frame names them by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zlib import compress, decompress
from zlib import error as ZlibError  # noqa: N812 - it is an exception's class

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.events import Known, PreCompact
from eventctx.log.plan import Plan
from eventctx.projections import audit, figures, numbering
from eventctx.projections.explain.changes import Cause, ChangesState
from eventctx.projections.figures import ImportedFile
from eventctx.projections.timeline import views
from eventctx.projections.timeline.blocks import (
    PARTS,
    BlockParts,
    DecodedParts,
    FrameBlock,
    LazySeries,
    encode_block,
    lengths_of,
)
from eventctx.projections.timeline.fold import Provenance, TimelineExtras, TimelineState
from eventctx.projections.timeline.instructions import InstructionsState
from eventctx.projections.timeline.runs import RunsState
from eventctx.projections.usage import UsageState, UsageTotals
from eventctx.projections.view import snapshot as view_snapshot
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import ViewState

VERSION: Final = 3_500 + view_snapshot.VERSION
"""Version of the stored form. It goes up with every change of a fold that a timeline is made of."""


class StoredFrame(NamedTuple):
    """A key frame as a store keeps it: the items since the frame before it, and part ``FRAME``.

    ``lengths`` and ``changed`` are those of its ``EncodedBlock``.
    """

    position: int
    digest: bytes
    lengths: tuple[int, ...]
    changed: tuple[int, ...]
    parts: BlockParts


FRAME: Final = "frame"
"""The name of the part with the rest of the state, next to those of ``blocks.PARTS``."""


class _Frame(msgspec.Struct, array_like=True):
    view: bytes
    numbers: list[int]
    own: dict[int, MessageRef]
    listed: tuple[tuple[int, int], ...]
    listed_to: int
    begun: tuple[tuple[str | None, PreCompact], ...]
    plan: Plan | None
    planned: Cause | None
    last: int | None
    grown: bool
    waiting: int | None
    file: ImportedFile
    usage: dict[str, UsageTotals]
    tools: int
    provenance: Provenance
    shown: tuple[int, ...]
    known: dict[Known, int]
    changed: bool


_encode: Final = msgspec.msgpack.Encoder().encode


@cache
def _decoder() -> msgspec.msgpack.Decoder[_Frame]:
    return msgspec.msgpack.Decoder(_Frame)


def dump(state: TimelineState, before: TimelineState | None) -> StoredFrame:
    """The frame of a session after the frame ``before`` (None: it is the first).

    Not for a fork, whose rows begin anew at its own first record.
    """
    lengths = (0,) * len(PARTS) if before is None else lengths_of(before)
    block = encode_block(state, lengths)
    parts = {FRAME: compress(_encode(_frame(state)), 1), **block.parts}
    return StoredFrame(state.position, state.digest, block.lengths, block.changed, parts)


def _frame(state: TimelineState) -> _Frame:
    changes, sizes = state.changes, state.audit.sizes
    numbers, own = _numbers_in_view(state)
    return _Frame(
        view_snapshot.dump_without_refs(state.view),
        numbers,
        own,
        changes.listed,
        changes.listed_to,
        changes.begun,
        changes.plan,
        changes.planned,
        sizes.last,
        sizes.grown,
        sizes.waiting,
        sizes.file,
        dict(state.extras.usage.models),
        state.extras.tools,
        state.extras.provenance,
        views.last_ids(state.views),
        dict(state.instructions.known),
        state.instructions.changed,
    )


def _numbers_in_view(state: TimelineState) -> tuple[list[int], dict[int, MessageRef]]:
    """The messages in view: runs of numbers, and by place those that are not as they were added."""
    origins = state.changes.origins
    numbers: list[int] = []
    own: dict[int, MessageRef] = {}
    for place, ref in enumerate(state.view.layout.refs):
        if numbers and ref.number == numbers[-1] + 1:
            numbers[-1] = ref.number
        else:
            numbers += (ref.number, ref.number)
        origin = origins[ref.number].ref
        if ref is not origin and ref != origin:
            own[place] = ref
    return numbers, own


class LoadedFrames:
    """Stored frames of one session, from its first on; a state is made when it is asked for.

    Raises DecodeError for bytes that ``dump`` did not make, here or later.
    """

    def __init__(self, stored: Sequence[StoredFrame] = ()) -> None:
        self._stored: list[StoredFrame] = []
        self._blocks: list[FrameBlock] = []
        self._ends: list[list[int]] = [[] for _ in PARTS]
        self._decoded = DecodedParts()
        self.positions: list[int] = []
        for one in stored:
            self.add(one)

    @property
    def damaged(self) -> bool:
        """Whether an item that was asked for could not be read."""
        return self._decoded.damaged

    def copy(self) -> LoadedFrames:
        """The same frames, to which others may be added."""
        found = LoadedFrames()
        found._stored, found._blocks = self._stored.copy(), self._blocks.copy()
        found._ends = [ends.copy() for ends in self._ends]
        found._decoded = self._decoded
        found.positions = self.positions.copy()
        return found

    def add(self, stored: StoredFrame) -> None:
        """Add the next frame."""
        block = FrameBlock(stored.lengths, stored.changed, stored.parts, self._decoded)
        self._stored.append(stored)
        self._blocks.append(block)
        for ends, length in zip(self._ends, block.lengths, strict=True):
            ends.append(length)
        self.positions.append(stored.position)

    def state(self, place: int) -> TimelineState:
        """The state of one frame."""
        stored = self._stored[place]
        try:
            frame = _decoder().decode(decompress(stored.parts.get(FRAME) or b""))
        except (msgspec.DecodeError, UnicodeDecodeError, ZlibError) as error:
            raise DecodeError(f"a key frame is damaged: {error}") from error
        series: dict[str, Series[Any]] = {}
        for name, ends in zip(PARTS, self._ends, strict=True):
            items: LazySeries[Any] = LazySeries(name, self._blocks, ends, ends[place])
            series[name] = Series.backed_by(items)
        return _make_state(stored, frame, series)


def _make_state(stored: StoredFrame, frame: _Frame, series: dict[str, Any]) -> TimelineState:
    view = _view(frame, series["origins"])
    time = numbering.Numbering(stored.position, series["began"], series["ends"], series["numbered"])
    changes = ChangesState(
        view,
        time,
        series["origins"],
        series["changes"],
        frame.listed,
        frame.listed_to,
        frame.begun,
        frame.plan,
        frame.planned,
        series["compacted"],
    )
    sizes = figures.FiguresState(
        series["sizes"],
        series["reports"],
        series["compaction_sizes"],
        series["firsts"],
        frame.last,
        frame.grown,
        frame.waiting,
        frame.file,
    )
    rows = audit.AuditState(
        view,
        time,
        series["requests"],
        series["compactions"],
        sizes,
        series["called"],
        series["sent"],
        -1,
    )
    extras = TimelineExtras(
        UsageState(stored.position, MappingProxyType(frame.usage)),
        series["models"],
        series["cached"],
        series["forms"],
        series["harness"],
        series["contents"],
        series["links"],
        frame.tools,
        frame.provenance,
    )
    return TimelineState(
        changes,
        rows,
        views.resume(series["shown"], series["extras"], frame.shown),
        RunsState(series["runs"], series["reasons"]),
        series["recounts"],
        extras,
        _instructions(frame, series),
        stored.digest,
    )


def _instructions(frame: _Frame, series: dict[str, Any]) -> InstructionsState:
    return InstructionsState(
        series["demanding"],
        series["phases"],
        series["removed"],
        series["withdrawn"],
        series["replacing"],
        MappingProxyType(frame.known),
        frame.changed,
    )


def _view(frame: _Frame, origins: Series[Any]) -> ViewState:
    refs: list[MessageRef] = []
    for first, last in zip(frame.numbers[::2], frame.numbers[1::2], strict=True):
        refs += [one.ref for one in origins[first : last + 1]]
    for place, ref in frame.own.items():
        refs[place] = ref
    return view_snapshot.load(frame.view, refs)
