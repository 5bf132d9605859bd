"""From the profiler's stacks and the clocks to microseconds of each step, by stack.

The clocks say what a step takes: in its own coroutines, in the event loop around them, and in the
store's thread. Samples only say how the first and the last are shared out. So a sample counts for
no fixed time, and a thread that the profiler takes for awake while it waits for a core makes
nothing look dearer than it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.profile.work import STEPS, Spent

ROOT: Final = Path(__file__).parents[3]
LOOP, WRITER = "MainThread", "eventctx-writer"
"""What the names of the two threads begin with: the event loop's, and the store's."""


class Frame(NamedTuple):
    """A function, and its file from the package's or the library's root on."""

    function: str
    file: str

    @property
    def ours(self) -> bool:
        return self.file.startswith("eventctx/")


Stack = tuple[Frame, ...]

ON_THE_LOOP: Final = Frame("on the event loop", "")
IN_THE_STORE: Final = Frame("in the store's thread", "")
ASYNCIO: Final = Frame("sleep, wake and call back", "asyncio")
"""The event loop's own work while a step waits: a sample cannot say whose it is, a clock can."""

_FRAME: Final = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)")
_THREAD: Final = re.compile(r"thread \(\d+\)(?:: (?P<name>.*))?")
_WAITING: Final = ("Mailbox.take", "Condition.wait")
"""Functions in which the store's thread has nothing to do. The profiler takes some sleepers for
awake, as it reads a thread's state a moment before its stack."""


def samples(text: str) -> Iterator[tuple[str, Stack, int]]:
    """Thread, frames from the outermost in, and count of each line of py-spy's raw format."""
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        named = _THREAD.fullmatch(thread)
        if named is not None:
            yield named["name"] or "", tuple(map(_frame, frames)), int(count)


def _frame(text: str) -> Frame:
    found = _FRAME.fullmatch(text)
    if found is None:
        return Frame(text, "")
    return Frame(found["function"].replace(".<locals>", ""), _short(found["file"]))


def _short(file: str) -> str:
    """A path from the root of what it belongs to: a library, this repository, or Python's own."""
    # A library first: the environment may lie in the repository.
    for root in ("/site-packages/", f"{ROOT}/"):
        if root in file:
            return file.partition(root)[2]
    return re.sub(r".*/lib/python3[.\d]*/", "", file)


def by_step(text: str, spent: Mapping[str, Spent]) -> dict[str, dict[Stack, float]]:
    """Microseconds of one step by stack, from what the profiler wrote and the clocks said."""
    own: dict[str, Counter[Stack]] = {step: Counter() for step in STEPS}
    store: Counter[Stack] = Counter()
    for thread, stack, count in samples(text):
        if thread.startswith(LOOP):
            step, rest = _from_the_step_on(stack)
            if rest and step is not None:
                own[step][rest] += count
        elif thread.startswith(WRITER) and not any(one.function in _WAITING for one in stack):
            store[_without_the_thread(stack)] += count
    return {
        step: {
            (ON_THE_LOOP, ASYNCIO): one.micro(one.loop),
            **dict(_shared_out(ON_THE_LOOP, own[step], one.micro(one.own))),
            **dict(_shared_out(IN_THE_STORE, store, one.micro(one.others))),
        }
        for step, one in spent.items()
    }


def _from_the_step_on(stack: Stack) -> tuple[str | None, Stack]:
    for at, frame in enumerate(stack):
        name = frame.function.rpartition(".")[2]
        if name in STEPS:
            return name, stack[at + 1 :]
    return None, stack


def _without_the_thread(stack: Stack) -> Stack:
    """The stack without what started the thread."""
    first = next((at for at, frame in enumerate(stack) if frame.ours), 0)
    return stack[first:]


def _shared_out(top: Frame, found: Counter[Stack], micro: float) -> Iterator[tuple[Stack, float]]:
    for stack, count in found.items():
        yield (top, *stack), micro * count / found.total()


# -- summed up -------------------------------------------------------------------------------------


def home(stack: Stack) -> Frame:
    """The innermost function of this library: what it calls elsewhere is its time."""
    return next((frame for frame in reversed(stack) if frame.ours), stack[-1])


def room(frame: Frame) -> str:
    """The folder that a function lives in, as the architecture names it."""
    if not frame.ours:
        return "asyncio" if frame.file.startswith("asyncio") else "elsewhere"
    parts = frame.file.split("/")[1:]
    return f"{parts[0]}/" if len(parts) > 1 else parts[0]
