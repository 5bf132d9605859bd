"""The script of an exported page, and documents cut to some turns or to their structure."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.web.export.cut import cut_to_turns
from eventctx.web.export.structure import structure_of
from eventctx.web.page_files import UnreadableScript, bundle, compact_style, in_order

MODELS = ["claude-sonnet-4-5", "claude-sonnet-4-5", "gpt-5", "gpt-5", "claude-sonnet-4-5"]


@pytest.fixture
async def whole() -> AsyncIterator[dict[str, Any]]:
    """Five turns with a subagent each, compactions, and three changes of the model's family."""
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("s", max_tokens=1_600, policy="ladder")
        for number, model in enumerate(MODELS):
            async with ctx.turn() as turn:
                await ctx.add_message({"role": "user", "content": f"Look at {number}. " * 120})
                for place in range(2):
                    async with turn.iteration() as iteration:
                        await ctx.get_messages_for_request()
                        async with iteration.provider_call(model) as call:
                            await call.usage(900, 20)
                    name = f"call-{number}-{place}"
                    use = {"type": "tool_use", "id": name, "name": "look", "input": {}}
                    await ctx.add_message({"role": "assistant", "content": [use]})
                    result = {"type": "tool_result", "tool_use_id": name, "content": "seen " * 200}
                    await ctx.add_message({"role": "user", "content": [result]})
            child = await engine.session(f"child-{number}")
            await child.add_message({"role": "user", "content": "Go on."})
            await engine.link("s", f"child-{number}", call_id=f"call-{number}-0")
        yield await engine.timeline("s")


async def test_nothing_of_later_turns_is_in_a_cut(whole: dict[str, Any]) -> None:
    cut, held = cut_to_turns(whole, 2, 2)
    end = whole["turns"][1]["last"]
    later = whole["turns"][2]["first"]
    assert [one["number"] for one in cut["turns"]] == [1, 2]
    assert [one["session"] for one in cut["links"]] == ["child-0"]
    assert set(cut["calls"]) == {"call-0-0", "call-1-0"} & set(whole["calls"])
    for table in ("messages", "requests", "changes"):
        assert max(cut[table]["position"]) <= end
        assert max(whole[table]["position"]) > later
    assert [one["position"] for one in cut["compactions"]] == [
        one["position"] for one in whole["compactions"] if one["position"] <= end
    ]
    assert len(cut["compactions"]) < len(whole["compactions"])
    assert len(cut["extras"]) < len(whole["extras"])
    assert max(held.numbers) == len(cut["messages"]["position"]) - 1
    losses = [
        {"position": turn["last"] - 1, "kind": "prompt", "tokens": 2_000, "words": "…"}
        for turn in whole["turns"]
    ]
    cut, _ = cut_to_turns({**whole, "losses": losses}, 2, 2)
    assert cut["losses"] == losses[:2]


async def test_messages_count_anew_from_the_same_request_on(whole: dict[str, Any]) -> None:
    cut, _ = cut_to_turns(whole, 2, 5)
    assert len(whole["recounts"]) >= 3
    for before, now in zip(whole["recounts"], cut["recounts"], strict=True):
        wanted = whole["requests"]["position"][before["from"]]
        behind = [one for one in cut["requests"]["position"] if one >= wanted]
        assert cut["requests"]["position"][now["from"] :] == behind
        assert len(now["tokens"]) <= len(cut["messages"]["position"])


WORD = "Strawberry"


@pytest.fixture
def document(whole: dict[str, Any]) -> dict[str, Any]:
    """The session with a value in every field that may hold a text."""
    link = {"position": 9, "session": "x", "relation": "child", "kind": "x", "call_id": "x"}
    whole |= {"parent": {"session": "x", "at": 3}, "mirror": "x", "links": [link], "models": ["x"]}
    whole["compactions"][0] |= {"error": "x", "fallback": "x", "requested_by": "x"}
    whole["extras"].append({**whole["extras"][0], "name": "x", "call": "x", "omit": ["x"]})
    return whole


def worded(value: Any) -> Any:
    """The value with another word for every text in it, in keys of calls too."""
    if isinstance(value, str):
        return WORD
    if isinstance(value, dict):
        return {name: worded(one) for name, one in value.items()}
    return [worded(one) for one in value] if isinstance(value, list | tuple) else value


