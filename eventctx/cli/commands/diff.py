"""``diff``: the differences of two requests of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click
from rich.table import Table
from rich.text import Text

from eventctx.cli.output import figures, opening
from eventctx.cli.output.figures import figures_of, show_known
from eventctx.cli.output.messages import role_of, snippet
from eventctx.cli.output.opening import position, request, request_in_words
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.reasons import place_in_words
from eventctx.cli.output.screen import Column, Screen, put_document, styled
from eventctx.log.naming import RequestName, message_name, ranges_name
from eventctx.projections.explain.view_diff import GROUPS
from eventctx.queries.explain_answers import diff_answer
from eventctx.queries.explaining import RequestSelector, difference

if TYPE_CHECKING:
    from eventctx.projections.explain.why import Reason
    from eventctx.projections.figures import Figures
    from eventctx.queries.explain_answers import ExtraEntry, MessageDifference, Side, ViewDiff

WIDE: Final = 120
"""Characters of a line from which on the two requests are shown side by side."""

LISTED: Final = 12
"""Messages of a kind that a terminal lists without ``--full``."""

_TITLES: Final = {
    "summarised": "− summarised",
    "dropped": "− dropped",
    "merged": "− merged with a later one that says the same",
    "omitted": "− left out: a tool result that answers no call in view any more",
    "replaced": "− left out: the host's own system prompt takes its place",
    "set": "− taken out of the transcript by a set",
    "cleared": "− taken out of the transcript by a clear",
    "shortened": "~ shortened",
    "thinking_left_out": "~ thinking left out",
    "results_left_out": "~ some of its results left out, as they answer no call in view",
    "restored": "+ back in view, whole",
    "entered": "+ added since",
}
_GAINS: Final = ("restored", "entered")

_GROUPS: Final = {
    "system": "system messages",
    "human": "what people wrote",
    "user": "texts of programs in role user",
    "assistant": "what the model wrote",
    "result": "tool results",
    "other": "others",
    "inserted": "prompt, summaries, notices, memory",
    "made_up": "made-up results",
}
_BESIDE: Final = "beside: system prompt, tools"

_EXTRAS: Final = {
    "synthetic": "made-up result of the call in",
    "opening": "made-up opening",
}


class _Section(NamedTuple):
    """A kind of difference with its reason, and a line for each message that it applies to."""

    sign: str
    title: str
    items: list[str]


@click.command("diff", short_help="What two requests differ in, and why.")
@click.argument("session")
@click.argument("requests", nargs=-1, type=request, metavar="REQUEST REQUEST")
@click.option(
    "--position",
    "positions",
    type=position,
    multiple=True,
    metavar="P",
    help="Instead, twice: the request prepared at this position.",
)
@click.option("--full", is_flag=True, help="List every message, also on a terminal.")
@opening.reading
def diff_command(
    session: str,
    requests: tuple[RequestName, ...],
    positions: tuple[int, ...],
    full: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show what entered, left and changed between two requests of SESSION.

    A REQUEST is turn and iteration, as in `3.2`; a turn alone, for its last request; or a position,
    as in `@48`. The earlier request comes first, whichever is named first. On a terminal of 120
    columns or more they stand side by side.
    """
    named = [RequestName(position=one) for one in positions] or requests
    if (positions and requests) or len(named) != 2:
        raise click.UsageError(
            "Expected two requests, or --position twice; `audit` lists the requests."
        )
    compared, known = run(_diff(session, named[0], named[1], store))
    if as_json:
        put_document(diff_answer(compared))
        return
    screen = Screen()
    _show(screen, compared, full)
    show_known(screen, known)


async def _diff(
    session: str, one: RequestName, other: RequestName, store: str | None
) -> tuple[ViewDiff, Figures]:
    async with opening.open_reader(store) as reader:
        info = await opening.find_session(reader.store, session)
        selectors = [RequestSelector(*name) for name in (one, other)]
        compared = await difference(reader.store, info.stream, *selectors)
        return compared, await figures_of(reader.store, info.stream)


def _show(screen: Screen, compared: ViewDiff, full: bool) -> None:
    before, after = compared.before, compared.after
    screen.line((_answer(compared), "bold"))
    screen.blank()
    _show_tokens(screen, before, after)
    screen.blank()
    wide = screen.live and screen.width >= WIDE
    width = (screen.width - 4) // 2 if wide else screen.width
    losses, gains = _sections(compared, width if screen.live else None)
    if not losses and not gains:
        screen.line("Both show the same.")
    elif wide:
        _side_by_side(screen, losses, gains, width, full)
    else:
        for section in (*losses, *gains):
            for line in _lines(section, full or not screen.live):
                screen.line(_cut(line, width if screen.live else None))
            screen.blank()
    if compared.passed:
        come = plural(compared.passed, "message")
        screen.line((f"{come} more came in between and left again, or never were in view.", "dim"))


def _answer(compared: ViewDiff) -> str:
    """The question and the answer: both requests, how many messages left and came, tokens."""
    before, after = compared.before, compared.after
    asked = f"From {_where(before)} to {_where(after)}"
    counts = {kind: len(compared.of(kind)) for kind in _TITLES}  # type: ignore[arg-type]
    parts = [
        f"{number(count)} {verb}"
        for verb, count in (
            ("left", sum(counts[kind] for kind in _TITLES if _TITLES[kind].startswith("−"))),
            ("cut", sum(counts[kind] for kind in _TITLES if _TITLES[kind].startswith("~"))),
            ("came", sum(counts[kind] for kind in _GAINS)),
        )
        if count
    ]
    messages = f"{', '.join(parts)} of the messages" if parts else "the same messages"
    was, now = figures.request_tokens(before.figures), figures.request_tokens(after.figures)
    return f"{asked}: {messages}; {was} → {now} tokens."


