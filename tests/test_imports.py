"""The direction of imports: every folder imports lower floors only, and there is no cycle.

The floors are those of docs/explanation/architecture.md. The test reads the source, so lazy
imports and those under TYPE_CHECKING count too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import eventctx

# All modules are parsed once, for one process.
pytestmark = [pytest.mark.check, pytest.mark.xdist_group("imports")]

ROOT = Path(__file__).resolve().parents[1]

FLOORS: list[set[str]] = [
    # A room (a folder or a root module of eventctx) imports the floors above its line in this
    # table and itself; rooms of one floor never import each other.
    {"errors", "aio", "lazy_names", "text", "version"},
    {"log", "messages"},
    {"projections", "stores"},
    {"policies", "queries", "search"},
    {"session", "hooks"},
    {"reader", "engine"},
    {"adapters", "amplifier_source", "comparison", "importers", "mcp", "orchestrators", "proxy"}
    | {"sync", "testing", "web"},
    {"cli", "__main__"},
]

RIMS = FLOORS[6]
"""Rooms that nothing in the kernel needs: each is useful, and knows the others by ports alone."""

PORTS = {
    # The modules of a rim that other rims import.
    *("eventctx.comparison.compare", "eventctx.comparison.contenders"),
    *("eventctx.comparison.defaults", "eventctx.comparison.live", "eventctx.comparison.played"),
    *("eventctx.comparison.recording", "eventctx.comparison.statistics"),
    *("eventctx.importers.load", "eventctx.importers.recorded_calls"),
    "eventctx.orchestrators.host.compaction_counts",
    *("eventctx.orchestrators.protocol", "eventctx.orchestrators.providers.amplifier"),
    *("eventctx.sync.loop_thread", "eventctx.sync.proxy", "eventctx.web.guard"),
}

EXEMPT = {
    # An arrow that points to the same or a higher floor, and why.
    ("engine", "reader"): "an engine is a reader with sessions",
    ("reader", "comparison"): "Reader.compare loads the simulator when it is called",
    ("amplifier_source", "adapters"): "the folder that Amplifier's loader installs names them",
    ("amplifier_source", "orchestrators"): "the same",
    ("__main__", "cli"): "`python -m eventctx` is the command line",
}

TABLES = {
    # Modules that list others, a row each: a row is a module of its own, whatever its size.
    *("eventctx.cli.main", "eventctx.importers.format_table", "eventctx.policies.named"),
    "eventctx.testing.tasks.families",
}

OWN_FILES = {
    # Small modules with a single user that have a file of their own, and why.
    "eventctx.adapters.claude_agent_sdk.hooks": "loaded with the SDK alone",
    "eventctx.cli.later": "what `eventctx --help` loads of each command",
    "eventctx.cli.main": "loaded by start, which Ctrl-C may stop",
    "eventctx.cli.start": "the program's entry point",
    "eventctx.web.parameters": "the one place where the page's requests are taken apart",
}

# Files of a room, sub-folders included. A new policy, format, question or host raises the
# number of its room by its own file.
MOST_FILES = {"amplifier_source": 6, "adapters": 79, "cli": 53, "comparison": 10, "hooks": 20}
MOST_FILES |= {"importers": 88, "log": 15, "mcp": 5, "messages": 26, "orchestrators": 30}
MOST_FILES |= {"policies": 21, "projections": 63, "proxy": 9, "queries": 43, "search": 10}
MOST_FILES |= {"session": 29, "stores": 53, "sync": 3, "testing": 68, "web": 22}

SCREEN = 60
"""Lines of a function, its signature and docstring included."""

MOST_NAMES = 40
"""Names at the top of the package."""

SMALL = 120
"""Lines below which a module with a single user in its room belongs to that user."""

_HOMES = {
    # The modules of eventctx that may import a library; with a star, all that begin so.
    "pyee": "hooks.registry",
    "structlog": "hooks.log hooks.log_output",
    "opentelemetry": "hooks.counting hooks.delivery hooks.metrics hooks.otlp* hooks.trace "
    "hooks.tracer",
    "grpc requests": "hooks.otlp_transports",
    "google": "adapters.google_adk.* hooks.delivery hooks.otlp_transports",
    "apsw": "search.sqlite* stores.sqlite*",
    "nats": "stores.jetstream.*",
    "nkeys": "stores.jetstream.address",
    "psycopg": "search.postgres* stores.postgres.*",
    "tiktoken": "messages.tokens messages.vocabulary",
    "markdown_it pygments": "web.markdown_tree",
    "imagesize": "messages.media",
    "click rich": "cli.*",
    "cryptography": "log.integrity",
    "yaml": "importers.source.http_recording",
    "platformdirs": "stores.location",
    "amplifier_core": "adapters.amplifier* orchestrators.providers.amplifier*",
    "agent_framework": "adapters.agent_framework.*",
    "langchain": "adapters.langchain.*",
    "langchain_core langgraph": "adapters.langchain.* adapters.langgraph.*",
    "claude_agent_sdk": "adapters.claude_agent_sdk.*",
    "mcp mcp_types": "mcp.*",
    "agents": "adapters.openai_agents*",
    "strands": "adapters.strands.*",
    "pydantic pydantic_ai": "adapters.pydantic_ai.*",
    "anthropic": "orchestrators.providers.anthropic*",
    "openai": "orchestrators.providers.openai*",
    "h11": "proxy.call_copy proxy.relay proxy.websocket",
    "wsproto": "proxy.websocket",
    "zstandard brotli": "proxy.tapes",
    "pytest": "testing.*",
    "starlette uvicorn": "web.*",
    "msgspec": "*",
}
HOMES = {one: homes for libraries, homes in _HOMES.items() for one in libraries.split()}


def modules() -> dict[str, Path]:
    found = {}
    for folder in ("eventctx", "projections", "hooks"):  # rglob does not follow the links
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT)
            found[_name(place if folder == "eventctx" else Path("eventctx") / place)] = path
    return found


def _name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """What the tests ask of a file. Its tree is not kept: all of them are millions of objects."""

    imports: list[ast.Import | ast.ImportFrom]
    functions: dict[str, int]
    """The lines of the longest of each name."""
    classes: list[str]


@cache
def source_of(path: Path) -> Source:
    tree = ast.parse(path.read_text())
    found = Source([], {}, [one.name for one in tree.body if isinstance(one, ast.ClassDef)])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, Function):
            lines = (node.end_lineno or 0) - node.lineno
            found.functions[node.name] = max(lines, found.functions.get(node.name, 0))
    return found


def imports_of(name: str, path: Path) -> Iterator[str]:
    """Every module that a file imports, by full name (of a package's attribute, the package).

    A stub next to the file says what is loaded later, under the names that it lists.
    """
    stub = path.with_suffix(".pyi")
    for node in source_of(path).imports + (source_of(stub).imports if stub.exists() else []):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


MODULES = modules()


@cache
def arrows() -> list[tuple[str, str]]:
    """Pairs of a module and one of ours that it imports."""
    pairs = [(name, one) for name, path in MODULES.items() for one in imports_of(name, path)]
    return [(name, target) for name, target in pairs if target.split(".")[0] == "eventctx"]


def room_of(name: str) -> str:
    return name.split(".")[1]


def folder_of(name: str) -> str:
    """The folder of a module: a package is a file of its own folder."""
    if MODULES[name].name == "__init__.py" or name.count(".") == 1:
        return name  # a package, or a module of the root, which is a room of its own
    return name.rpartition(".")[0]


def is_front_door(name: str) -> bool:
    """Whether a module only gives names of its package's own modules a shorter path."""
    return name == "eventctx" or "__getattr__" in MODULES[name].read_text()


FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


@pytest.mark.slow
def test_the_reader_of_imports_sees_the_whole_package() -> None:
    seen = {"eventctx.engine", "eventctx.projections.view.layout", "eventctx.hooks.log"}
    assert seen <= set(MODULES)
    assert len(arrows()) > 200


def test_every_module_has_a_room() -> None:
    rooms = {room_of(name) for name in MODULES if name != "eventctx"}
    assert rooms - set(FLOOR) == set(), "give them a floor in tests/test_imports.py and the docs"


def test_every_arrow_points_to_a_lower_floor() -> None:
    wrong = []
    for name, target in arrows():
        if name == "eventctx" or (target == "eventctx" and room_of(name) == "cli"):
            continue  # the front door names everything, and the command line may use it
        here, there = room_of(name), "" if target == "eventctx" else room_of(target)
        through_a_port = here in RIMS and there in RIMS and target in PORTS
        allowed = here == there or through_a_port or (here, there) in EXEMPT
        if not allowed and FLOOR.get(there, len(FLOORS)) >= FLOOR[here]:
            wrong.append(f"{name} -> {target}")
    assert wrong == []


def test_every_port_and_every_exemption_is_used() -> None:
    ours = [arrow for arrow in arrows() if "eventctx" not in arrow]
    crossing = [(room_of(name), target) for name, target in ours]
    by_others = {target for here, target in crossing if here in RIMS and here != room_of(target)}
    assert by_others >= PORTS
    assert set(EXEMPT) <= {(here, room_of(target)) for here, target in crossing}


def test_a_room_has_no_more_files_than_a_reader_can_hold_and_a_large_folder_sub_folders() -> None:
    in_rooms = [name for name, path in MODULES.items() if path.parent != ROOT / "eventctx"]
    sizes = Counter(map(room_of, in_rooms))
    assert {room: n for room, n in sizes.items() if n > MOST_FILES[room]} == {}
    assert {folder: n for folder, n in Counter(map(folder_of, MODULES)).items() if n > 30} == {}


def test_a_small_module_has_more_than_one_user() -> None:
    users: dict[str, set[str]] = {}
    for name, target in arrows():
        users.setdefault(target, set()).add(name)
    alone = [(name, next(iter(who))) for name, who in users.items() if len(who) == 1]
    assert {
        f"{name} -> {who}"
        for name, who in alone
        if not is_front_door(name)
        and not is_front_door(who)
        and who not in TABLES
        and MODULES[name].name != "__init__.py"
        and room_of(who) == room_of(name)
        and len(MODULES[name].read_text().splitlines()) < SMALL
        and name not in OWN_FILES
    } == set()


def test_a_function_fits_a_screen_and_no_two_public_classes_have_one_name() -> None:
    lines = {name: source_of(path).functions for name, path in MODULES.items()}
    long = {f"{name}.{one}" for name, its in lines.items() for one in its if its[one] >= SCREEN}
    assert long == set()
    classes = [word for path in MODULES.values() for word in source_of(path).classes]
    counts = Counter(word for word in classes if not word.startswith("_"))
    assert {word: count for word, count in counts.items() if count > 1} == {}


def test_the_top_of_the_package_has_few_names_and_holds_only_what_every_room_shares() -> None:
    assert len(eventctx.__all__) <= MOST_NAMES
    shared = "__init__ __main__ aio engine errors lazy_names reader text version"
    assert {path.stem for path in (ROOT / "eventctx").glob("*.py")} == set(shared.split())
    for folder in ("projections", "hooks"):
        assert (ROOT / "eventctx" / folder).resolve() == (ROOT / folder).resolve()


def test_there_is_no_cycle_and_no_two_folders_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for name, target in arrows():
        if "eventctx" not in (name, target):
            graph.setdefault(name, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    by_pair: dict[tuple[str, str], list[str]] = {}
    for name, target in arrows():
        pair = folder_of(name), folder_of(target)
        if not is_front_door(name) and pair[0] != pair[1]:
            by_pair.setdefault(pair, []).append(f"{name} -> {target}")
    mutual = [pair for pair in by_pair if pair[::-1] in by_pair]
    assert {pair: by_pair[pair] for pair in mutual} == {}


def test_third_party_libraries_stay_in_their_homes() -> None:
    strays = []
    for name, path in MODULES.items():
        for library in {target.split(".")[0] for target in imports_of(name, path)}:
            homes = [f"eventctx.{home}" for home in HOMES.get(library, "").split()]
            starts = tuple(one[:-1].removesuffix(".") for one in homes if one.endswith("*"))
            ours = library in sys.stdlib_module_names or library == "eventctx"
            if not ours and name not in homes and not name.startswith(starts):
                strays.append(f"{name} -> {library}")
    assert strays == []


def test_importing_the_package_loads_no_sink_no_sdk_and_no_driver() -> None:
    program = "import sys, eventctx; eventctx.Settings; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert "eventctx" in loaded
    assert loaded.isdisjoint({"structlog", "opentelemetry", "apsw", "pyee", "rich", "click"})
