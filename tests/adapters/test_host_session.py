"""A host's conversation as a session: what its storage and its requests bring is added once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.kit import HostSession
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidMessage, StoreFull
from tests.session.counting_store import CountingStore

Row = dict[str, Any]


def said(text: str, role: str = "user") -> Row:
    return {"role": role, "content": text}


async def opened(**more: Any) -> tuple[CountingStore, HostSession]:
    store = CountingStore()
    host = HostSession(await Engine(store).session("s", **more))
    await host.mirror([said("begin")])
    store.appends.clear()
    return store, host


async def transcript(host: HostSession) -> list[Row]:
    return await host.context.get_messages()


async def test_what_a_list_brings_goes_to_the_store_with_the_request() -> None:
    store, host = await opened()
    whole = [said("begin"), said("well", "assistant"), said("go on")]
    await host.mirror(whole, with_request=True)
    assert store.appends == []
    assert await host.prepare() == whole
    assert store.appends == [[*["context:message_added"] * 2, "context:request_prepared"]]


STEPS = st.lists(
    st.sampled_from(("grow", "take", "prepare", "full", "pop", "clear", "messages")),
    max_size=12,
)


@settings(max_examples=60)
@given(STEPS)
async def test_a_hosts_list_is_in_the_log_once_whatever_is_asked_behind_it(
    steps: list[str],
) -> None:
    """The host keeps a list and mirrors it; ``full`` is a request while the disk is full."""
    store, host = await opened()
    rows = [said("begin")]
    for number, step in enumerate(steps):
        if step == "grow":
            rows = [*rows, said(f"{number}"), said(f"{number} again")]
            await host.mirror(rows)
        elif step == "take":
            rows = [*rows, said(f"{number}")]
            await host.mirror(rows, with_request=True)
        elif step == "prepare":
            assert await host.prepare() == rows
        elif step == "full":
            await host.mirror(rows, with_request=True)
            store.full = True
            with pytest.raises(StoreFull):
                await host.prepare()
            store.full = False
            await host.mirror(rows, with_request=True)
        elif step == "pop":
            assert await host.pop() == (rows[-1] if rows else None)
            rows = rows[:-1]
        elif step == "clear":
            await host.clear()
            rows = []
        else:
            assert await host.messages() == rows
    assert await host.messages() == rows
    assert await transcript(host) == rows


async def test_a_message_that_a_request_brought_is_known_when_the_host_stores_it() -> None:
    _, host = await opened()
    assert await host.take([said("begin"), said("more")])
    assert await host.prepare() == [said("begin"), said("more")]
    assert await host.messages() == [said("begin")]
    await host.add([said("more"), said("well", "assistant")])
    assert await host.messages() == [said("begin"), said("more"), said("well", "assistant")]


async def test_a_request_that_overflows_has_brought_its_messages_once() -> None:
    _, host = await opened(max_tokens=1_000)
    long = said("word " * 3_000)
    for _ in range(2):
        await host.take([said("begin"), long])
        with pytest.raises(ContextOverflow):
            await host.prepare()
    assert await transcript(host) == [said("begin"), long]
    await host.add([long])
    assert await host.messages() == [said("begin"), long]


async def test_a_message_that_the_log_refuses_is_dropped_and_the_session_goes_on() -> None:
    _, host = await opened()
    await host.mirror([said("begin"), {"role": "user", "content": object()}], with_request=True)
    with pytest.raises(InvalidMessage):
        await host.prepare()
    await host.mirror([said("begin"), said("go on")], with_request=True)
    assert await host.prepare() == [said("begin"), said("go on")]
