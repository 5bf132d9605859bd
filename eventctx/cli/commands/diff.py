"""``diff``: the differences of two requests, of one session or of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from eventctx.cli.output import figures, opening
from eventctx.cli.output.differences import (
    Section,
    item_width,
    reason_words,
    show_sections,
    show_tokens,
    where,
)
from eventctx.cli.output.figures import figures_of, show_known
from eventctx.cli.output.messages import role_of, snippet
from eventctx.cli.output.opening import position, request
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.errors import InvalidSetting
from eventctx.log.naming import RequestName, message_name, ranges_name, read_request
from eventctx.projections.presence import Presence
from eventctx.queries.explain_answers import diff_answer
from eventctx.queries.explaining import difference
from eventctx.queries.session_diff import (
    SessionsDiff,
    SidedInsertion,
    SidedMessage,
    Which,
    difference_of_sessions,
    sessions_diff_answer,
)
from eventctx.queries.view import last_request

if TYPE_CHECKING:
    from eventctx.log.store import EventStore
    from eventctx.projections.figures import Figures
    from eventctx.queries.explain_answers import ExtraEntry, MessageDifference, ViewDiff

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

_EXTRAS: Final = {
    "synthetic": "made-up result of the call in",
    "opening": "made-up opening",
}


_Named = tuple[str, RequestName]
"""A session, and a request of it; an empty name is its last request."""


@click.command("diff", short_help="What two requests differ in, and why.")
@click.argument("named", nargs=-1, required=True, metavar="SESSION REQUEST REQUEST")
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
    named: tuple[str, ...],
    positions: tuple[int, ...],
    full: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show what entered, left and changed between two requests of SESSION.

    A REQUEST is turn and iteration, as in `3.2`; a turn alone, for its last request; or a position,
    as in `@48`. The earlier request comes first, whichever is named first. On a terminal of 120
    columns or more they stand side by side.

    `diff A:2.3 B:2.3` compares requests of two sessions, such as a fork and its parent, and
    `diff A B` their last ones. A message is the same in both if both have it from the time
    before the fork, or if its bytes are equal.
    """
    one, other = _read(named, positions)
    compared, known = run(_diff(one, other, store))
    if as_json:
        if isinstance(compared, SessionsDiff):
            put_document(sessions_diff_answer(compared))
        else:
            put_document(diff_answer(compared))
        return
    screen = Screen()
    if isinstance(compared, SessionsDiff):
        _show_two(screen, compared, full)
    else:
        _show(screen, compared, full)
    for one_session in known:
        show_known(screen, one_session)


def _read(named: tuple[str, ...], positions: tuple[int, ...]) -> tuple[_Named, _Named]:
    """The two requests that a command line names. Raises click.UsageError."""
    session, *requests = named
    if len(positions) == 2 and not requests:
        first, second = [(session, RequestName(position=one)) for one in positions]
        return first, second
    if not positions and len(requests) == 2:
        first, second = [(session, request(one)) for one in requests]
        return first, second
    if not positions and len(requests) == 1 and not _is_request(requests[0]):
        return _of_session(session), _of_session(requests[0])
    raise click.UsageError(
        "Expected two requests of a session, or --position twice, or two sessions; `audit` lists "
        "the requests."
    )


def _of_session(text: str) -> _Named:
    """A session alone, or ``SESSION:REQUEST``. A name may have a colon itself."""
    session, _, named = text.rpartition(":")
    if session and _is_request(named):
        return session, read_request(named)
    return text, RequestName()


def _is_request(text: str) -> bool:
    try:
        read_request(text)
    except InvalidSetting:
        return False
    return True


async def _diff(
    one: _Named, other: _Named, store: str | None
) -> tuple[ViewDiff | SessionsDiff, list[Figures]]:
    async with opening.answering(store) as reader:
        found = [await _find(reader.store, *named) for named in (one, other)]
        (first, name), (second, name_in_second) = found
        figures = [await figures_of(reader.store, stream) for stream, _ in dict(found).items()]
        if first == second:
            return await difference(reader.store, first, name, name_in_second), figures
        return await difference_of_sessions(reader.store, *found), figures


async def _find(store: EventStore, session: str, name: RequestName) -> tuple[str, RequestName]:
    stream = (await opening.find_session(store, session)).stream
    return stream, await last_request(store, stream) if name == RequestName() else name


def _show(screen: Screen, compared: ViewDiff, full: bool) -> None:
    screen.line((_answer(compared), "bold"))
    screen.blank()
    show_tokens(screen, compared.before, compared.after, ("before", "after"))
    screen.blank()
    show_sections(screen, *_sections(compared, item_width(screen)), full)
    if compared.passed:
        come = plural(compared.passed, "message")
        screen.line((f"{come} more came in between and left again, or never were in view.", "dim"))


