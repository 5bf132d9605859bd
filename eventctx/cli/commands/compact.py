"""``compact``: compact a session now, or show what that would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec
from msgspec import UNSET, UnsetType

from eventctx.cli.output import figures, opening
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.records import reason_in_words
from eventctx.cli.output.screen import Column, Screen, put_document
from eventctx.errors import InvalidSetting
from eventctx.log.naming import message_name, range_name, ranges_name
from eventctx.log.plan import Plan, Run, find
from eventctx.messages.encoding import decode_json
from eventctx.policies.named import (
    DEFAULT,
    POLICIES,
    default_policy,
    policy_named,
    settings_of_policy,
)
from eventctx.policies.policy import (
    Ask,
    AskScores,
    AskSummary,
    Budget,
    Policy,
    PolicyState,
    Proposal,
    Visible,
)
from eventctx.projections import figures as projection
from eventctx.projections.cache_cost import CacheCost
from eventctx.projections.figures import CompactionFigures
from eventctx.projections.presence import describe_reason
from eventctx.projections.timeline.cache_costs import predict_plan
from eventctx.queries.costs import CompactionPrices, prices_of_compaction, read_prices
from eventctx.queries.encoding import fill
from eventctx.queries.key_frames import timeline_at
from eventctx.session.result import CompactionResult, named_insertions
from eventctx.session.settings import NAMES, Settings, by_own_name

if TYPE_CHECKING:
    from eventctx.messages.facts import Facts
    from eventctx.projections.timeline.fold import TimelineState
    from eventctx.projections.view.request_view import ViewState

_QUESTIONS: Final = {
    AskSummary: "a summary",
    AskScores: "scores",
}


class _Watched:
    """A policy that keeps its last question that only a model can answer; None without one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name
        self.version = policy.version
        self.max_messages = policy.max_messages
        self.question: AskSummary | AskScores | None = None

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        """The policy's own proposal or question."""
        answer = self._policy.propose(visible, budget, state)
        if isinstance(answer, AskSummary | AskScores):
            self.question = answer
        return answer


