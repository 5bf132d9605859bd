"""The one script of an exported page does what its modules do, and says what it cannot take."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from eventctx.web.page_files import UnreadableScript, bundle, compact_style, in_order

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
    for path, source in MODULES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "one.js").write_text(bundled(MODULES))
    apart, one = [
        subprocess.run(["node", tmp_path / name], capture_output=True, text=True, check=False)
        for name in ("main.js", "one.js")
    ]
    assert (apart.returncode, apart.stderr) == (0, "")
    assert one.stderr == ""
    assert json.loads(one.stdout) == json.loads(apart.stdout)


def test_a_module_stands_after_what_it_imports_and_only_once() -> None:
    found = [path for path, _ in in_order("main.js", MODULES.__getitem__)]
    assert found == ["lib/words.js", "lib/shapes.js", "lib/effects.js", "main.js"]


def test_no_import_no_export_and_no_whole_line_comment_is_left() -> None:
    script = bundled(MODULES)
    assert "import" not in script
    assert "export" not in script
    assert "Over several lines" not in script
    assert "Inside." not in script


@pytest.mark.parametrize(
    "source",
    [
        "export default 1",
        "export { a }",
        "export * from './b.js'",
        "import * as b from './b.js'",
        "import b from './b.js'",
        "import { a } from 'preact'",
        'import { a } from "./b.js"',
        "const b = () => import('./b.js')",
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


def test_modules_that_import_each_other_stand_once() -> None:
    sources = {
        "main.js": "import { b } from './b.js';\nexport const a = () => b;\n",
        "b.js": "import { a } from './main.js';\nexport const b = () => a;\n",
    }
    assert bundled(sources) == "const b = () => a;\nconst a = () => b;\n"


def test_a_style_loses_comments_and_indentation() -> None:
    assert (
        compact_style("a {\n  b: c;\n}\n\n/* d\n */\ne { f: g }\n") == "a {\nb: c;\n}\ne { f: g }\n"
    )
