"""A session whose every word attacks the page that shows it.

The words are where a page may show one: in a person's message, a model's answer and thinking, a
tool's name, arguments and result, an id, a model's name, a summary, a session's name. What runs
sets ``window.ran``, asks for a dialog, or sends a request to a host that must not be asked;
``tests/browser/watching.py`` notices each.
"""

from __future__ import annotations

import os
from typing import Any, Final

import eventctx
from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.record import make_body
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.policies.advisers import SummaryRequest
from tests.sessions import append_event

SESSION: Final = "<img src=x onerror=ran=1>"
LONG_NAME: Final = "javascript:ran=1 \u202e" + "W" * 238
HUGE: Final = "megabytes"
HALVES: Final = "halves of pairs"
"""Names of the sessions: an attack, the longest there can be, one with a huge result, and one
with lone surrogates, which no reader can decode."""

ELSEWHERE: Final = "https://elsewhere.invalid"

MARKUP: Final = {
    "a script": "<script>ran=1;alert(1)</script>",
    "the end of a script": "</script><script>ran=1</script>",
    "the end of a comment": "--><script>ran=1</script><!--",
    "an image": f'<img src="{ELSEWHERE}/i.png" onerror="ran=1">',
    "an svg": '<svg onload="ran=1"><animate onbegin="ran=1" attributeName="x" dur="1s"></svg>',
    "a style": f"<style>*{{background:url({ELSEWHERE}/s.png)}}</style>",
    "a sheet": f'<link rel="stylesheet" href="{ELSEWHERE}/sheet.css">',
    "a frame": "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "a base": f'<base href="{ELSEWHERE}/">',
    "a refresh": f'<meta http-equiv="refresh" content="0;url={ELSEWHERE}">',
    "a form": f'<form action="{ELSEWHERE}"><input autofocus onfocus="ran=1"></form>',
    "a way out of a quote": "\"'` onmouseover=ran=1 autofocus onfocus=ran=1 x='",
    "an element of the page": "<ctx-drawer onclick=ran=1></ctx-drawer><div id=timeline>",
    "a template": "${ran=1} {{constructor.constructor('ran=1')()}} %{ran=1}",
    "a link": "[here](javascript:ran=1) javascript:ran=1 data:text/html,<script>ran=1</script>",
    "links of Markdown": f"[a]({ELSEWHERE}/a 'onclick=ran=1') ![b]({ELSEWHERE}/b.png) "
    f"<{ELSEWHERE}/c> {ELSEWHERE}/d [e](data:text/html,ran=1) [f](JavaScript&colon;ran=1)",
    "code of Markdown": "\n\n```html onmouseover=ran=1\n<script>ran=1</script>\n```\n\n`<img src=x "
    "onerror=ran=1>`\n\n| <b onclick=ran=1> |\n|-|\n",
    "a name of the prototype": "__proto__ constructor toString hasOwnProperty",
}

CONTROLS: Final = {
    "colours of a terminal": "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "a reversal": "user\u202e\u2066 // admin\u2069 \u2066begin",
    "no width": "pass\u200bword \u2060\ufeff and a tag \U000e0041",
    "line separators": "one\u2028two\u2029three\x85four",
    "nothing": "a\x00b\x08\x7f",
}

LONE: Final = b'{"role":"user","content":"half of a pair: \\ud83d and \\udc00 <b>"}'
"""JSON that an older or a foreign writer may have stored: the text has lone surrogates."""

WORD: Final = "x" * 6_000
"""A word without a place to break a line."""


def _result(call: str, text: object) -> dict[str, Any]:
    part = {"type": "tool_result", "tool_use_id": call, "content": text}
    return {"role": "user", "content": [part]}


def _round(number: int, attack: str) -> list[dict[str, Any]]:
    call = f"call-{number} {attack}"[:200]
    use = {"type": "tool_use", "id": call, "name": attack[:60], "input": {attack: [attack]}}
    thinking = {"type": "thinking", "thinking": attack, "signature": "c2ln"}
    said = {"type": "text", "text": f"It says: {attack}"}
    return [{"role": "assistant", "content": [thinking, said, use]}, _result(call, attack * 20)]


async def _summary(request: SummaryRequest) -> str:
    return f"They tried {MARKUP['a script']} and {CONTROLS['a reversal']}."


async def _fill(ctx: eventctx.Context) -> None:
    attacks = [*MARKUP.values(), *CONTROLS.values()]
    await ctx.add_message({"role": "system", "content": " ".join(MARKUP.values())})
    for turn in range(0, len(attacks), 3):
        async with ctx.turn() as block:
            await ctx.add_message({"role": "user", "content": f"Do {attacks[turn]} now."})
            for number, attack in enumerate(attacks[turn : turn + 3], turn):
                async with block.iteration() as iteration:
                    await ctx.get_messages_for_request()
                    async with iteration.provider_call(f"model {attack}"[:120]) as call:
                        await call.usage(900, 20, cache_read=100)
                    for message in _round(number, attack):
                        await ctx.add_message(message)
            async with block.iteration():
                await ctx.get_messages_for_request()
                await ctx.add_message({"role": "assistant", "content": f"Done: {attacks[turn]}"})


async def write(engine: Engine) -> None:
    """The hostile sessions, with compactions, a restored and a pinned message, and a fork."""
    ctx = await engine.session(SESSION, max_tokens=4_000, policy="summarize", summarizer=_summary)
    await _fill(ctx)
    await ctx.add_message({"role": "user", "content": WORD})
    await ctx.get_messages_for_request()
    await _append_lone(engine)
    named = await engine.session(LONG_NAME)
    await named.add_message({"role": "user", "content": MARKUP["a link"]})
    await named.get_messages_for_request()


async def write_huge(engine: Engine, lines: int) -> None:
    """The session with a result of so many lines of 29 bytes, which half of the time is in view."""
    ctx = await engine.session(HUGE, max_tokens=100_000_000)
    call = {"type": "tool_use", "id": "c", "name": "cat", "input": {"path": "/var/log/all"}}
    await ctx.add_message({"role": "user", "content": "Read the whole log."})
    await ctx.get_messages_for_request()
    await ctx.add_message({"role": "assistant", "content": [call]})
    await ctx.add_message(_result("c", "<script>ran=1</script> \x1b[31m\n" * lines))
    await ctx.get_messages_for_request()
    await ctx.add_message({"role": "assistant", "content": "That was much."})


async def _append_lone(engine: Engine) -> None:
    """What the engine refuses, put into its store beside it."""
    ctx = await engine.session(HALVES)
    await ctx.add_message({"role": "user", "content": MARKUP["a script"]})
    await engine.close_session(HALVES)
    facts = read_facts({"role": "user", "content": "half of a pair: ? and ? <b>"})
    body = make_body(LONE, encode_facts(facts), os.urandom)
    await append_event(engine.store, events.MessageAdded(), body, session=HALVES)
