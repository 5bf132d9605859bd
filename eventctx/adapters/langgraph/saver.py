"""LangGraph's checkpoint saver over an engine.

Each thread is the session of its id. It is used in the engine's loop; calls come from any loop or
thread.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.langgraph.controls import Put
from eventctx.adapters.langgraph.loading import config_of
from eventctx.adapters.langgraph.thread import WAIT_SECONDS, TaskPut, ThreadLog, Wanted
from eventctx.adapters.langgraph.threads import Threads, copy, rewrite
from eventctx.aio import KeyedLock
from eventctx.engine import Engine
from eventctx.errors import EventctxError, InvalidSetting
from eventctx.sync.proxy import SyncEngine

_Checkpoints = list[CheckpointTuple]


class EventctxSaver(BaseCheckpointSaver[int]):
    """Keeps a graph's checkpoints in a store, so that the disk that they take grows with a thread.

    ``engine``: an engine, for ``ainvoke`` in its event loop or another one, and for ``invoke`` in
    another thread; or an engine of ``eventctx.sync``; or the path or URL of a store, which is
    opened here, and ``close`` closes. ``messages`` names the channel whose list of messages is the
    transcript of the session. ``settings`` are those of ``engine.session``.

    Raises InvalidSetting for a serializer that encrypts: the log has messages as text.
    """

    def __init__(
        self,
        engine: Engine | SyncEngine | GivenEngine | str | os.PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        messages: str = "messages",
        **settings: Any,
    ) -> None:
        super().__init__(serde=serde)
        if isinstance(self.serde, EncryptedSerializer):
            raise InvalidSetting(
                "serde: expected a serializer that does not encrypt, found EncryptedSerializer: "
                "messages are kept as text, which the log can be asked for; encrypt the disk"
            )
        self._given = (
            engine if isinstance(engine, GivenEngine) else GivenEngine(engine, "langgraph")
        )
        self._threads = Threads(self._given, self.serde, messages, settings)
        self._locks = KeyedLock()
        self.on_delete: Callable[[str], None] | None = None
        """Called with a thread whose session is deleted, by an adapter that has it open, too."""

    def close(self) -> None:
        """Close the store that the saver opened. An engine that was given stays open."""
        if self._given.opened_here:
            self._given.wait(self._flush_all())
            self._given.close()

    # -- LangGraph's saver, asynchronous ---------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint of a config, its newest without an id; None if there is none."""
        return await self._given.run(self._get(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints of a thread, or all, newest first. Their messages are shared objects."""
        for one in await self._given.run(self._list(config, filter, before, limit)):
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint; it is on disk when this returns. Raises what the store raises."""
        return await self._given.run(self._put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of a task to a checkpoint.

        They are on disk with the next checkpoint, error or interrupt, or after 50 ms.
        """
        await self._given.run(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Destroy a thread's session for ever, messages and all. A new one may have its id."""
        await self._given.run(self._delete(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Destroy the checkpoints of these runs, in all threads. Messages stay in the log."""
        await self._given.run(self._delete_runs(frozenset(map(str, run_ids))))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with messages and writes, to another one."""
        await self._given.run(self._copy(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Destroy all checkpoints but the newest of each namespace; with ``delete`` the threads.

        Messages stay in the log. Raises InvalidSetting for another strategy.
        """
        await self._given.run(self._prune(thread_ids, strategy))

    # -- the same, synchronous -------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As ``aget_tuple``."""
        return self._given.wait(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """As ``alist``."""
        return iter(self._given.wait(self._list(config, filter, before, limit)))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As ``aput``."""
        return self._given.wait(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As ``aput_writes``."""
        self._given.wait(self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """As ``adelete_thread``."""
        self._given.wait(self._delete(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As ``adelete_for_runs``."""
        self._given.wait(self._delete_runs(frozenset(map(str, run_ids))))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As ``acopy_thread``."""
        self._given.wait(self._copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As ``aprune``."""
        self._given.wait(self._prune(thread_ids, strategy))

    def get_next_version(self, current: Any, channel: None) -> int:
        """The next version: a number, also after those of a saver that counts in texts."""
        return 1 + (int(current.split(".")[0]) if isinstance(current, str) else int(current or 0))

    # -- in the engine's loop --------------------------------------------------------------------

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns, checkpoint = _named(config)
        async with self._locks(thread):
            log = await self._threads.existing(thread)
            if log is None:
                return None
            return await log.get(ns, checkpoint, self.serde)

    async def _list(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> _Checkpoints:
        ns = checkpoint = None
        if config is not None:
            ns = config["configurable"].get("checkpoint_ns")
            checkpoint = get_checkpoint_id(config)
            threads = [str(config["configurable"]["thread_id"])]
        else:
            threads = await self._threads.names()
        end = None if before is None else get_checkpoint_id(before)
        found: _Checkpoints = []
        for thread in threads:
            async with self._locks(thread):
                log = await self._threads.existing(thread)
                left = None if limit is None else limit - len(found)
                if log is not None and (left is None or left > 0):
                    found += await log.listed(
                        Wanted(ns, checkpoint, end, wanted or {}, left), self.serde
                    )
        return found

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, ns, parent = _named(config)
        meta = cast("dict[str, Any]", get_checkpoint_metadata(config, metadata))
        async with self._locks(thread):
            log = await self._threads.opened(thread)
            given = cast("dict[str, Any]", checkpoint)
            await log.put(Put(ns, given, meta, frozenset(new_versions), parent))
        return cast("RunnableConfig", config_of(thread, ns, checkpoint["id"]))

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> None:
        thread, ns, checkpoint = _named(config)
        log = self._threads.get(thread)
        if log is None:
            async with self._locks(thread):
                log = await self._threads.opened(thread)
        made = [
            (channel, WRITES_IDX_MAP.get(channel, number), log.boxer.box(value))
            for number, (channel, value) in enumerate(writes)
        ]
        log.add(TaskPut(ns, str(checkpoint), task, path, made, since=time.monotonic()))
        if any(index < 0 for _, index, _ in made):
            await self._flush(thread)
        elif not log.waits:
            self._flush_later(thread, log)

    def _flush_later(self, thread: str, log: ThreadLog) -> None:
        log.waits = True
        # A task from now on, not from a timer: one that a timer begins as the loop ends never runs.
        log.in_task(self._flush_waiting(thread, log))

    async def _flush_waiting(self, thread: str, log: ThreadLog) -> None:
        try:
            while log.pending:
                await asyncio.sleep(WAIT_SECONDS)
                with suppress(EventctxError):  # what fails is tried again
                    await self._flush(thread)
        finally:
            log.waits = False

    async def _flush(self, thread: str, *, force: bool = False) -> None:
        async with self._locks(thread):
            log = self._threads.get(thread)
            if log is not None:
                await log.flush(force=force)

    async def _flush_all(self) -> None:
        for thread in self._threads.held():
            await self._flush(thread, force=True)

    async def _delete(self, thread: str) -> None:
        async with self._locks(thread):
            if self.on_delete is not None:
                self.on_delete(thread)
            await self._threads.delete(thread)

    async def _delete_runs(self, runs: frozenset[str]) -> None:
        for thread in await self._threads.names() if runs else []:
            async with self._locks(thread):
                log = await self._threads.existing(thread)
                if log is not None:
                    kept = [
                        one for one in log.saved() if log.metadata(one).get("run_id") not in runs
                    ]
                    await rewrite(self._given.engine, log, self.serde, kept, "runs were deleted")

    async def _prune(self, threads: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidSetting(
                f"strategy: expected 'keep_latest' or 'delete', found {strategy!r}"
            )
        for thread in threads:
            if strategy == "delete":
                await self._delete(thread)
                continue
            async with self._locks(thread):
                log = await self._threads.existing(thread)
                if log is not None:
                    await rewrite(self._given.engine, log, self.serde, log.newest(), "pruned")

    async def _copy(self, source: str, target: str) -> None:
        if source == target:
            return
        first, second = sorted((source, target))  # so that two copies never wait for each other
        async with self._locks(first), self._locks(second):
            log = await self._threads.existing(source)
            if log is not None and log.saved():
                await copy(log, await self._threads.opened(target), self.serde)


def _named(config: RunnableConfig) -> tuple[str, str, str | None]:
    """The thread, namespace and checkpoint that a config names."""
    named = config["configurable"]
    return str(named["thread_id"]), named.get("checkpoint_ns", ""), get_checkpoint_id(config)
