"""``transcript`` and ``view``: all messages of a session, and a request that its model was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eventctx.cli.output import opening
from eventctx.cli.output.figures import (
    RAW_HINT,
    known_in_words,
    parts_in_words,
    request_tokens,
    stands,
    untold_in_words,
)
from eventctx.cli.output.messages import real_speaker, role_of, role_style, show
from eventctx.cli.output.opening import position as position_of_record
from eventctx.cli.output.opening import request, request_in_words, session_or_last
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import FOUND, CommandFailed, run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.cli.output.sent import show_beside, show_proof, show_sent_messages, show_tools
from eventctx.log.naming import (
    RequestName,
    message_name,
    position_name,
    ranges_name,
)
from eventctx.messages.overlap import runs_of_numbers
from eventctx.messages.speaker import AUDIENCES, Audience, for_audience
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.sendable.sending import WORDS
from eventctx.queries.records import transcript_answer, transcript_of
from eventctx.queries.view import last_request, view_answer, view_of

if TYPE_CHECKING:
    from eventctx.projections.explain.why import LeftOut
    from eventctx.projections.figures import ImportedFile, RequestFigures
    from eventctx.projections.view.entries import Entry
    from eventctx.queries.records import Message
    from eventctx.queries.requests import HostReport, ProviderClearing, RequestView

_full = click.option(
    "--full", is_flag=True, help="Every line of every message, on a terminal too, and base64."
)


@click.command("transcript", short_help="All that was said, now or at an earlier point.")
@click.argument("session", required=False)
@click.option(
    "--at", type=position_of_record, metavar="POSITION", help="As it was after this position."
)
@click.option(
    "--turn",
    type=request,
    metavar="N[.I]",
    help="As it was at the end of turn N, or at the request N.I.",
)
@click.option(
    "--audience",
    type=click.Choice(AUDIENCES),
    default="internal",
    help="Only what developers, or users, are to see. Default: internal, which is everything.",
)
@_full
@opening.reading
def transcript_command(
    session: str | None,
    at: int | None,
    turn: RequestName | None,
    audience: Audience,
    full: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the whole transcript of SESSION, now or at an earlier point; never compacted.

    Without SESSION: the last one used.
    """
    run(_transcript(session, at, turn, audience, full, store, as_json))


async def _transcript(
    session: str | None,
    at: int | None,
    turn: RequestName | None,
    audience: Audience,
    full: bool,
    store: str | None,
    as_json: bool,
) -> None:
    async with opening.answering(store, lists=session is None) as reader:
        info = await session_or_last(reader, session)
        messages = _shown_to(audience, await transcript_of(reader.store, info, at, turn))
    if as_json:
        put_document(transcript_answer(messages))
        return
    screen = Screen()
    for one in messages:
        _show_message(screen, one, full)
    if not messages and audience != "internal":
        screen.line(f"Nothing in the transcript is for the audience {audience!r}.")
    elif not messages:
        screen.line("The transcript is empty.")
    elif screen.live:
        when = f" after {position_name(at)}" if at is not None else ""
        when = "" if turn is None else f" {_until(turn)}"
        screen.line((f"{plural(len(messages), 'message')}{when}.", "dim"))


def _until(name: RequestName) -> str:
    if name.turn is not None and name.iteration is None:
        return f"at the end of turn {name.turn}"
    return f"at {request_in_words(name.turn, name.iteration, name.position or 0)}"


def _shown_to(audience: Audience, messages: list[Message]) -> list[Message]:
    """The messages as an audience sees them; a user does not see that one was erased."""
    if audience == "internal":
        return messages
    shown = []
    for one in messages:
        if one.message is None:
            shown += [one] if audience == "developer" else []
            continue
        harness = () if one.origin is None else (0,)
        left = for_audience([one.message], audience, harness=harness)
        shown += [one._replace(message=message) for message in left]
    return shown


def _show_message(screen: Screen, one: Message, full: bool) -> None:
    role = "erased" if one.message is None else role_of(one.message)
    speaker = real_speaker(
        one.message,
        by_harness=one.origin == "harness",
        observation=one.origin == "observation",
    )
    screen.line(
        (f"{message_name(one.number)} ", "bold"),
        (role, role_style(role)),
        (f"{speaker}  {position_name(one.position)}", "dim"),
    )
    show(screen, one.message, full=full)
    screen.blank()


