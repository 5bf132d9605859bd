"""The page's modules keep the rules that make them one script in a file, and safe to show anything.

An exported page is one script: its modules are joined by leaving out imports and the word
``export``. So a name at the top of a module is nobody else's, and imports have one form. Text
becomes text nodes only, whatever it says.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "eventctx" / "web" / "page"
MODULES = {
    path.relative_to(PAGE).as_posix(): path.read_text() for path in sorted(PAGE.rglob("*.js"))
}

_COMMENT = re.compile(r"/\*.*?\*/|(?<![:'\"`\\/])//[^\n]*", re.DOTALL)
_IMPORT = re.compile(r"^import \{([^}]*)\} from '(\.{1,2}/[\w./-]+\.js)';$", re.MULTILINE)
_TOP_NAME = re.compile(
    r"^(?:export )?(?:async )?(?:const|let|var|class|function\*?) (?:([\w$]+)|([\[{][^=]*))",
    re.MULTILINE,
)

FLOORS: tuple[frozenset[str], ...] = (
    # A folder imports the folders above its line in this table; those of one line do not know each
    # other. The last line has the entries: modules that a page or a worker begins with.
    frozenset({"core"}),
    frozenset({"timeline"}),
    frozenset({"source", "parts"}),
    frozenset({"charts"}),
    frozenset({"panes"}),
    frozenset({"search"}),
    frozenset({"compare"}),
    frozenset({"drawer", "lost", "integrity"}),
    frozenset({"screens"}),
    frozenset({""}),
)

FORBIDDEN = {
    "HTML from a text": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\.srcdoc\b"
    r"|setHTML|parseFromString|createContextualFragment|createHTMLDocument",
    "a script from a text": r"\beval\b|new Function\b|javascript:"
    r"|set(?:Timeout|Interval)\(\s*['\"`]",
    "what cannot be joined": r"\bimport\s*\(|\bimport\.meta\b|^export default|^export \{"
    r"|^export \*|^await ",
    "a style as an attribute": r"setAttribute\(\s*['\"]style|cssText",
    "another origin": r"https?://(?!www\.w3\.org/)",
    "a cookie": r"document\.cookie|cookieStore",
}


def code_of(name: str) -> str:
    return _COMMENT.sub(" ", MODULES[name])


def top_names(code: str) -> list[str]:
    names = []
    for name, several in _TOP_NAME.findall(code):
        names += [name] if name else re.findall(r"([\w$]+)\s*(?:[,}\]=]|$)", several)
    return names


def test_the_reader_of_modules_sees_them() -> None:
    assert {"main.js", "core/signals.js", "parts/virtual-list.js"} <= set(MODULES)
    assert {"signal", "computed", "effect", "batch"} <= set(top_names(code_of("core/signals.js")))
    assert top_names("const { a, b: c } = x;\nconst [d] = y;\n  let inner;\nlet e;") == [
        "a",
        "c",
        "d",
        "e",
    ]


def test_every_name_at_the_top_of_a_module_is_its_own() -> None:
    owners = Counter(name for module in MODULES for name in set(top_names(code_of(module))))
    twice = [
        f"{name}: {', '.join(one for one in MODULES if name in top_names(code_of(one)))}"
        for name, count in sorted(owners.items())
        if count > 1
    ]
    assert not twice, "\n".join(twice)


def test_a_folder_of_the_page_imports_lower_floors_only() -> None:
    floor = {folder: number for number, folders in enumerate(FLOORS) for folder in folders}
    wrong = []
    for module in MODULES:
        for _, target in _IMPORT.findall(code_of(module)):
            here = posixpath.dirname(module)
            reached = posixpath.normpath(posixpath.join(here, target))
            there = posixpath.dirname(reached)
            if here != there and floor[there] >= floor[here]:
                wrong.append(f"{module} -> {reached}")
    assert wrong == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_module_makes(what: str) -> None:
    found = {
        module: re.findall(FORBIDDEN[what], code_of(module), re.MULTILINE) for module in MODULES
    }
    assert {module: hits for module, hits in found.items() if hits} == {}


def test_the_page_itself_holds_no_script_and_no_style() -> None:
    index = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", index) == []
    for address in re.findall(r'(?:src|href)="([^"]*)"', index):
        assert address.startswith("/page/")
        assert (PAGE / address.removeprefix("/page/")).is_file(), address


def test_colours_are_named_in_one_style_sheet() -> None:
    for sheet in sorted((PAGE / "styles").glob("*.css")):
        text = _COMMENT.sub(" ", sheet.read_text())
        assert "url(" not in text, f"{sheet.name} loads something"
        assert "@import" not in text, f"{sheet.name} loads something"
        if sheet.name != "base.css":
            assert re.findall(r"#[0-9a-f]{3,8}\b", text, re.IGNORECASE) == [], sheet.name


def test_what_a_module_exports_is_used_by_another_or_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("*.mjs"))
    unused = []
    for name in MODULES:
        others = tests + "".join(MODULES[other] for other in MODULES if other != name)
        exported = re.findall(
            r"^export (?:async )?(?:const|class|function\*?) ([\w$]+)", MODULES[name], re.MULTILINE
        )
        unused += [f"{name}: {one}" for one in exported if not re.search(rf"\b{one}\b", others)]
    assert unused == []
