"""From the text that a person typed to a module with a mount function."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Collection
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting

GROUP: Final = "amplifier.modules"

_EXPECTED: Final = (
    "a directory with amplifier_module_*/__init__.py or __init__.py, a .py file, a module "
    "(pkg.mod), pkg.mod:mount, or the name of an installed entry point of amplifier.modules"
)


class Target(msgspec.Struct, frozen=True):
    """A module to check: its import name, and its path if it was named by a path."""

    given: str
    module: str
    attribute: str = "mount"
    path: Path | None = None
    entry_point: str | None = None

    def load(self) -> Any:
        """Import the module. Raises the module's own errors, and ImportError for a hidden module.

        A module is hidden where another one of the same name comes first on the import path.
        """
        if self.path is None:
            return import_module(self.module)
        folder = str(self.path.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = import_module(self.module)
        found = Path(getattr(module, "__file__", None) or "")
        wanted = self.path / "__init__.py" if self.path.is_dir() else self.path
        if found.resolve() != wanted.resolve():
            raise ImportError(f"{self.module!r} is {found}, which hides {wanted}; rename one")
        return module

    def mount_of(self, module: Any) -> Callable[..., Any] | None:
        """The mount function; None if there is none."""
        found = getattr(module, self.attribute, None)
        return found if callable(found) else None


def resolve(given: str, folder: Path) -> Target:
    """The module that ``given`` names; paths are relative to ``folder``. Raises InvalidSetting."""
    path = folder / Path(given).expanduser()
    if path.is_dir():
        package = _package_in(path.resolve())
        return Target(given, package.name, path=package)
    if path.is_file():
        if path.suffix != ".py":
            raise InvalidSetting(f"{given}: expected {_EXPECTED}; found a file that is not Python")
        path = path.resolve()
        path = path.parent if path.name == "__init__.py" else path
        return Target(given, path.stem if path.is_file() else path.name, path=path)
    for entry in entry_points(group=GROUP):
        if entry.name == given:
            return Target(given, entry.module, entry.attr or "mount", entry_point=entry.name)
    module, _, attribute = given.partition(":")
    if not _exists(module):
        raise InvalidSetting(f"{given}: expected {_EXPECTED}; found none of them")
    return Target(given, module, attribute or "mount")


def _package_in(folder: Path) -> Path:
    """The package that an Amplifier host would load from a source folder (its loader's rule)."""
    found = sorted(one.parent for one in folder.glob("amplifier_module_*/__init__.py"))
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise InvalidSetting(f"{folder}: expected one package, found {names}; name its directory")
    if (folder / "__init__.py").is_file():
        return folder
    raise InvalidSetting(
        f"{folder}: expected amplifier_module_*/__init__.py or __init__.py directly in it, found "
        "neither; Amplifier's loader does not look into src/"
    )


def _exists(module: str) -> bool:
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        # A parent package that cannot be imported exists all the same; a check reports its error.
        return find_spec(module.partition(".")[0]) is not None


def entry_points_of(target: Target, mount: object) -> list[str] | None:
    """The names under which a host finds the module's mount; None if nothing could declare one.

    A package that only re-exports the mount of another one is found under that one's name.
    """
    home = f"{getattr(mount, '__module__', '')}:{getattr(mount, '__qualname__', '')}"
    wanted = (f"{target.module}:{target.attribute}", home)
    installed = [
        entry.name
        for entry in entry_points(group=GROUP)
        if entry.value.replace(" ", "") in (*wanted, target.module)
    ]
    if installed or target.path is None:
        return installed or None
    for folder in list(target.path.parents)[:2]:
        project = folder / "pyproject.toml"
        if project.is_file():
            return _declared_in(project, wanted)
    return None


def _declared_in(project: Path, wanted: Collection[str]) -> list[str]:
    try:
        parsed = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    declared: Any = parsed
    for key in ("project", "entry-points", GROUP):
        declared = declared.get(key, {}) if isinstance(declared, dict) else {}
    if not isinstance(declared, dict):
        return []
    return [name for name, value in declared.items() if str(value).replace(" ", "") in wanted]
