"""``lost``: what a view no longer shows of what was said and done."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from eventctx.cli.output import opening
from eventctx.cli.output.figures import figures_of, show_known
from eventctx.cli.output.opening import session_or_last
from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.screen import Column, Screen, put_document
from eventctx.log.naming import message_name
from eventctx.projections.presence import Presence, describe_loss
from eventctx.queries.lost.answers import KINDS, STATES, ItemKind, Lost, ViewItem
from eventctx.text import clip

if TYPE_CHECKING:
    from eventctx.cli.first_look import FoundFile
    from eventctx.cli.output.screen import Screen
    from eventctx.projections.audit import AuditRow
    from eventctx.projections.figures import Figures
    from eventctx.queries.lost.answers import ItemKind, LeftBy, Lost


LIMIT = 10


@click.command("lost", short_help="What left the view: instructions, files, commands.")
@click.argument("session", required=False)
@click.option("--compaction", type=int, metavar="N", help="After the N-th applied compaction.")
@click.option("--turn", type=int, metavar="N", help="In the last request of turn N.")
@click.option("--all", "everything", is_flag=True, help="List what is whole, too.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    metavar="N",
    help="Rows of each kind.",
)
@opening.reading
def lost_command(
    session: str | None,
    compaction: int | None,
    turn: int | None,
    everything: bool,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List what is no longer in view of SESSION, now or after a compaction.

    Instructions of a person, files that were touched, commands and their failures, decisions of
    the model, and results that it used again. Each is whole, shortened (cut, but still there), in
    the summary (found in its text), or gone. "used again" counts later messages that needed it.
    Without SESSION: the last one that was compacted; where there is no store yet, of the sessions
    on this machine, which are read if you agree. JSON holds all items.
    """
    if compaction is not None and turn is not None:
        raise click.UsageError("expected at most one of --compaction and --turn, found both.")
    rest = _first_read(store) if session is None and not as_json else []
    name, found, figures, requests, mirrored = run(_lost(session, compaction, turn, store))
    if as_json:
        put_document(found)
        return
    screen = Screen()
    screen.line((f"Lost in {name}. {answer(found)}", "bold"))
    _show_counts(screen, found)
    show_items(screen, found, everything=everything, limit=limit)
    if found.suspected:
        screen.blank()
        names = {row.position: row.name for row in requests}
        for one in found.suspected[-limit:] if limit else ():
            screen.line(describe_loss(one, names[one.position]))
    if found.messages.left:
        screen.blank()
        _show_next(screen, found, store, mirrored)
    show_known(screen, figures)
    if rest:
        from eventctx.cli.first_look import read_rest

        read_rest(rest)


def _first_read(store: str | None) -> list[FoundFile]:
    """Where there is no store yet, read what is asked about; returns the files that are left."""
    path = opening.path_of(opening.location(store))
    if path is None or path.exists():
        return []
    from eventctx.cli.first_look import read_until_compacted

    return read_until_compacted(path)


async def _lost(
    session: str | None, compaction: int | None, turn: int | None, store: str | None
) -> tuple[str, Lost, Figures, Sequence[AuditRow], bool]:
    """Session, answer, figures, the requests of suspected losses, and whether it is a mirror."""
    async with opening.answering(store, lists=session is None) as reader:
        info = await session_or_last(reader, session, "compacted")
        found = await reader.lost(info.stream, compaction=compaction, turn=turn)
        known = await figures_of(reader.store, info.stream)
        requests = (await reader.audit(info.stream)).requests if found.suspected else ()
        mirrored = await reader.mirror_of(info.stream) is not None
        return info.stream, found, known, requests, mirrored


def _show_next(screen: Screen, found: Lost, store: str | None, mirrored: bool) -> None:
    """The commands to ask next: why a message left, and how to have what is gone back."""
    where = opening.as_option(store)
    session = shlex.quote(found.session)
    why = f"{spelling()} why {session} NUMBER{where}"
    screen.line((f"`{why}` says why a message left and what stands for it.", "dim"))
    gone = [one.kind for one in found.counts if one.gone]
    if gone and found.about == "now":
        fork = " --fork NAME" if mirrored else ""
        restore = f"{spelling()} restore {session} --lost {gone[0]}s{fork}{where}"
        screen.line((f"`{restore}` brings {gone[0]}s back.", "dim"))


