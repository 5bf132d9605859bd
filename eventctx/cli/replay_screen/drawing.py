"""The screen as lines of styled text, made of its state and the texts that were read: pure.

Every line is as wide as the terminal at most, in cells, and there are as many as it has rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rich.cells import cell_len, get_character_cell_size, set_cell_size

from eventctx.cli.output.plain import number, plural
from eventctx.cli.replay_screen.model import KEYS, LEAST_COLUMNS, LEAST_ROWS, Model
from eventctx.cli.replay_screen.session import ReplayedSession, SentRow
from eventctx.cli.replay_screen.texts import ReadTexts, WantedTexts
from eventctx.log.naming import message_name, range_name
from eventctx.safe_text import escape_breaks

Styled = tuple[str, str]
Line = list[Styled]

_SIDE_BY_SIDE: Final = 90
"""Columns from which the panes stand beside each other."""

_LABEL: Final = 11
_BAR: Final = 16
_FOOT: Final = (
    "? help  q quit  ← → request  ↑ ↓ message  t turn  c compaction  o left out  / search"
)

_KIND_STYLES: Final = {
    "system": "magenta",
    "human": "bold green",
    "user": "green",
    "assistant": "bold cyan",
    "result": "yellow",
}
_KIND_WORDS: Final = {"human": "person", "assistant": "model"}

_MARKS: Final = {"whole": " ", "changed": "◐", "out": "✗", "later": "·"}
"""How a message stands in the request, before its number."""


def wanted(model: Model, session: ReplayedSession) -> WantedTexts:
    """The texts that a screen in this state shows."""
    if model.too_small or (model.cursor < 0 and not model.request >= 0):
        return WantedTexts()
    places = _places(model)
    rows = list(_window(model.cursor, session.messages, places.said))
    if model.request >= 0:
        sent = session.view(model.request).rows
        shown = [sent[one] for one in _window(model.row, len(sent), places.sent)]
        rows += [one.id for one in shown if one.id is not None]
    selected = _selected(model, session)
    why = None if selected is None else (model.request, selected)
    return WantedTexts(tuple(dict.fromkeys(rows)), why, selected if model.opened else None)


def drawn(model: Model, session: ReplayedSession, texts: ReadTexts) -> list[Line]:
    """The whole screen."""
    if model.too_small:
        small = f"{model.columns}×{model.rows} is too small, {LEAST_COLUMNS}×{LEAST_ROWS} needed"
        lines: list[Line] = [[(small, "")], [("q quits", "")]]
    elif model.helps:
        lines = _help(model, session)
    elif model.opened:
        lines = _reading(model, session, texts)
    else:
        lines = _panes(model, session, texts)
    filled = [fitted(line, model.columns) for line in lines[: model.rows]]
    return filled + [[]] * (model.rows - len(filled))


# -- the places of the panes ---------------------------------------------------------------------


class _Places(NamedTuple):
    """Rows of the left pane, of the right one, and of the reasons; columns of the left pane."""

    said: int
    sent: int
    why: int
    width: int


def _places(model: Model) -> _Places:
    why = max(3, min(9, model.rows // 4))
    # Two lines of the head, the panes' titles, the reasons' title, the foot.
    room = model.rows - why - 5
    if model.columns >= _SIDE_BY_SIDE:
        return _Places(room, room, why, (model.columns - 3) // 2)
    said = (room - 1) // 2
    return _Places(said, room - 1 - said, why, model.columns)


def _window(cursor: int, count: int, height: int) -> range:
    """The rows that are shown, with the cursor in the middle."""
    first = max(0, min(cursor - height // 2, count - height))
    return range(first, min(count, first + height))


def _selected(model: Model, session: ReplayedSession) -> int | None:
    """The entry at the cursor: a message's number, or an extra's id."""
    if model.pane == "sent" and model.request >= 0:
        rows = session.view(model.request).rows
        row = rows[model.row] if model.row < len(rows) else None
        if row is not None and row.id is not None and row.number < 0:
            return row.id
    return model.cursor if model.cursor >= 0 else None


# -- the panes -----------------------------------------------------------------------------------


def _panes(model: Model, session: ReplayedSession, texts: ReadTexts) -> list[Line]:
    places = _places(model)
    side = model.columns >= _SIDE_BY_SIDE
    other = model.columns - places.width - 3 if side else model.columns
    said = [_said_title(model, session), *_said(model, session, texts, places.said)]
    sent = [_sent_title(model, session), *_sent(model, session, texts, places.sent)]
    lines = _head(model, session)
    if side:
        for one, two in zip(_to(said, places.said + 1), _to(sent, places.sent + 1), strict=True):
            lines.append([*padded(one, places.width), (" │ ", "dim"), *fitted(two, other)])
    else:
        lines += _to(said, places.said + 1) + _to(sent, places.sent + 1)
    return [*lines, *_to(_why(model, session, texts, places.why), places.why + 1), _foot(model)]


def _to(lines: list[Line], height: int) -> list[Line]:
    return lines[:height] + [[]] * (height - len(lines))


def _head(model: Model, session: ReplayedSession) -> list[Line]:
    name = session.title or session.name
    if model.request < 0:
        return [
            [(escape_breaks(name), "bold"), (" · no request", "dim")],
            [("No request is recorded: this is the transcript alone.", "dim")],
        ]
    one = session.requests[model.request]
    count = len(session.requests)
    first: Line = [
        (f"request {one.name}", "bold"),
        (f" {model.request + 1:,} of {count:,}", "dim"),
    ]
    if done := session.compactions_before(model.request):
        first.append((f" · behind {plural(done, 'compaction')}", "red"))
    first.append((f" · {escape_breaks(name)}", "dim"))
    tokens = f"{'~' if one.estimated else ''}{number(one.total)} tokens"
    second: Line = [(tokens, "")]
    if one.budget:
        second.append((f" of {number(one.budget)} ", ""))
        second += _bar(one.total, one.budget)
    left = len(session.left(model.request))
    second.append((f" · +{session.came(model.request):,} ", "green"))
    second.append((f"−{left:,}", "bold red" if left else "dim"))
    second.append((" since the request before" if model.request else " to begin with", "dim"))
    second.append((f" · {one.known}", "dim"))
    return [first, second]


def _bar(value: int, whole: int) -> Line:
    filled = min(_BAR, round(_BAR * value / whole))
    colour = "green" if value < whole * 0.6 else "yellow" if value < whole * 0.92 else "red"
    return [("█" * filled, colour), ("░" * (_BAR - filled), "dim")]


def _said_title(model: Model, session: ReplayedSession) -> Line:
    mark = "▸ " if model.pane == "said" else "  "
    count = session.last(model.request) + 1
    rest = session.messages - count
    later = f", {rest:,} later" if rest else ""
    return [(f"{mark}Said", "bold underline"), (f"  {plural(count, 'message')}{later}", "dim")]


def _said(model: Model, session: ReplayedSession, texts: ReadTexts, height: int) -> list[Line]:
    lines = []
    for one in _window(model.cursor, session.messages, height):
        standing = session.standing(model.request, one)
        style, mark = "", _MARKS[standing]
        if standing == "later":
            style = "dim"
        elif standing == "out":
            fresh = session.has_left(model.request, one)
            mark, style = ("✗", "bold red") if fresh else ("✗", "red")
        elif standing == "changed":
            style = "yellow"
        elif session.is_new(model.request, one):
            mark, style = "+", "green"
        lines.append(_row(model, session, texts, one, one, (mark, style), one == model.cursor))
    return lines


def _sent_title(model: Model, session: ReplayedSession) -> Line:
    mark = "▸ " if model.pane == "sent" else "  "
    if model.request < 0:
        return [(f"{mark}Sent", "bold underline"), ("  nothing", "dim")]
    rows = session.view(model.request).rows
    entries = sum([one.id is not None for one in rows])
    name = session.requests[model.request].name
    return [(f"{mark}Sent in {name}", "bold underline"), (f"  {plural(entries, 'message')}", "dim")]


def _sent(model: Model, session: ReplayedSession, texts: ReadTexts, height: int) -> list[Line]:
    if model.request < 0:
        return []
    rows = session.view(model.request).rows
    lines = []
    for place in _window(model.row, len(rows), height):
        row, here = rows[place], place == model.row
        if row.id is None:
            lines.append(_gap(row, here))
        elif row.number < 0:
            lines.append(_extra(session, texts, row.id, here))
        else:
            mark = ("◐", "yellow") if row.id < 0 else (" ", "")
            if row.id >= 0 and session.is_new(model.request, row.number):
                mark = ("+", "green")
            lines.append(_row(model, session, texts, row.id, row.number, mark, here))
    return lines


def _gap(row: SentRow, here: bool) -> Line:
    count = plural(row.last - row.first + 1, "message")
    text = f"┄ {count} left out, {range_name(row.first, row.last)} ┄"
    return [("▸" if here else " ", "bold"), (text, "reverse red" if here else "red")]


def _extra(session: ReplayedSession, texts: ReadTexts, entry: int, here: bool) -> Line:
    extra = session.extras[-1 - entry]
    kind = escape_breaks(extra.get("name") or extra["kind"])
    text = texts.rows.get(entry, "")
    return [
        ("▸" if here else " ", "bold"),
        (f"* {kind} ", "reverse" if here else "magenta"),
        (text, "dim"),
    ]


def _row(
    model: Model,
    session: ReplayedSession,
    texts: ReadTexts,
    entry: int,
    message: int,
    mark: Styled,
    here: bool,
) -> Line:
    kind = session.kind(message)
    word = _KIND_WORDS.get(kind, kind)
    width = len(message_name(max(0, session.messages - 1))) + 1
    text = texts.rows.get(entry, "…")
    dim = "dim" if mark[0] == "·" else "dim" if mark[0] == "✗" else ""
    return [
        ("▸" if here else " ", "bold"),
        mark,
        (f"{message_name(message):>{width}} ", "reverse" if here else "dim"),
        (f"{word:<7}", dim or _KIND_STYLES.get(kind, "")),
        (f"{text}", f"{dim} reverse".strip() if here else dim),
    ]


# -- why -----------------------------------------------------------------------------------------


def _why(model: Model, session: ReplayedSession, texts: ReadTexts, height: int) -> list[Line]:
    lines = _facts(model, session, texts)
    if len(lines) > height + 1:
        lines = [*lines[:height], [("… Enter shows all of it", "dim")]]
    return lines


def _facts(model: Model, session: ReplayedSession, texts: ReadTexts) -> list[Line]:
    selected = _selected(model, session)
    if selected is None:
        return [[("─" * model.columns, "dim")], [("There is no message.", "dim")]]
    what = message_name(selected) if selected >= 0 else "An insertion"
    size = f" · {number(session.tokens(selected))} tokens" if selected >= 0 else ""
    why = texts.why.get((model.request, selected))
    if why is None:
        return [[(f"── {what}{size} ", "dim"), ("─" * model.columns, "dim")]]
    colour = "bold green" if why.in_view else "bold red"
    title: Line = [("── ", "dim"), (what, "bold"), (size, "dim"), (" · ", "dim")]
    rest = model.columns - _cells(title)
    verdict = wrapped(why.verdict, max(10, rest - 1))
    title += [(verdict[0], colour), (" " + "─" * model.columns, "dim")]
    lines: list[Line] = [title, *[[(one, colour)] for one in verdict[1:]]]
    for fact in why.facts:
        texts_of = [one if isinstance(one, str) else one[0] for one in fact.parts]
        text = escape_breaks("".join(texts_of))
        for place, one in enumerate(wrapped(text, max(10, model.columns - _LABEL))):
            lines.append([(f"{'' if place else fact.label:<{_LABEL}}", "dim"), (one, "")])
    return lines


def _foot(model: Model) -> Line:
    if model.asks is not None:
        prompt = "search: " if model.asks == "search" else "go to (#12, 2.3, 2 or @48): "
        room = max(1, model.columns - len(prompt) - 1)
        return [(prompt, "bold"), (escape_breaks(model.typing)[-room:], ""), ("█", "")]
    return [(model.note, "bold")] if model.note else [(_FOOT, "dim")]


# -- reading and help ----------------------------------------------------------------------------


def _reading(model: Model, session: ReplayedSession, texts: ReadTexts) -> list[Line]:
    selected = _selected(model, session)
    lines = _facts(model, session, texts)
    whole = None if selected is None else texts.whole.get(selected)
    if whole is not None:
        lines += [[], [(whole.role, "bold")]]
        for title, style, text in whole.parts:
            if title:
                lines.append([(title, f"bold {style}".strip())])
            lines += [[(one, style)] for one in wrapped(text, model.columns)]
    room = model.rows - 1
    first = max(0, min(model.line, len(lines) - room))
    end = f"lines {first + 1:,}–{min(len(lines), first + room):,} of {len(lines):,}"
    foot: Line = [(f"{end} · ↑ ↓ scroll · ← → the next message · Esc back", "dim")]
    return [*_to(lines[first : first + room], room), foot]


def _help(model: Model, session: ReplayedSession) -> list[Line]:
    lines: list[Line] = [[("Keys", "bold")]]
    for keys, meaning in KEYS:
        for place, one in enumerate(wrapped(meaning, max(10, model.columns - 13))):
            lines.append([(f"{'' if place else keys:<13}", "bold cyan"), (one, "")])
    marks = "+ new in this request  ◐ sent in another form  ✗ left out  · said later  * not said"
    lines += [[], *[[(one, "")] for one in wrapped(marks, model.columns)]]
    if session.known:
        lines += [[], *[[(one, "dim")] for one in wrapped(session.known, model.columns)]]
    return [*lines[: model.rows - 1], [("any key goes back", "dim")]]


# -- cells ---------------------------------------------------------------------------------------


def fitted(line: Iterable[Styled], width: int) -> Line:
    """A line cut to ``width`` cells; a wide character that does not fit becomes a blank."""
    found: Line = []
    for text, style in line:
        cells = cell_len(text)
        if cells > width:
            text, cells = (set_cell_size(text[: 2 * width + 64], width), width)
        if text:
            found.append((text, style))
        width -= cells
        if width <= 0:
            break
    return found


def padded(line: Iterable[Styled], width: int) -> Line:
    """A line of exactly ``width`` cells."""
    found = fitted(line, width)
    return [*found, (" " * (width - _cells(found)), "")]


def _cells(line: Sequence[Styled]) -> int:
    return sum([cell_len(text) for text, _ in line])


@lru_cache(64)
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """``text`` in lines of at most ``width`` cells, broken at blanks where there are some."""
    return tuple([one for line in text.split("\n") for one in _broken(line, width)])


def _broken(line: str, width: int) -> list[str]:
    found: list[str] = []
    while line:
        end = _end(line, width)
        if end < len(line):
            blank = line.rfind(" ", width // 2, end + 1)
            end = blank if blank > 0 else end
        found.append(line[:end])
        line = line[end:].lstrip(" ") if end < len(line) and line[end] == " " else line[end:]
    return found or [""]


def _end(line: str, width: int) -> int:
    """How many characters fit into ``width`` cells; at least one."""
    if line[:width].isascii():
        return min(len(line), width)
    cells = 0
    for place, one in enumerate(line):
        cells += get_character_cell_size(one)
        if cells > width:
            return max(1, place)
    return len(line)
