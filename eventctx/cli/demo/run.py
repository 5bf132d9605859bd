"""The run of ``demo``: a recorded session, live under a small budget, and what is shown of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.cli.commands.audit import compaction_line, show_audit
from eventctx.cli.commands.inspect import html_of
from eventctx.cli.commands.replay import bar
from eventctx.cli.commands.verify import show_verifications
from eventctx.cli.demo.play import Player, Size, TurnFigures, measure
from eventctx.cli.output import opening
from eventctx.cli.output.figures import tokens
from eventctx.cli.output.messages import snippet
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import FOUND, CommandFailed, run, spelling
from eventctx.cli.output.records import reason_in_words
from eventctx.cli.output.screen import Screen
from eventctx.engine import Engine, open_engine
from eventctx.errors import InvalidSetting, MalformedTranscript
from eventctx.importers.detect import choose
from eventctx.importers.source.items import Item
from eventctx.importers.source.lines import read_lines
from eventctx.importers.source.naming import session_name
from eventctx.log.codec import decode_event
from eventctx.log.plan import Plan, expand
from eventctx.log.private_files import make_folder
from eventctx.log.record import Record
from eventctx.projections.audit import AuditRow, CompactionRow
from eventctx.projections.figures import CompactionFigures
from eventctx.queries.audit import Audit
from eventctx.queries.verify import StoreVerification
from eventctx.stores.location import default_path
from eventctx.text import without_password

SAMPLE: Final = Path(__file__).parent / "session.jsonl"
BUDGET: Final = 32_000
"""Tokens of a request of the sample session: few enough for several compactions."""

_SHARE: Final = 0.4
_SMALLEST: Final = 1_000
_BAR: Final = 16
_NAME: Final = 24


class _Recording(NamedTuple):
    path: Path
    format: str | None
    sample: bool

    def items(self) -> Iterator[Item]:
        """The items, read anew each time; the file counts as complete."""
        chosen = choose(self.path, self.format)
        return chosen.parse(read_lines(self.path), self.path.name, lambda: True)


def run_demo(file: Path | None, budget: int | None, format_: str | None, store: str | None) -> None:
    """Run a session, the sample without a ``file``, and show what came of it.

    Raises InvalidSetting, MalformedTranscript and CommandFailed.
    """
    recording = _Recording(file or SAMPLE, format_, file is None)
    size = measure(recording.items())
    if not size.messages:
        raise MalformedTranscript(f"{recording.path}: expected a session, found no message in it")
    wanted = budget or (BUDGET if recording.sample else max(_SMALLEST, round(size.tokens * _SHARE)))
    run(_demo(Screen(), recording, size, wanted, _url(store)))


def _url(store: str | None) -> str:
    """The store that the command line names, or a new one in the place of the last demo's.

    Raises InvalidSetting for a store in memory.
    """
    url = opening.named_store(store)
    if url is None:
        path = _folder() / "demo.db"
        # A page may hold a session of the user's own, and is of a store that is gone.
        for old in (*path.parent.glob("demo.db*"), *path.parent.glob("demo*.html")):
            old.unlink(missing_ok=True)
        return str(path)
    if url in ("memory://", ":memory:"):
        raise InvalidSetting(f"store: expected a file that outlives the command, found {url}")
    return url


def _folder() -> Path:
    """The folder of demos: they stay until the next one, as their commands are to be tried."""
    folder = default_path().parent / "demo"
    make_folder(folder)
    return folder


async def _demo(screen: Screen, recording: _Recording, size: Size, budget: int, url: str) -> None:
    async with open_engine(url, receipts=False) as engine:
        wanted = "demo" if recording.sample else _short(recording.path)
        session = await opening.free_name(engine, wanted)
        _introduce(screen, recording, size, budget)
        # Nobody checks the recording's signatures, so no compaction has to spare a tool loop.
        context = await engine.session(
            session, max_tokens=budget, on_overflow="send_floor", thinking="strip"
        )
        stage = _Stage(screen, budget)
        engine.on("context:post_compact", Compactions(screen).compacted)
        player = Player(context, budget, began=stage.began, ended=stage.ended)
        await player.play(recording.items())
        audit = await engine.audit(session)
        messages = len(await context.get_messages())
        verification = await engine.verify(session)
        page = await _write_page(engine, session)
    _show_result(screen, audit, messages)
    show_verifications(screen, StoreVerification((verification,), ()))
    _suggest(screen, session, url, audit)
    _show_page(screen, page)
    if not verification.ok:
        raise CommandFailed(FOUND)


def _short(path: Path) -> str:
    """A session name that is short to type: the beginning of the file's name."""
    return f"demo-{session_name(path.stem)[:_NAME].rstrip(' -._')}"