BY_IN_WORDS: Final[dict[LeftBy, str]] = {
    "compaction": "by a compaction",
    "taken_back": "because they were taken back",
    "set": "by a set of the transcript",
    "clear": "by a clear of the transcript",
    "replaced": "for the host's own system prompt",
    "erased": "erased",
    "unanswered": "as results whose call is not in view",
    "provider": "cleared by the provider",
}


def answer(found: Lost) -> str:
    """The answer in a few sentences, without the counts of items."""
    return " ".join([_messages(found), *_summaries(found), _without_items(found)]).rstrip()


def _messages(found: Lost) -> str:
    counts = found.messages
    total = plural(counts.total, "message")
    if not counts.left and not counts.shortened and not counts.thinking_cleared:
        return f"{_where(found)}: nothing left the view; {total} are whole."
    verb = "left the view" if found.about == "compaction" else "are not in view"
    text = f"{_where(found)}: {number(counts.left)} of {total} {verb}"
    if set(counts.left_by) - {"compaction"}:
        by = [f"{number(n)} {BY_IN_WORDS[one]}" for one, n in sorted(counts.left_by.items())]
        text += f" ({', '.join(by)})"
    if counts.shortened:
        text += f", {number(counts.shortened)} {_are(counts.shortened)} shortened"
    if counts.provider_cleared:
        text += f" ({number(counts.provider_cleared)} by the provider, inferred from its count)"
    if counts.thinking_cleared:
        bare = number(counts.thinking_cleared)
        text += f", {bare} without the thinking that the provider cleared"
    return text + "."


def _summaries(found: Lost) -> list[str]:
    texts: list[str] = []
    if found.sealed:
        sealed = plural(found.sealed, "summary", "summaries")
        texts.append(f"{sealed} {_are(found.sealed)} encrypted: what is in there is not known.")
    if found.messages.erased:
        erased = plural(found.messages.erased, "message")
        texts.append(f"{erased} {_are(found.messages.erased)} erased: nothing is known of them.")
    return texts


def _where(found: Lost) -> str:
    at = found.at or ""
    turn = None if found.turn is None else f"turn {found.turn}"
    if found.about == "compaction":
        places = ", ".join([one for one in (turn, at) if one])
        return f"Compaction {found.compaction} ({places})"
    if found.about == "turn":
        return f"Turn {found.turn} (request at {at})"
    return "Now"


def _without_items(found: Lost) -> str:
    """The sentence in place of the table of counts, where it would say nothing."""
    if not any(one.total for one in found.counts):
        return "No instruction, file or command is known in them." if found.messages.left else ""
    if _lists_losses(found):
        return ""
    left = found.messages.left or found.messages.shortened
    return "Every instruction, file and command in them is still in view." if left else ""


def _lists_losses(found: Lost) -> bool:
    return any(one.whole != one.total for one in found.counts)


def _show_counts(screen: Screen, found: Lost) -> None:
    """A table of the items: a row for each kind, a column for each presence."""
    if not _lists_losses(found):
        return
    presences = tuple(reversed(STATES))
    columns = [Column(""), Column("all", right=True)]
    columns += [Column(one.short, right=True, style=_STYLES[one]) for one in presences]
    rows = [
        [
            _TITLES[one.kind].lower(),
            number(one.total),
            *[number(getattr(one, presence.value) or None) for presence in presences],
        ]
        for one in found.counts
        if one.total
    ]
    screen.blank()
    screen.table(columns, rows)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


PIPE_WIDTH: Final = 160
"""Characters of an item's line where there is no terminal."""

_TITLES: Final[dict[ItemKind, str]] = {
    "instruction": "Instructions of a person",
    "file": "Files",
    "command": "Commands",
    "decision": "Decisions of the model",
    "result": "Results that were used again",
}
_STYLES: Final = {
    Presence.GONE: "red",
    Presence.SUMMARY: "yellow",
    Presence.SHORTENED: "yellow",
    Presence.WHOLE: "green",
}
_LEAST_TEXT: Final = 24
_MOST_QUOTED: Final = 3


def show_items(screen: Screen, found: Lost, *, everything: bool, limit: int) -> None:
    """The items by kind: at most ``limit`` rows each; whole ones only with ``everything``."""
    root = _root([item.text for item in found.items if item.kind == "file"])
    for kind in KINDS:
        listed = [
            item
            for item in found.items
            if item.kind == kind and (everything or item.state is not Presence.WHOLE)
        ]
        if not listed:
            continue
        screen.blank()
        below = f" below {root}" if kind == "file" and root else ""
        screen.line((_TITLES[kind], "bold"), (below, "dim"))
        for item in listed[:limit]:
            _show(screen, item, root)
        _show_rest(screen, listed[limit:])