def _where(side: Side) -> str:
    return request_in_words(side.turn, side.iteration, side.position)


def _show_tokens(screen: Screen, before: Side, after: Side) -> None:
    was, now = before.figures, after.figures
    rows = [
        [_GROUPS[name], *_estimates(before.groups.get(name, 0), after.groups.get(name, 0))]
        for name in GROUPS
        if before.groups.get(name) or after.groups.get(name)
    ]
    if was.beside is None or now.beside is None:
        rows.append([_BESIDE, figures.beside_tokens(was), figures.beside_tokens(now), "–"])
    elif was.beside or now.beside:
        rows.append([_BESIDE, *_estimates(was.beside, now.beside)])
    change = _change(was.total, now.total)
    rows.append(["all tokens", figures.request_tokens(was), figures.request_tokens(now), change])
    rows.append(["messages", number(before.entries), number(after.entries)])
    rows[-1].append(_change(before.entries, after.entries))
    columns = [
        Column(""),
        Column("before", right=True),
        Column("after", right=True),
        Column("change", right=True, style="bold"),
    ]
    screen.table(columns, rows)


def _estimates(before: int, after: int) -> list[str]:
    return [figures.tokens(before, True), figures.tokens(after, True), _change(before, after)]


def _change(before: int, after: int) -> str:
    return f"{after - before:+,}" if after != before else "="


# -- sections ------------------------------------------------------------------------------------


def _sections(compared: ViewDiff, width: int | None) -> tuple[list[_Section], list[_Section]]:
    """Sections of what the later request lacks or shortens, and of what it adds."""
    losses: list[_Section] = []
    gains: list[_Section] = []
    for kind, title in _TITLES.items():
        grouped: dict[str, list[MessageDifference]] = {}
        for one in compared.of(kind):  # type: ignore[arg-type]  # the keys are the kinds
            grouped.setdefault(_because(one.ruling), []).append(one)
        for because, found in grouped.items():
            head = f"{title[1:].strip()} ({len(found):,}){because}"
            section = _Section(title[0], head, [_item(one, width) for one in found])
            (gains if kind in _GAINS else losses).append(section)
    for sign, title, extras in (
        ("−", "not inserted any more", compared.went),
        ("+", "inserted", compared.came),
    ):
        if extras:
            items = [_extra(one, width) for one in extras]
            section = _Section(sign, f"{title} ({len(extras):,})", items)
            (losses if sign == "−" else gains).append(section)
    return losses, gains


def _because(ruling: Reason | None) -> str:
    if ruling is None:
        return ""
    rule = f": {ruling.reason}, {ruling.rule}" if ruling.rule else ""
    return f"{rule}; {place_in_words(ruling.cause)}"


def _item(one: MessageDifference, width: int | None) -> str:
    head = f"  {message_name(one.number)} {one.role}  "
    return head + snippet(one.message, 160 if width is None else max(16, width - len(head)))


def _extra(one: ExtraEntry, width: int | None) -> str:
    head = f"  {_EXTRAS.get(one.kind, one.kind)}"
    head += f" {message_name(one.number)}" if one.number is not None else ""
    head += f" for {ranges_name(one.stands_for)}" if one.stands_for else ""
    if one.message is None:
        return head
    role = role_of(one.message)
    head += f" ({role})  "
    return head + snippet(one.message, 160 if width is None else max(16, width - len(head)))


def _lines(section: _Section, full: bool) -> list[list[str | tuple[str, str]]]:
    style = {"−": "bold red", "+": "bold green"}.get(section.sign, "bold yellow")
    shown = section.items if full or len(section.items) <= LISTED + 1 else section.items[:LISTED]
    lines: list[list[str | tuple[str, str]]] = [[(f"{section.sign} {section.title}", style)]]
    lines += [[item] for item in shown]
    if len(shown) < len(section.items):
        rest = len(section.items) - len(shown)
        lines.append([(f"  … {rest:,} more (--full lists them)", "dim")])
    return lines


def _cut(line: list[str | tuple[str, str]], width: int | None) -> Text:
    """A line of a list, cut to the width in terminal cells, because wide signs take two."""
    text = styled(*line)
    if width is not None and text.plain.startswith("  "):
        text.truncate(width, overflow="ellipsis")
    return text


def _side_by_side(
    screen: Screen, losses: list[_Section], gains: list[_Section], width: int, full: bool
) -> None:
    grid = Table.grid(padding=(0, 2), pad_edge=False)
    grid.add_column(width=width, overflow="fold")
    grid.add_column(width=width, overflow="fold")
    columns = []
    for sections in (losses, gains):
        text = Text()
        for section in sections:
            for line in _lines(section, full):
                text.append_text(_cut(line, width))
                text.append("\n")
            text.append("\n")
        text.rstrip()
        columns.append(text)
    grid.add_row(*columns)
    screen.console.print(grid)
    screen.blank()
