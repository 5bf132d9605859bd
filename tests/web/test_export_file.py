"""One file of a session: whole, redacted, cut to turns, or its structure alone."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, get_args

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.events import CountedPart
from eventctx.projections.presence import REASONS
from eventctx.web.export.file import Contents, shell, turns_of
from tests.how_much import some
from tests.web.exported import Exported, exported

KEY = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "-AAAAAA"
HOSTILE = {
    "end of a script": "</script><script>ran=1</script>",
    "comment": "<!-- <script> --> ]]> &lt;",
    "separators": "one\u2028two\u2029three",
    "bidi": "user\u202e\u2066 // admin\u2069",
    "ansi": "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "nul": "a\x00b",
    "quotes": "\"'` onmouseover=ran=1 \\",
}


def turns(texts: list[str], rounds: int = 4) -> list[list[dict[str, Any]]]:
    """The messages of turns; every text is somewhere in a call and in a result."""
    found = []
    for number, text in enumerate(texts):
        turn: list[dict[str, Any]] = [{"role": "user", "content": f"Please look at {text}"}]
        for place in range(rounds):
            call = f"toolu_{number}_{place}"
            given = {"path": f"/home/somebody/{text}/{place}", "api_key": KEY}
            use = {"type": "tool_use", "id": call, "name": f"tool_{number}", "input": given}
            result = {"type": "tool_result", "tool_use_id": call, "content": f"{text} " * 200}
            said = {"type": "text", "text": f"Reading {text} with {KEY}"}
            turn.append({"role": "assistant", "content": [said, use]})
            turn.append({"role": "user", "content": [result]})
        turn.append({"role": "assistant", "content": f"Finished with {text}"})
        found.append(turn)
    return found


@asynccontextmanager
async def session_of(
    texts: list[str], name: str = "private name", **options: Any
) -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session(name, max_tokens=3_000, policy="ladder", **options)
        await ctx.add_message({"role": "system", "content": "A secret system prompt."})
        for turn in turns(texts):
            async with ctx.turn() as block:
                for message in turn:
                    await ctx.add_message(message)
                    if message["role"] == "user":
                        async with block.iteration() as iteration:
                            await ctx.get_messages_for_request()
                            async with iteration.provider_call("ft:model:acme") as call:
                                await call.usage(900, 20)
        yield engine


Write = Callable[..., Awaitable[Exported]]


@pytest.fixture
def write(tmp_path) -> Write:
    """Write a session to a file, and read it back."""

    async def written(engine: Engine, name: str = "private name", **contents: Any) -> Exported:
        file = await exported(engine, name, tmp_path / "s.html", Contents(**contents))
        (tmp_path / "s.html").unlink()
        return file

    return written


async def test_every_message_and_every_view_of_the_file_is_the_engines(write):
    async with session_of([*HOSTILE.values(), "apples"]) as engine:
        file = await write(engine, reveal=True)
        transcript = await engine.transcript("private name")
        await agrees(file, engine, "private name")
    assert [file.body_of(one.number) for one in transcript] == [one.message for one in transcript]
    assert file.timeline["session"] == "private name"
    assert {"shortened"} <= {one["kind"] for one in file.timeline["extras"]}


async def agrees(file: Exported, engine: Engine, session: str) -> None:
    """Compare every view of the file with the engine's, entry by entry where it has a body."""
    requests = file.timeline["requests"]
    assert requests["position"]
    shown = zip(file.views(), requests["position"], requests["digest"], strict=True)
    for view, position, digest in shown:
        whole = await engine.request_view(session, position=position)
        assert whole.digest == digest
        assert len(view) == len(whole.messages)
        for entry, message in zip(view, whole.messages, strict=True):
            if entry >= 0 or "position" in file.timeline["extras"][-1 - entry]:
                assert file.body_of(entry) == message


