"""For every session: the report of what left agrees with the view itself, and with itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx import Context
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.messages.overlap import normal
from eventctx.messages.recall_text import text_of
from eventctx.policies.named import policy_named
from eventctx.queries.lost.answers import STATES, Lost
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.queries.lost.given import Row, call, model, result, user

SAID = (
    "Never touch the migrations. Please keep the tests green.",
    "continue",
    "Rename balance_in_cents, and use a queue instead.",
)
COMMANDS = ("pytest tests/shop", "cd /repo && cat shop/models.py", "npm test 2>&1 | tail -3")
PATHS = ("/repo/shop/models.py", "shop/models.py", "/repo/a.py")

TOLD = "I'll use balance_in_cents instead of a float."
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "say": st.sampled_from(SAID),
    "tell": st.just(TOLD),
    "run": st.sampled_from(COMMANDS),
    "read": st.sampled_from(PATHS),
    "write": st.sampled_from(PATHS),
    "compact": st.sampled_from(["simple", "ladder", "truncate", "summarize"]),
    "set": st.integers(0, 9),
    "restore": st.integers(0, 30),
    "clear": st.integers(0, 3),
}
STEP = st.one_of([st.tuples(st.just(what), value) for what, value in VALUES.items()])
STEPS = st.lists(STEP, min_size=6, max_size=24)


def rows_of(what: str, value: Any, place: int) -> list[Row]:
    match what:
        case "say":
            return [user(value)]
        case "tell":
            return [model(value)]
        case "run":
            failed = place % 2 == 0
            text = "Exit code 1\nTypeError: no balance_in_cents" if failed else "fine " * 400
            return [call(place, "Bash", {"command": value}), result(place, text, failed=failed)]
        case "read":
            text = f"class Account{place}:\n    balance_in_cents = 0\n" + "x " * 800
            return [call(place, "Read", {"file_path": value}), result(place, text)]
        case "write":
            arguments = {"file_path": value, "content": "balance_in_cents = 1\n" * 30}
            return [call(place, "Write", arguments), result(place, "ok")]
    return []


async def in_short(messages: list[Row], **given: Any) -> str:
    return "Never touch the migrations. Ran pytest tests/shop and read shop/models.py."


After = Callable[[Engine, Context, str, Any], Coroutine[Any, Any, None]]


async def play(steps: list[tuple[str, Any]], after: After | None = None) -> Engine:
    """A session in which these steps were taken; ``after`` is called behind each of them."""
    engine = Engine(MemoryStore())
    options = {"max_tokens": 1_500, "on_overflow": "send_floor", "summarizer": in_short}
    ctx = await engine.session("s", policy="ladder", **options)
    for place, (what, value) in enumerate(steps):
        for row in rows_of(what, value, place):
            await ctx.add_message(row)
        messages = await ctx.get_messages()
        match what:
            case "compact":
                await ctx.compact(policy=policy_named(value, {}))
            case "set":
                await ctx.set_messages(messages[value:])
            case "restore":
                with contextlib.suppress(InvalidSetting):  # not in the transcript any more
                    await ctx.restore(value)
            case "clear" if value == 0:
                await ctx.clear()
        if after is not None:
            await after(engine, ctx, what, value)
    return engine


async def check(steps: list[tuple[str, Any]]) -> None:
    engine = await play(steps)
    now = await engine.lost("s")
    assert now == await engine.lost("s")
    ctx = await engine.session("s")
    check_report(now)
    check_against_view(now, await ctx.get_messages())
    await check_against_why(engine, now)
    for number in range(1, now.compactions + 1):
        check_report(await engine.lost("s", compaction=number))


def check_against_view(found: Lost, view: list[Row]) -> None:
    """An item that is in view is in the text of a message there, and so many messages have it."""
    texts = [normal(text_of(message)) for message in view]
    for one in found.items:
        if one.kind in ("instruction", "command", "decision"):
            shown = sum(normal(one.text) in text for text in texts)
            assert shown or one.state not in ("whole", "shortened"), one
            assert one.in_view <= shown, one


LEFT_BY = dict.fromkeys(("summarised", "dropped", "merged"), "compaction")
LEFT_BY |= {"set": "set", "cleared": "clear", "omitted": "unanswered"}


async def check_against_why(engine: Engine, now: Lost) -> None:
    """The counts and causes are those that ``why`` gives, message by message."""
    answers = [await engine.why("s", number) for number in range(now.messages.total)]
    counts = Counter(str(one.standing) for one in answers)
    assert (now.messages.whole, now.messages.shortened) == (counts["whole"], counts["shortened"])
    assert now.messages.left == sum(not one.in_view for one in answers)
    left = Counter(LEFT_BY[str(one.standing)] for one in answers if not one.in_view)
    assert now.messages.left_by == left
    for one in now.items:
        answer, left = answers[one.number], one.left
        assert one.kind != "result" or "tool_result" in str(answer.message), one
        if left is None or answer.in_view or left.by in ("unanswered", "erased"):
            continue
        assert answer.ruling is not None and left.position == answer.ruling.cause.position, one


def check_report(found: Lost) -> None:
    messages = found.messages
    assert messages.total == messages.whole + messages.shortened + messages.left
    assert sum(messages.left_by.values()) == sum(messages.left_of.values()) == messages.left
    keys = [
        (one.kind, one.text, one.command and one.command.error, one.number) for one in found.items
    ]
    assert len(keys) == len(set(keys))
    states = Counter((one.kind, one.state) for one in found.items)
    for counts in found.counts:
        assert counts.total == sum(getattr(counts, state) for state in STATES)
        assert all(getattr(counts, state) == states[counts.kind, state] for state in STATES)
    for one in found.items:
        if one.kind != "result":
            assert (one.in_view > 0) == (one.state in ("whole", "shortened")), one
        else:
            assert one.used_again > 0 and one.quoted, one
        assert 0 <= one.in_view <= one.messages
        assert (one.left is None) == (one.in_view > 0), one
        assert one.state != "summary" or found.summaries


@settings(max_examples=some(15, 60), deadline=None)
@given(STEPS)
def test_the_report_agrees_with_the_view_and_with_itself(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(check(steps))


async def test_what_a_shortened_message_lost_was_taken_by_the_compaction_that_cut_it() -> None:
    tell, run = ("tell", TOLD), ("run", COMMANDS[1])
    steps = [tell, tell, run, tell, ("write", "shop/models.py"), tell, ("compact", "ladder")]
    await check([*steps, ("read", "/repo/shop/models.py")])


async def test_a_demand_that_was_said_twice_and_taken_back_once_stays_an_item() -> None:
    engine = await play([("say", SAID[0]), ("say", SAID[0])])
    await (await engine.session("s")).withdraw_instruction(0, 1)
    (found,) = [one for one in (await engine.lost("s")).items if "migrations" in one.text]
    assert (found.kind, found.messages, found.number) == ("instruction", 1, 1)