@click.command("compact", short_help="Compact a session, or say what that would do.")
@click.argument("session")
@click.option("--dry-run", is_flag=True, help="Write nothing: say what would become of what.")
@click.option(
    "--policy",
    metavar="NAME",
    help=f"Who decides: {', '.join(POLICIES)}. Default: {DEFAULT}, or ladder with a setting of it.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Tokens per request; default: those of the last request, else 200,000. Less than what "
    "must stay, or than leaves something of use, changes nothing and exits with 1.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Compact also for a --budget that leaves too little: summaries go, or all but the last "
    "message, or what must stay exceeds it.",
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the policy or of the session. May be given several times.",
)
@click.option("--reason", metavar="TEXT", help="Why it is made; recorded.")
@click.option("--keep", metavar="TEXT", help="What to keep, in words, for a policy that asks.")
@opening.on_fork
@opening.reading
def compact_command(
    session: str,
    dry_run: bool,
    policy: str | None,
    budget: int | None,
    force: bool,
    given: tuple[str, ...],
    reason: str | None,
    keep: str | None,
    fork: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Compact SESSION now, whatever its size, and say what became of every message in view.

    With --dry-run nothing is written, and nothing that a model would be asked is asked. Nothing
    leaves the log in any case: `restore` brings messages back. An imported session changes by
    import alone: use --fork.
    """
    if dry_run and fork is not None:
        raise click.UsageError("Expected at most one of --dry-run and --fork.")
    chosen, settings = _read(policy, given, budget)
    made = run(
        _compact(
            session,
            chosen,
            settings,
            {"reason": reason, "keep": keep, "force": force},
            fork,
            store,
            dry_run=dry_run,
        )
    )
    if as_json:
        put_document(_answer(made))
        return
    screen = Screen()
    if fork is not None:
        screen.line("forked ", (session, "bold"), " as it is now as ", (made.session, "bold"))
    _show(screen, made)


class _Made(NamedTuple):
    """A compaction, the view before it, its sizes as every screen gives them, and its budget.

    ``cache`` is the cost that is predicted from the session before it, ``price`` the same in US
    dollars.
    """

    session: str
    before: ViewState
    result: CompactionResult
    figures: CompactionFigures
    budget: int | None
    cache: CacheCost | None
    price: CompactionPrices | None


def _read(
    policy: str | None, given: Sequence[str], budget: int | None
) -> tuple[Policy, dict[str, Any]]:
    """The policy, and the settings that are the session's."""
    parsed: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise InvalidSetting(f"--set: expected KEY=VALUE, found {one!r}")
        parsed[key] = _value(value)
    parsed = by_own_name(parsed)
    policy = default_policy(parsed) if policy is None else policy
    own = {key: parsed.pop(key) for key in settings_of_policy(policy) if key in parsed}
    unknown = sorted(parsed.keys() - set(NAMES))
    if unknown:
        known = [*settings_of_policy(policy), *NAMES]
        raise InvalidSetting(f"--set: expected settings among {known}, found {unknown}")
    if budget is not None:
        parsed["max_tokens"] = budget
    return policy_named(policy, own), parsed


def _value(text: str) -> Any:
    """A value as JSON (``4``, ``0.2``, ``true``, ``["a"]``); anything else is a text."""
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return text


async def _compact(
    session: str,
    policy: Policy,
    settings: dict[str, Any],
    asked: Mapping[str, Any],
    fork: str | None,
    store: str | None,
    *,
    dry_run: bool,
) -> _Made:
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        name = info.stream
        now = await timeline_at(engine.store, name)
        watched = _Watched(policy)
        limit = settings.get("max_tokens")
        would_be = await engine.dry_run(name, policy=watched, **asked, **settings)
        if dry_run:
            return _made(name, now, would_be, settings)
        _check_needs_no_model(watched)
        name = await opening.choose_written(engine, info, fork)
        context = await engine.session(name, **settings)
        made = await context.compact(policy=policy, budget=limit, **asked)
        return _made(name, now, made, settings)


def _made(
    name: str, now: TimelineState, result: CompactionResult, settings: Mapping[str, Any]
) -> _Made:
    estimates = result.before_tokens, result.after_tokens
    sizes = projection.of_next_compaction(now.audit.sizes, *estimates)
    limit = settings.get("max_tokens")
    cache, price = None, None
    if result.plan is not None:
        before, after = estimates
        line = _threshold(now, settings)
        cache = predict_plan(now, result.plan, before=before, after=after, threshold=line)
        rates = read_prices().of(now.view.calibration.model)
        if cache is not None and rates is not None:
            price = prices_of_compaction(rates, cache, 0.0)
    return _Made(name, now.view, result, sizes, limit, cache, price)


def _threshold(now: TimelineState, settings: Mapping[str, Any]) -> int | None:
    """The size at which the next compaction is due, by the budget given, else the last one."""
    last = now.audit.requests[-1].budget if now.audit.requests else None
    budget = settings.get("max_tokens", last)
    share = settings.get("compact_threshold", Settings().compact_threshold)
    return None if budget is None else int(budget * share)


def _check_needs_no_model(watched: _Watched) -> None:
    if watched.question is None:
        return
    what = _QUESTIONS[type(watched.question)]
    messages = plural(len(watched.question.numbers), "message")
    raise InvalidSetting(
        f"policy {watched.name!r} would ask a model for {what} of "
        f"{messages}, and a command line has none: see what "
        "it would do with --dry-run, and compact from your program, or choose another policy"
    )


# -- showing -------------------------------------------------------------------------------------


def _show(screen: Screen, made: _Made) -> None:
    result = made.result
    done = "would be compacted" if result.dry_run else "compacted"
    if result.outcome != "applied":
        because = f": {result.error}" if result.error else ": nothing in view can go"
        screen.line((f"{result.outcome}{because}", "bold"))
    else:
        screen.line(
            (f"{done} by {result.fallback or result.strategy}: ", "bold"),
            f"{figures.compaction_tokens(made.figures)}, "
            f"{number(result.before_messages)} → {plural(result.after_messages, 'message')}",
        )
    if made.cache is not None:
        for words in figures.cache_cost_in_words(made.cache, made.price):
            screen.line((words, "dim"))
    if result.fallback is not None:
        screen.line((f"{result.strategy} could not decide: {result.error}", "yellow"))
    if result.plan is not None:
        screen.blank()
        _show_plan(screen, made.before, result.plan)
    for name in named_insertions(result.removed_insertions):
        screen.line((f"{name} {'would go' if result.dry_run else 'went'}", "yellow"))
    if made.budget is not None and result.after_tokens > made.budget:
        over = f"what must stay is ~{number(result.after_tokens - made.budget)} tokens over"
        screen.line((f"{over} the budget of {number(made.budget)}", "yellow"))
    if result.dry_run:
        screen.line(("Dry run: nothing was written.", "dim"))


def _show_plan(screen: Screen, before: ViewState, plan: Plan) -> None:
    columns = [
        Column("messages"),
        Column("count", right=True),
        Column("what", style="bold"),
        Column("why", fold=True),
    ]
    rows = [
        [
            range_name(one.first, one.last),
            number(len(facts)),
            one.disposition,
            reason_in_words(one.reason, *facts),
        ]
        for one, facts in _in_view(before, plan)
    ]
    screen.table(columns, rows)
    screen.blank()
    for insertion in plan.insertions:
        runs = ranges_name(insertion.stands_for)
        place = (
            "at the start"
            if insertion.before is None
            else f"before {message_name(insertion.before)}"
        )
        kept = "stays" if insertion.at is not None else "is inserted"
        screen.line(f"a {insertion.kind}{f' for {runs}' if runs else ''} {kept} {place}")
    if plan.unbound:
        stripped = ranges_name(plan.unbound)
        screen.line(f"without their thinking, as what precedes them is changed: {stripped}")


def _in_view(before: ViewState, plan: Plan) -> list[tuple[Run, list[Facts]]]:
    """Each run with the facts of its messages that were in view; runs of none are left out."""
    found: dict[int, list[Facts]] = {}
    for ref in before.layout.refs:
        run = find(plan.runs, ref.number)
        if run is not None:
            found.setdefault(run.first, []).append(ref.facts)
    return [(one, found[one.first]) for one in plan.runs if one.first in found]


class RunAnswer(msgspec.Struct, frozen=True):
    """The outcome for a run of messages in view."""

    name: str
    first: int
    last: int
    messages: int
    disposition: str
    reason: str
    rule: str


class InsertionAnswer(msgspec.Struct, frozen=True):
    """A text that goes into the view, or one that leaves it, for which ``new`` is not told."""

    kind: str
    before: int | None
    stands_for: tuple[tuple[int, int], ...]
    new: bool | UnsetType = UNSET


class CompactAnswer(msgspec.Struct, frozen=True):
    """A compaction, or what one would do; sizes are those of ``figures``.

    ``cache`` is its cost in the provider's cache and its saving, as predicted, ``price`` the same
    in US dollars (without calls to a model).
    """

    session: str
    dry_run: bool
    outcome: str
    strategy: str
    fallback: str | None
    error: str | None
    tokens_before: int
    tokens_after: int
    figures: CompactionFigures
    messages_before: int
    messages_after: int
    runs: list[RunAnswer]
    insertions: list[InsertionAnswer]
    insertions_removed: list[InsertionAnswer]
    thinking_left_out: tuple[tuple[int, int], ...]
    cache: CacheCost | None
    price: CompactionPrices | None


def _answer(made: _Made) -> CompactAnswer:
    result = made.result
    plan = result.plan or Plan(-1)
    return fill(
        CompactAnswer,
        result,
        session=made.session,
        tokens_before=made.figures.before,
        tokens_after=made.figures.after,
        figures=made.figures,
        messages_before=result.before_messages,
        messages_after=result.after_messages,
        runs=[
            fill(
                RunAnswer,
                one,
                name=range_name(one.first, one.last),
                messages=len(facts),
                rule=describe_reason(one.reason, *facts),
            )
            for one, facts in _in_view(made.before, plan)
        ],
        insertions=[fill(InsertionAnswer, one, new=one.at is None) for one in plan.insertions],
        insertions_removed=[
            InsertionAnswer(one.kind, one.before, one.stands_for)
            for one in result.removed_insertions
        ],
        thinking_left_out=plan.unbound,
        cache=made.cache,
        price=made.price,
    )
