"""``compare``: what each policy would have kept of recorded sessions, and at what cost."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.screen import Column, Screen, progress, put_document
from eventctx.comparison.compare import Comparison, compare
from eventctx.comparison.contenders import budgets_of, contenders, name_and_settings
from eventctx.comparison.defaults import BUDGETS, PRICES, Prices
from eventctx.comparison.figures import NeededAgain
from eventctx.comparison.recording import Recording, UnusedSession, recordings_of
from eventctx.errors import InvalidSetting
from eventctx.importers.many import import_paths
from eventctx.log.naming import message_name
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.named import ALIASES, POLICIES, import_path
from eventctx.stores.memory import MemoryStore

if TYPE_CHECKING:
    from eventctx.comparison.compare import Comparison, Measured, PolicyRow
    from eventctx.comparison.figures import NeededAgain


LOSSES = 3
MILLION = 1_000_000
_PART = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|[^,])+""")


@click.command("compare", short_help="What each policy would have kept, and at what cost.")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION…")
@click.option(
    "--policies",
    metavar="A,B",
    help="Policies, the first one to compare with; settings behind colons: "
    "ladder:target_usage=0.3. Also recency and random. Default: all that need no function.",
)
@click.option(
    "--budgets",
    default=",".join([f"{budget // 1000}k" for budget in BUDGETS]),
    show_default=True,
    metavar="A,B",
    help="Tokens per request.",
)
@click.option(
    "--price",
    metavar="INPUT/CACHED/WRITE",
    help="Prices of a million prompt tokens: plain, read from the cache, written to it. "
    "Default: 1/0.1/1.25, in plain tokens.",
)
@click.option(
    "--losses",
    type=click.IntRange(min=0),
    default=LOSSES,
    show_default=True,
    metavar="N",
    help="The worst losses of the first policy, for each budget.",
)
@click.option("--summarizer", metavar="MODULE:FUNCTION", help="Your async function, for summarize.")
@click.option("--scorer", metavar="MODULE:FUNCTION", help="Your async function, for importance.")
@opening.reading
def compare_command(
    sessions: tuple[str, ...],
    policies: str | None,
    budgets: str,
    price: str | None,
    losses: int,
    summarizer: str | None,
    scorer: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Play policies over recorded sessions as if live, and say what each would have kept.

    SESSION is a session of the store, or a path to a recorded session of any format that `import`
    reads. For each policy and budget: how much of what the model used again was still in its
    requests, a person's demands, the reuse of the provider's cache, and the cost. The row "whole"
    never compacts; "hindsight" knows what will be used. Every session is used up to its first
    compaction. Nothing is written, and no model is called but by functions of yours.
    """
    options = _Options(
        None if policies is None else _listed(policies),
        budgets_of([one for one in budgets.split(",") if one.strip()]),
        _prices(price),
        losses,
        None if summarizer is None else _function("summarizer", summarizer),
        None if scorer is None else _function("scorer", scorer),
    )
    contenders(options.policies, options.summarizer, options.scorer)  # before hours of work
    paths = [Path(name) for name in sessions if Path(name).exists()]
    streams = [name for name in sessions if not Path(name).exists()]
    found, asked = run(_compare(streams, paths, options, store))
    if as_json:
        put_document(found)
        return
    screen = Screen()
    show_comparison(screen, found, price is not None)
    show_losses(screen, [loss for loss in found.losses if loss.policy == first_policy(found)])
    if asked is not None:
        where = opening.as_option(store)
        show_how_to_ask(screen, asked.loss, _commands(asked, f"{spelling()}{where}"))


class _Options(NamedTuple):
    policies: list[str] | None
    budgets: list[int]
    prices: Prices
    losses: int
    summarizer: Summarizer | None
    scorer: Scorer | None


class _Asked(NamedTuple):
    """A loss to ask ``why`` about: in a new session ``fork`` of its own, made at ``position``."""

    loss: NeededAgain
    fork: str
    position: int


def _commands(asked: _Asked, program: str) -> list[str]:
    """The commands that make the what-if true in a fork, and ask there."""
    loss, fork = asked.loss, asked.fork
    name, settings = name_and_settings(loss.policy)
    given = "".join([f" --set {shlex.quote(one)}" for one in settings])
    return [
        f"{program} fork {shlex.quote(loss.session)} {fork} --at {asked.position}",
        f"{program} compact {fork} --policy {shlex.quote(name)} --budget {loss.budget}{given}",
        f"{program} why {fork} {loss.message}",
    ]


async def _compare(
    streams: list[str], paths: list[Path], options: _Options, store: str | None
) -> tuple[Comparison, _Asked | None]:
    """The comparison, and the loss to ask about next."""
    recordings: list[Recording] = []
    unused: list[UnusedSession] = []
    stored: set[str] = set()
    if streams:
        async with opening.open_reader(store) as reader:
            found = [(await opening.find_session(reader.store, name)).stream for name in streams]
            recordings, unused = await recordings_of(reader.store, found)
            stored = {one.name for one in recordings}
    if paths:
        memory = MemoryStore()
        with progress("Reading"):
            imports = await import_paths(memory, paths, complete=True)
        failed = [one for one in imports.passed_over if one.error or one.path in paths]
        unused += [UnusedSession(str(one.path), f"{one.path}: {one.reason}") for one in failed]
        found = [one.session for one in imports.sessions if one.session is not None]
        read = await recordings_of(memory, found)
        recordings += read[0]
        unused += read[1]
    with progress("Playing", 1) as bar:
        made = await compare(
            recordings,
            options.policies,
            options.budgets,
            summarizer=options.summarizer,
            scorer=options.scorer,
            prices=options.prices,
            losses=options.losses,
            passed_over=unused,
            progress=bar.at,
        )
    return made, await _to_ask(made, stored, options, store)


async def _to_ask(
    made: Comparison, stored: set[str], options: _Options, store: str | None
) -> _Asked | None:
    """The worst loss of the first policy, if it is of a session in the store.

    None for a baseline, and where functions of the user's are asked: `compact` knows neither.
    """
    first = first_policy(made)
    losses = [one for one in made.losses if one.policy == first and one.session in stored]
    name = name_and_settings(first)[0]
    functions = options.summarizer is not None or options.scorer is not None
    if not losses or functions or (name not in POLICIES and name not in ALIASES):
        return None
    async with opening.open_reader(store) as reader:
        lines = await reader.transcript(losses[0].session)
        fork = await opening.free_name(reader, "what-if")
    position = next((line.position for line in lines if line.number == losses[0].behind), None)
    return None if position is None else _Asked(losses[0], fork, position)


def _listed(given: str) -> list[str]:
    """Parts between commas; those in brackets and quotes belong to a setting's JSON."""
    return [one.strip() for one in _PART.findall(given) if one.strip()]


def _prices(given: str | None) -> Prices:
    if given is None:
        return PRICES
    try:
        prices = [float(one) for one in given.split("/")]
    except ValueError:
        prices = []
    if not 1 <= len(prices) <= 3 or not all(0 <= one < MILLION for one in prices):
        raise InvalidSetting(
            "--price: expected prices of a million tokens as INPUT/CACHED/WRITE, such as "
            f"3/0.3/3.75, found {given!r}"
        )
    cached, written = prices[min(1, len(prices) - 1)], prices[2 if len(prices) == 3 else 0]
    return Prices(cached / MILLION, written / MILLION)


def _function(option: str, path: str) -> Any:
    found = import_path(path)
    if not callable(found):
        raise InvalidSetting(f"--{option}: expected an async function, found {path!r}")
    return found


HELD = (
    Column("policy", fold=True),
    Column("held %", right=True),
    Column("95 %", right=True),
    Column("vs 1st", right=True),
    Column("quotes", right=True),
    Column("names", right=True),
    Column("or #", right=True),
    Column("starved", right=True),
    Column("demands", right=True),
)
COST = (
    Column("policy", fold=True),
    Column("tokens", right=True),
    Column("reuse %", right=True),
    Column("cost", right=True),
    Column("of whole", right=True),
    Column("compactions", right=True),
    Column("per 50", right=True),
)
LEGEND = (
    "held: the share of what the model used again that its requests still held, in quotes and in "
    "names; or #: with what they point to by number. starved: requests that held less than half. "
    "demands: a person's, word for word. 95 %: where held lies if the sessions are drawn again. "
    "vs 1st: points above the first policy with that budget; ~ is within noise, as is any "
    "difference of fewer than six sessions."
)
LONGEST = 60
LONGEST_ERROR = 200


def show_comparison(screen: Screen, found: Comparison, priced: bool) -> None:
    """The two tables, with a line before the rows of each budget."""
    screen.line((_headline(found), "bold"))
    for one in found.passed_over:
        screen.line(("passed over: ", "yellow"), one.reason)
    left = sum([one.left_out for one in found.sessions])
    if left:
        screen.line(
            (f"not used: {plural(left, 'message')} behind a first compaction or an erasure", "dim")
        )
    screen.blank()
    notes = _notes(found.rows)
    screen.table(HELD, [_held(row) for row in found.rows], notes)
    screen.line((LEGEND, "dim"))
    screen.blank()
    screen.table(COST, [_cost(row, priced) for row in found.rows], notes)
    unit = "by the given prices" if priced else "in tokens at the plain input price"
    screen.line((f"cost: {unit}. reuse: tokens that a cache has from the request before.", "dim"))
    for row in found.rows:
        if row.over_budget or row.fallbacks:
            screen.line(_warning(row))


def show_losses(screen: Screen, losses: Sequence[NeededAgain]) -> None:
    """The worst losses: the message, the rule that took it, and the requests that missed it."""
    for one in losses:
        screen.blank()
        budget = "" if one.budget is None else f" with {number(one.budget)}"
        screen.line(
            (f"{one.policy}{budget} lost {message_name(one.message)}", "bold"),
            f" of {one.session}: {one.disposition or 'cut'}"
            + (f", {one.why}" if one.why else "")
            + f"; {plural(one.requests, 'request')} needed it, the first behind "
            + f"{message_name(one.behind)}",
        )
        screen.line((one_line(one.text, LONGEST), "dim"), indent=2)


def show_how_to_ask(screen: Screen, loss: NeededAgain, commands: Sequence[str]) -> None:
    """How to ask `why` about a loss: it explains what was done, and a what-if is not."""
    screen.blank()
    does = f"{message_name(loss.message)} of {loss.session}"
    screen.line(
        (f"To ask why of {does}, do the same in a fork; the session stays as it is:", "dim")
    )
    for command in commands:
        screen.whole(f"  {command}")


def first_policy(found: Comparison) -> str:
    """The policy that the others are compared with."""
    return next((row.policy for row in found.rows if row.budget is not None), "")


def _headline(found: Comparison) -> str:
    judged = sum([one.judged for one in found.sessions])
    requests = sum([one.requests for one in found.sessions])
    return (
        f"{plural(len(found.sessions), 'session')}, {plural(requests, 'request')}; "
        f"{number(judged)} used something again that was not fresh"
    )


def _notes(rows: Sequence[PolicyRow]) -> dict[int, Sequence[str | tuple[str, str]]]:
    notes: dict[int, Sequence[str | tuple[str, str]]] = {}
    seen: Collection[int | None] = {None}
    for place, row in enumerate(rows):
        if row.budget not in seen:
            seen = {*seen, row.budget}
            notes[place] = ((plural(row.budget or 0, "token"), "bold"),)
    return notes


def _held(row: PolicyRow) -> list[str]:
    return [
        row.policy,
        _percent(row.evidence.value),
        _range(row.evidence),
        _against(row.evidence),
        _percent(row.quotes.value),
        _percent(row.names.value),
        _percent(row.with_pointers),
        _percent(row.starved),
        _percent(row.demands),
    ]


def _cost(row: PolicyRow, priced: bool) -> list[str]:
    return [
        row.policy,
        number(row.tokens),
        _percent(row.prefix_reuse),
        f"{row.cost:,.2f}" if priced else number(round(row.cost)),
        _percent(row.cost_share),
        number(row.compactions),
        "" if row.compactions_per_50 is None else f"{row.compactions_per_50:.1f}",
    ]


def _warning(row: PolicyRow) -> str:
    found = []
    if row.over_budget:
        found.append(f"{plural(row.over_budget, 'request')} over the budget, as too much must stay")
    if row.fallbacks:
        failed = f" ({one_line(row.failure, LONGEST_ERROR)})" if row.failure else ""
        found.append(
            f"{plural(row.fallbacks, 'compaction')} decided by the ladder, as it failed{failed}"
        )
    budget = "" if row.budget is None else f" with {number(row.budget)}"
    return f"{row.policy}{budget}: {'; '.join(found)}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _range(measured: Measured) -> str:
    found = measured.interval
    if found is None or found.low == found.high:
        return ""
    return f"{100 * found.low:.0f}–{100 * found.high:.0f}"


def _against(measured: Measured) -> str:
    found = measured.difference
    if found is None:
        return ""
    return f"{'~' if found.within_noise else ''}{100 * found.value:+.1f}"
