"""Faults that a context module may have: ``MUTANTS`` puts each into any sound class.

A mutant uses the methods of its base alone, so that the checks must find it by what it does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
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

    return make


def sending(change: Callable[[Rows], Rows], *, always: bool = False) -> Make:
    """A class whose requests are changed; only those that were reduced, unless ``always``."""

    def make(base: Any) -> Any:
        class Mutant(base):
            async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
                view = await super().get_messages_for_request(token_budget, provider)
                kept = await self.get_messages()
                is_whole = len(str(view)) >= len(str(kept))
                return view if is_whole and not always else change(copy.deepcopy(view))

        return Mutant

    return make


# -- what is kept --------------------------------------------------------------------------------


@breaks("exactness")
def drops_signatures(base: Any) -> Any:
    def unsigned(row: Row) -> Row:
        for block in row["content"] if isinstance(row.get("content"), list) else ():
            block.pop("signature", None)
        return row

    return adding(unsigned)(base)


@breaks("exactness")
def drops_what_it_does_not_know(base: Any) -> Any:
    known = ("role", "content", "tool_calls", "tool_call_id", "name", "metadata")
    return adding(lambda row: {key: row[key] for key in known if key in row})(base)


@breaks("transcript")
def parses_arguments(base: Any) -> Any:
    def parsed(row: Row) -> Row:
        for call in row.get("tool_calls") or ():
            if "function" in call:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return row

    return adding(parsed)(base)


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
def refuses_a_token_budget(base: Any) -> Any:
    class Mutant(base):
        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            if token_budget is not None:
                raise TypeError("token_budget is deprecated")
            return await super().get_messages_for_request(None, provider)

    return Mutant


@breaks("resumed")
def does_not_count_what_was_set(base: Any) -> Any:
    class Mutant(base):
        was_set = False

        async def set_messages(self, messages: Rows) -> None:
            await super().set_messages(messages)
            self.was_set = True

        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            if self.was_set:
                return await self.get_messages()
            return await super().get_messages_for_request(token_budget, provider)

    return Mutant


@breaks("fits")
def stops_too_early(base: Any) -> Any:
    class Mutant(base):
        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            budget = None if token_budget is None else token_budget * 3
            return await super().get_messages_for_request(budget, provider)

    return Mutant


@breaks("ephemeral")
def compacts_for_good(base: Any) -> Any:
    class Mutant(base):
        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            view = await super().get_messages_for_request(token_budget, provider)
            await self.set_messages(view)
            return view

    return Mutant


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


@breaks("pairs")
def drops_a_call(base: Any) -> Any:
    return sending(
        lambda view: [r for n, r in enumerate(view) if n != place_of(view, "tool_calls")]
    )(base)


@breaks("pairs")
def drops_a_result(base: Any) -> Any:
    return sending(lambda view: without(view, place_of(view, "tool_call_id")))(base)


@breaks("pairs")
def puts_its_notice_before_a_result(base: Any) -> Any:
    def noticed(view: Rows) -> Rows:
        place = place_of(view, "tool_call_id")
        return [*view[:place], {"role": "user", "content": "(compacted)"}, *view[place:]]

    return sending(noticed)(base)


@breaks("order")
def reverses_rounds(base: Any) -> Any:
    def reversed_rounds(view: Rows) -> Rows:
        starts = [n for n, row in enumerate(view) if row["role"] == "user"]
        rounds = [view[a:b] for a, b in zip(starts, [*starts[1:], len(view)], strict=True)]
        return [*view[: starts[0]], *(row for one in reversed(rounds) for row in one)]

    return sending(reversed_rounds)(base)


@breaks("order")
def swaps_parallel_results(base: Any) -> Any:
    def swapped(view: Rows) -> Rows:
        place = place_of(view, "tool_call_id")
        return [*view[:place], view[place + 1], view[place], *view[place + 2 :]]

    return sending(swapped, always=True)(base)


@breaks("system_stays")
def shortens_the_rules(base: Any) -> Any:
    def cut(view: Rows) -> Rows:
        return [
            {**row, "content": row["content"][:250]} if row["role"] == "system" else row
            for row in view
        ]

    return sending(cut)(base)


@breaks("system_factory")
def ignores_the_factory(base: Any) -> Any:
    class Mutant(base):
        async def set_system_prompt_factory(self, factory: Any) -> None:
            pass

    return Mutant


@breaks("latest_stays")
def sends_the_view_that_it_sent(base: Any) -> Any:
    class Mutant(base):
        sent: Rows | None = None

        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            if self.sent is None:
                self.sent = await super().get_messages_for_request(token_budget, provider)
            return list(self.sent)

    return Mutant


@breaks("latest_stays")
def shortens_the_question(base: Any) -> Any:
    return sending(lambda view: [{**row, "content": str(row["content"])[:250]} for row in view])(
        base
    )


@breaks("latest_stays")
def drops_the_question_once_it_is_worked_on(base: Any) -> Any:
    def unasked(view: Rows) -> Rows:
        latest = max(n for n, row in enumerate(view) if row["role"] == "user")
        return view if latest == len(view) - 1 else without(view, latest)

    return sending(unasked)(base)


@breaks("thinking")
def sends_thinking_unsigned(base: Any) -> Any:
    def unsigned(block: Any) -> Any:
        return {key: value for key, value in block.items() if key != "signature"}

    return sending(lambda view: [_blocks(row, unsigned) for row in view], always=True)(base)


@breaks("thinking")
def drops_thinking_wherever_it_compacts(base: Any) -> Any:
    def silent(block: Any) -> Any:
        return None if block.get("type") == "thinking" else block

    return sending(lambda view: [_blocks(row, silent) for row in view])(base)


@breaks("open_thinking")
def drops_the_thinking_before_its_first_compaction(base: Any) -> Any:
    class Mutant(base):
        behind: Any = None

        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            view = await super().get_messages_for_request(token_budget, provider)
            kept = await self.get_messages()
            if self.behind is None and len(str(view)) >= len(str(kept)):
                return view
            if self.behind is None:
                self.behind = [block for row in kept for block in _thoughts(row)]
            return [_blocks(row, lambda one: None if one in self.behind else one) for row in view]

    return Mutant


def _blocks(row: Row, change: Any) -> Row:
    content = row.get("content")
    if not isinstance(content, list):
        return row
    return {**row, "content": [new for block in content if (new := change(block)) is not None]}


def _thoughts(row: Row) -> list[Any]:
    content = row.get("content")
    blocks = content if isinstance(content, list) else ()
    return [block for block in blocks if block.get("type") == "thinking"]


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

    return make


@breaks("told")
def tells_the_beginning_alone(base: Any) -> Any:
    return telling(lambda: lambda event: event == "context:pre_compact")(base)


@breaks("told")
def tells_of_the_first_alone(base: Any) -> Any:
    def first() -> Callable[[str], bool]:
        seen: set[str] = set()
        return lambda event: not (event in seen or seen.add(event))

    return telling(first)(base)


REFUSALS: dict[str, tuple[str, Callable[[Row], object]]] = {
    "refuses_what_it_does_not_know": (
        "unknown_settings",
        lambda config: set(config) & {"a_setting_of_another_module"},
    ),
    "refuses_the_setting_of_a_bundle": ("known_settings", lambda config: "auto_compact" in config),
    "refuses_a_high_threshold": (
        "known_settings",
        lambda config: config.get("compact_threshold", 0.92) > 1,
    ),
    "refuses_a_float": (
        "known_settings",
        lambda config: isinstance(config.get("max_tokens"), float),
    ),
}
"""What a mount function refuses with a ValueError, and the check for it."""