def _show(screen: Screen, item: ViewItem, root: str) -> None:
    head = f"  {item.state.value:<9} {item.name:<6} "
    note = "; ".join(_notes(item))
    width = (screen.width if screen.live else PIPE_WIDTH) - len(head)
    beside = width - len(note) - 2
    # On a narrow screen the notes go below, so that the words keep their line.
    fits = not note or beside >= min(len(_text(item, root, width)), max(_LEAST_TEXT, width // 2))
    text = _text(item, root, beside if fits and note else width)
    colour = (head[:11], _STYLES[item.state])
    if note and fits:
        screen.line(colour, (head[11:], "bold"), text, (f"  {note}", "dim"))
    else:
        screen.line(colour, (head[11:], "bold"), text)
    if note and not fits:
        screen.line((note, "dim"), indent=len(head))
    for line in _below(item, width):
        screen.line((line, "dim"), indent=len(head))


def _text(item: ViewItem, root: str, width: int) -> str:
    """An item on one line of at most ``width`` characters."""
    if item.kind in ("instruction", "decision"):
        return f'"{one_line(item.text, max(_LEAST_TEXT, width - 2))}"'
    if item.kind == "file":
        return _path(item.text, root, max(_LEAST_TEXT, width))
    text = item.text.replace(f"{root}/", "") if root else item.text
    return one_line(text, max(_LEAST_TEXT, width))


def _path(path: str, root: str, width: int) -> str:
    """A path below ``root``; of a long one the end, which tells more."""
    return clip(one_line(path.removeprefix(f"{root}/") if root else path), width, end=True)


def _notes(item: ViewItem) -> list[str]:
    notes: list[str] = []
    if item.file is not None:
        used = item.file
        ways = (("read", used.read), ("written", used.written), ("edited", used.edited))
        notes.append(", ".join([f"{way} {number(n)}×" for way, n in ways if n]))
        if used.last_read is not None and used.changed_after is not None:
            read, changed = message_name(used.last_read), message_name(used.changed_after)
            notes.append(f"read last in {read}, changed in {changed}")
    if item.command is not None and item.command.failed:
        status = item.command.status
        notes.append("failed" if status is None else f"failed ({status})")
    if item.command is not None and item.command.runs > 1:
        notes.append(f"ran {number(item.command.runs)}×")
    if 0 < item.in_view < item.messages and item.state is not Presence.GONE:
        notes.append(f"{number(item.in_view)} of {number(item.messages)} in view")
    if item.left is not None and item.left.by != "compaction":
        notes.append(BY_IN_WORDS[item.left.by])
    if item.used_again:
        notes.append(f"used again {number(item.used_again)}×")
    return [note for note in notes if note]


def _below(item: ViewItem, width: int) -> list[str]:
    """The lines below an item: the error of a command, the parts of a result that were used."""
    if item.command is not None and item.command.error:
        return [one_line(item.command.error, width)]
    if item.quoted:
        shown = ", ".join([one_line(text, 60) for text in item.quoted[:_MOST_QUOTED]])
        more = len(item.quoted) - _MOST_QUOTED
        return [one_line(shown + (f" and {more} more" if more > 0 else ""), width)]
    return []


def _show_rest(screen: Screen, rest: Sequence[ViewItem]) -> None:
    if not rest:
        return
    states = Counter(item.state for item in rest)
    parts = [f"{number(states[state])} {state.short}" for state in STATES if states[state]]
    screen.line((f"… and {number(len(rest))} more: {', '.join(parts)} (--limit)", "dim"), indent=2)


def _root(paths: Sequence[str]) -> str:
    """The deepest folder in which most files lie (four of five); "" if there is none."""
    folders: Counter[str] = Counter()
    for path in paths:
        parts = path.split("/")[:-1] if path.startswith("/") else []
        folders.update(["/".join(parts[:depth]) for depth in range(3, len(parts) + 1)])
    deep = [one for one, count in folders.items() if count > 1 and 5 * count >= 4 * len(paths)]
    return max(deep, key=len, default="")
