"""What is built for a release and what a checkout installs.

Built are the wheel, and the folder for hosts that load modules from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eventctx.version import __version__
from tests.constraints import FOLDER, PYTHONS, RESOLUTIONS, path_of

pytest.importorskip("hatchling", reason="builds the package; `make install` gets it")

pytestmark = pytest.mark.check

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "eventctx" / "amplifier_source"
MODULES = {
    *("context-eventctx", "context-eventctx-simple", "context-eventctx-persistent"),
    *("loop-eventctx-basic", "loop-eventctx-streaming", "loop-eventctx-events"),
}

BY_NAME = """
import asyncio, importlib.metadata, json, sys
from amplifier_core import AmplifierSession
import eventctx
from eventctx.testing import ScriptedAmplifierProvider

async def main():
    plan = {
        "session": {
            "orchestrator": "loop-eventctx-events",
            "context": {"module": "context-eventctx", "config": {"store": sys.argv[1]}},
        }
    }
    session = AmplifierSession(plan, session_id="s")
    await session.initialize()
    provider = ScriptedAmplifierProvider("Hello.")
    await session.coordinator.mount("providers", provider, name="scripted")
    answer = await session.execute("Hi")
    await session.cleanup()
    version = importlib.metadata.version("eventctx")
    print(json.dumps([answer, eventctx.__file__, version]))

asyncio.run(main())
"""


def hatchling(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "hatchling", *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    hatchling(ROOT, "build", "--target", "wheel", "--directory", str(folder))
    return folder / f"eventctx-{__version__}-py3-none-any.whl"


def test_a_wheel_has_the_package_with_both_folders_and_every_amplifier_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = ConfigParser()
        points.optionxform = str  # type: ignore[assignment]
        (listed,) = [name for name in names if name.endswith("entry_points.txt")]
        points.read_string(archive.read(listed).decode())
    assert set(points["amplifier.modules"]) == MODULES
    assert points["console_scripts"]["eventctx"] == "eventctx.cli.start:main"
    assert len(names) == len(set(names))
    folders = {"eventctx", f"eventctx-{__version__}.dist-info"}
    assert {name.partition("/")[0] for name in names} == folders
    page = ("web/page/index.html", "web/page/main.js", "web/page/styles/base.css")
    for module in ("projections/transcript.py", "hooks/registry.py", "py.typed", *page):
        assert f"eventctx/{module}" in names
    sources = {name.removeprefix("eventctx/amplifier_source/") for name in names}
    for module in MODULES:
        assert f"amplifier_module_{module.replace('-', '_')}/__init__.py" in sources
    # It would install the checkout that it is in, and a wheel's folder is in none.
    assert "pyproject.toml" not in sources


def test_the_kernel_mounts_an_installed_wheel_by_name(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    # Compiled is only what is imported.
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*pip, "--target", str(place), str(wheel)], check=True)
    command = [sys.executable, "-c", BY_NAME, str(tmp_path / "contexts.db")]
    env = {**os.environ, "PYTHONPATH": str(place)}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    mounted = ["Hello.", str(place / "eventctx" / "__init__.py"), __version__]
    assert json.loads(run.stdout.splitlines()[-1]) == mounted


def test_a_source_folder_installs_the_eventctx_of_its_own_checkout(tmp_path: Path) -> None:
    made: dict[str, Any] = json.loads(hatchling(SOURCE, "metadata"))
    assert made["dependencies"] == [f"eventctx @ {ROOT.as_uri()}"]
    assert made["version"] == __version__
    hatchling(ROOT, "build", "--target", "sdist", "--directory", str(tmp_path))
    root = f"eventctx-{__version__}"
    with tarfile.open(tmp_path / f"{root}.tar.gz") as archive:
        names = set(archive.getnames())
    # A checkout has what the source folder asks for, and so has an unpacked source distribution.
    assert f"{root}/pyproject.toml" in names
    assert f"{root}/eventctx/amplifier_source/pyproject.toml" in names
    assert f"{root}/hooks/registry.py" in names


PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def direct(requirements: list[str]) -> Iterator[Requirement]:
    """What is asked for, with what the extras of the project itself ask for."""
    for one in map(Requirement, requirements):
        if one.name != PROJECT["project"]["name"]:
            yield one
        for extra in one.extras if one.name == PROJECT["project"]["name"] else ():
            yield from direct(PROJECT["project"]["optional-dependencies"][extra])


def test_each_supported_python_has_constraints_with_direct_dependencies_in_their_ranges() -> None:
    said = "Programming Language :: Python :: "
    supported = [one for one in PROJECT["project"]["classifiers"] if one.startswith(said)]
    assert tuple(one.removeprefix(said) for one in supported) == PYTHONS
    files = {path_of(python, which) for python in PYTHONS for which in RESOLUTIONS}
    assert set(FOLDER.iterdir()) == files
    asked = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    for file in files:
        lines = file.read_text().splitlines()
        pins = [Requirement(one) for one in lines if not one.startswith("#")]
        assert [one for one in pins if one.url or not str(one.specifier).startswith("==")] == []
        for one in direct([*asked, f"{PROJECT['project']['name']}[dev]"]):
            name = canonicalize_name(one.name)
            found = [str(pin.specifier).removeprefix("==") for pin in pins if pin.name == name]
            outside = [version for version in found if version not in one.specifier]
            assert found and not outside, f"{one}, found {found} in {file}: `make constraints`"


def test_ci_runs_the_commands_of_the_readmes_first_block() -> None:
    block = (ROOT / "README.md").read_text(encoding="utf-8").partition("```console\n")[2]
    commands = ["make demo", "make test"]
    assert block.partition("```")[0].splitlines() == [f"$ {one}" for one in commands]
    assert {*commands} <= {*(ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()}
