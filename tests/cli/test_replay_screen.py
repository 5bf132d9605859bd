"""The screen of ``replay``: its state and its lines without a terminal, and once on Textual's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import eventctx
from eventctx.cli.replay_screen.drawing import drawn, fitted, wanted, wrapped
from eventctx.cli.replay_screen.model import ACTIONS, KEYS, Model, found, pressed, resized
from eventctx.cli.replay_screen.opening import opened
from eventctx.cli.replay_screen.session import ReplayedSession
from eventctx.cli.replay_screen.texts import ReadTexts, TextReader, WantedTexts
from eventctx.errors import EventctxError

HOSTILE = (
    "\x1b[31mred\x07 \u202eback\u200b [bold]b[/bold] " + "\u05e9\u05dc\u05d5\u05dd \u4f60\u597d"
)


class Reader:
    """A person at the screen: types keys, and sees the lines that are drawn for them."""

    def __init__(self, session: ReplayedSession, reader: TextReader, model: Model) -> None:
        self.session = session
        self.model = model
        self.texts = ReadTexts()
        self._reader = reader

    async def types(self, *keys: str) -> str:
        """What the screen shows after these keys."""
        for key in keys:
            self.model = pressed(self.model, self.session, key)
            if self.model.hits is None:
                hits = [one async for one in self._reader.hits(self.model.query) if one >= 0]
                self.model = found(self.model, self.session, self.model.query, tuple(hits))
        return await self.sees()

    async def sees(self) -> str:
        while (missing := self.texts.missing(wanted(self.model, self.session))) != WantedTexts():
            await self._reader.read(missing, self.texts)
        lines = drawn(self.model, self.session, self.texts)
        assert len(lines) == self.model.rows
        assert all(sum(cell_len(text) for text, _ in line) <= self.model.columns for line in lines)
        return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)

    async def at(self, columns: int, rows: int) -> str:
        self.model = resized(self.model, columns, rows)
        return await self.sees()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def reader_of(engine: eventctx.Engine, session: str, stop: int | None = None) -> Reader:
    info = next(one for one in await engine.sessions() if one.stream == session)
    found = Reader(*await opened(engine, info, stop))
    await found.at(120, 30)
    return found


async def told(engine: eventctx.Engine, turns: int = 3) -> None:
    """Turns of two requests each; before the third a compaction drops what is old."""
    ctx = await engine.session("told", max_tokens=10_000, policy="truncate", keep_recent=1)
    await ctx.add_message({"role": "system", "content": "Be brief."})
    for turn in range(1, turns + 1):
        async with ctx.turn() as block:
            await ctx.add_message({"role": "user", "content": f"Question {turn}."})
            for step in range(2):
                async with block.iteration():
                    await ctx.get_messages_for_request()
                    words = f"Answer {turn}.{step} " + "and so on " * 20
                    await ctx.add_message({"role": "assistant", "content": words})
            if turn == turns - 1:
                await ctx.compact(reason="now")


async def test_it_begins_at_the_first_request_with_what_was_sent_beside_what_was_said(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        shown = await (await reader_of(engine, "told")).sees()
    assert "request 1.1 1 of 6" in shown
    assert "Sent in 1.1  2 messages" in shown
    assert "Said  2 messages, 8 later" in shown
    assert shown.count("Question 1.") == 2 + 1  # the title of the session is its first words
    assert "#1 ·" in shown and "in view, whole" in shown


async def test_the_next_request_takes_a_cursor_at_the_end_along_and_leaves_another_where_it_is(
    path,
):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        await reader.types("right")
        assert (reader.model.request, reader.model.cursor) == (1, 2)
        await reader.types("up", "right", "l")
        assert (reader.model.request, reader.model.cursor) == (3, 1)
        await reader.types("left", "h", "left", "left")
        assert reader.model.request == 0


async def test_a_compaction_is_found_with_the_first_message_that_left_and_why(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        shown = await reader.types("c")
        assert "request 3.1 5 of 6 · behind 1 compaction" in shown
        assert "+2 −3 since the request before" in shown and "▸✗ #2 model" in shown
        assert "not in view: dropped by a compaction" in shown
        assert "by         the compaction at @" in shown
        assert "messages left out, #2–#3" in shown
        assert "no further compaction" in await reader.types("c")
        assert "no earlier compaction" in await reader.types("C")


async def test_turns_are_stepped_through_both_ways(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        assert "request 2.1 3 of 6" in await reader.types("t")
        assert "request 3.1 5 of 6" in await reader.types("t")
        assert "no further turn" in await reader.types("t")
        assert "request 3.1 5 of 6" in await reader.types("l", "T")
        assert "request 2.1 3 of 6" in await reader.types("T")


async def test_what_is_left_out_is_stepped_through_both_ways(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        assert "nothing behind the cursor is left out" in await reader.types("o")
        await reader.types("c")
        first = reader.model.cursor
        await reader.types("o")
        assert reader.model.cursor == first + 1
        await reader.types("O")
        assert reader.model.cursor == first


async def test_the_other_pane_goes_over_what_was_sent_and_takes_the_message_along(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        shown = await reader.types("c", "tab", "home")
        assert "▸ Sent in 3.1" in shown
        assert reader.model.cursor == 0
        assert "▸ Said" in await reader.types("tab")


async def test_a_search_goes_through_its_hits_and_around(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        assert "search: QUESTIO█" in await reader.types("/", *"QUESTION", "backspace")
        assert "hit 1 of 3 for “QUESTIO”" in await reader.types("enter")
        assert "hit 2 of 3" in await reader.types("n")
        assert "hit 3 of 3" in await reader.types("n")
        assert "hit 1 of 3" in await reader.types("n")
        assert "hit 3 of 3" in await reader.types("N")
        assert "“xyzzy” is in no message" in await reader.types("/", *"xyzzy", "enter")
        await reader.types("/", *"no", "escape")
        assert reader.model.query == "xyzzy"


@pytest.mark.parametrize(
    ("asked", "request_place", "cursor"),
    [("#4", 0, 4), ("2.2", 3, 5), ("2", 3, 5), ("@0", 0, 1)],
)
async def test_a_message_a_request_and_a_record_are_gone_to(
    path, asked: str, request_place: int, cursor: int
):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        await reader.types("g", *asked, "enter")
        assert (reader.model.request, reader.model.cursor) == (request_place, cursor)


async def test_what_is_nowhere_is_not_gone_to_and_the_screen_says_what_it_expects(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        assert "found “nonsense”" in await reader.types("g", *"nonsense", "enter")
        assert "there is no request 9.9" in await reader.types("g", *"9.9", "enter")
        assert reader.model.request == 0


async def test_a_message_is_read_whole_and_left_again(path):
    async with eventctx.open(path) as engine:
        ctx = await engine.session("long")
        text = "\n".join(f"line {one}" for one in range(100))
        await ctx.add_message({"role": "user", "content": text})
        await ctx.get_messages_for_request()
        reader = await reader_of(engine, "long")
        shown = await reader.types("enter")
        assert "line 20" in shown and "line 60" not in shown
        assert "line 60" in await reader.types("pagedown", "pagedown")
        assert "line 99" in await reader.types(*["pagedown"] * 5)
        assert "▸ Said" in await reader.types("escape")


async def test_the_help_names_every_key_that_does_something(path):
    signs = {"up": "↑", "down": "↓", "left": "←", "right": "→", " ": "PgDn"}
    signs |= {"pageup": "PgUp", "pagedown": "PgDn", "tab": "Tab", "enter": "Enter"}
    signs |= {"home": "Home", "end": "End"}
    named = " ".join([one for keys in KEYS for one in keys])
    assert all(signs.get(key, key) in named for key in ACTIONS)
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        shown = await reader.types("?")
        assert all(meaning in shown for _, meaning in KEYS)
        assert "▸ Said" in await reader.types("x")


@pytest.mark.parametrize("columns", [40, 60, 61, 89, 90, 91, 120, 200])
async def test_every_line_fits_at_any_width_whatever_the_texts_hold(path, columns: int):
    async with eventctx.open(path) as engine:
        ctx = await engine.session(HOSTILE[5:8])
        await ctx.add_message({"role": "user", "content": HOSTILE * 5})
        await ctx.add_message({"role": "assistant", "content": "x" * 1_000_000})
        await ctx.get_messages_for_request()
        reader = await reader_of(engine, HOSTILE[5:8])
        for rows in (12, 24, 60):
            for keys in ((), ("up", "enter"), ("down",), ("escape", "down", "enter"), ("escape",)):
                await reader.at(columns, rows)
                shown = await reader.types(*keys)
                assert not set("\x1b\x07\u202e\u200b") & set(shown)


async def test_hostile_text_is_escaped_and_never_markup(path):
    async with eventctx.open(path) as engine:
        ctx = await engine.session("hostile")
        await ctx.add_message({"role": "user", "content": HOSTILE})
        await ctx.get_messages_for_request()
        reader = await reader_of(engine, "hostile")
        for shown in (await reader.sees(), await reader.types("enter")):
            assert r"\x1b[31mred\x07 \u202eback\u200b [bold]b[/bold]" in shown


async def test_a_terminal_that_is_too_small_says_so_and_can_be_left(path):
    async with eventctx.open(path) as engine:
        await told(engine)
        reader = await reader_of(engine, "told")
        for columns, rows in ((39, 30), (120, 11), (1, 1)):
            await reader.at(columns, rows)
        shown = await reader.at(39, 11)
        assert "39×11 is too small" in shown
        assert "request 1.1" in await reader.at(60, 24)
        await reader.types("q")
        assert reader.model.over


async def test_a_session_without_requests_shows_its_transcript(path):
    async with eventctx.open(path) as engine:
        ctx = await engine.session("quiet")
        for number in range(3):
            await ctx.add_message({"role": "user", "content": f"Word {number}"})
        reader = await reader_of(engine, "quiet")
        shown = await reader.types("down", "tab")
        assert "No request is recorded" in shown and "Word 2" in shown
        assert "#1 ·" in shown and "in view, whole" in shown
        for key in ("right", "t", "c", "o", "n", "end", "enter", "escape", "tab", "T", "C", "O"):
            await reader.types(key)


async def test_an_empty_session_shows_that_there_is_nothing(path):
    async with eventctx.open(path) as engine:
        await engine.session("empty")
        async with (await engine.session("empty")).turn():
            pass
        reader = await reader_of(engine, "empty")
        for key in ("up", "down", "home", "end", "enter", "right", "t", "c", "o", "tab", "/", "q"):
            shown = await reader.types(key)
        assert "search: q" in shown


async def test_an_erased_message_says_so(path):
    async with eventctx.open(path) as engine:
        ctx = await engine.session("erased")
        await ctx.add_message({"role": "user", "content": "my secret"})
        await ctx.get_messages_for_request()
        await engine.erase("erased", [0], reason="asked for")
        reader = await reader_of(engine, "erased")
        shown = await reader.types("enter")
        assert "[erased]" in shown and "secret" not in shown


async def test_a_screen_reads_only_the_texts_that_it_shows(path):
    async with eventctx.open(path) as engine:
        ctx = await engine.session("many")
        for number in range(600):
            await ctx.add_message({"role": "user", "content": f"Word {number}"})
        await ctx.get_messages_for_request()
        reader = await reader_of(engine, "many")
        await reader.types("home", "pagedown", "end")
        assert len(reader.texts.rows) < 3 * reader.model.rows


def test_lines_are_cut_and_wrapped_by_cells() -> None:
    assert fitted([("ab", ""), ("你好", "")], 5) == [("ab", ""), ("你 ", "")]
    assert wrapped("你好吗", 4) == ("你好", "吗")
    assert wrapped("one two three", 8) == ("one two", "three")
    assert "".join(wrapped("x" * 100, 7)) == "x" * 100


async def test_textual_shows_the_screen_reads_keys_and_quits(path):
    pytest.importorskip("textual")
    from eventctx.cli.replay_screen.app import ReplayScreen

    async with eventctx.open(path) as engine:
        await told(engine)
        info = next(iter(await engine.sessions()))
        app = ReplayScreen(*await opened(engine, info))
        async with app.run_test(size=(100, 24)) as pilot:
            await app.rested()
            assert "request 1.1 1 of 6" in text_of(app)
            await pilot.press("right", "tab")
            await app.rested()
            assert "▸ Sent in 1.2" in text_of(app)
            await pilot.press("slash", *"Question 3", "enter")
            await app.rested()
            assert "hit 1 of 1" in text_of(app)
            await pilot.resize_terminal(60, 20)
            assert (app.model.columns, app.model.rows) == (60, 20)
            await pilot.press("question_mark")
            assert "any key goes back" in text_of(app)
            await pilot.press("x", "q")
        assert app.failure is None and app.model.over


async def test_ctrl_c_ends_the_screen_as_it_ends_every_command(path):
    pytest.importorskip("textual")
    from eventctx.cli.replay_screen.app import ReplayScreen

    async with eventctx.open(path) as engine:
        await told(engine)
        app = ReplayScreen(*await opened(engine, next(iter(await engine.sessions()))))
        async with app.run_test(size=(100, 24)) as pilot:
            await pilot.press("ctrl+c")
        assert isinstance(app.failure, KeyboardInterrupt)


async def test_a_store_that_is_closed_meanwhile_ends_the_screen_with_its_error(path):
    pytest.importorskip("textual")
    from eventctx.cli.replay_screen.app import ReplayScreen

    async with eventctx.open(path) as engine:
        await told(engine)
        app = ReplayScreen(*await opened(engine, next(iter(await engine.sessions()))))
        async with app.run_test(size=(100, 24)) as pilot:
            await app.rested()
            await engine.close()
            await pilot.press("enter")
            await app.rested()
        assert isinstance(app.failure, EventctxError)


def text_of(app: Any) -> str:
    """What Textual has in its lines."""
    canvas = app.screen.query_one("Canvas")
    return "\n".join(canvas.render_line(y).text.rstrip() for y in range(canvas.size.height))
