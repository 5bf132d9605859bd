"""The state of the screen, and what each key makes of it: pure, so it is tested without a terminal.

The left pane has a row for every message of the session, the right one for every entry of one
request. The cursor is a message; in the right pane it is a row, since an entry may be of none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from eventctx.cli.replay_screen.session import ReplayedSession
from eventctx.errors import InvalidSetting
from eventctx.log.naming import read_message, read_request
from eventctx.safe_text import escape_breaks

LEAST_COLUMNS: Final = 40
LEAST_ROWS: Final = 12

_PAGE: Final = 10
_QUERY: Final = 200
"""Characters of a search at most."""


class Model(NamedTuple):
    """All that is not in the log.

    ``request`` is a place among the session's requests, -1 where it has none; ``cursor`` a message,
    -1 where there is none; ``row`` the row of the right pane. ``opened`` is whether the message is
    read whole, from ``line`` on. ``typing`` is the text of a prompt, and ``asks`` what it is for.
    ``hits`` are the messages that ``query`` was found in, None while it is sought.
    """

    columns: int
    rows: int
    request: int = -1
    cursor: int = -1
    row: int = 0
    pane: Literal["said", "sent"] = "said"
    opened: bool = False
    line: int = 0
    helps: bool = False
    asks: Literal["search", "go"] | None = None
    typing: str = ""
    query: str = ""
    hits: tuple[int, ...] | None = ()
    note: str = ""
    over: bool = False

    @property
    def too_small(self) -> bool:
        """Whether nothing can be shown that would be read."""
        return self.columns < LEAST_COLUMNS or self.rows < LEAST_ROWS


KEYS: Final = (
    ("↑ ↓  k j", "the message before, the next one; PgUp PgDn ten at once"),
    ("Home End", "the first message, the last one before this request"),
    ("← →  h l", "the request before, the next one"),
    ("t T", "the next turn, the one before"),
    ("c C", "the next compaction, the one before"),
    ("o O", "the next message that is left out, the one before"),
    ("/", "search; then n N: the next hit, the one before"),
    ("g", "go to a message #12, a request 2.3, a turn 2 or a record @48"),
    ("Tab", "the other pane"),
    ("Enter", "read the message whole; Esc goes back"),
    ("?", "this help"),
    ("q", "quit"),
)
"""The keys with their meanings, for the help and the documentation."""


def started(session: ReplayedSession, columns: int, rows: int, stop: int | None = None) -> Model:
    """The screen at the first request, or with ``stop`` at the last one up to that position."""
    if not session.requests:
        return Model(columns, rows, cursor=min(0, session.messages - 1))
    request = 0 if stop is None else session.at_position(stop)
    model = Model(columns, rows, request, session.requests[request].last)
    return _in_view(model, session)


def resized(model: Model, columns: int, rows: int) -> Model:
    """The same in another size."""
    return model._replace(columns=columns, rows=rows)


def found(model: Model, session: ReplayedSession, query: str, hits: tuple[int, ...]) -> Model:
    """The screen when a search ended; the cursor goes to the first hit at or behind it."""
    if model.query != query or model.hits is not None:
        return model  # another one was begun since
    model = model._replace(hits=hits)
    if not hits:
        return model._replace(note=f"“{escape_breaks(query)}” is in no message")
    first = next((place for place, one in enumerate(hits) if one >= model.cursor), 0)
    return _to_hit(model, session, first)


def pressed(model: Model, session: ReplayedSession, key: str) -> Model:
    """The screen after a key: a character, or a name such as ``up``, ``enter``, ``pagedown``."""
    model = model._replace(note="")
    if model.asks is not None:
        return _typed(model, session, key)
    if model.helps:
        return model._replace(helps=False, over=key == "q")
    if model.opened:
        return _read(model, session, key)
    action = ACTIONS.get(key)
    return model if action is None else action(model, session)


# -- moving --------------------------------------------------------------------------------------


def _to_message(model: Model, session: ReplayedSession, number: int) -> Model:
    number = min(max(number, 0), session.messages - 1)
    return _in_view(model._replace(cursor=number), session)


def _in_view(model: Model, session: ReplayedSession) -> Model:
    """The model with the row of the right pane that has its cursor, or the gap that it is in."""
    if model.request < 0:
        return model
    rows = session.view(model.request).rows
    for place, row in enumerate(rows):
        if row.number == model.cursor or row.first <= model.cursor <= row.last:
            return model._replace(row=place)
    return model._replace(row=max(0, len(rows) - 1))


def _to_request(model: Model, session: ReplayedSession, place: int) -> Model:
    """At another request the cursor stays on its message; on the last one it goes along."""
    if not session.requests:
        return model._replace(note="no request: this session was sent to no model")
    place = min(max(place, 0), len(session.requests) - 1)
    last = session.requests[place].last
    follows = model.cursor >= session.last(model.request) or model.cursor > last
    return _in_view(
        model._replace(request=place, cursor=last if follows else model.cursor), session
    )


def _by(step: int) -> Callable[[Model, ReplayedSession], Model]:
    """Up or down in the pane that has the cursor."""

    def moved(model: Model, session: ReplayedSession) -> Model:
        if model.pane == "said" or model.request < 0:
            return _to_message(model, session, model.cursor + step)
        rows = session.view(model.request).rows
        if not rows:
            return model
        place = min(max(model.row + step, 0), len(rows) - 1)
        number = rows[place].number
        return model._replace(row=place, cursor=model.cursor if number < 0 else number)

    return moved


def _requests_by(step: int) -> Callable[[Model, ReplayedSession], Model]:
    return lambda model, session: _to_request(model, session, model.request + step)


def _turn(step: int) -> Callable[[Model, ReplayedSession], Model]:
    """To the first request of another turn; without requests, to its first message."""

    def moved(model: Model, session: ReplayedSession) -> Model:
        without = not session.requests
        turns = (
            [session.turn(one) for one in range(session.messages)]
            if without
            else [one.turn for one in session.requests]
        )
        here = model.cursor if without else model.request
        starts = [place for place, one in enumerate(turns) if place == 0 or turns[place - 1] != one]
        target = _next(starts, here, step)
        if target is None:
            return model._replace(note="no further turn" if step > 0 else "the first turn")
        move = _to_message if without else _to_request
        return move(model, session, target)

    return moved


def _compaction(step: int) -> Callable[[Model, ReplayedSession], Model]:
    """To the first request behind a compaction, and the first message that is gone from it."""

    def moved(model: Model, session: ReplayedSession) -> Model:
        target = _next(session.after_compactions(), model.request, step)
        if target is None:
            which = "further" if step > 0 else "earlier"
            none = "no compaction" if not session.compactions else f"no {which} compaction"
            return model._replace(note=f"{none} with a request behind it")
        moved = model._replace(request=target)
        left = session.left(target)
        return _to_message(moved, session, left[0] if left else session.last(target))

    return moved


def _left_out(step: int) -> Callable[[Model, ReplayedSession], Model]:
    def moved(model: Model, session: ReplayedSession) -> Model:
        end = session.last(model.request) + 1 if step > 0 else -1
        for number in range(model.cursor + step, end, step):
            if session.standing(model.request, number) == "out":
                return _to_message(model, session, number)
        where = "behind" if step > 0 else "before"
        return model._replace(note=f"nothing {where} the cursor is left out of this request")

    return moved


def _hit(step: int) -> Callable[[Model, ReplayedSession], Model]:
    def moved(model: Model, session: ReplayedSession) -> Model:
        if not model.hits:
            nothing = "nothing was searched for: / begins" if not model.query else "no hits"
            return model._replace(note=nothing)
        places = range(len(model.hits))
        behind = [place for place in places if (model.hits[place] - model.cursor) * step > 0]
        # Behind the last hit comes the first one again.
        ahead = behind or places
        return _to_hit(model, session, ahead[0] if step > 0 else ahead[-1])

    return moved


def _to_hit(model: Model, session: ReplayedSession, place: int) -> Model:
    hits = model.hits or ()
    note = f"hit {place + 1:,} of {len(hits):,} for “{escape_breaks(model.query)}”"
    return _to_message(model, session, hits[place])._replace(note=note, pane="said")


def _next(places: list[int], here: int, step: int) -> int | None:
    ahead = [one for one in places if (one - here) * step > 0]
    return None if not ahead else ahead[0] if step > 0 else ahead[-1]


# -- typing and reading --------------------------------------------------------------------------


def _typed(model: Model, session: ReplayedSession, key: str) -> Model:
    if key == "escape":
        return model._replace(asks=None, typing="")
    if key == "backspace":
        return model._replace(typing=model.typing[:-1])
    if key == "enter":
        asks, text = model.asks, model.typing.strip()
        model = model._replace(asks=None, typing="")
        if not text:
            return model
        if asks == "search":
            return model._replace(query=text, hits=None, note="searching …")
        return _gone_to(model, session, text)
    if len(key) == 1 and len(model.typing) < _QUERY:
        return model._replace(typing=model.typing + key)
    return model


def _gone_to(model: Model, session: ReplayedSession, text: str) -> Model:
    try:
        if text.startswith("#"):
            return _to_message(model, session, read_message(text))
        turn, iteration, position = read_request(text)
    except InvalidSetting:
        wanted = "expected a message #12, a request 2.3, a turn 2 or a record @48"
        return model._replace(note=f"{wanted}, found “{escape_breaks(text)}”")
    if position is not None:
        return _to_request(model, session, session.at_position(position))
    name = f"{turn}.{iteration}"
    for place in range(len(session.requests) - 1, -1, -1):
        one = session.requests[place]
        if one.turn == turn and (iteration is None or one.name == name):
            return _to_request(model, session, place)
    return model._replace(note=f"there is no request {escape_breaks(text)}")


def _read(model: Model, session: ReplayedSession, key: str) -> Model:
    """A key while a message is read: it scrolls, or closes. The drawing knows where it ends."""
    page = max(1, model.rows - 4)
    match key:
        case "escape" | "enter" | "q":
            return model._replace(opened=False, line=0)
        case "?":
            return model._replace(helps=True)
        case "up" | "k":
            return model._replace(line=max(0, model.line - 1))
        case "down" | "j":
            return model._replace(line=model.line + 1)
        case "pageup":
            return model._replace(line=max(0, model.line - page))
        case "pagedown" | " ":
            return model._replace(line=model.line + page)
        case "home":
            return model._replace(line=0)
        case "left" | "h" | "right" | "l":
            step = -1 if key in ("left", "h") else 1
            return _by(step)(model, session)._replace(line=0)
    return model


def _opened(model: Model, session: ReplayedSession) -> Model:
    return model if model.cursor < 0 and model.pane == "said" else model._replace(opened=True)


def _other_pane(model: Model, session: ReplayedSession) -> Model:
    if model.request < 0:
        return model._replace(note="no request: this session was sent to no model")
    return _in_view(model._replace(pane="sent" if model.pane == "said" else "said"), session)


_Action = Callable[[Model, ReplayedSession], Model]


ACTIONS: Final[dict[str, _Action]] = {
    **dict.fromkeys(("up", "k"), _by(-1)),
    **dict.fromkeys(("down", "j"), _by(1)),
    "pageup": _by(-_PAGE),
    **dict.fromkeys(("pagedown", " "), _by(_PAGE)),
    "home": _by(-1_000_000_000),
    "end": lambda model, session: _to_message(model, session, session.last(model.request)),
    **dict.fromkeys(("left", "h"), _requests_by(-1)),
    **dict.fromkeys(("right", "l"), _requests_by(1)),
    "t": _turn(1),
    "T": _turn(-1),
    "c": _compaction(1),
    "C": _compaction(-1),
    "o": _left_out(1),
    "O": _left_out(-1),
    "n": _hit(1),
    "N": _hit(-1),
    "/": lambda model, session: model._replace(asks="search", typing=""),
    "g": lambda model, session: model._replace(asks="go", typing=""),
    "tab": _other_pane,
    "enter": _opened,
    "?": lambda model, session: model._replace(helps=True),
    "q": lambda model, session: model._replace(over=True),
}
"""What the keys do while neither a prompt nor a message is open."""
