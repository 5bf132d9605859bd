"""Mutants whose requests are too large, torn, out of order, or lack what they must have."""

from __future__ import annotations

from typing import Any

from tests.testing.modules.mutants.making import Row, Rows, breaks, sending


@breaks("compacts")
def never_compacts(base: Any) -> Any:
    class Mutant(base):
        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            return await self.get_messages()

    return Mutant


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
def shortens_what_is_kept(base: Any) -> Any:
    class Mutant(base):
        async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
            kept = await self.get_messages()
            if len(str(kept)) // 4 > (token_budget or 100_000):
                for row in kept[: len(kept) // 2]:
                    if row.get("role") == "tool":
                        row["content"] = row["content"][:100]
                await self.set_messages(kept)
            return await super().get_messages_for_request(token_budget, provider)

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
def cuts_at_a_count(base: Any) -> Any:
    return sending(lambda view: [*view[:1], *view[-7:]])(base)


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
def drops_the_rules(base: Any) -> Any:
    return sending(lambda view: [row for row in view if row["role"] != "system"])(base)


@breaks("system_stays")
def shortens_the_rules(base: Any) -> Any:
    def cut(view: Rows) -> Rows:
        return [
            {**row, "content": row["content"][:250]} if row["role"] == "system" else row
            for row in view
        ]

    return sending(cut)(base)


@breaks("system_stays")
def makes_rules_of_the_user(base: Any) -> Any:
    def asked(view: Rows) -> Rows:
        return [{**row, "role": "user"} if row["role"] == "system" else row for row in view]

    return sending(asked, always=True)(base)


@breaks("resumed")
def sets_no_rules(base: Any) -> Any:
    class Mutant(base):
        async def set_messages(self, messages: Rows) -> None:
            await super().set_messages([row for row in messages if row["role"] != "system"])

    return Mutant


@breaks("system_factory")
def ignores_the_factory(base: Any) -> Any:
    class Mutant(base):
        async def set_system_prompt_factory(self, factory: Any) -> None:
            pass

    return Mutant


@breaks("system_factory")
def drops_the_factory_s_prompt(base: Any) -> Any:
    return sending(lambda view: view[1:] if view[0]["role"] == "system" else view)(base)


@breaks("pairs")
def drops_the_newest_result(base: Any) -> Any:
    return sending(lambda view: view[:-1] if view[-1]["role"] == "tool" else view)(base)


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
def drops_the_question(base: Any) -> Any:
    def unasked(view: Rows) -> Rows:
        return without(view, max(n for n, row in enumerate(view) if row["role"] == "user"))

    return sending(unasked)(base)


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


@breaks("thinking")
def sends_texts_for_blocks(base: Any) -> Any:
    def flat(row: Row) -> Row:
        if not isinstance(row.get("content"), list) or row.get("tool_calls"):
            return row
        return {**row, "content": "".join(block.get("text", "") for block in row["content"])}

    return sending(lambda view: [flat(row) for row in view])(base)


def _blocks(row: Row, change: Any) -> Row:
    content = row.get("content")
    if not isinstance(content, list):
        return row
    return {**row, "content": [new for block in content if (new := change(block)) is not None]}


def _thoughts(row: Row) -> list[Any]:
    content = row.get("content")
    blocks = content if isinstance(content, list) else ()
    return [block for block in blocks if block.get("type") == "thinking"]
