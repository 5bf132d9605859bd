"""Mutants that keep, set or clear messages in another way than the contract has it."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.testing.modules.mutants.making import Row, Rows, adding, breaks


@breaks("transcript")
def flattens_blocks(base: Any) -> Any:
    def flat(row: Row) -> Row:
        if isinstance(row.get("content"), list):
            row["content"] = " ".join(str(block.get("text", "")) for block in row["content"])
        return row

    return adding(flat)(base)


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
def swallows_calls_in_openai_form(base: Any) -> Any:
    return adding(lambda row: None if row.get("content") is None else row)(base)


@breaks("transcript")
def parses_arguments(base: Any) -> Any:
    def parsed(row: Row) -> Row:
        for call in row.get("tool_calls") or ():
            if "function" in call:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return row

    return adding(parsed)(base)


@breaks("transcript")
def drops_repeated_text(base: Any) -> Any:
    class Mutant(base):
        async def add_message(self, message: Row) -> None:
            kept = await self.get_messages()
            if not any(row.get("content") == message.get("content") for row in kept[-1:]):
                await super().add_message(message)

    return Mutant


@breaks("transcript")
def forgets_the_oldest(base: Any) -> Any:
    class Mutant(base):
        async def add_message(self, message: Row) -> None:
            await super().add_message(message)
            kept = await self.get_messages()
            if len(kept) > 40:
                await self.set_messages(kept[-40:])

    return Mutant


@breaks("transcript")
def refuses_when_full(base: Any) -> Any:
    class Mutant(base):
        async def add_message(self, message: Row) -> None:
            if len(await self.get_messages()) > 40:
                raise RuntimeError("the context is full")
            await super().add_message(message)

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


@breaks("replacing")
def set_keeps_what_is_longer(base: Any) -> Any:
    class Mutant(base):
        async def set_messages(self, messages: Rows) -> None:
            kept = await self.get_messages()
            await super().set_messages([*messages, *kept[len(messages) :], *kept[:1]])

    return Mutant


@breaks("clearing")
def clear_keeps_the_first(base: Any) -> Any:
    class Mutant(base):
        async def clear(self) -> None:
            await self.set_messages((await self.get_messages())[:1])

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


@breaks("own_list")
def takes_the_list_itself(base: Any) -> Any:
    class Mutant(base):
        given: Rows | None = None

        async def set_messages(self, messages: Rows) -> None:
            await super().set_messages(messages)
            self.given = messages

        async def get_messages(self) -> Rows:
            return await super().get_messages() if self.given is None else list(self.given)

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


@breaks("transcript")
def cuts_what_is_long(base: Any) -> Any:
    def cut(row: Row) -> Row:
        content = row.get("content")
        return {**row, "content": content[:20_000]} if isinstance(content, str) else row

    return adding(cut)(base)
