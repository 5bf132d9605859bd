"""Why a message is in a view or not, in words: facts with labels, and their causes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from eventctx.cli.output import figures
from eventctx.cli.output.messages import shown_parts, snippet
from eventctx.cli.output.opening import place_in_words as request_place
from eventctx.cli.output.plain import minute_or, number, one_line
from eventctx.cli.output.screen import Screen, styled
from eventctx.log.naming import message_name, position_name, ranges_name
from eventctx.log.plan import INFERRED, PROVIDER, TAKEN_BACK
from eventctx.projections.explain.why import SIZES, Reason
from eventctx.projections.presence import PROVIDER_EDITS, Presence, describe_trigger
from eventctx.projections.view.sendable.sending import WORDS
from eventctx.queries.explain_answers import ClearedByProvider, Explanation, StandIn

if TYPE_CHECKING:
    from eventctx.projections.explain.changes import Cause, CompactionFacts


Parts = list[str | tuple[str, str]]

LABEL: Final = 10
"""Characters of a label before a fact."""

_RECORDS: Final = {
    "context:messages_set": "a set of the transcript",
    "context:cleared": "a clear of the transcript",
    "context:restored": "a restore",
    "context:pinned": "a pin",
    "context:erased": "an erasure",
    "context:system_prompt_set": "the host's system prompt",
    "context:request_prepared": "the request",
}


def fact(screen: Screen, label: str, *parts: str | tuple[str, str]) -> None:
    """A line of a label and its text; on a terminal the text wraps in its own column."""
    text = styled(*parts)
    if not screen.live:
        click.echo(f"{label:<{LABEL}}{text.plain}")
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL)
    grid.add_column(width=max(20, screen.width - LABEL), overflow="fold")
    grid.add_row(Text(label, "dim"), text)
    screen.console.print(grid)


def place_in_words(cause: Cause) -> str:
    """``@898 in 1.102``."""
    return request_place(cause.turn, cause.iteration, cause.position)


def cause_in_words(cause: Cause, undated: int | None = None) -> str:
    """The record in full: its kind, place and time, and of a compaction who requested it.

    ``undated`` is the time of records of an imported file that has none.
    """
    when = f"{place_in_words(cause)}, {minute_or(cause.time, undated)}"
    if cause.compaction is None:
        return f"{_RECORDS.get(cause.type, cause.type)} at {when}"
    if cause.compaction.strategy == TAKEN_BACK:
        return f"a step back at {when}, as the imported file says"
    return f"the compaction at {when}: {compaction_in_words(cause.compaction)}"


def compaction_in_words(one: CompactionFacts) -> str:
    """The trigger, the policy and the result of a compaction."""
    if one.trigger == "imported":
        program, _, how = (one.requested_by or "the program whose file was imported").partition(":")
        by = "the provider" if one.strategy in PROVIDER_EDITS else program
        text = f"made by {by}{f' ({how})' if how else ''}"
        return f"{text}; {figures.compaction_tokens(one.figures)}"
    text = describe_trigger(one.trigger).clause
    if one.trigger == "provider":
        how = f" ({one.requested_by})" if one.requested_by else ""
        return f"{text}{how}; {figures.compaction_tokens(one.figures)}"
    if one.requested_by is not None:
        text += f", asked for by {one.requested_by}"
    if one.asked_because:
        text += f" because {one.asked_because!r}"
    text += f"; policy {one.strategy}"
    if one.fallback is not None:
        text += f", for which {one.fallback} decided ({one.error or 'no error was recorded'})"
    return f"{text}; {figures.compaction_tokens(one.figures)}"


def rule_in_words(ruling: Reason) -> str:
    """The reason code and its meaning."""
    if not ruling.reason:
        return "the plan does not say why"
    return f"{ruling.reason}: {ruling.rule or 'a code that this release does not know'}"


def settings_in_words(ruling: Reason) -> str:
    """The settings that govern a rule, with their values at that time."""
    if not ruling.settings:
        imported = ruling.reason in ("imported", INFERRED, TAKEN_BACK)
        return "not in the imported file" if imported else "none govern this rule"
    return ", ".join(_setting(name, value) for name, value in ruling.settings.items())


def _setting(name: str, value: Any) -> str:
    if name in SIZES:
        return f"{name} {number(value)} tokens"
    return f"{name}={msgspec.json.encode(value).decode()}"


BEGINNING: Final = 400
"""Characters of a summary or notice that are shown, in a pipe or on a terminal of any width."""


def presence_in_words(answer: Explanation) -> str:
    """Whether the view has the message, and what took it out."""
    if answer.left_out:
        return "in view, but not sent: its provider would refuse it"
    if answer.ruling is not None and answer.ruling.reason == TAKEN_BACK:
        return "not in view: taken back"
    if answer.standing is Presence.SUMMARISED and _by_provider(answer):
        return "not in view: summarised by the provider"
    if answer.cleared is not None and answer.cleared.message is not None:
        return f"{answer.standing.sentence}, but cleared by the provider before the model read it"
    return answer.standing.sentence


class LabelledFact(NamedTuple):
    """A label and its text, of texts and ``(text, style)`` pairs."""

    label: str
    parts: Parts


def facts_of(answer: Explanation, undated: int | None = None) -> Iterator[LabelledFact]:
    """The cause that took a message out or keeps it in view, its replacement, its history.

    ``undated`` is the time of records of an imported file that has none.
    """
    if answer.standing not in (Presence.WHOLE, Presence.NOT_ADDED):
        yield from _out_of_view(answer, undated)
    yield from _in_view(answer)
    yield from _history(answer, undated)


def _fact(label: str, *parts: str | tuple[str, str]) -> LabelledFact:
    return LabelledFact(label, list(parts))


def _out_of_view(answer: Explanation, undated: int | None) -> Iterator[LabelledFact]:
    """The record that took a message out or shortened it, and its replacement."""
    ruling = answer.ruling
    if answer.standing is Presence.OMITTED:
        yield _fact("because", _uncalled(answer))
    if ruling is not None:
        yield _fact("by", cause_in_words(ruling.cause, undated))
        if ruling.cause.compaction is not None:
            yield from _rule(ruling)
    if answer.standing is Presence.SHORTENED:
        yield _fact("instead", *_shortened(answer))
        return
    for stand_in in answer.stands_in:
        yield _fact("instead", *_standing_for(stand_in))
    if answer.into is not None and _by_provider(answer):
        gone = "" if answer.into_in_view else ", which is in view no more itself"
        yield _fact("instead", f"the provider's summary in {message_name(answer.into)}{gone}")
    elif answer.into is not None:
        gone = "" if answer.into_in_view else ", and is in view no more itself"
        yield _fact(
            "instead", f"message {message_name(answer.into)}, which begins as it does{gone}"
        )
    elif not answer.stands_in:
        yield _fact("instead", _nothing(answer))
    if ruling is not None:
        yield _fact("since", place_in_words(ruling.cause))


def _by_provider(answer: Explanation) -> bool:
    return answer.ruling is not None and answer.ruling.reason == PROVIDER


def _rule(ruling: Reason) -> Iterator[LabelledFact]:
    yield _fact("rule", rule_in_words(ruling))
    yield _fact("settings", settings_in_words(ruling))


def _uncalled(answer: Explanation) -> str:
    if answer.caller is None:
        return "no message before it makes the call that it answers"
    if answer.ruling is not None:
        return f"the call that it answers, in {message_name(answer.caller)}, is not in view"
    return f"the call in {message_name(answer.caller)} has another result already"


def _shortened(answer: Explanation) -> list[str | tuple[str, str]]:
    if answer.shows is None:
        return ["the shortened text, which was erased since"]
    whole, left = _characters(answer.message), _characters(answer.shows)
    sizes = f"{left:,} of {whole:,} characters: " if whole else ""
    return [sizes, (f"“{one_line(snippet(answer.shows, BEGINNING))}”", "italic")]


def _characters(message: dict[str, Any] | None) -> int:
    return 0 if message is None else sum(len(part.text) for part in shown_parts(message))


def _standing_for(one: StandIn) -> list[str | tuple[str, str]]:
    runs = ranges_name(one.stands_for)
    return [
        f"the {one.kind} {position_name(one.position)}, for {runs}: ",
        (f"“{snippet(one.message, BEGINNING)}”", "italic"),
    ]


def _nothing(answer: Explanation) -> str:
    if answer.standing is Presence.SUMMARISED:
        return "nothing: the summary that stood for it has left the view, too"
    if answer.standing is Presence.REPLACED:
        return "the host's own system prompt, which leads the view"
    return "nothing"


def _in_view(answer: Explanation) -> Iterator[LabelledFact]:
    """Why a message that is in view stays, and which parts of it are left out."""
    if answer.in_view:
        yield from _stay(answer)
    if answer.results_left_out:
        left_out = ", ".join(answer.results_left_out)
        yield _fact("without", f"results that answer no call in view: {left_out}")
    for change in answer.changes:
        yield _fact("not sent" if answer.left_out else "changed", WORDS[change.rule])
    if answer.cleared is not None:
        yield _fact("provider", _cleared(answer.cleared))
    if answer.stripped is not None:
        cause = answer.stripped.cause
        bound = "which a provider binds to what precedes it; that was changed by "
        foreign = "which another model made; the one that was called cannot read it: "
        why = foreign if cause.type == "context:request_prepared" else bound
        if cause.compaction is not None and cause.compaction.strategy in PROVIDER_EDITS:
            why = "which is inferred, as it counts turns and names none, from "
        yield _fact("without", f"its thinking, {why}{cause_in_words(cause)}")


def _cleared(found: ClearedByProvider) -> str:
    """The provider's clearing of old tool uses, and whether it is known that this is one."""
    uses = "1 tool use" if found.uses == 1 else f"{number(found.uses)} tool uses"
    request, answer = position_name(found.request), position_name(found.position)
    if found.message is None:
        return (
            f"cleared {uses} of the request at {request} and names none: this may be one "
            f"(its answer at {answer})"
        )
    return (
        f"cleared {uses} of the request at {request}, the oldest first; which is inferred from "
        f"its answer's count ({answer}). The request had all of it"
    )