@pytest.mark.parametrize("turn", ["1", "2", "2..3", "1..3", "3..9"])
async def test_a_cut_holds_the_views_of_its_turns_and_what_they_show(write, turn):
    words = ["apples", "pears", "plums", "quinces"]
    first, last = turns_of(turn)
    async with session_of(words) as engine:
        whole = (await write(engine)).timeline["requests"]
        file = await write(engine, reveal=True, turns=(first, last))
        await agrees(file, engine, "private name")
    requests = file.timeline["requests"]
    asked = zip(whole["position"], whole["turn"], strict=True)
    assert requests["position"] == [place for place, turn in asked if first <= turn <= last]
    columns = [one for one in requests.values() if isinstance(one, list)]
    assert {len(one) for one in columns} == {len(requests["position"])}
    text = " ".join(file.contents)
    assert f"at {words[min(last, 4) - 1]}" in text
    assert [word for word in words[last:] if word in text] == []


async def test_turns_without_a_request_are_refused_and_no_file_is_made(write, tmp_path):
    async with session_of(["apples"]) as engine:
        with pytest.raises(InvalidSetting, match=r"turn: expected one from 1 to 1 .* turns 7"):
            await write(engine, turns=(7, 8))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "x", "2..", "..2", "3..2", "-1", "1..2..3", "1.5"])
def test_other_forms_of_turns_are_refused(text):
    with pytest.raises(InvalidSetting, match=r"turn: expected A\.\.B"):
        turns_of(text)


# -- redaction -----------------------------------------------------------------------------------


async def test_secrets_are_replaced_in_texts_arguments_and_names_unless_they_are_revealed(write):
    async with session_of([KEY, "mail to jane.doe@corp.example"], name=KEY) as engine:
        file, plain = await write(engine, KEY), await write(engine, KEY, reveal=True)
    everything = file.source + " ".join(file.contents)
    assert KEY not in everything and "jane.doe@corp.example" not in everything
    assert "[redacted:api-key]" in file.timeline["session"]
    call = next(one for one in file.bodies.values() if isinstance(one["content"], list))
    assert call["content"][1]["input"]["api_key"] == "[redacted:api-key]"
    assert "were recognised are replaced" in file.text
    assert KEY in " ".join(plain.contents) and "Nothing is redacted." in plain.text


async def test_the_demands_of_a_person_are_those_of_the_redacted_text(write):
    async with session_of(["pears", f"Hello. Never show {KEY} to me. Never mind."]) as engine:
        file = await write(engine)
    assert list(file.demands.values()) == [["Never show [redacted:api-key] to me."]]


async def test_texts_with_markup_have_their_trees_in_the_file_unless_it_is_a_structure(write):
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "plain"})
        await ctx.add_message({"role": "assistant", "content": f"**bold** {KEY}"})
        await ctx.get_messages_for_request()
        file, bare = await write(engine, "s"), await write(engine, "s", structure=True)
    ((place, tree),) = [one for trees in file.trees.values() for one in trees]
    assert place == ["content"]
    bold = ["strong", {}, ["bold"]]
    assert tree == [["p", {}, [bold, " [redacted:api-key]"]]]
    assert bare.trees == {}


# -- structure -----------------------------------------------------------------------------------


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text))


async def test_a_structure_holds_no_word_of_any_message_or_name(write):
    texts = ["strawberries in Zürich", "Kartoffelsalat", "漢字漢字漢字", *HOSTILE.values()]
    async with session_of(texts) as engine:
        whole, file = await write(engine, reveal=True), await write(engine, structure=True)
    async with session_of(["!"], name="!") as engine:
        bare = await write(engine, "!", structure=True)
    ours = words(bare.source) | words(" ".join(json.dumps(one) for one in REASONS.items()))
    ours |= {*get_args(CountedPart)}  # kinds of suspected losses
    said = words(" ".join(whole.contents)) | {"private", "acme"}
    assert {"strawberries", "Kartoffelsalat", "漢字漢字漢字", "somebody", "tool_1"} <= said
    assert not (said - ours) & words(file.source)
    assert file.blocks == []
    assert "All texts are left out" in file.text


async def test_two_sessions_of_equal_sizes_have_one_structure(write):
    found = []
    for word in ("strawberries", "a path to x."):
        async with session_of([word, word[::-1]], name=word) as engine:
            file = await write(engine, word, structure=True)
        times = [file.timeline["messages"]["time"], file.timeline["requests"]["time"]]
        assert times[0][0] == 946_684_800_000
        source = file.source.replace(file.parts["digests"], "digests")
        source = re.sub(r"[0-9a-f]{64,}", "digest", source)
        source = re.sub(r"9466848\d{5}", "time", source)
        found.append(re.sub(r'"duration":\d+', "duration", source))
    assert len(found[0]) > shell().size
    assert found[0] == found[1]


