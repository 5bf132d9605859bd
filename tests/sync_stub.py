"""The stub of ``eventctx.sync``, made from the sources of the async classes.

``python -m tests.sync_stub`` writes it anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
STUB = ROOT / "eventctx" / "sync" / "__init__.pyi"

_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "reader.py": (),
    "engine.py": ("Engine",),
    "session/context.py": ("Context",),
    "session/turns.py": ("Turn", "Iteration", "PlanPhase", "ProviderCall", "ToolCall"),
    "session/host_turns.py": ("HostReporter",),
    "search/recall.py": ("Recall",),
    "search/tool.py": ("RecallTool",),
}
_SYNC: Final = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator", "CopyReceiver": "Engine"}
_RUNTIME: Final = ("_whole", "awaited_first")
"""Decorators that leave a method's type as it is."""
_FACES: Final = frozenset(name for names in _SOURCES.values() for name in names)
_HEAD: Final = """Signatures of the synchronous API. Generated: ``python -m tests.sync_stub``."""


class _Without(ast.NodeTransformer):
    """Turns async names of annotations into the others."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(_SYNC.get(node.id, node.id))


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    """A method without async, body and docstring."""
    name, returns = node.name, node.returns
    if name in ("__aenter__", "__aexit__"):
        name = name.replace("__a", "__")
    shown = [one for one in node.decorator_list if not ast.unparse(one).startswith(_RUNTIME)]
    made = ast.FunctionDef(name, node.args, [ast.Expr(ast.Constant(...))], shown)
    made.returns = returns
    without: ast.FunctionDef = _Without().visit(made)
    return ast.fix_missing_locations(without)


_SPECIAL: Final = ("__aenter__", "__aexit__", "__call__")


def _face(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> list[ast.stmt]:
    """The public members of a class and of its bases that are known."""
    members: dict[str, ast.stmt] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in known:
            members |= {_name(one): one for one in _face(known[base.id], known)}
    for one in node.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if not one.name.startswith("_") or one.name in _SPECIAL:
                made = _method(one)
                members[_name(made)] = made
            if one.name == "__init__":
                members |= _attributes(one)
    return list(members.values())


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name + "".join(ast.unparse(one) for one in node.decorator_list)
    assert isinstance(node, ast.AnnAssign)
    return ast.unparse(node.target)


def _attributes(init: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.stmt]:
    """Public attributes that ``__init__`` sets from arguments, as far as their type is known."""
    types = {one.arg: one.annotation for one in [*init.args.args, *init.args.kwonlyargs]}
    found: dict[str, ast.stmt] = {}
    for node in init.body:
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=value
            ) if not attr.startswith("_"):
                kind = types.get(value.id) if isinstance(value, ast.Name) else None
                found[attr] = ast.AnnAssign(ast.Name(attr), kind or ast.Name("Any"), None, simple=1)
    return found


def made() -> str:
    imports: dict[str, str] = {"Any": "from typing import Any"}
    classes: list[str] = []
    known: dict[str, ast.ClassDef] = {}
    for path, names in _SOURCES.items():
        tree = ast.parse((ROOT / "eventctx" / path).read_text(encoding="utf-8"))
        for name, line in _defined(tree, "eventctx." + path[:-3].replace("/", ".")):
            imports.setdefault(name, line)
        known |= {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
        for name in names:
            body = _face(known[name], known)
            made_class = ast.ClassDef(name, [], [], body or [ast.Expr(ast.Constant(...))], [])
            classes.append(ast.unparse(ast.fix_missing_locations(made_class)))
        if path == "engine.py":
            functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
            made_open = _method(functions["open_engine"])
            made_open.name, made_open.returns = "open", ast.Name("Engine")
            classes.append(ast.unparse(made_open))
    imports["Iterator"] = "from collections.abc import Iterator"
    text = "\n\n".join(classes)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} | {"Any"}
    lines = sorted({imports[name] for name in used - _FACES if name in imports})
    return f'"""{_HEAD}"""\n# ruff: noqa: A001\n\n' + "\n".join(lines) + "\n\n" + text + "\n"


def _defined(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    """Every name that a module has, with the line that imports it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for one in node.names:
                yield one.asname or one.name, f"from {node.module} import {one.name}"
        elif isinstance(node, ast.Import):
            for one in node.names:
                yield one.name, f"import {one.name}"
        elif isinstance(node, ast.ClassDef) and node in tree.body:
            yield node.name, f"from {module} import {node.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node in tree.body:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield ast.unparse(target), f"from {module} import {ast.unparse(target)}"


if __name__ == "__main__":
    import subprocess
    import sys

    STUB.write_text(made(), encoding="utf-8")
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, str(STUB)], check=True)
