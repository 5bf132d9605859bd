"""What an import says: a line for a session, one for a file passed over, and the total."""

from __future__ import annotations

from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.screen import Screen
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import FilePassedOver, ImportTotal

_SHOWN = 5


def show_session(screen: Screen, summary: ImportSummary, verbose: bool = False) -> None:
    """One line of a session: its name, format, counts and new records; ``verbose`` tells more."""
    added = plural(summary.added, "new record") if summary.added else "nothing new"
    problems = [plural(summary.warned, "warning")] if summary.warned else []
    screen.line(
        (summary.session or "", "bold green"),
        f"  {summary.format}  ",
        ", ".join((_counts(summary), added, *problems)),
    )
    if summary.taken_over:
        screen.line(
            ("taken over: it is yours, and its file is not imported again", "bold"), indent=2
        )
    if not verbose:
        return
    if summary.raw:
        screen.line((f"kept beside the messages: {_kinds(summary.raw)}", "dim"), indent=2)
    if summary.unanswered:
        requests = plural(summary.unanswered, "sent request")
        screen.line((f"{requests} without an answer in the file", "dim"), indent=2)
    if summary.unknown:
        screen.line((f"not understood among these: {_kinds(summary.unknown)}", "yellow"), indent=2)
    _listed(screen, "waits for the next import", summary.waiting, len(summary.waiting), "dim")
    _listed(screen, "warning", summary.warnings, summary.warned, "yellow")


def show_passed_over(screen: Screen, one: FilePassedOver) -> None:
    """One line of a file that became no session."""
    style = "dim" if one.error is None else "yellow"
    screen.line(("passed over: ", style), str(one.path), f": {one.reason}")


def show_total(screen: Screen, total: ImportTotal) -> None:
    """The last line of an import."""
    parts = [plural(total.sessions, "session"), _counts(total), plural(total.added, "new record")]
    if total.warned:
        parts.append(plural(total.warned, "warning"))
    text = "total: " + ", ".join(parts)
    if total.passed_over:
        text += f"; {plural(total.passed_over, 'file')} passed over"
        text += f", {number(total.failed)} of them for an error" if total.failed else ""
    screen.line((text, "bold"))


def _counts(counted: ImportSummary | ImportTotal) -> str:
    return ", ".join(
        (
            plural(counted.messages, "message"),
            plural(counted.turns, "turn"),
            plural(counted.calls, "request") + _observed(counted),
            plural(counted.compactions, "compaction"),
        )
    )


def _observed(counted: ImportSummary | ImportTotal) -> str:
    """How many of the requests are known as they were sent; nothing is said where none is."""
    if not counted.observed:
        return ""
    return " (as sent)" if counted.observed == counted.calls else f" ({counted.observed:,} as sent)"


def _listed(screen: Screen, title: str, texts: tuple[str, ...], total: int, style: str) -> None:
    for text in texts[:_SHOWN]:
        screen.line((f"{title}: {text}", style), indent=2)
    if total > _SHOWN:
        screen.line((f"… and {total - _SHOWN} more", style), indent=2)


def _kinds(kinds: dict[str, int]) -> str:
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{kind} {number(count)}" for kind, count in ranked[:8])
    rest = sum(count for _, count in ranked[8:])
    return f"{shown}, {number(rest)} others" if rest else shown
