"""Context modules that each break one rule of the contract; ``FAULTS`` names the check for it."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.testing.modules.sound_context import POST, PRE, SoundContext, mount_class, size

FAULTS: dict[str, str] = {}
"""Name of a mount function in this module, and the one check that must not hold."""

Row = dict[str, Any]
Rows = list[Row]


def breaks(check: str) -> Callable[[Any], Any]:
    """Register a faulty context class, or a faulty mount function, under its own name."""

    def register(kind: Any) -> Any:
        FAULTS[kind.__name__] = check
        if not isinstance(kind, type):
            return kind

        async def mount(coordinator: Any, config: Row | None = None) -> None:
            await mount_class(kind, coordinator, config)

        return mount

    return register


# -- what is kept --------------------------------------------------------------------------------


@breaks("ephemeral")
class Destructive(SoundContext):
    async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
        view = await super().get_messages_for_request(token_budget, provider)
        self.kept = copy.deepcopy(view)
        return view


@breaks("own_messages")
class HandsOutItsMessages(SoundContext):
    async def get_messages(self) -> Rows:
        return list(self.kept)


@breaks("without_role")
class TakesAnything(SoundContext):
    async def add_message(self, message: dict[str, Any]) -> None:
        self.kept.append(copy.deepcopy(message))

    def compacted(self, view: Rows, budget: int) -> Rows:
        return super().compacted([row for row in view if "role" in row], budget)


@breaks("concurrency")
class LosesConcurrentMessages(SoundContext):
    async def add_message(self, message: dict[str, Any]) -> None:
        before = list(self.kept)
        await super().add_message(message)
        added = self.kept[-1]
        await asyncio.sleep(0)
        self.kept = [*before, added]


# -- what is sent --------------------------------------------------------------------------------


@breaks("giant_result")
class KnowsNoGiants(SoundContext):
    def compacted(self, view: Rows, budget: int) -> Rows:
        made = super().compacted(copy.deepcopy(view), budget)
        whole = {row.get("tool_call_id"): row for row in view if size(row) > 50_000}
        return [whole.get(row.get("tool_call_id"), row) for row in made]


@breaks("repeatable")
class Moody(SoundContext):
    requests = 0

    def compacted(self, view: Rows, budget: int) -> Rows:
        self.requests += 1
        made = super().compacted(view, budget)
        return [*made, {"role": "user", "content": f"Asked {self.requests} times."}]


@breaks("small_is_whole")
class LastTen(SoundContext):
    async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
        if len(self.kept) == 16 and token_budget is not None:
            return copy.deepcopy(self.kept[:1] + self.kept[-5:])
        return await super().get_messages_for_request(token_budget, provider)


@breaks("provider_budget")
class AsksNoProvider(SoundContext):
    def budget(self, token_budget: int | None, provider: Any) -> int:
        return super().budget(token_budget, None)


@breaks("all_system_stay")
class KeepsTheFirstRuleAlone(SoundContext):
    def compacted(self, view: Rows, budget: int) -> Rows:
        made = super().compacted(view, budget)
        return [row for place, row in enumerate(made) if row["role"] != "system" or not place]


@breaks("fresh_prompt")
class AsksTheFactoryOnce(SoundContext):
    async def set_system_prompt_factory(self, factory: Any) -> None:
        text = await factory()

        async def again() -> str:
            return str(text)

        self.prompt = again


@breaks("told_only_then")
class CriesWolf(SoundContext):
    async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
        view = await super().get_messages_for_request(token_budget, provider)
        for name in (PRE, POST) if len(self.kept) == 16 else ():
            await self.say(name, view)
        return view


@breaks("configurable")
class OneSizeForAll(SoundContext):
    def __init__(self, hooks: Any, max_tokens: int) -> None:
        super().__init__(hooks, 100_000)


@breaks("events")
class SaysTheEndAlone(SoundContext):
    async def say(self, name: str, view: Rows) -> None:
        if name == POST:
            await super().say(name, view)


@breaks("events")
class CountsNothing(SoundContext):
    async def say(self, name: str, view: Rows) -> None:
        await self.hooks.emit(name, {"message_count": len(view), "tokens": 1})


# -- what it is to its host ----------------------------------------------------------------------


@breaks("methods")
class Synchronous(SoundContext):
    def clear(self) -> None:  # type: ignore[override]
        self.kept = []


@breaks("methods")
class WithoutProvider(SoundContext):
    async def get_messages_for_request(self, token_budget=None) -> Rows:  # type: ignore[override]
        return await super().get_messages_for_request(token_budget)


@breaks("mount_point")
async def mounts_at_session(coordinator: Any, config: Row | None = None) -> None:
    await coordinator.mount("session", SoundContext(coordinator.hooks, 1), name="context")


@breaks("mount_point")
async def mounts_nothing(coordinator: Any, config: Row | None = None) -> Any:
    return SoundContext(coordinator.hooks, 1)


@breaks("mount_point")
async def raises(coordinator: Any, config: Row | None = None) -> None:
    raise RuntimeError("no licence")


@breaks("mount_function")
def not_async(coordinator: Any, config: Row | None = None) -> None:
    return None


@breaks("mount_function")
async def without_config(coordinator: Any) -> None:
    return None


@breaks("contribution")
async def declares_nothing(coordinator: Any, config: Row | None = None) -> None:
    context = SoundContext(coordinator.hooks, (config or {}).get("max_tokens", 100_000))
    coordinator.register_contributor("observability.events", "it", lambda: [PRE])
    await coordinator.mount("context", context)


@breaks("unknown_settings")
async def knows_its_settings(coordinator: Any, config: Row | None = None) -> None:
    unknown = [name for name in config or {} if "another" in name]
    if unknown:
        raise TypeError(f"unknown settings: {unknown}")
    await mount_class(SoundContext, coordinator, config)


@breaks("leaves_nothing")
async def leaves_a_file(coordinator: Any, config: Row | None = None) -> None:
    (Path.home() / ".context-cache").write_text("left behind")
    await mount_class(SoundContext, coordinator, config)


@breaks("leaves_nothing")
async def leaves_a_thread(coordinator: Any, config: Row | None = None) -> None:
    threading.Thread(target=_forever.wait, name="left-behind", daemon=True).start()
    await mount_class(SoundContext, coordinator, config)


_forever = threading.Event()
_locked: list[int] = []


@breaks("mounts_again")
async def remembers_the_last_mount(
    coordinator: Any, config: dict[str, Any] | None = None
) -> Callable[[], None]:
    """Only the cleanup frees its lock, and only the second time."""
    await mount_class(SoundContext, coordinator, config)
    if Path.cwd().parent.name == "mounts_again":
        _locked.append(1)
        if len(_locked) > 1:
            stale = {"role": "user", "content": "of the mount before"}
            await coordinator.get("context").add_message(stale)
    return lambda: None


# -- what takes its process along ----------------------------------------------------------------


def faulty(method: str, fault: Callable[[Row], Awaitable[None]]) -> Any:
    """A mount function of a sound module but for one method, which gets the settings."""

    async def mount(coordinator: Any, config: Row | None = None) -> None:
        @functools.wraps(getattr(SoundContext, method))
        async def broken(*_: Any) -> None:
            await fault(config or {})

        await mount_class(type("Faulty", (SoundContext,), {method: broken}), coordinator, config)

    return mount


def _tell(place: str) -> None:
    Path(place).write_text(str(os.getpid()))


async def _wait(config: Row) -> None:
    """Waits for ever; blocks its thread if a setting says so."""
    if config.get("tell"):
        _tell(config["tell"])
    if config.get("tell") or config.get("blocks"):
        threading.Event().wait()
    await asyncio.Event().wait()


async def _die(config: Row) -> None:
    os.write(2, b"these are my last words\n")
    os._exit(7)


async def _time_out(config: Row) -> None:
    raise TimeoutError("no lock")


async def _cancel(config: Row) -> None:
    raise asyncio.CancelledError("no lock")


blocks = hangs = faulty("clear", _wait)
never_adds = faulty("add_message", _wait)
dies = faulty("set_messages", _die)
times_out = faulty("clear", _time_out)
cancels = faulty("clear", _cancel)
