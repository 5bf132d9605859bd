"""Answers at a prompt and in a notebook: one short line, and an HTML table that is escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import eventctx
from tests.sessions import filled

MARKUP = "<script>alert('x')</script> & <b>bold</b>"


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_answers_have_one_short_line_and_an_escaped_table() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, policy="truncate", keep_recent=5)
        await ctx.add_message({"role": "user", "content": MARKUP})
        async with ctx.turn() as turn, turn.iteration():
            await ctx.get_messages_for_request()
        result = await ctx.compact(force=True)
        view = await engine.request_view("s", turn=1)
        audit = await engine.audit("s")
        verification = await engine.verify("s")
        (recalled,) = await engine.recall("bold")
        answers = [result, view, audit, verification, recalled]
        for answer in answers:
            assert len(repr(answer)) < 200
            assert "\n" not in repr(answer)
            shown = Tags(answer._repr_html_())
            assert shown.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
        assert repr(view).startswith("<RequestView 1.1: ")
        assert repr(view).endswith("messages, prepared, verified>")
        assert MARKUP in Tags(view._repr_html_()).text or "more" in Tags(view._repr_html_()).text
        assert MARKUP in Tags(recalled._repr_html_()).text
        assert repr(audit) == "<Audit s: 1 request, 1 compaction, 1 turn>"
        assert repr(verification).startswith("<Verification s: ok, ")
        assert repr(result).startswith("<CompactionResult applied by truncate: ")
        assert str(result) == f"{result}" == str(int(result))


async def test_questions_about_a_view_have_one_short_line_and_an_escaped_table() -> None:
    async with eventctx.open() as engine:
        # A quarter of the budget has no room for all that was said.
        ctx = await engine.session("s", policy="truncate", keep_recent=2, max_tokens=100)
        for text in ("Never write 1 < 2 & 3.", MARKUP, "three", "four"):
            await ctx.add_message({"role": "user", "content": text})
        for _ in range(2):
            async with ctx.turn() as turn, turn.iteration():
                await ctx.get_messages_for_request()
            await ctx.compact(force=True)
        asked = await engine.why("s", 1, turn=2)
        now = await engine.why("s", 3)
        diff = await engine.diff("s", 1, 2)
        lost = await engine.lost("s")
        after = await engine.lost("s", compaction=1)
        await filled(engine, session="t", rounds=10)
        async with (await engine.session("t")).turn() as turn, turn.iteration():
            await (await engine.session("t")).get_messages_for_request()
        compared = await engine.compare(["t"], policies=["truncate"], budgets=[3_000])
        for answer in (asked, now, diff, lost, after, compared):
            assert len(repr(answer)) < 200
            assert "\n" not in repr(answer)
            shown = Tags(answer._repr_html_())
            assert shown.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
        assert "1 < 2 & 3" in Tags(lost._repr_html_()).text
        for answer in (asked, diff):
            assert MARKUP in Tags(answer._repr_html_()).text
        assert repr(asked).startswith("<Explanation s #1 in 2.1: dropped, older than ")
        assert repr(now) == "<Explanation s #3 now: whole>"
        assert repr(diff).startswith("<ViewDiff s 1.1 -> 2.1: 1 message, ")
        assert repr(lost) == "<Lost s now: 1 of 4 messages out of view, 2 of 5 items gone>"
        assert repr(after).startswith("<Lost s compaction 1: ")
        assert repr(compared) == "<Comparison: 1 session, 3 rows>"
        assert compared.rows[-1].policy in Tags(compared._repr_html_()).text