def _introduce(screen: Screen, recording: _Recording, size: Size, budget: int) -> None:
    screen.line(("eventctx demo", "bold"))
    screen.blank()
    what = (
        "A recorded tool loop of a scripted agent over eventctx's own source"
        if recording.sample
        else f"The session in {recording.path.name}"
    )
    aside = (
        f" {plural(size.compactions, 'compaction')} of the program that wrote the file "
        f"{'is' if size.compactions == 1 else 'are'} left aside."
        if size.compactions
        else ""
    )
    screen.line(
        f"{what}: {plural(size.messages, 'message')}, about {number(size.tokens)} tokens in "
        f"{plural(size.turns, 'turn')}. It runs live through the engine now, with "
        f"{number(budget)} tokens for each request, so older messages have to give way.{aside}"
    )
    screen.blank()


class _Stage:
    """Prints the beginning and the end of each turn when it happens."""

    def __init__(self, screen: Screen, budget: int) -> None:
        self._screen = screen
        self._budget = budget

    def began(self, turn: int, message: dict[str, Any]) -> None:
        """A turn began with this human message."""
        width = self._screen.width - 10 if self._screen.live else 200
        self._screen.line((f"turn {turn}  ", "bold green"), (snippet(message, width), "bold"))

    def ended(self, turn: TurnFigures) -> None:
        """A turn is over."""
        parallel = f", {turn.parallel}× parallel" if turn.parallel else ""
        failed = f", {turn.failed} failed" if turn.failed else ""
        self._screen.line(
            *bar(turn.tokens, self._budget, _BAR),
            f" {tokens(turn.tokens, True)} tokens · {plural(turn.requests, 'request')} · "
            f"{plural(turn.tool_calls, 'call')}{parallel}{failed}",
            indent=2,
        )


def _chosen(audit: Audit) -> list[AuditRow | int]:
    """The rows to show: the last request of each turn, and those around compactions.

    A number counts rows that are left out.
    """
    requests = audit.requests
    wanted = {
        place
        for place, row in enumerate(requests)
        if place + 1 == len(requests) or requests[place + 1].turn != row.turn
    }
    for one in audit.compactions:
        after = next((i for i, r in enumerate(requests) if r.position > one.position), None)
        if after is not None:
            wanted.update({max(0, after - 1), after})
    chosen: list[AuditRow | int] = []
    gap = 0
    for place, row in enumerate(requests):
        if place in wanted:
            chosen += [gap, row] if gap else [row]
            gap = 0
        else:
            gap += 1
    return chosen


def _show_result(screen: Screen, audit: Audit, messages: int) -> None:
    screen.blank()
    screen.line(("The audit", "bold"), " (turns' last requests, and those around compactions)")
    show_audit(screen, audit, _chosen(audit))
    if audit.requests:
        last = audit.requests[-1]
        screen.line(
            f"The last request held {plural(last.entries, 'message')}; the transcript still holds "
            f"all {messages:,}, byte for byte."
        )
    screen.blank()


