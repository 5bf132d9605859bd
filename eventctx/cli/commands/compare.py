"""``compare``: what each policy would have kept of recorded sessions, and at what cost."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from eventctx.cli.output import opening
from eventctx.cli.output.comparison import show_comparison, show_losses, show_tasks
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.screen import Screen, progress, put_document
from eventctx.comparison.defaults import BUDGETS, PRICES, Prices
from eventctx.errors import InvalidSetting
from eventctx.log.naming import message_name
from eventctx.policies.named import ALIASES, POLICIES, import_path

# What plays and what imports is loaded by the functions that do so: the help does neither.
if TYPE_CHECKING:
    from eventctx.comparison.compare import Comparison
    from eventctx.comparison.figures import NeededAgain
    from eventctx.comparison.recording import Recording, UnusedSession
    from eventctx.policies.advisers import Scorer, Summarizer
    from eventctx.testing.tasks import TaskTable


LOSSES = 3
MILLION = 1_000_000
_PART = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|[^,])+""")


@click.command("compare", short_help="What each policy would have kept, and at what cost.")
@click.argument("sessions", nargs=-1, metavar="SESSION…")
@click.option(
    "--tasks",
    is_flag=True,
    help="Play generated tasks instead of sessions, and say how many succeed.",
)
@click.option(
    "--lengths",
    metavar="A,B",
    help="Tokens of the tasks. Default: 8k,32k,64k; 128k and 256k are usual, too.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="N", help="Tasks of a family and length."
)
@click.option(
    "--policies",
    metavar="A,B",
    help="Policies, the first one to compare with; settings behind colons: "
    "ladder:target_usage=0.3. Also masking, recency and random. Default: all that need no "
    "function.",
)
@click.option(
    "--budgets",
    metavar="A,B",
    help="Tokens per request. Default: "
    f"{','.join([f'{budget // 1000}k' for budget in BUDGETS])}. With --tasks percent of the full "
    "length. Default: 100,50,25,12.",
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
    tasks: bool,
    lengths: str | None,
    seeds: int | None,
    policies: str | None,
    budgets: str | None,
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
    requests, a person's instructions, the reuse of the provider's cache, and the cost. The row
    "whole" never compacts; "hindsight" knows what will be used. Only the part of a session before
    its first compaction is used. Nothing is written; only your own functions call a model.
    """
    if tasks:
        _refuse_with_tasks(sessions, price, summarizer, scorer)
        table = run(_play_tasks(policies, lengths, budgets, seeds))
        if as_json:
            put_document(table)
        else:
            show_tasks(Screen(), table)
        return
    if not sessions:
        raise click.UsageError("Missing argument 'SESSION…', or --tasks.")
    if lengths is not None or seeds is not None:
        raise click.UsageError("--lengths and --seeds are for --tasks.")
    from eventctx.comparison.contenders import budgets_of, contenders

    options = _Options(
        None if policies is None else _listed(policies),
        budgets_of(BUDGETS if budgets is None else _parts(budgets)),
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
    from eventctx.comparison.contenders import name_and_settings

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
    from eventctx.comparison.compare import compare
    from eventctx.comparison.recording import recordings_of

    recordings: list[Recording] = []
    unused: list[UnusedSession] = []
    stored: set[str] = set()
    if streams:
        async with opening.open_reader(store) as reader:
            found = [(await opening.find_session(reader.store, name)).stream for name in streams]
            recordings, unused = await recordings_of(reader.store, found)
            stored = {one.name for one in recordings}
    if paths:
        from eventctx.importers.many import import_paths
        from eventctx.importers.workers import useful_workers
        from eventctx.stores.memory import MemoryStore

        memory = MemoryStore()
        with progress("Reading"):
            imports = await import_paths(memory, paths, complete=True, workers=useful_workers())
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
    from eventctx.comparison.contenders import name_and_settings

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


def _refuse_with_tasks(sessions: tuple[str, ...], *others: str | None) -> None:
    if sessions or any(one is not None for one in others):
        raise click.UsageError(
            "--tasks takes no sessions, prices or functions; give --policies, --budgets, --lengths "
            "and --seeds."
        )


async def _play_tasks(
    policies: str | None, lengths: str | None, budgets: str | None, seeds: int | None
) -> TaskTable:
    from eventctx.comparison.contenders import budgets_of
    from eventctx.testing.tasks.table import SEEDS, SHARES, USUAL_LENGTHS, run_tasks

    with progress("Playing", 1) as bar:
        return await run_tasks(
            None if policies is None else _listed(policies),
            lengths=USUAL_LENGTHS if lengths is None else sorted(budgets_of(_parts(lengths))),
            shares=SHARES if budgets is None else [_share(one) for one in _parts(budgets)],
            seeds=SEEDS if seeds is None else seeds,
            progress=bar.at,
        )


def _parts(given: str) -> list[str]:
    return [one.strip() for one in given.split(",") if one.strip()]


def _share(given: str) -> float:
    try:
        percent = float(given.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise InvalidSetting(
            "--budgets: with --tasks expected percent of the full length, such as 25, "
            f"found {given!r}"
        )
    return percent / 100


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
