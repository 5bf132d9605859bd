"""The list of sessions says which of them lack a person's words at their end."""

from __future__ import annotations

from pathlib import Path

import eventctx
from eventctx.web.reading import lost_words


async def test_the_list_counts_the_words_of_a_person_that_the_last_request_lacks(
    tmp_path: Path,
) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        context = await engine.session("talk", max_tokens=1_500)
        for number in range(8):
            async with context.turn():
                told = f"Round {number}: " + "the harbour was quiet again today. " * 20
                await context.add_message({"role": "user", "content": told})
                await context.get_messages_for_request()
                await context.add_message({"role": "assistant", "content": "I see. " * 30})
        await context.add_message({"role": "user", "content": "Not in any request yet."})

        rows = (await engine.audit("talk")).requests
        last = await engine.request_view("talk", position=rows[-1].position)
        shown = {entry.ref.number for entry in last.entries if entry.kind == "message"}
        people = [number for number in range(0, 16, 2) if number not in shown]
        assert people, "the budget is too large to lose anything"
        assert await lost_words(engine, "talk") == len(people)
