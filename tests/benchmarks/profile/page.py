"""The generated parts of docs/explanation/performance.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.benchmarks import report
from tests.benchmarks.blocks import table
from tests.benchmarks.profile import flame
from tests.benchmarks.profile.stacks import IN_THE_STORE, ON_THE_LOOP, Stack, home, room
from tests.benchmarks.profile.work import ADD, COMPACTING, PLAIN, Spent

PAGE: Final = Path(__file__).parents[3] / "docs" / "explanation" / "performance.md"
FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"

TITLES: Final = {
    ADD: "ctx.add_message(), one message",
    PLAIN: "ctx.get_messages_for_request()",
    COMPACTING: "a request that compacts",
}
PICTURES: Final = {
    "flame-add.svg": ADD,
    "flame-request.svg": PLAIN,
    "flame-compacting.svg": COMPACTING,
}
"""The files in ``FOLDER``, and the step that each shows."""

_BLOCKS: Final = {"add": ADD, "request": PLAIN, "compacting": COMPACTING}
_MOST_FILES: Final = 12

Steps = Mapping[str, Mapping[Stack, float]]


def blocks(steps: Steps, spent: Mapping[str, Spent]) -> dict[str, str]:
    """Each generated part of the page by its name."""
    return {
        "run": _run(spent),
        "rooms": _rooms(steps),
        **{name: _files(steps[step]) for name, step in _BLOCKS.items()},
    }


def pictures(steps: Steps) -> dict[str, str]:
    """Each picture by its file's name."""
    return {name: flame.drawn(steps[step], TITLES[step]) for name, step in PICTURES.items()}


def _run(spent: Mapping[str, Spent]) -> str:
    machine = report.machine()
    often = ", ".join(f"{one.count:,} × {TITLES[step]}" for step, one in spent.items())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {machine['cpus']} processors, {machine['system']}, Python "
        f"{machine['python']}, SQLite {machine['sqlite']}, load average "
        f"{machine['load'] or 0:.1f}; {often}.\n"
    )


def _rooms(steps: Steps) -> str:
    """Rooms as rows, steps as columns; the store's thread apart, since an agent does not wait."""
    cells: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for step, stacks in steps.items():
        for stack, micro in stacks.items():
            name = "the store's thread" if stack[0] == IN_THE_STORE else room(home(stack))
            cells[name][step] += micro
    names = sorted(cells, key=lambda name: -sum(cells[name].values()))
    whole = {step: sum(stacks.values()) for step, stacks in steps.items()}
    rows = [
        [_room_name(name), *[_cell(cells[name][step], whole[step]) for step in TITLES]]
        for name in names
    ]
    rows.append(["**all**", *[f"**{whole[step]:,.0f} µs**" for step in TITLES]])
    return table(["room", *[f">{title}" for title in TITLES.values()]], rows)


def _room_name(name: str) -> str:
    return f"`{name}`" if name.endswith(("/", ".py")) else name


def _cell(micro: float, whole: float) -> str:
    return f"{micro:,.0f} µs, {micro / whole:.0%}" if micro / whole >= 0.005 else ""


def _files(stacks: Mapping[Stack, float]) -> str:
    """The dearest files of a step, and the functions in them that take most."""
    files: Counter[tuple[str, str]] = Counter()
    functions: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for stack, micro in stacks.items():
        at = home(stack)
        key = ("loop" if stack[0] == ON_THE_LOOP else "store", at.file.removeprefix("eventctx/"))
        files[key] += micro  # type: ignore[assignment]  # a Counter counts microseconds as well
        functions[key][at.function] += micro  # type: ignore[assignment]
    whole = sum(stacks.values())
    shown = files.most_common(_MOST_FILES)
    rows = [
        [_room_name(file), thread, f"{micro:,.0f} µs", f"{micro / whole:.0%}",
         ", ".join(f"`{name}`" for name, _ in functions[thread, file].most_common(3))]
        for (thread, file), micro in shown
    ]  # fmt: skip
    rest = whole - sum(micro for _, micro in shown)
    rows.append(["all others", "", f"{rest:,.0f} µs", f"{rest / whole:.0%}", ""])
    return table(["file", "thread", ">time", ">share", "most in"], rows)
