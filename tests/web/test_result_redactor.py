"""Which parts of a timeline's document are searched for secrets."""

from __future__ import annotations

from typing import Any

import eventctx
from eventctx.hooks.result_redactor import ResultRedactor

KEY = "sk-ant-api03-" + "Ab1" * 12


async def test_every_text_that_somebody_chose_is_redacted_in_a_timeline_but_its_address() -> None:
    async with eventctx.open("memory://") as engine:
        await (await engine.session("s")).add_message({"role": "user", "content": "Hello."})
        whole: dict[str, Any] = await engine.timeline("s")
    whole |= {
        "session": "alice@example.com",
        "mirror": f"{KEY}.jsonl",
        "models": [KEY],
        "compactions": [{"error": f"the summarizer said {KEY}"}],
        "reasons": [{"code": "mine", "rule": KEY}],
        "turns": [{"turn_id": "t", "name": KEY}],
        "links": [{"session": "other", "kind": KEY}],
    }
    shown = ResultRedactor(reveal=False).timeline(whole)
    assert KEY not in repr(shown)
    assert shown["compactions"] == [{"error": "the summarizer said [redacted:api-key]"}]
    assert shown["messages"] == whole["messages"]
    assert shown["session"] == "alice@example.com"
    assert ResultRedactor(reveal=True).timeline(whole) == whole
