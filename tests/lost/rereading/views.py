"""The views that a report compares: what each shows, and what took the other messages out."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import check_number
from eventctx.log.naming import position_name
from eventctx.log.store import EventStore
from eventctx.projections import numbering
from eventctx.projections.explain import changes
from eventctx.projections.explain.changes import Change, ChangesState
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.queries.explaining import NOW, RequestSelector, states_at
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.lost.answers import Left, LeftBy

_LEFT_BY: Final[dict[str, LeftBy]] = {
    **dict.fromkeys(("summarised", "dropped", "merged"), "compaction"),
    "set": "set",
    "cleared": "clear",
    "replaced": "replaced",
    "erased": "erased",
}
_STANDS_FOR_OTHERS: Final = ("summary", "notice", "memory")


class ViewContents(NamedTuple):
    """What a view shows.

    ``shown`` are the messages in it by number; ``left`` is for every other message what took it
    out. ``summaries`` are the insertions and messages that stand for others. ``known`` is the
    number of messages added so far.
    """

    shown: dict[int, MessageRef]
    left: dict[int, Left]
    summaries: tuple[InsertionRef | MessageRef, ...]
    known: int


class Asked(NamedTuple):
    """The views that a report is about. ``before`` is None unless it is about a compaction.

    ``origins`` and ``time`` are of the whole session: all its messages, also those added after the
    view, and its turns. ``taken_back`` are the demands that no longer held then.
    """

    about: Literal["now", "compaction", "turn"]
    before: ViewContents | None
    after: ViewContents
    origins: tuple[changes.Origin, ...]
    time: numbering.Numbering
    compaction: int | None
    compactions: int
    turn: int | None
    position: int | None
    taken_back: tuple[tuple[int, int], ...] = ()


async def asked(
    store: EventStore,
    stream: str,
    *,
    compaction: int | None = None,
    selector: RequestSelector = NOW,
) -> Asked:
    """The views of a session that a question is about, in one pass over its log.

    Raises StreamNotFound, and InvalidSetting for a compaction or request that is not there.
    """
    if compaction is None:
        (seen,), now = await states_at(store, stream, [selector])
        view = view_of(seen.state)
        return Asked(
            "now" if seen.record is None else "turn",
            None,
            view,
            tuple(now.origins),
            now.time,
            None,
            len(seen.state.compacted),
            seen.turn,
            now.view.position if seen.record is None else seen.record.position,
            seen.state.view.spoken.withdrawn,
        )
    check_number("compaction", compaction)
    state = (await timeline_at(store, stream)).changes
    if not 0 < compaction <= len(state.compacted):
        raise InvalidSetting(_no_compaction(stream, compaction, len(state.compacted)))
    at = state.compacted[compaction - 1]
    before = (await timeline_at(store, stream, at - 1)).changes
    after = (await timeline_at(store, stream, at)).changes
    cause = after.planned
    assert cause is not None
    return Asked(
        "compaction",
        view_of(before),
        view_of(after),
        tuple(state.origins),
        state.time,
        compaction,
        len(state.compacted),
        cause.turn,
        cause.position,
        after.view.spoken.withdrawn,
    )


def view_of(state: ChangesState) -> ViewContents:
    """What the view of a state shows and does not show."""
    shown: dict[int, MessageRef] = {}
    summaries: list[InsertionRef | MessageRef] = []
    for entry in state.view.layout.entries():
        if entry.kind == "message" and isinstance(entry.ref, MessageRef):
            shown[entry.ref.number] = entry.ref
        elif isinstance(entry.ref, InsertionRef) and entry.ref.kind in _STANDS_FOR_OTHERS:
            summaries.append(entry.ref)
    compactions = {position: number for number, position in enumerate(state.compacted, 1)}
    causes: dict[int, Change] = {}
    for change in state.changes:
        if change.what == "erased":
            shown.pop(change.number, None)
        if change.what in _LEFT_BY and (change.number not in causes or change.what != "erased"):
            causes[change.number] = change
    left: dict[int, Left] = {}
    for number, origin in enumerate(state.origins):
        if number in shown:
            continue
        cause = causes.get(number)
        if cause is None:  # a result whose call is not in view
            at = origin.ref.position
            left[number] = Left("unanswered", position_name(at), at)
        else:
            at = cause.cause.position
            left[number] = Left(_LEFT_BY[cause.what], position_name(at), at, compactions.get(at))
    sets = {one.position for one in left.values() if one.by == "set"}
    # A host that summarises by itself puts its summary into the transcript with the same set.
    summaries += [ref for ref in shown.values() if ref.position in sets]
    return ViewContents(shown, left, tuple(summaries), len(state.origins))


def _no_compaction(stream: str, asked_for: int, known: int) -> str:
    if not known:
        return f"session {stream!r} has no compaction that was applied, found {asked_for}"
    return (
        f"session {stream!r} has compactions 1 to {known}, found {asked_for}; "
        f"`eventctx audit {stream}` lists them"
    )