def _stay(answer: Explanation) -> Iterator[LabelledFact]:
    stays, planned = answer.stays, answer.planned
    if stays is not None:
        yield _fact("stays", f"so decided by {cause_in_words(stays.cause)}")
        yield from _rule(stays)
    elif planned is None:
        yield _fact("stays", "no compaction is in force, so all of the transcript is in view")
    elif answer.restored is not None:
        yield _fact("stays", "it was brought back after the last compaction")
    else:
        last = place_in_words(planned)
        yield _fact("stays", f"it was added after the last compaction, which is at {last}")


def _history(answer: Explanation, undated: int | None) -> Iterator[LabelledFact]:
    if answer.added is not None:
        yield _fact("added", _cause_place(answer, undated))
    if answer.standing is Presence.NOT_ADDED:
        return
    if answer.restored is not None:
        again = "" if answer.in_view else ", and was taken out again since"
        yield _fact("restored", f"{cause_in_words(answer.restored)}{again}")
    if answer.erased is not None:
        yield _fact("erased", cause_in_words(answer.erased))
    pin = f", by {cause_in_words(answer.pinned_by)}" if answer.pinned_by is not None else ""
    yield _fact("pinned", f"yes{pin}" if answer.pinned else "no")


def _cause_place(answer: Explanation, undated: int | None = None) -> str:
    """Where and when a message was added."""
    assert answer.added is not None  # noqa: S101 - tells the type checker
    return cause_in_words(answer.added, undated).partition(" at ")[2]