def _answer(compared: ViewDiff) -> str:
    """The question and the answer: both requests, how many messages left and came, tokens."""
    before, after = compared.before, compared.after
    asked = f"From {where(before)} to {where(after)}"
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


# -- sections ------------------------------------------------------------------------------------


def _sections(compared: ViewDiff, width: int | None) -> tuple[list[Section], list[Section]]:
    """Sections of what the later request lacks or shortens, and of what it adds."""
    losses: list[Section] = []
    gains: list[Section] = []
    for kind, title in _TITLES.items():
        grouped: dict[str, list[MessageDifference]] = {}
        for one in compared.of(kind):  # type: ignore[arg-type]  # the keys are the kinds
            grouped.setdefault(reason_words(one.ruling), []).append(one)
        for because, found in grouped.items():
            head = f"{title[1:].strip()} ({len(found):,}){because}"
            section = Section(title[0], head, [_item(one, width) for one in found])
            (gains if kind in _GAINS else losses).append(section)
    for sign, title, extras in (
        ("−", "not inserted any more", compared.went),
        ("+", "inserted", compared.came),
    ):
        if extras:
            items = [_extra(one, width) for one in extras]
            section = Section(sign, f"{title} ({len(extras):,})", items)
            (losses if sign == "−" else gains).append(section)
    return losses, gains


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


# -- two sessions --------------------------------------------------------------------------------


def _show_two(screen: Screen, compared: SessionsDiff, full: bool) -> None:
    """Show what only one of the two requests has, and why the other has not."""
    first, second = compared.first, compared.second
    names = _names(compared)
    only = [sum(_is_only(one, which) for one in compared.differences) for which in _BOTH]
    changed = len(compared.differences) - sum(only)
    was, now = figures.request_tokens(first.figures), figures.request_tokens(second.figures)
    counts = [f"{number(compared.both)} messages alike"]
    counts += [f"{number(count)} only in {name}" for count, name in zip(only, names, strict=True)]
    counts += [f"{number(changed)} shortened in one"] if changed else []
    heads = f"{names[0]} {where(first)} and {names[1]} {where(second)}"
    screen.line((f"{heads}: {', '.join(counts)}; {was} and {now} tokens.", "bold"))
    screen.blank()
    show_tokens(screen, first, second, names)
    screen.blank()
    width = item_width(screen)
    sections = [_sections_of(compared, which, width) for which in _BOTH]
    show_sections(screen, sections[0], sections[1], full)


_BOTH: Final[tuple[Which, Which]] = ("first", "second")


def _names(compared: SessionsDiff) -> tuple[str, str]:
    return compared.first_session, compared.second_session


def _is_only(one: SidedMessage, which: Which) -> bool:
    return one.session == which and one.presence is not Presence.SHORTENED


def _sections_of(compared: SessionsDiff, which: Which, width: int | None) -> list[Section]:
    """Sections of what one request has and the other has not, by the reason for that."""
    mine, other = _names(compared) if which == "first" else _names(compared)[::-1]
    sign = "−" if which == "first" else "+"
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for one in compared.differences:
        if one.session == which:
            shortened = one.presence is Presence.SHORTENED
            title = f"whole in {mine}" if shortened else f"only in {mine}"
            how = "never added to" if one.other is None else f"{one.presence.short} in"
            because = f", {how} {other}{reason_words(one.ruling)}"
            key = ("~" if shortened else sign, title, because)
            grouped.setdefault(key, []).append(_sided(one, width))
    inserted = [_sided_insertion(one, width) for one in compared.insertions if one.session == which]
    if inserted:
        grouped[sign, f"inserted only in {mine}", ""] = inserted
    return [
        Section(sign, f"{title} ({len(items):,}){because}", items)
        for (sign, title, because), items in grouped.items()
    ]


def _sided(one: SidedMessage, width: int | None) -> str:
    head = f"  {message_name(one.number)} {one.role}  "
    if one.other is not None and one.other != one.number:
        head = f"  {message_name(one.number)} ({message_name(one.other)}) {one.role}  "
    return head + snippet(one.message, 160 if width is None else max(16, width - len(head)))


def _sided_insertion(one: SidedInsertion, width: int | None) -> str:
    head = f"  {one.kind}"
    head += f" for {ranges_name(one.stands_for)}  " if one.stands_for else "  "
    return head + snippet(one.message, 160 if width is None else max(16, width - len(head)))
