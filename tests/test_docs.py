"""The documentation is true: its code runs, its output is what is printed, its tables are complete.

``tests/pages.py`` says how a page is read.

``python tests/test_docs.py`` writes the generated parts of ``docs/reference/events.md``,
``docs/reference/metrics.md`` and ``docs/reference/provider-rules.md`` anew.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import structlog
from click.testing import CliRunner

import eventctx
from eventctx import errors
from eventctx.cli.main import cli
from eventctx.log import events
from eventctx.log.events import CATALOGUE, EventType
from eventctx.policies import named
from eventctx.projections import presence
from eventctx.projections.metrics.names import INSTRUMENTS
from eventctx.projections.view.sendable.sending import RULES as SENDING_RULES
from eventctx.session import settings
from eventctx.session.settings import Settings
from eventctx.testing.strict_provider import RULES
from tests import examples, site
from tests.browser import jaeger_pictures, pictures
from tests.pages import Reader, blocks_of
from tests.scripted_apis import answering
from tests.test_imports import FLOORS
from tests.view.test_sendable import refused_without

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
AT_THE_ROOT = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = [*AT_THE_ROOT, *sorted(DOCS.rglob("*.md"))]

NOT_IN_DEV = frozenset(("claude-agent-sdk", "google-adk", "strands"))
"""Extras whose blocks run in an environment of their own alone (``make examples``)."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _in_this_process(arguments: list[str]) -> tuple[int, str]:
    """To start the program for each command would take minutes."""
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.output


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as Python does with the folder of a reader's program
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("EVENTCTX_STORE", "")
    # The programs of a page run in its folder, where a relative PYTHONPATH would lead elsewhere.
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setattr(sys, "argv", ["eventctx"])  # suggested commands are spelt so
    try:
        with contextlib.ExitStack() as stack:
            if re.search(r"^(from|import) (anthropic|openai)", page.read_text("utf-8"), re.M):
                for name, value in stack.enter_context(answering()).items():
                    monkeypatch.setenv(name, value)
            runner = stack.enter_context(asyncio.Runner())
            Reader(page, runner, _in_this_process, lambda extra: extra not in NOT_IN_DEV).follow()
    finally:
        structlog.reset_defaults()


_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in _LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{_name(page)}: {link}"
        if anchor:
            titles = re.findall(r"(?m)^#+ (.+)$", target.read_text(encoding="utf-8").lower())
            names = {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
            assert anchor in names, f"{_name(page)}: {link}"


_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def test_every_picture_is_made_by_a_script_and_says_what_it_shows() -> None:
    shown = set()
    for page in PAGES:
        for words, path in _PICTURE.findall(page.read_text(encoding="utf-8")):
            picture = (page.parent / path).resolve()
            assert len(words.split()) > 5, f"{_name(page)}: {path} needs words for who sees none"
            assert picture.stat().st_size <= pictures.MOST_BYTES, path
            shown.add(picture)
    made = {pictures.FOLDER / one.file for one in pictures.PICTURES}
    made |= {jaeger_pictures.FOLDER / name for name in jaeger_pictures.FILES}
    assert shown == made == set(pictures.FOLDER.iterdir())


def test_every_page_is_in_the_index_and_that_of_every_adapter_among_the_examples() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    assert [_name(page) for page in PAGES if page.resolve() not in {index, *linked}] == []
    assert "docs/index.md" in _LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    places = set(re.findall(r"'([^']+\.md)'", str(site.navigation())))
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} <= places
    """``make examples`` runs each with its extra alone."""
    table = reference("adapters").partition("\n## What holds")[0]
    linked = {Path(link).name for link in re.findall(r"(?m)^\| \[.+?\]\((.+?)\)", table)}
    assert linked - set(examples.PAGES.values()) == set()
    for extra, page in examples.PAGES.items():
        assert f"[{extra}]" in (DOCS / "how-to" / page).read_text(encoding="utf-8")


def test_a_newcomer_reads_the_first_pages_in_three_minutes_and_few_and_short_decisions() -> None:
    """Of decisions only what a newcomer would otherwise undo; what is history is in git."""
    decisions = [*(DOCS / "decisions").glob("*.md")]
    assert len(decisions) <= 25, "merge related decisions, or remove one that nobody would undo"
    most = {"README.md": 700, "CONTRIBUTING.md": 900}
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *decisions):
        assert len(page.read_text(encoding="utf-8").split()) <= most.get(page.name, 150), page


