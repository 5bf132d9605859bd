"""The page's modules: their rules, their types, what their own tests say, and a message's parts.

An exported page is one script: its modules are joined by leaving out imports and the word
``export``. So a name at the top of a module is nobody else's, and imports have one form. Text
becomes text nodes only, whatever it says."""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventctx.messages.parts import Part, parts_of_result, read_parts
from eventctx.messages.response_items import TABLE
from eventctx.web.bodies import with_parts
from tests.test_recorded_sessions import SESSIONS, imported
from tests.web.node import PAGE_TESTS, node, run_tests

FILES = sorted(PAGE_TESTS.glob("*.test.mjs"))


def test_the_pages_modules_do_what_their_tests_say() -> None:
    assert FILES
    run_tests(*FILES)


TYPESCRIPT = "typescript@7.0.2"


@pytest.mark.check
def test_the_types_of_the_page_hold() -> None:
    npx = Path(node()).with_name("npx")
    compiler = [str(npx), "--yes", "--package", TYPESCRIPT, "tsc"]
    command = [*compiler, "--project", str(PAGE_TESTS / "tsconfig.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        # A laptop may be without npm or without a network; where all must run, it has both.
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"npm cannot bring {TYPESCRIPT}: {error}")
    assert done.returncode == 0, done.stdout + done.stderr


PAGE = Path(__file__).resolve().parents[2] / "eventctx" / "web" / "page"
MODULES = {one.relative_to(PAGE).as_posix(): one.read_text() for one in sorted(PAGE.rglob("*.js"))}

_COMMENT = re.compile(r"/\*.*?\*/|(?<![:'\"`\\/])//[^\n]*", re.DOTALL)
_IMPORT = re.compile(r"^import \{([^}]*)\} from '(\.{1,2}/[\w./-]+\.js)';$", re.MULTILINE)
_TOP_NAME = re.compile(
    r"^(?:export )?(?:async )?(?:const|let|var|class|function\*?) (?:([\w$]+)|([\[{][^=]*))",
    re.MULTILINE,
)

# A folder imports the folders before its place in this list; those of one place do not know each
# other. At the last, which has no name, are the modules that a page or a worker begins with.
FLOORS = "core|timeline|source parts|charts|panes|search|compare|drawer lost integrity|screens"

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


@cache
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
    found = top_names("const { a, b: c } = x;\nconst [d] = y;\n  let inner;\nlet e;")
    assert found == ["a", "c", "d", "e"]


def test_every_name_at_the_top_of_a_module_is_its_own() -> None:
    owners: dict[str, list[str]] = {}
    for module in MODULES:
        for name in set(top_names(code_of(module))):
            owners.setdefault(name, []).append(module)
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


def test_a_folder_of_the_page_imports_lower_floors_only() -> None:
    floors = [*FLOORS.split("|"), ""]
    floor = {folder: place for place, one in enumerate(floors) for folder in one.split(" ")}
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
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    assert [module for module in MODULES if pattern.search(code_of(module))] == []


def test_the_page_itself_holds_no_script_and_no_style_and_one_style_sheet_names_colours() -> None:
    index = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", index) == []
    for address in re.findall(r'(?:src|href)="([^"]*)"', index):
        assert address.startswith("/page/")
        assert (PAGE / address.removeprefix("/page/")).is_file(), address
    for sheet in sorted((PAGE / "styles").glob("*.css")):
        text = _COMMENT.sub(" ", sheet.read_text())
        assert "url(" not in text and "@import" not in text, f"{sheet.name} loads something"
        if sheet.name != "base.css":
            assert re.findall(r"#[0-9a-f]{3,8}\b", text, re.IGNORECASE) == [], sheet.name


def test_what_a_module_exports_is_used_by_another_or_by_a_test() -> None:
    texts = {**MODULES, "": "".join(path.read_text() for path in PAGE_TESTS.rglob("*.mjs"))}
    users: dict[str, set[str]] = {}
    for module, text in texts.items():
        for word in re.findall(r"\w+", text):
            users.setdefault(word, set()).add(module)
    export = re.compile(r"^export (?:async )?(?:const|class|function\*?) ([\w$]+)", re.MULTILINE)
    exported = [(name, one) for name, text in MODULES.items() for one in export.findall(text)]
    assert [(name, one) for name, one in exported if users[one] == {name}] == []


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
SEALED = {"type": "thinking", "thinking": "so", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
SHELL = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}, "odd"]
USER: list[Any] = [
    *("", 0, False, {}),
    [None, "bare", 3, [1], {"type": 4}, {"no": "type"}],
    [{"type": "constructor"}, {"type": "__proto__"}],
    [{"type": "text"}, {"type": "text", "text": None}],
    [{"type": "text", "text": 7}, IMAGE, {"type": "input_file"}],
    [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}],
    [{"type": "tool_result", "output": "x", "is_error": True}],
]
ASSISTANT: list[dict[str, Any]] = [
    {"content": None, "tool_calls": [CALL, "odd", {"id": "c2", "name": "b"}]},
    {"content": [], "tool_calls": [{"id": "c1", "tool": "t", "args": {}}]},
    {"tool_calls": [{"id": "c", "custom": {"name": "p", "input": "x"}}]},
    {"content": "x", "reasoning_content": "why", "refusal": "no"},
    *({"content": one, "thinking_block": SEALED} for one in ("x", [SEALED])),
    {"content": "x", "thinking_block": {"type": "odd"}},
    {"function_call": {"name": "f", "arguments": "{}"}},
    {"content": [{"type": "redacted_thinking", "data": "xx"}]},
    {"content": [{"type": "server_tool_use", "id": "h", "name": "web"}]},
    {"content": [{"type": "web_search_tool_result", "tool_use_id": "h"}]},
    {"content": [{"type": "refusal", "refusal": "no"}]},
    {"content": [{"type": "tool_call", "id": "t", "name": "n", "input": {}}]},
    {"content": [{"type": "tool_use", "id": 5, "name": "n"}]},
]
ODD: list[Any] = [
    *({}, {"role": ""}, {"role": "user"}, {"id": "msg_1"}, {"type": None, "id": "msg_1"}),
    *({"role": "user", "content": content} for content in USER),
    *({"role": "assistant", **fields} for fields in ASSISTANT),
    {"role": "function", "name": "f", "content": "done"},
    {"role": "tool", "tool_call_ids": ["a", 3, "b"], "content": "done"},
    {"role": "tool", "name": "f", "content": [{"type": "tool_result", "tool_use_id": "q"}]},
    {"role": "developer", "type": "additional_tools", "tools": [{"name": "t"}]},
    {"type": "reasoning", "summary": [{"text": "a"}, "odd"], "encrypted_content": "xyz"},
    {"type": "compaction", "encrypted_content": "xyz"},
    {"type": "shell_call_output", "call_id": "s", "output": SHELL},
    {"type": "computer_call_output", "call_id": "s", "output": {"type": "computer_screenshot"}},
    {"type": "computer_call", "call_id": "s", "action": {"type": "click"}},
    *({"type": "tool_search_call", name: "x", "arguments": {}} for name in ("id", "call_id")),
    {"type": "tool_search_output", "call_id": "x", "tools": [{"name": "a"}]},
    {"type": "apply_patch_call_output", "call_id": "x", "status": "failed"},
    {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
    *({"type": "later_call", "id": "x"}, {"type": "later_item"}, {"type": "toString"}),
    *({"type": one, "call_id": "x"} for one in ("later_thing", "later_output")),
]


def in_the_page(messages: list[Any]) -> list[Any]:
    script = PAGE_TESTS / "read-messages.mjs"
    asked = msgspec.json.encode(with_parts([{"message": one} for one in messages]))
    done = subprocess.run([node(), str(script)], input=asked, capture_output=True, check=True)
    read: list[Any] = json.loads(done.stdout)
    return read


def _described(part: Part) -> dict[str, Any]:
    inner = parts_of_result(part) if part.kind == "result" else []
    return {
        **{name: getattr(part, name) for name in ("kind", "value", "type", "name", "failed")},
        "place": list(part.place),
        "ids": list(part.ids),
        "inner": [_described(one) for one in inner],
    }


def have_the_same_parts(messages: list[Any]) -> None:
    for message, read in zip(messages, in_the_page(messages), strict=True):
        assert read == [_described(part) for part in read_parts(message)], message


def test_odd_messages_and_items_of_every_dialect_have_the_same_parts_in_the_page() -> None:
    have_the_same_parts(ODD)
    have_the_same_parts([{"type": one, "call_id": "c", "id": "i", "name": "n"} for one in TABLE])


@pytest.mark.parametrize("name", SESSIONS)
async def test_recorded_messages_have_the_same_parts(name: str, recorded_sessions: Path) -> None:
    engine, sessions = await imported(recorded_sessions / name)
    lines = [line for session in sessions for line in await engine.transcript(session)]
    messages = [line.message for line in lines if line.message is not None]
    assert messages
    have_the_same_parts(messages)
