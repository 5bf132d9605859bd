"""The extra cost of a request on Amplifier's kernel with this module, compared with a list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from importlib import import_module
from statistics import median
from typing import Any

from tests.amplifier import hosts
from tests.benchmarks.floors import BareFile
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples

FIGURE = "hosting"
ALLOWED = 0.3
"""Milliseconds that a request may take more; without a target where 10,000 messages are in view."""

BLOCK = 10
"""Requests of one session before it is the other one's turn."""

ROOMY, TIGHT = 10_000_000, 200_000
"""Tokens of a window that holds everything, and of one that does not."""

LISTENED = ("provider:request", "provider:response")

Message = dict[str, Any]


async def measure(place: Place) -> list[Row]:
    try:
        import_module("amplifier_core")
    except ImportError as error:
        return [missing(FIGURE, "a request on the kernel", str(error))]
    rows: list[Row] = []
    for length in (1000, place.count(10_000, 2000)):
        for window, what in ((ROOMY, "all in view"), (TIGHT, "compacted")):
            name = f"{length:,} messages, {what}"
            limit = None if (length, window) == (10_000, ROOMY) else ALLOWED
            rows += await _case(place, name, length, window, limit)
    return rows


async def _case(
    place: Place, name: str, length: int, window: int, limit: float | None
) -> list[Row]:
    samples = Samples()
    store = {"store": str(place.path("hosted.db")), "durability": "full"}
    file = BareFile(place.path("bare"))
    async with (
        _hosted("context-list", {}, length, window, samples, "list") as floor,
        _hosted("context-eventctx", store, length, window, samples, "ours") as subject,
    ):
        samples.clear()
        for _ in range(place.count(20, 4)):
            await floor.execute(str(BLOCK))
            in_view = await subject.execute(str(BLOCK))
            for _ in range(BLOCK):
                samples.time_call("disk", file.write)
    file.close()

    def more(what: str, *steps: str, limit: float | None = None, note: str = "") -> Row:
        """What the steps take more than with a list."""
        ours, other = ([f"{whose} {step}" for step in steps] for whose in ("ours", "list"))
        wall = sum(map(samples.milli, ours)) - sum(map(samples.milli, other))
        spent = [sum(median(samples.processor[one]) for one in side) for side in (ours, other)]
        cpu = (spent[0] - spent[1]) * 1e6
        return Row(figure=FIGURE, name=what, value=wall, unit="ms", limit=limit, note=note, cpu=cpu)

    return [
        more(name, "all", limit=limit, note=f"{in_view} messages in the last one"),
        more("of that, the two events that it listens to", *LISTENED),
        more("of that, get_messages_for_request()", "get"),
        Row(
            figure=FIGURE,
            name="beside it, write 1 KB + fdatasync",
            value=samples.milli("disk"),
            unit="ms",
            cpu=samples.cpu("disk"),
        ),
    ]


class ListContext:
    """The least that a context manager can do."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        self._messages.append(message)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        return list(self._messages)

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self._messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self._messages = list(messages)

    async def clear(self) -> None:
        self._messages = []


class WindowProvider:
    name = "measured"

    def __init__(self, window: int) -> None:
        self._window = window

    def get_info(self) -> Any:
        defaults = {"context_window": self._window, "max_output_tokens": 8_000}
        made = import_module("amplifier_core").ProviderInfo
        return made(id=self.name, display_name=self.name, defaults=defaults)


class _Requests:
    """An orchestrator that does only the work around a request, as often as the prompt says."""

    def __init__(self, samples: Samples, name: str) -> None:
        self._samples = samples
        self._name = name

    async def execute(
        self, prompt: str, context: Any, providers: dict[str, Any], tools: Any, hooks: Any, **_: Any
    ) -> str:
        await hooks.emit("prompt:submit", {"prompt": prompt})
        await context.add_message({"role": "user", "content": prompt})
        name, provider = next(iter(providers.items()))
        rows: list[dict[str, Any]] = []
        for iteration in range(int(prompt)):
            payload = {"provider": name, "iteration": iteration}
            usage = {"input_tokens": 100_000 + iteration, "output_tokens": 5}
            with self._step("all"):
                with self._step(LISTENED[0]):
                    await hooks.emit("provider:request", payload)
                with self._step("get"):
                    rows = await context.get_messages_for_request(provider=provider)
                with self._step(LISTENED[1]):
                    await hooks.emit("provider:response", {"provider": name, "usage": usage})
            await context.add_message({"role": "assistant", "content": "Done."})
            await context.add_message({"role": "user", "content": "And the next one?"})
        await hooks.emit("orchestrator:complete", {"status": "success"})
        return str(len(rows))

    def _step(self, what: str) -> AbstractContextManager[None]:
        return self._samples.step([f"{self._name} {what}"])


@asynccontextmanager
async def _hosted(
    context: str,
    config: Mapping[str, Any],
    length: int,
    window: int,
    samples: Samples,
    name: str,
) -> AsyncIterator[Any]:
    """A kernel session with so many messages, after its first requests."""
    given = {"context-list": hosts.mounting("context", ListContext())}
    async with hosts.session(
        WindowProvider(window),
        loop=_Requests(samples, name),
        context=context,
        config=config,
        modules=given,
    ) as session:
        await session.coordinator.get("context").set_messages(tool_rounds(length))
        await session.execute("3")
        yield session


def tool_rounds(count: int) -> list[dict[str, Any]]:
    """A question, a tool call, its result of 4 KB and an answer, as Amplifier's loops add them."""
    made: list[dict[str, Any]] = []
    for number in range(count // 4):
        call = {"id": f"call-{number}", "name": "read"}
        path = {"path": "src/" + "a" * 200}
        blocks = [
            {"type": "text", "text": "Let me look. " * 3, "visibility": None},
            {"type": "tool_call", **call, "input": path},
        ]
        calls = [{"id": call["id"], "tool": "read", "arguments": path}]
        text = [{"type": "text", "text": "An answer. " * 15, "visibility": None}]
        result = f"line {number} of a text\n" * 200
        made += [
            {"role": "user", "content": f"Question {number}. " * 10},
            {"role": "assistant", "content": blocks, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
            {"role": "assistant", "content": text},
        ]
    return made
