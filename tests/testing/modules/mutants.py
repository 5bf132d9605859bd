"""Faults that a context module may have: ``MUTANTS`` puts each into any sound class.

A mutant uses the methods of its base alone, so that the checks must find it by what it does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
Make = Callable[[Any], Any]

MUTANTS: dict[str, tuple[str, Make]] = {}
"""By name: the check that must not hold, and the function that makes the mutant."""


def breaks(check: str) -> Callable[[Make], Make]:
    """Register a function that makes a faulty class of a sound one."""

    def register(make: Make) -> Make:
        MUTANTS[make.__name__] = (check, make)
        return make

    return register


def adding(change: Callable[[Row], Row | None]) -> Make:
    """A class that keeps changed messages, or does not keep those that are changed to None."""

    def make(base: Any) -> Any:
        class Mutant(base):
            async def add_message(self, message: Row) -> None:
                changed = change(copy.deepcopy(message))
                if changed is not None:
                    await super().add_message(changed)

        return Mutant

    return named(change, make)


def sending(change: Callable[[Rows], Rows], *, always: bool = False) -> Make:
    """A class whose requests are changed; only those that were reduced, unless ``always``."""

    async def changed(module: Any, sound: Sound, budget: int | None) -> Rows:
        view, kept = await sound(budget), await module.get_messages()
        is_whole = len(str(view)) >= len(str(kept))
        return view if is_whole and not always else change(copy.deepcopy(view))

    return requesting(named(change, changed))


def always_sending(change: Callable[[Rows], Rows]) -> Make:
    return sending(change, always=True)


Sound = Callable[[int | None], Awaitable[Rows]]
"""What the class without the fault sends within a budget."""


def requesting(answer: Callable[[Any, Sound, int | None], Awaitable[Rows]]) -> Make:
    """A class that sends what this makes of the module, of what is sound, and of the budget."""

    def make(base: Any) -> Any:
        class Mutant(base):
            async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
                async def sound(budget: int | None) -> Rows:
                    return await super(Mutant, self).get_messages_for_request(budget, provider)

                return await answer(self, sound, token_budget)

        return Mutant

    return named(answer, make)


def named(after: Any, function: Any) -> Any:
    function.__name__ = after.__name__
    return function


# -- what is kept --------------------------------------------------------------------------------


@breaks("exactness")
@adding
def drops_signatures(row: Row) -> Row:
    return _blocks(row, unsigned)


@breaks("exactness")
@adding
def drops_what_it_does_not_know(row: Row) -> Row:
    known = ("role", "content", "tool_calls", "tool_call_id", "name", "metadata")
    return {key: row[key] for key in known if key in row}


@breaks("transcript")
@adding
def parses_arguments(row: Row) -> Row:
    for call in row.get("tool_calls") or ():
        if "function" in call:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return row


@breaks("transcript")
def forgets_the_oldest(base: Any) -> Any:
    class Mutant(base):
        async def add_message(self, message: Row) -> None:
            await super().add_message(message)
            kept = await self.get_messages()
            if len(kept) > 40:
                await self.set_messages(kept[-40:])

    return Mutant


@breaks("sessions_apart")
def shares_one_list(base: Any) -> Any:
    shared: Rows = []

    class Mutant(base):
        async def add_message(self, message: Row) -> None:
            await super().add_message(message)
            shared.append(copy.deepcopy(message))

        async def get_messages(self) -> Rows:
            return copy.deepcopy(shared)

    return Mutant


@breaks("replacing")
def set_appends(base: Any) -> Any:
    class Mutant(base):
        async def set_messages(self, messages: Rows) -> None:
            for row in messages:
                await self.add_message(row)

    return Mutant


@breaks("clearing")
def clear_is_not_for_requests(base: Any) -> Any:
    class Mutant(base):
        before: Rows = []  # noqa: RUF012

        async def clear(self) -> None:
            self.before = await self.get_messages()
            await super().clear()

        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            view = await super().get_messages_for_request(token_budget, provider)
            return view or self.before

    return Mutant


@breaks("own_list")
def hands_out_its_list(base: Any) -> Any:
    class Mutant(base):
        live: Rows | None = None

        async def get_messages(self) -> Rows:
            if self.live is None:
                self.live = await super().get_messages()
            return self.live

    return Mutant


@breaks("transcript")
def swallows_repetitions(base: Any) -> Any:
    class Mutant(base):
        last: Row | None = None

        async def add_message(self, message: Row) -> None:
            if message != self.last:
                await super().add_message(message)
            self.last = copy.deepcopy(message)

    return Mutant


# -- what is sent --------------------------------------------------------------------------------


@breaks("compacts")
@requesting
async def refuses_a_token_budget(module: Any, sound: Sound, budget: int | None) -> Rows:
    if budget is not None:
        raise TypeError("token_budget is deprecated")
    return await sound(None)


@breaks("resumed")
def does_not_count_what_was_set(base: Any) -> Any:
    class Mutant(base):
        async def set_messages(self, messages: Rows) -> None:
            await super().set_messages(messages)
            self.get_messages_for_request = lambda *_, **__: self.get_messages()

    return Mutant


@breaks("fits")
@requesting
async def stops_too_early(module: Any, sound: Sound, budget: int | None) -> Rows:
    return await sound(None if budget is None else budget * 3)


@breaks("ephemeral")
@requesting
async def compacts_for_good(module: Any, sound: Sound, budget: int | None) -> Rows:
    view = await sound(budget)
    await module.set_messages(view)
    return view


@breaks("ephemeral")
def returns_the_view_as_its_messages(base: Any) -> Any:
    class Mutant(base):
        view: Rows | None = None

        async def get_messages(self) -> Rows:
            return await super().get_messages() if self.view is None else list(self.view)

        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            self.view = None
            self.view = await super().get_messages_for_request(token_budget, provider)
            return list(self.view)

    return Mutant


def place_of(view: Rows, key: str) -> int:
    return next(place for place, row in enumerate(view) if row.get(key))


def without(view: Rows, place: int) -> Rows:
    return [row for number, row in enumerate(view) if number != place]


def _drop(key: str) -> Make:
    return sending(lambda view: without(view, place_of(view, key)))


MUTANTS |= {
    "drops_a_call": ("pairs", _drop("tool_calls")),
    "drops_a_result": ("pairs", _drop("tool_call_id")),
    "shortens_the_rules": ("system_stays", sending(lambda view: [_cut(r, "system") for r in view])),
    "shortens_the_question": ("latest_stays", sending(lambda view: [*map(_cut, view)])),
    "sends_thinking_unsigned": (
        "thinking",
        always_sending(lambda view: [_blocks(row, unsigned) for row in view]),
    ),
    "drops_thinking_wherever_it_compacts": (
        "thinking",
        sending(
            lambda view: [_blocks(row, lambda b: None if _is_thought(b) else b) for row in view]
        ),
    ),
}


@breaks("pairs")
@sending
def puts_its_notice_before_a_result(view: Rows) -> Rows:
    place = place_of(view, "tool_call_id")
    return [*view[:place], {"role": "user", "content": "(compacted)"}, *view[place:]]


@breaks("order")
@sending
def reverses_rounds(view: Rows) -> Rows:
    starts = [n for n, row in enumerate(view) if row["role"] == "user"]
    rounds = [view[a:b] for a, b in zip(starts, [*starts[1:], len(view)], strict=True)]
    return [*view[: starts[0]], *(row for one in reversed(rounds) for row in one)]


@breaks("order")
@always_sending
def swaps_parallel_results(view: Rows) -> Rows:
    place = place_of(view, "tool_call_id")
    return [*view[:place], view[place + 1], view[place], *view[place + 2 :]]


def _cut(row: Row, role: str | None = None) -> Row:
    return row if role and row["role"] != role else {**row, "content": str(row["content"])[:250]}


def unsigned(block: Row) -> Row:
    return {key: value for key, value in block.items() if key != "signature"}


@breaks("system_factory")
def ignores_the_factory(base: Any) -> Any:
    class Mutant(base):
        async def set_system_prompt_factory(self, factory: Any) -> None:
            pass

    return Mutant


@breaks("latest_stays")
@requesting
async def sends_the_view_that_it_sent(module: Any, sound: Sound, budget: int | None) -> Rows:
    if not hasattr(module, "sent"):
        module.sent = await sound(budget)
    return list(module.sent)


@breaks("latest_stays")
@sending
def drops_the_question_once_it_is_worked_on(view: Rows) -> Rows:
    latest = max(n for n, row in enumerate(view) if row["role"] == "user")
    return view if latest == len(view) - 1 else without(view, latest)


@breaks("open_thinking")
@requesting
async def drops_the_thinking_before_its_first_compaction(
    module: Any, sound: Sound, budget: int | None
) -> Rows:
    view, kept = await sound(budget), await module.get_messages()
    if not hasattr(module, "behind"):
        if len(str(view)) >= len(str(kept)):
            return view
        rows = [row["content"] for row in kept if isinstance(row.get("content"), list)]
        module.behind = [block for row in rows for block in row if _is_thought(block)]
    return [_blocks(row, lambda one: None if one in module.behind else one) for row in view]


def _blocks(row: Row, change: Any) -> Row:
    content = row.get("content")
    if not isinstance(content, list):
        return row
    return {**row, "content": [new for block in content if (new := change(block)) is not None]}


def _is_thought(block: Row) -> bool:
    return block.get("type") == "thinking"


# -- what is told, and what is refused -----------------------------------------------------------


class Hooks:
    """The host's hooks, but not every event reaches them."""

    def __init__(self, hooks: Any, passes: Callable[[str], bool]) -> None:
        self.hooks = hooks
        self.passes = passes

    async def emit(self, event: str, data: Row) -> Any:
        return await self.hooks.emit(event, data) if self.passes(event) else None


def telling(passes: Callable[[], Callable[[str], bool]]) -> Make:
    def make(base: Any) -> Any:
        class Mutant(base):
            def __init__(self, hooks: Any, *rest: Any) -> None:
                super().__init__(Hooks(hooks, passes()), *rest)

        return Mutant

    return named(passes, make)


@breaks("told")
@telling
def tells_the_beginning_alone() -> Callable[[str], bool]:
    return lambda event: event == "context:pre_compact"


@breaks("told")
@telling
def tells_of_the_first_alone() -> Callable[[str], bool]:
    seen: set[str] = set()
    return lambda event: not (event in seen or seen.add(event))


REFUSALS: dict[str, tuple[str, Callable[[Row], object]]] = {
    "refuses_what_it_does_not_know": (
        "unknown_settings",
        lambda config: "a_setting_of_another_module" in config,
    ),
    "refuses_the_setting_of_a_bundle": ("known_settings", lambda config: "auto_compact" in config),
    "refuses_a_high_threshold": (
        "known_settings",
        lambda config: config.get("compact_threshold", 0.92) > 1,
    ),
    "refuses_a_float": ("known_settings", lambda one: isinstance(one.get("max_tokens"), float)),
}
"""What a mount function refuses with a ValueError, and the check for it."""