@click.command("view", short_help="What the model was sent in a turn.")
@click.argument("session", required=False)
@opening.one_request
@click.option(
    "--verify", is_flag=True, help="Instead of the messages: say in words whether it verifies."
)
@_full
@opening.reading
def view_command(
    session: str | None,
    name: RequestName,
    verify: bool,
    full: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show what the model was sent in a turn of SESSION, derived again from the log and verified.

    Without options it is the last request, without SESSION that of the session used last.

    Exits with 1 when the view does not have the digest that was recorded when it was sent, or a
    message in it not its own. `3.2` names a request by turn and iteration, `#6` a message, `@48`
    a record by its position (docs/reference/numbers-and-positions.md).
    """
    run(_view(session, name, verify, full, store, as_json))


async def _view(
    session: str | None,
    name: RequestName,
    verify: bool,
    full: bool,
    store: str | None,
    as_json: bool,
) -> None:
    async with opening.answering(store, lists=session is None) as reader:
        info = await session_or_last(reader, session)
        if name == RequestName():
            name = await last_request(reader.store, info.stream)
        answer = await view_of(reader.store, info.stream, name, proves=verify)
    view, known = answer.view, answer.figures
    if as_json:
        put_document(view_answer(answer))
    elif answer.proof is not None:
        show_proof(Screen(), view, answer.proof)
    else:
        screen = Screen()
        figures = known.requests[view.position]
        _show_view(screen, view, figures, known.file, answer.left_out, full)
        if answer.cleared is not None:
            screen.line((_cleared(answer.cleared), "yellow"))
        for one in answer.reports:
            _show_sent(screen, one, full)
    if not stands(view):
        raise CommandFailed(FOUND)


def _show_view(
    screen: Screen,
    view: RequestView,
    figures: RequestFigures,
    file: ImportedFile,
    left_out: tuple[LeftOut, ...],
    full: bool,
) -> None:
    prepared = view.prepared
    budget = f" of {number(prepared.budget)}" if prepared.budget is not None else ""
    screen.line(
        ("What the model was sent", "bold"),
        f" · {request_in_words(view.turn, view.iteration, view.position)} · "
        f"{plural(len(view.messages), 'message')} · {request_tokens(figures)}{budget} tokens",
    )
    if figures.beside != 0:
        screen.line((f"tokens: {parts_in_words(figures)}", "dim"))
    _show_digest(screen, view, figures, file)
    for line in _left_out(view, left_out):
        screen.line((line, "dim"))
    screen.blank()
    if view.sent is not None and prepared.wire is not None:
        show_beside(screen, view.sent, figures, full)
        show_sent_messages(screen, view.sent, full)
        return
    show_tools(screen, view.tools, None, full)
    for place, (entry, message) in enumerate(zip(view.entries, view.derived, strict=True)):
        role = "not sent" if message is None else role_of(message)
        screen.line(
            (f"[{place}] ", "dim"), (role, role_style(role)), (f"  {_origin(entry)}", "dim")
        )
        for change in view.changes:
            if change.place == place:
                screen.line((f"changed to be accepted: {WORDS[change.rule]}", "yellow"))
        if message is not None:
            show(screen, message, full=full)
        screen.blank()


def _show_digest(
    screen: Screen, view: RequestView, figures: RequestFigures, file: ImportedFile
) -> None:
    """The digest, and what its comparison proves."""
    sent, recorded = view.sent, view.prepared
    digest = view.digest if sent is None else sent.digest
    if not stands(view):
        screen.whole("digest ", digest, " ", ("DOES NOT VERIFY", "bold red"))
        expected = recorded.digest if recorded.wire is None else recorded.wire.digest
        screen.whole(f"recorded {expected}; `eventctx verify` says what was changed")
    elif view.verified:
        screen.whole("digest ", digest, " ", ("verified", "bold green"))
    else:
        screen.whole("digest ", digest, " ", ("consistent", "bold"))
    screen.line((known_in_words(view, figures, file), "dim"))


def _show_sent(screen: Screen, sent: HostReport, full: bool) -> None:
    """Show the host's report of messages that it sent in addition, or did not send."""
    if sent.untold is not None:
        screen.line(
            ("Perhaps not sent quite so", "bold"),
            f" · {position_name(sent.position)} · {untold_in_words(sent.untold)}",
        )
        screen.line((RAW_HINT, "dim"))
        return
    screen.line(
        ("Not sent quite so", "bold"),
        f" · {position_name(sent.position)} · the host sent {plural(sent.messages, 'message')}",
    )
    if sent.missing:
        screen.line(f"{plural(sent.missing, 'message')} of the view not among them")
    screen.blank()
    for one in sent.additions:
        role = "erased" if one.message is None else role_of(one.message)
        place = f"  added by the host behind [{one.behind - 1}]" if one.behind else "  added first"
        screen.line(("[+] ", "dim"), (role, role_style(role)), (place, "dim"))
        show(screen, one.message, full=full)
        screen.blank()


def _origin(entry: Entry) -> str:
    ref = entry.ref
    match entry.kind:
        case "message" if isinstance(ref, MessageRef):
            shortened = ", shortened" if ref.shortened else ""
            omitted = ", without results that answer no call" if entry.omit else ""
            return f"message {message_name(ref.number)}{shortened}{omitted}"
        case "insertion" if isinstance(ref, InsertionRef):
            stands = ref.stands_for
            runs = ranges_name(stands)
            return f"{ref.kind}{f' of {runs}' if runs else ''}, in no transcript"
        case "synthetic" if entry.end is not None and entry.end.position is not None:
            return "made up: the call never got a result, its answer was kept"
        case "synthetic":
            return "made up: the call never got a result"
        case _:
            return "made up: opens a view that would begin without a user"


_UNREASONED = {
    "omitted": "it answers no call in view",
    "replaced": "the host's own system prompt takes its place",
}


def _cleared(found: ProviderClearing) -> str:
    """A line for the tool uses that the provider cleared of the request."""
    uses = f"{plural(found.uses, 'tool use')} before the model read it"
    if found.messages is None:
        return f"The provider cleared {uses}, and does not tell which."
    numbers = ranges_name(runs_of_numbers(sorted(found.messages)))
    return f"The provider cleared {uses} (inferred, the oldest first): {numbers}."


def _left_out(view: RequestView, left_out: tuple[LeftOut, ...]) -> list[str]:
    """Lines for the messages that the view does not show whole, with the reasons."""
    if not left_out:
        none = view.prepared.plan is None
        return ["nothing was left out" + (": no compaction is in force" if none else "")]
    return [
        f"{ranges_name(one.runs)}: {one.disposition}, "
        + (one.rule or one.reason or _UNREASONED.get(one.disposition, ""))
        for one in left_out
    ]
