"""The one script of an exported page does what its modules do, and says what it cannot take."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from eventctx.web.export.bundler import bundle, in_order
from eventctx.web.export.compact import compact_script, compact_style
from eventctx.web.export.lexer import UnreadableScript, tokens

TRICKY = {
    "main.js": r"""
// A comment with 'a quote, a `tick and import { x } from './nowhere.js';
import { double, Shape } from './lib/shapes.js';
import {
  words, // in a list
  first, /* another */ pick,
} from "./lib/words.js"
import './lib/effects.js';

/** @typedef {import('./lib/shapes.js').Shape} Shape */
const text = "it's // no comment"; const other = '/* nor this */';
const pattern = /[/*]\/\/'"`[^\]/]+/gi, half = double(9) / 2 / 1;
const template = `a  ${words.map((one) => `<${one /* kept */}>${`}`}`).join(' // ')}
    kept indentation ${'}' + "`"} \` \${no} end`;
if (/^a\/b/.test('a/b')) /x/.test('x')
const list = [1, 2,
  3]
;[4, 5].forEach((n) => list.push(n))
let i = 5
let j = i
++j
i = i - -j + +i - -1
const spread = { ...{ a: 1, 'b-c': 2 }, get import_() { return /}/.source } }
const question = i ? .5 : 1, deep = spread?.a ?? 3
function* counted() {
  let n = 0
  while (n < 3)
    yield n++
}
const later = () => {
  return /* on one line */ 'same'
}
const nothing = () => {
  return /* over
  lines */ 'never'
}
class Square extends Shape {
  #side = 2
  static kind = 'square'
  area() { return this.#side ** 2 }
}
label: for (const n of [1, 2]) { for (;;) { if (n) continue label } }
const a1 = 4, g = 2
const ratio = (a1) /g/ 1
const lines = 'one\
 two'
const odd = 1..toString() + 0x1F + 1_000 + .5e3 + 7n
console.log(JSON.stringify([
  text, other, pattern.source, pattern.flags, half, template, list, i, j, Object.keys(spread),
  question, deep, [...counted()], later(), nothing(), new Square().area(), Square.kind, ratio,
  lines, odd, first, pick({ of: 1 }), globalThis.effects,
  'Zeilentrenner \u2028 \ud83d\ude00 é 漢字'.length,
]))
""",
    "lib/shapes.js": r"""
import { words } from './words.js';
export class Shape { name() { return words[0] } }
export const double = (n) => n * 2
""",
    "lib/words.js": r"""
export const words = ['a', 'b'], count = 2
export let first = 'first'
export async function later2() { await null }
export function pick({ of: one }) { return one }
""",
    "lib/effects.js": "globalThis.effects = (globalThis.effects ?? 0) + 1",
}


def bundled(sources: dict[str, str], entry: str = "main.js") -> str:
    return bundle(entry, sources.__getitem__)


@pytest.mark.parametrize("source", TRICKY.values())
def test_the_texts_of_all_tokens_make_up_the_script_again(source):
    assert "".join(token.text for token in tokens(source)) == source


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_one_script_prints_what_the_modules_print(tmp_path):
    for path, source in TRICKY.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "one.js").write_text(bundled(TRICKY))
    apart, one = [
        subprocess.run(["node", tmp_path / name], capture_output=True, text=True)
        for name in ("main.js", "one.js")
    ]
    assert (apart.returncode, apart.stderr) == (0, "")
    assert one.stderr == ""
    assert json.loads(one.stdout) == json.loads(apart.stdout)


def test_a_module_stands_after_what_it_imports_and_only_once():
    found = [module.path for module in in_order("main.js", TRICKY.__getitem__)]
    assert found == ["lib/words.js", "lib/shapes.js", "lib/effects.js", "main.js"]


def test_no_import_no_export_no_comment_and_no_indentation_is_left():
    script = bundled(TRICKY)
    code = [token for token in tokens(script) if token.kind not in ("string", "template", "regex")]
    assert {"import", "export"}.isdisjoint(token.text for token in code)
    assert "comment" not in {token.kind for token in code}
    assert not any(token.kind == "blank" and len(token.text) > 1 for token in code)
    assert len(script) < 0.8 * sum(map(len, TRICKY.values()))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a + +b", "a + +b"),
        ("a - --b", "a - --b"),
        ("return\nx", "return\nx"),
        ("a\n(b)", "a\n(b)"),
        ("a\n[b]", "a\n[b]"),
        ("a\n/b/ 2", "a\n/b/ 2"),
        ("a\n`b`", "a\n`b`"),
        ("f(\n  a,\n  b,\n)", "f(a,b,)"),
        ("{\n  a: 1,\n}", "{a:1,}"),
        ("x => {\n}\ny", "x=>{}\ny"),
        ("a\n  .b()\n  ?.c", "a.b()?.c"),
        ("1 .b", "1 .b"),
        ("a / b", "a / b"),
        ("a /* b */ in c", "a in c"),
        ("a // b\nc", "a\nc"),
        ("a /* 1\n2 */ /* 3 */ c", "a\nc"),
        ("yield* a", "yield*a"),
        ("' a  b '", "' a  b '"),
        ("`\n   a ${ b }\n`", "`\n   a ${ b }\n`"),
        ("a ? .5 : b", "a?.5:b"),
    ],
)
def test_only_blanks_that_mean_nothing_are_left_out(before, after):
    assert compact_script(tokens(before)) == after + "\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("export default 1", "export default"),
        ("export { a }", "another form"),
        ("export * from './b.js'", "another form"),
        ("import * as b from './b.js'", "expected `import { a }"),
        ("import b from './b.js'", "expected `import { a }"),
        ("import { a as c } from './b.js'", "another name"),
        ("import { a } from 'preact'", "expected `import { a }"),
        ("import { nothing } from './b.js'", "exports no nothing"),
        ("const b = () => import('./b.js')", "not at the top|expected `import"),
        ("const url = import.meta.url", "expected `import"),
        ("import { a } from './b.js'\nconst b1 = 1", "both have a top-level name b1"),
        ("const a = '</script>'", "end or change its element"),
        ("const a = '<!-- '", "end or change its element"),
        ("const a = `open", "line 1: a template literal that does not end"),
        ("let a = 1\nconst b = 'open\n'", "line 2: expected a string"),
        ("if (a) { } /b/.test(c)", "closing brace"),
        ("/* open", "expected a comment"),
    ],
)
def test_what_one_script_cannot_be_made_of_is_refused(source, why):
    sources = {"main.js": source, "b.js": "export const a = 1; const { b1, c: b2 } = {}"}
    with pytest.raises(UnreadableScript, match=why):
        bundled(sources)


def test_a_refusal_names_the_file_and_the_line():
    with pytest.raises(UnreadableScript, match=r"lib/b\.js: line 3: "):
        bundled({"main.js": "import './lib/b.js'", "lib/b.js": "\n\n/* open"})


def test_modules_that_import_each_other_stand_once():
    sources = {
        "main.js": "import { b } from './b.js'; export const a = () => b",
        "b.js": "import { a } from './main.js'; export const b = () => a",
    }
    assert bundled(sources) == "const b=()=>a\nconst a=()=>b\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a { b: c; }\n\n/* d */ e,\n f { g: h }", "a{b:c}e,f{g:h}"),
        ("a b > c :hover { d: calc(1px + 2px) }", "a b > c :hover{d:calc(1px + 2px)}"),
        ("a::before { content: '; }  /* x */'; }", "a::before{content:'; }  /* x */'}"),
        ('a { content: "\\" {  }" }', 'a{content:"\\" {  }"}'),
        (
            "@media (min-width: 2px) and (x) {\n a { b: c }\n}",
            "@media (min-width:2px) and (x){a{b:c}}",
        ),
    ],
)
def test_a_style_keeps_its_meaning(before, after):
    assert compact_style(before) == after + "\n"


def test_every_script_of_this_machine_s_own_page_is_read():
    page = Path(__file__).parents[2] / "eventctx" / "web" / "page"
    for file in page.rglob("*.js"):
        source = file.read_text()
        assert "".join(token.text for token in tokens(source)) == source, file