def reference(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


# -- reference pages are complete ----------------------------------------------------------------

_BEGIN, _END = "<!-- begin: generated -->\n", "<!-- end: generated -->\n"


def events_reference() -> str:
    rows = [
        f"- [`{row.name}`](#{row.name.replace(':', '')}){', durable' if row.durable else ''}"
        f"{', to emit' if row.emitted else ''}: {row.promise}"
        for row in CATALOGUE.values()
    ]
    return "\n".join([*rows, "", *(_section(row) for row in CATALOGUE.values())])


def _section(row: EventType) -> str:
    """Fields stand as in Python: one without a default is required."""
    lines = [f"## `{row.name}`", "", inspect.cleandoc(row.payload.__doc__ or "").replace("``", "`")]
    fields = msgspec.structs.fields(row.payload)
    if fields:
        lines += ["", "```text"]
        for field in fields:
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            shown = "" if default is msgspec.NODEFAULT else f" = {default!r}"
            lines.append(f"{field.name}: {row.payload.__annotations__[field.name]}{shown}")
        lines.append("```")
    return "\n".join([*lines, ""])


def test_the_event_reference_names_what_few_rows_of_the_catalogue_have() -> None:
    text = reference("events")
    (listed,) = re.findall(r"(?m)^Interceptable: (.+)\.", text)
    interceptable = [row.name for row in CATALOGUE.values() if row.interceptable]
    assert re.findall(r"`([^`]+)`", listed) == interceptable
    (version,) = re.findall(r"(?m)^Payloads have version (\d+)", text)
    assert {row.version for row in CATALOGUE.values()} == {int(version)}
    for name in ("Trigger", "Outcome", "Status", "FailedStatus"):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert tuple(re.findall(r"`(\w+)`", row)[1:]) == get_args(getattr(events, name))


@pytest.mark.slow
def test_the_event_reference_names_just_the_events_that_nothing_writes() -> None:
    payloads = {row.payload.__name__: row.name for row in CATALOGUE.values()}
    mentioned = re.compile(rf"\b(?:{'|'.join(payloads)})\(")  # to parse all files takes seconds
    made = set()
    for folder in ("eventctx", "hooks", "projections"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if path == ROOT / "eventctx" / "log" / "events.py" or not mentioned.search(text):
                continue
            called = [one.func for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
            made |= {getattr(one, "attr", getattr(one, "id", None)) for one in called}
    unwritten = {event for name, event in payloads.items() if name not in made}
    paragraphs = reference("events").split("\n\n")
    told = [one for one in paragraphs if "Nothing of this release writes" in one]
    assert set(re.findall(r"`(\w+:\w+)`", "".join(told))) == unwritten


# -- the architecture is that of the code ---------------------------------------------------------

ARCHITECTURE = DOCS / "explanation" / "architecture.md"


def _in_code(name: str) -> bool:
    """Whether a path that a page names leads somewhere from the repository or the package."""
    return (ROOT / name).exists() or (ROOT / "eventctx" / name).exists()


def test_every_file_that_a_page_names_is_there_and_has_the_function_of_a_step() -> None:
    """Words in capitals stand for a name of the reader's: ``stores/NAME.py``."""
    for page in (ARCHITECTURE, ROOT / "CONTRIBUTING.md"):
        paths = set(re.findall(r"`([a-z_]+/[a-z_/.]+)`", page.read_text(encoding="utf-8")))
        assert paths
        assert [path for path in sorted(paths) if not _in_code(path)] == []
    step = r"(?m)^\d+\. `([\w/]+\.py)`, `(?:\w+\.)?(\w+)`"
    steps = re.findall(step, ARCHITECTURE.read_text())
    assert len(steps) > 10
    for file, function in steps:
        home = ROOT / file if (ROOT / file).exists() else ROOT / "eventctx" / file
        defined = re.findall(r"\bdef (\w+)", home.read_text(encoding="utf-8"))
        assert function in defined, f"{file}: {function}"


def test_the_architecture_shows_every_room_on_its_floor() -> None:
    picture = next(one.text for one in blocks_of(ARCHITECTURE) if not one.language)
    shown: list[set[str]] = []
    for line in picture.splitlines():
        if line[0] != " ":
            shown.insert(0, set())
        shown[0] |= set(re.findall(r"(\w+)(?:/|\.py)", line))
    built = [{one for one in rooms if _in_code(one) or _in_code(f"{one}.py")} for rooms in FLOORS]
    assert shown == built


_SENT_WITH = {True: " *Opt-in.*", False: " *Until the opt-in.*"}


def metrics_reference() -> str:
    rows = []
    for one in INSTRUMENTS:
        by = ", ".join([f"`{name}`" for name in one.attributes])
        marks = " Operational." if one.operational else _SENT_WITH.get(one.opt_in, "")
        said = f"{one.description}{marks}"
        rows.append(f"- `{one.name}`, {one.kind}, `{one.unit}`{by and f', by {by}'}: {said}")
    return "\n".join(rows)


def provider_rules_reference() -> str:
    lines: list[str] = []
    for api in dict.fromkeys(rule.api for rule in RULES):
        lines += [f"## {_APIS[api]}", ""]
        lines += [f"- `{rule.name}`: {rule.says}" for rule in RULES if rule.api == api]
        lines.append("")
    lines += ["## What a view does for them", "", _SENDING, ""]
    for one in SENDING_RULES:
        names = ", ".join([f"`{name}`" for name in refused_without(one.name)])
        lines.append(f"- `{one.name}`: {one.words} Refused without it by {names}.")
    lines.append("")
    return "\n".join(lines)


_SENDING = (
    "In the order in which they change a view. The log keeps each message as it came, and `why` "
    "and a request's view name the rule."
)

_APIS = {
    "anthropic": "Anthropic: Messages",
    "openai-chat": "OpenAI: Chat Completions",
    "openai-responses": "OpenAI: Responses",
    "gemini": "Gemini: generateContent",
    "bedrock": "Amazon Bedrock: Converse",
}


GENERATED = {"events": events_reference, "metrics": metrics_reference}
GENERATED["provider-rules"] = provider_rules_reference


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_reference_is_that_of_the_code(name: str) -> None:
    generated = reference(name).partition(_BEGIN)[2].partition(_END)[0]
    assert generated == GENERATED[name]() + "\n", "run `python tests/test_docs.py`"


def test_every_error_setting_public_name_reason_code_and_policy_is_in_its_reference() -> None:
    text = reference("errors")
    tree = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0]
    assert tree in text, "the tree is the one in the docstring of eventctx/errors.py"
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.EventctxError):
            row = re.search(rf"(?m)^\| `{name}` \|.*$", text)
            assert row, name
            made = inspect.signature(kind).parameters if "__init__" in vars(kind) else {}
            for attribute in set(made) - {"problem"}:
                assert f"`{attribute}`" in row[0], f"{name}.{attribute}"
    text = reference("settings")
    for field in msgspec.structs.fields(Settings):
        assert f"| `{field.name}` | `{field.default!r}` |" in text, field.name
    for other, own in settings.ALIASES.items():
        assert f"| `{other}` | `{own}` |" in text, other
    for other, own in named.ALIASES.items():
        assert f"`{other}` is" in text and f"`{own}`" in text, other
    assert f"`{named.DEFAULT}` by default" in text
    """Errors have a page of their own, where a test wants every one of them."""
    text = reference("python-api")
    for name in eventctx.__all__:
        if not hasattr(errors, name):
            assert f"`{name}`" in text or re.search(rf"(\bclass|\bdef|->) {name}\b", text), name
    table = reference("policies").partition("\n## Reason codes\n")[2]
    assert dict(re.findall(r"(?m)^- `(\w+)`: (.+)$", table)) == presence.REASONS
    text = (DOCS / "how-to" / "choose-a-policy.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"(?m)^\| `([\w-]+)`", text))
    assert listed == named.POLICIES.keys() - set(COMPATIBILITY)


COMPATIBILITY = ("importance", "simple", "token-budget", "truncate")
"""Policies that have a page of their own, and are recommended nowhere."""


@pytest.mark.parametrize("name", named.POLICIES)
def test_every_policy_and_its_settings_are_in_the_policy_reference(name: str) -> None:
    text = reference("compatibility-policies" if name in COMPATIBILITY else "policies")
    assert re.search(rf"(?m)^\| \[`{name}`\]\(#{name}\) \|", text)
    section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    documented = re.findall(r"(?m)^\| `(\w+)` \| `", section)
    assert documented == list(named.settings_of_policy(name))
    for field in msgspec.structs.fields(named.POLICIES[name]):
        if field.name in documented:
            assert f"| `{field.name}` | `{field.default!r}` |" in section, field.name


def test_the_signatures_of_the_api_reference_are_those_of_the_code() -> None:
    stubs: dict[str, dict[str, str]] = {}
    for block in blocks_of(REFERENCE / "python-api.md"):
        if block.language == "python":
            for node in ast.parse(block.text).body:
                if isinstance(node, ast.ClassDef):
                    stubs[node.name] = _signatures(node)
    for name in ("Reader", "Engine", "Context"):
        section = reference("python-api").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        lines = [line for line in section.splitlines() if line.startswith("- `")]
        listed = re.findall(r"`(\w+\(.*?\) -> [^`]+)`", "\n".join(lines))
        written = "".join(f"    def {one}: ...\n" for one in listed)
        (stub,) = ast.parse(f"class {name}:\n{written}").body
        assert isinstance(stub, ast.ClassDef)
        stubs[name] = _signatures(stub)
        assert len(stubs[name]) == len(listed), f"a method of {name} stands there twice"
    assert {"Engine", "Context", "Turn", "Iteration", "ProviderCall"} <= stubs.keys()
    for name, methods in stubs.items():
        kind = getattr(eventctx, name, None)
        if kind is None:
            continue
        inherited = _public_methods(eventctx.Reader) - {"close"} if name == "Engine" else set()
        assert methods.keys() == _public_methods(kind) - inherited, name
        for method, said in methods.items():
            real = str(inspect.signature(getattr(kind, method))).rpartition(" -> ")[0]
            assert _plain(said) == _plain(real), f"{name}.{method}"


def _signatures(stub: ast.ClassDef) -> dict[str, str]:
    return {
        node.name: ast.unparse(node.args).replace("self, ", "").replace("cls, ", "")
        for node in stub.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _public_methods(kind: type) -> set[str]:
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("eventctx")
        for name, value in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(value) or type(value) is classmethod)
    }


def _plain(arguments: str) -> str:
    return re.sub(r"[\s()'\"]|self,?|cls,?", "", arguments)


if __name__ == "__main__":
    for name, made in GENERATED.items():
        before, _, rest = reference(name).partition(_BEGIN)
        text = f"{before}{_BEGIN}{made()}\n{_END}{rest.partition(_END)[2]}"
        (REFERENCE / f"{name}.md").write_text(text, encoding="utf-8")


# -- the pages as a site ---------------------------------------------------------------------------


@pytest.mark.check
@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None and os.environ.get("CI") != "true",
    reason="needs the extra `docs`: zensical",
)
def test_the_documentation_builds_without_a_complaint(tmp_path: Path) -> None:
    first = site.build(tmp_path)
    assert first.is_file()
    for page in DOCS.rglob("*.md"):
        assert (tmp_path / "html" / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    found = (tmp_path / "html" / "search.json").read_text(encoding="utf-8")
    assert "how-to/find-out-why.html" in found
    assert "source/tests" not in found, "sources of tests are not what a reader searches for"


def test_a_link_to_a_file_of_the_repository_leads_to_its_page_but_not_in_code(
    tmp_path: Path,
) -> None:
    site.stage(tmp_path)
    file = "tests/faults/test_processes.py"
    page = tmp_path / "explanation" / "what-is-tested.md"
    assert f"](../source/{file}.md)" in page.read_text(encoding="utf-8")
    assert f"# {file}\n" in (tmp_path / "source" / f"{file}.md").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        staged = (tmp_path / page.relative_to(DOCS)).read_text(encoding="utf-8")
        fences = re.findall(r"^```.*?^```$", page.read_text(encoding="utf-8"), re.M | re.S)
        assert fences == re.findall(r"^```.*?^```$", staged, re.M | re.S), page


def test_a_dead_link_a_missing_heading_and_another_server_are_told(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text(
        '<h2 id="here"></h2><a href="#here"></a><a href="#there"></a><a href="two.html"></a>'
        '<a href="https://example.org/"></a><script src="https://example.org/x.js"></script>'
    )
    assert sorted(site.complaints(tmp_path)) == [
        "one.html: #there leads to no heading",
        "one.html: https://example.org/x.js is on another server",
        "one.html: two.html leads to no page",
    ]
