"""The direction of imports: every arrow points inwards, and there is no cycle.

The rooms are those of docs/decisions/0001. It reads the source, so
lazy imports and those under TYPE_CHECKING count too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ROOMS: list[tuple[set[str], ...]] = [
    # Each line may import the lines above it. Rooms side by side never import each other.
    (
        {
            "errors",
            "version",
            "identity",
            "images",
            "plan",
            "events",
            "record",
            "messages",
            "facts",
            "session_id",
        }
        | {"refs", "rounds", "shorten", "tokens", "gauge", "verdict", "words", "summarizer"}
        | {"text_index", "losses", "one_at_a_time", "default_store", "undisturbed", "ends"}
        | {"lent"},
    ),
    ({"codec", "upcast", "diff", "store", "policies"},),
    ({"stores"}, {"projections"}),
    (
        {"hooks"},
        {
            "turns",
            "settings",
            "budget",
            "compaction",
            "live",
            "loading",
            "resume",
            "emitting",
            "following",
            "deciding",
            "context",
        }
        | {
            "asking",
            "requesting",
            "lending",
            "restoring",
            "returned",
            "transcripts",
            "additions",
            "exporting",
            "result",
            "recalling",
            "tokenizers",
            "choosing",
        }
        | {"auditing", "reading", "tracing", "verify", "portable", "explaining"},
    ),
    ({"engine"},),
    ({"opening"},),
    ({"importers"}, {"orchestrators"}, {"adapters"}),
    ({"testing"}, {"amplifier_source"}),
    ({"cli", "demo"}, {"web"}),
]

HOMES = {
    "pyee": {"eventctx.hooks.registry"},
    "structlog": {"eventctx.hooks.log"},
    "opentelemetry": {
        "eventctx.hooks.trace",
        "eventctx.hooks.tracer",
        "eventctx.hooks.direct",
        "eventctx.hooks.readable",
        "eventctx.hooks.otlp",
        "eventctx.hooks.counting",
        "eventctx.hooks.metrics",
    },
    "apsw": {"eventctx.stores.sqlite*"},
    "tiktoken": {"eventctx.tokenizers"},
    "imagesize": {"eventctx.images"},
    "click": {"eventctx.cli.*"},
    "rich": {"eventctx.cli.*", "eventctx.demo.*"},
    "platformdirs": {"eventctx.default_store"},
    "amplifier_core": {"eventctx.adapters.amplifier*", "eventctx.orchestrators.amplifier*"},
    "anthropic": {"eventctx.orchestrators.anthropic*"},
    "openai": {"eventctx.orchestrators.openai*"},
    "pytest": {"eventctx.testing.*"},
    "msgspec": {"*"},
}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "eventctx").rglob("*.py")):
        found[_name(path.relative_to(ROOT))] = path
    for folder in ("projections", "hooks"):  # rglob does not follow the links
        for path in sorted((ROOT / folder).rglob("*.py")):
            found[_name(Path("eventctx") / path.relative_to(ROOT))] = path
    return found


def _name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(name: str, path: Path) -> Iterator[str]:
    """Every module that a file imports, by full name (of a package's attribute, the package)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


MODULES = modules()
ARROWS = [
    (name, target)
    for name, path in MODULES.items()
    for target in imports_of(name, path)
    if target.split(".")[0] == "eventctx"
]


def room_of(name: str) -> tuple[int, int] | None:
    part = name.split(".")[1] if "." in name else ""
    for line, rooms in enumerate(ROOMS):
        for side, room in enumerate(rooms):
            if part in room:
                return line, side
    return None


def test_the_reader_of_imports_sees_the_whole_package() -> None:
    assert {"eventctx.engine", "eventctx.projections.layout", "eventctx.hooks.log"} <= set(MODULES)
    assert len(ARROWS) > 200


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"eventctx"}))
def test_every_module_has_a_room(name: str) -> None:
    assert room_of(name) is not None, f"give {name} a room in tests/test_imports.py and the docs"


def test_every_arrow_points_inwards() -> None:
    wrong = []
    for name, target in ARROWS:
        here, there = room_of(name), room_of(target)
        if name == "eventctx" or (target == "eventctx" and here == (6, 0)):
            continue  # the front door names everything, and the command line may use it
        if here is None or there is None or not (here == there or there[0] < here[0]):
            wrong.append(f"{name} -> {target}")
    assert wrong == []


def test_there_is_no_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for name, target in ARROWS:
        if "eventctx" not in (name, target):
            graph.setdefault(name, set()).add(target)
    done: set[str] = set()

    def walk(node: str, path: tuple[str, ...]) -> None:
        assert node not in path, " -> ".join((*path, node))
        if node not in done:
            for target in graph.get(node, ()):
                walk(target, (*path, node))
            done.add(node)

    for node in list(graph):
        walk(node, ())


def test_third_party_libraries_stay_in_their_homes() -> None:
    strays = []
    for name, path in MODULES.items():
        for target in imports_of(name, path):
            library = target.split(".")[0]
            if library in sys.stdlib_module_names or library == "eventctx":
                continue
            homes = HOMES.get(library, set())
            if not any(_matches(name, home) for home in homes):
                strays.append(f"{name} -> {library}")
    assert strays == []


def _matches(name: str, home: str) -> bool:
    return name == home or (home.endswith("*") and name.startswith(home[:-1].removesuffix(".")))


def test_importing_the_package_loads_no_sink_no_sdk_and_no_driver() -> None:
    program = (
        "import sys, eventctx; eventctx.Settings; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(run.stdout.split())
    assert "eventctx" in loaded
    assert loaded.isdisjoint({"structlog", "opentelemetry", "apsw", "pyee", "rich", "click"})


def test_the_two_folders_are_linked_into_the_package() -> None:
    for folder in ("projections", "hooks"):
        link = ROOT / "eventctx" / folder
        assert link.resolve() == (ROOT / folder).resolve()
