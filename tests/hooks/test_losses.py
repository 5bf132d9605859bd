"""What is lost is written down soon, once, and at the end; nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence

import pytest

from eventctx.errors import StoreFull
from eventctx.hooks.losses import LossRecorder
from eventctx.hooks.registry import Hooks
from eventctx.log.hook_failures import Loss
from eventctx.stores.memory_losses import MemoryLosses


class Book(MemoryLosses):
    """A book that tells when it is written, and refuses so many times."""

    def __init__(self, refuses: int = 0) -> None:
        super().__init__()
        self.refuses = refuses
        self.tried = 0
        self.written = threading.Event()

    def add(self, losses: Sequence[Loss]) -> None:
        self.tried += 1
        if self.tried <= self.refuses:
            raise StoreFull("no space")
        super().add(losses)
        self.written.set()


class Shared(Book):
    @property
    def place(self) -> Hashable:
        return "one file"


def counts(book: MemoryLosses) -> list[tuple[str, str, int]]:
    return [(one.handler, one.kind, one.count) for one in book.read()]


async def test_losses_of_a_running_registry_are_written_while_it_runs() -> None:
    hooks, book = Hooks(), Book()
    recorder = LossRecorder(hooks, book, clock=lambda: 77)
    hooks.count_error(print, ValueError("no"))
    hooks.count_error(print, ValueError("no"))
    hooks.count_lost(print, "too many", 5)
    assert book.written.wait(20)
    assert book.read() == (
        Loss("builtins.print", "dropped", 5, 77),
        Loss("builtins.print", "error", 2, 77),
    )
    await recorder.close()
    assert book.tried == 1


async def test_what_is_not_written_yet_is_written_at_the_end_and_nothing_after_it() -> None:
    hooks, book = Hooks(), Book()
    recorder = LossRecorder(hooks, book)
    recorder.note("an.interceptor", "error")
    await recorder.close()
    hooks.count_error(print, ValueError("after"))
    await recorder.close()
    assert counts(book) == [("an.interceptor", "error", 1)]


async def test_while_nothing_is_lost_nothing_is_written_and_no_thread_runs() -> None:
    hooks, book = Hooks(), Book()
    recorder = LossRecorder(hooks, book)
    assert "eventctx-losses" not in {thread.name for thread in threading.enumerate()}
    await recorder.close()
    assert book.tried == 0


async def test_what_cannot_be_written_is_said_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks, book = Hooks(), Book(refuses=2)
    recorder = LossRecorder(hooks, book)
    with caplog.at_level(logging.WARNING, "eventctx.hooks"):
        recorder.note("a", "error")
        assert recorder.read() == ()
        recorder.note("a", "error")
        recorder.read()
        await recorder.close()
    assert counts(book) == [("a", "error", 2)]
    assert [one.message for one in caplog.records if "cannot be written" in one.message] == [
        "what hooks lost cannot be written down: no space; the agent goes on, this is said once"
    ]


async def test_two_engines_on_one_registry_and_one_file_count_a_loss_once() -> None:
    hooks, one, other = Hooks(), Shared(), Shared()
    first, second = LossRecorder(hooks, one), LossRecorder(hooks, other)
    hooks.count_error(print, ValueError("no"))
    await first.close()
    hooks.count_error(print, ValueError("no"))
    await second.close()
    assert (counts(one), counts(other)) == (
        [("builtins.print", "error", 1)],
        [("builtins.print", "error", 1)],
    )


async def test_two_stores_of_one_registry_both_know() -> None:
    hooks, one, other = Hooks(), Book(), Book()
    recorders = [LossRecorder(hooks, one), LossRecorder(hooks, other)]
    hooks.count_lost(print, "full", 3)
    for recorder in recorders:
        await recorder.close()
    assert counts(one) == counts(other) == [("builtins.print", "dropped", 3)]


async def test_a_listener_that_raises_hurts_neither_the_agent_nor_the_others() -> None:
    hooks, book = Hooks(), Book()

    def breaks(*_: object) -> None:
        raise RuntimeError("a listener's bug")

    hooks.on_loss("mine", breaks)
    recorder = LossRecorder(hooks, book)
    hooks.count_error(print, ValueError("no"))
    await recorder.close()
    assert counts(book) == [("builtins.print", "error", 1)]