async def test_a_structure_keeps_what_a_compaction_is_judged_by(write):
    async with session_of(["apples", "pears", "plums"]) as engine:
        whole = (await write(engine)).timeline
        kept = (await write(engine, structure=True)).timeline
    for name in ("changes", "reasons", "extras", "losses"):
        assert kept[name] == whole[name] != []
    for name in ("total", "keep", "add", "digest", "breaks", "budget"):
        assert kept["requests"][name] == whole["requests"][name]
    for name in ("kind", "tokens", "characters", "turn", "caller"):
        assert kept["messages"][name] == whole["messages"][name]
    first, known = kept["compactions"][0], whole["compactions"][0]
    assert (first["strategy"], first["outcome"]) == ("ladder", "applied")
    assert first["trigger"] == known["trigger"]
    assert kept.keys() == whole.keys() and kept["models"] == ["model 1"]


async def test_a_structure_holds_no_id_of_a_call_in_what_a_digest_covers(write):
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("s")
        use = {"type": "tool_use", "id": "call_of_mr_smith", "name": "f", "input": {}}
        await ctx.add_message({"role": "assistant", "content": [use]})
        await ctx.add_message({"role": "user", "content": "go on"})
        await ctx.get_messages_for_request()
        whole, file = await write(engine, "s"), await write(engine, "s", structure=True)
    assert b"mr_smith".hex() in json.dumps(whole.timeline["extras"])
    assert b"mr_smith".hex() not in file.source
    [made_up] = [one for one in file.timeline["extras"] if one["kind"] == "synthetic"]
    assert (made_up["call"], made_up["mark"]) == ("call 1", "")


# -- the file ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Exported:
    path = tmp_path_factory.mktemp("hostile") / "s.html"

    async def make() -> Exported:
        name = "<script>ran=1<!--\u202e"
        async with session_of(list(HOSTILE.values()), name=name) as engine:
            return await exported(engine, name, path, Contents(reveal=True))

    return asyncio.run(make())


def test_hostile_texts_and_names_stay_inside_their_elements(hostile):
    assert hostile.tags.count("script") == len(hostile.parts) + len(hostile.blocks) + 2
    assert len(hostile.scripts) == 2 and hostile.timeline["session"].startswith("<script>")
    assert "\u202e" not in hostile.source and "\\u202e" in hostile.text
    data = "".join(hostile.parts.values())
    assert not re.search("[<>&\u2028\u2029]", data)


def test_only_the_script_and_the_style_of_the_page_may_run(hostile):
    [policy] = [one for one in hostile.metas if one.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in str(policy["content"]).split("; "))
    theme, loader, script, style = [
        f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
        for text in (*hostile.scripts, hostile.script, hostile.style)
    ]
    assert rules == {
        "default-src": "'none'",
        "script-src": f"{theme} {loader} {script}",
        "style-src": style,
        "img-src": "blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "page",
    }
    first = hostile.source.index("<meta http-equiv")
    assert first < min(hostile.source.index(tag) for tag in ("<title", "<script"))


def test_the_file_asks_nobody_for_anything_and_its_page_has_160_kilobytes_at_most(hostile):
    assert shell().size <= 160_000
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", hostile.source, flags=re.DOTALL)
    assert not re.search(r"\b(src|href|action|srcset)\s*=", markup)


async def test_a_session_makes_one_file_whose_receipt_verifies_and_an_erased_message_is_null(write):
    async with session_of(["apples"]) as engine:
        one, other = await write(engine), await write(engine)
        assert one.source == other.source
        receipt = eventctx.Receipt.parse(one.about["receipt"])
        assert (await engine.verify("private name", receipt)).ok
        await engine.erase("private name", [1])
        assert (await write(engine)).body_of(1) is None


HUGE = some(5_000_000, 50_000_000)  # more than two blocks


async def test_a_result_of_megabytes_is_a_block_of_its_own(write):
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("s")
        for content in ("before", "x" * HUGE, "behind"):
            await ctx.add_message({"role": "user", "content": content})
        file = await write(engine, "s")
    assert len(file.blocks) == 3 and file.size < 500_000
    assert len(file.body_of(1)["content"]) == HUGE