def test_a_structure_has_no_text_and_one_name_for_each(document: dict[str, Any]) -> None:
    whole = worded(document)
    whole["calls"] = {WORD: 1}
    assert repr(whole).count(WORD) > 50
    assert WORD not in repr(structure_of(whole))
    kept = structure_of(document)
    assert kept["links"][0]["session"] == kept["parent"]["session"]
    assert kept["extras"][-1]["omit"] == [kept["extras"][-1]["call"]]
    document["messages"]["tokens"][0] = WORD
    with pytest.raises(TypeError, match="tokens: expected numbers"):
        structure_of(document)


MODULES = {
    "main.js": r"""
// A comment with 'a quote, a `tick and import { x } from './nowhere.js';
import { double, Shape } from './lib/shapes.js';
import {
  first,
  words,
} from './lib/words.js';
import {} from './lib/effects.js';

/** @typedef {import('./lib/shapes.js').Shape} Shape */
const text = "it's // no comment"; // a comment after code stays
const template = `a  ${words.map((one) => `<${one}>`).join(' // ')}
    kept indentation`;
const pattern = /[/*]\/\/'"`[^\]/]+/gi;
/**
 * Over several lines.
 */
class Square extends Shape {
  /** Inside. */
  #side = 2;
  area() { return this.#side ** 2; }
}
console.log(JSON.stringify([
  text, template, pattern.source, double(9), first, new Square().area(), globalThis.effects,
]));
""",
    "lib/shapes.js": r"""
import { words } from './words.js';
export class Shape { name() { return words[0]; } }
export const double = (n) => n * 2;
""",
    "lib/words.js": r"""
export const words = ['a', 'b'];
export const first = 'first';
export async function later() { await null; }
""",
    "lib/effects.js": "globalThis.effects = (globalThis.effects ?? 0) + 1;\n",
}


def bundled(sources: dict[str, str], entry: str = "main.js") -> str:
    return bundle(entry, sources.__getitem__)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_one_script_prints_what_the_modules_print(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    files = {**MODULES, "package.json": '{"type": "module"}', "one.js": bundled(MODULES)}
    for path, source in files.items():
        (tmp_path / path).write_text(source)
    apart, one = [
        subprocess.run(["node", tmp_path / name], capture_output=True, text=True, check=False)
        for name in ("main.js", "one.js")
    ]
    assert (apart.returncode, apart.stderr, one.stderr) == (0, "", "")
    assert json.loads(one.stdout) == json.loads(apart.stdout)


def test_modules_stand_once_after_what_they_import_without_imports_exports_or_comments() -> None:
    found = [path for path, _ in in_order("main.js", MODULES.__getitem__)]
    assert found == ["lib/words.js", "lib/shapes.js", "lib/effects.js", "main.js"]
    script = bundled(MODULES)
    for gone in ("import", "export", "Over several lines", "Inside."):
        assert gone not in script
    sources = {
        "main.js": "import { b } from './b.js';\nexport const a = () => b;\n",
        "b.js": "import { a } from './main.js';\nexport const b = () => a;\n",
    }
    assert bundled(sources) == "const b = () => a;\nconst a = () => b;\n"
    style = "a {\n  b: c;\n}\n\n/* d\n */\ne { f: g }\n"
    assert compact_style(style) == "a {\nb: c;\n}\ne { f: g }\n"


@pytest.mark.parametrize(
    "source",
    [
        *("export default 1", "export { a }", "export * from './b.js'"),
        *("import * as b from './b.js'", "import b from './b.js'", "import { a } from 'preact'"),
        *('import { a } from "./b.js"', "const b = () => import('./b.js')"),
        "const url = import.meta.url",
    ],
)
def test_what_one_script_cannot_be_made_of_is_refused(source: str) -> None:
    sources = {"main.js": source, "b.js": "export const a = 1;\n"}
    with pytest.raises(UnreadableScript, match=r"^main\.js: expected `import \{ a \}"):
        bundled(sources)


@pytest.mark.parametrize("text", ["</script>", "<!-- ", "<SCRIPT>"])
def test_a_text_that_would_end_the_element_is_refused(text: str) -> None:
    with pytest.raises(UnreadableScript, match="end or change its element"):
        bundled({"main.js": f"const a = '{text}';\n"})
