"""The ledger of a person's demands in words: an answer, and each demand on a line or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from eventctx.cli.output.plain import number, one_line, plural
from eventctx.queries.instructions import HELD, Held, HeldRun, Instruction, Instructions

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen

PIPE_WIDTH: Final = 160
"""Characters of a demand's line where there is no terminal."""

_LEAST_TEXT: Final = 24
_MOST_RUNS: Final = 6
"""Runs of requests that one line names; of more, the last ones."""

_IN_WORDS: Final[dict[Held, str]] = {
    "verbatim": "in view word by word",
    "in_summary": "in a summary",
    "in_index": "in an index or notice",
    "shortened": "cut from a message in view",
    "absent": "absent",
}
_SHORT: Final[dict[Held, str]] = {
    "verbatim": "verbatim",
    "in_summary": "summary",
    "in_index": "index",
    "shortened": "cut",
    "absent": "absent",
}
_STYLES: Final[dict[Held, str]] = {
    "verbatim": "green",
    "in_summary": "yellow",
    "in_index": "yellow",
    "shortened": "red",
    "absent": "red",
}
_LEFT: Final = {
    "set": "a set of the transcript took its message out",
    "clear": "the transcript was cleared",
    "erased": "its message was erased",
}


def answer(found: Instructions) -> str:
    """The answer in a few sentences."""
    where = "Now" if found.about is None else f"In request {found.about}"
    total = sum(found.counts.values())
    parts = [
        f"{number(found.counts[held])} {_IN_WORDS[held]}" for held in HELD if found.counts[held]
    ]
    if not found.instructions:
        text = (
            f"{where}: no demand of a person is known; a demand is told by words such as "
            '"never", "must" or "make sure".'
        )
    elif not total:
        text = f"{where}: no demand of a person holds any more."
    else:
        verb = "holds" if total == 1 else "hold"
        text = f"{where}: {plural(total, 'demand')} of a person {verb}; {', '.join(parts)}."
    for count, words in ((found.taken_back, "taken back"), (found.left, "left the transcript")):
        if count:
            verb = "" if words.startswith("left") else ("was " if count == 1 else "were ")
            text += f" {number(count)} {verb}{words}."
    if found.erased:
        text += f" {plural(found.erased, 'message')} of a person erased: nothing is known of them."
    if found.sealed:
        sealed = plural(found.sealed, "summary", "summaries")
        text += f" {sealed} encrypted: what stands in there is not known."
    return text


def show_demands(screen: Screen, listed: Sequence[Instruction]) -> None:
    """Each demand with its state now, and below it how the requests held it."""
    if listed:
        screen.blank()
    widest = max((len(one.name) for one in listed), default=0)
    for one in listed:
        state, style = _state(one)
        head = f"{state:<10} {one.name:<{widest}}  "
        width = max(_LEAST_TEXT, (screen.width if screen.live else PIPE_WIDTH) - len(head) - 2)
        screen.line((head[:11], style), (head[11:], "bold"), f"“{one_line(one.text, width)}”")
        below = _below(one)
        if below:
            screen.line((below, "dim"), indent=len(head))


def _state(one: Instruction) -> tuple[str, str]:
    if one.taken_back is not None:
        return "taken back", "dim"
    if one.stands is None:
        return "left", "dim"
    return _SHORT[one.stands], _STYLES[one.stands]


def _below(one: Instruction) -> str:
    """What stands below a demand; nothing where it was in view all along."""
    parts: list[str] = []
    if one.stands == "verbatim" and one.where is not None:
        parts.append(f"said again in {one.where}")
    elif one.where is not None:
        parts.append(f"word by word in {one.where}")
    runs = one.runs
    # Of one that only the view as it stands now does not hold, all requests held it.
    if len(runs) > 1 or (runs and runs[0].held != "verbatim"):
        shown = [_run(run) for run in runs[-_MOST_RUNS:]]
        more = "" if len(runs) <= _MOST_RUNS else "… "
        parts.append(more + ", ".join(shown))
    if one.absent_since is not None:
        parts.append(f"not told since {one.absent_since}")
    if one.taken_back is not None:
        by = "" if one.taken_back.by is None else f" by {one.taken_back.by}"
        parts.append(f"taken back{by}, as a {one.taken_back.said_by} said ({one.taken_back.at})")
    if one.left is not None:
        parts.append(f"{_LEFT[one.left.by]} ({one.left.at})")
    return "; ".join(parts)


def _run(run: HeldRun) -> str:
    requests = run.first if run.first == run.last else f"{run.first}–{run.last}"
    return f"{_SHORT[run.held]} {requests}"