def _suggest(screen: Screen, session: str, url: str, audit: Audit) -> None:
    """Print the commands to try next; each works as it is printed."""
    name = shlex.quote(session)
    applied = [row for row in audit.compactions if row.outcome == "applied" and row.turn]
    commands: list[tuple[str, str]] = []
    if applied:
        last = applied[-1]
        commands += [
            (
                "what the model was sent right after the last compaction",
                f"view {name} --turn {last.turn} --iteration {last.iteration}",
            ),
            (
                "a new session from just before it",
                f"fork {name} {shlex.quote(f'{session}-fork')} --at {last.position - 2}",
            ),
        ]
    if audit.turns:
        turn = audit.turns[0].number
        commands.append(
            (
                "all that was said by the end of a turn",
                f"transcript {name} --turn {turn}",
            )
        )
    commands += [
        ("every request, with its digest", f"audit {name}"),
        ("step by step through the session", f"replay {name}"),
        ("check every digest of the log again", f"verify {name}"),
    ]
    if session == "demo":
        commands.append(("the same with a session of your own", "demo FILE"))
    show_commands(screen, url, commands)


async def _write_page(engine: Engine, session: str) -> Path:
    """Write the session as one file. A folder chosen for a store gets no other file unasked."""
    page = _folder() / f"{session}.html"
    await html_of(engine, await opening.find_session(engine.store, session), page)
    return page


def _show_page(screen: Screen, page: Path) -> None:
    screen.blank()
    screen.line(("As a page", "bold"))
    screen.line(
        "The whole session in one file, for any browser: what was sent in every request, and for "
        "each message when it was in view."
    )
    screen.whole((str(page.absolute()), "cyan"))


class Compactions:
    """Prints each compaction, with the messages that the one before it did not affect."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._plan: Plan | None = None

    def compacted(self, record: Record) -> None:
        """A compaction ended: called by the engine's hooks, as any observer of yours would be."""
        event: Any = decode_event(record)
        row = CompactionRow(
            record.position, record.time, None, record.iteration, event.outcome, event.trigger,
            event.strategy, event.tokens_before, event.tokens_after, event.messages_before,
            event.messages_after, event.budget, event.duration, event.fallback, event.error,
            CompactionFigures(event.tokens_before, True, event.tokens_after, True),
        )  # fmt: skip
        line = compaction_line(row)
        self._screen.line(*[_unbroken(part) for part in line], indent=2)
        if event.plan is not None:
            for reason, count in _reasons(event.plan, self._plan).items():
                self._screen.line((f"{count} {reason}", "dim"), indent=6)
            self._plan = event.plan


def _unbroken(part: str | tuple[str, str]) -> str | tuple[str, str]:
    return part.rstrip("\n") if isinstance(part, str) else part


def _reasons(plan: Plan, before: Plan | None) -> dict[str, int]:
    """Counts, by disposition and reason, of messages that only the later plan changes."""
    known = {
        one: disposition
        for one, disposition, _ in expand(before.runs if before is not None else ())
    }
    found: Counter[str] = Counter()
    for one, disposition, reason in expand(plan.runs):
        if disposition != "kept" and known.get(one) != disposition:
            found[f"{disposition}: {reason_in_words(reason)}"] += 1
    return dict(found)


def show_commands(screen: Screen, url: str, commands: Sequence[tuple[str, str]]) -> None:
    """Print commands to try next, given as pairs of a text and a command without ``--store``."""
    program = spelling()
    path = opening.path_of(url)
    # Absolute, so that the commands work from any folder.
    shown = without_password(url) if path is None else str(path.absolute())
    where = f"--store {shlex.quote(shown)}"
    screen.blank()
    screen.line(("Try next", "bold"))
    for text, command in commands:
        screen.line((f"# {text}", "dim"))
        # Unindented and unbroken, so that a long path leaves a line that can be copied.
        own = command == "demo FILE"
        screen.whole((f"{program} {command}" if own else f"{program} {command} {where}", "cyan"))
