"""Public names of a package, loaded when they are first used.

The stub next to a package's ``__init__.py`` is the one table of its public names: type checkers
read it, and so does ``attach``, which knows from it where each name lives. A public name is a line
there, ``from home import Name as Name`` (the form in which a stub exports), or for another name
``name = imported``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package, from its stub."""
    module = sys.modules[package]
    spec: Any = module.__spec__
    # The loader, not the path: a package may lie in an archive.
    stub = spec.loader.get_data(f"{spec.origin}i")
    homes: dict[str, tuple[str, str]] = {}
    for node in ast.parse(stub).body:
        match node:
            case ast.ImportFrom(module=str(home), names=things):
                homes |= {thing.name: (home, thing.name) for thing in things}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=own_name)):
                homes[name] = homes.pop(own_name)
    names = sorted(homes)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, own_name = homes[name]
        value = getattr(import_module(home), own_name)
        setattr(module, name, value)
        return value

    return load, lambda: names.copy(), names
