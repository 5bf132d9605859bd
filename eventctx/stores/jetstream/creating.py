"""The streams of a store: made once, found again, and checked whenever a store is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

import msgspec

from eventctx.errors import (
    InvalidSetting,
    NotAStore,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    StoreUnsafe,
)
from eventctx.stores.jetstream.batch import EXPECTED, outgoing, send
from eventctx.stores.jetstream.reads.asking import RetryingReads
from eventctx.stores.jetstream.requirements import REPLICAS, check_stream
from eventctx.stores.jetstream.wire.connection import (
    DOUBTS,
    STREAM_NOT_FOUND,
    ApiError,
    ServerLink,
    Tries,
)
from eventctx.stores.jetstream.wire.layout import LAYOUT, Meta, Names, decode_meta

_NAME_IN_USE: Final = 10058
_TOO_FEW_SERVERS: Final = frozenset((10023, 10074))
_NO_PEERS: Final = 10005
"""The servers are enough, as was checked before, and one of them is not there yet."""

_ALL: Final[Mapping[str, Any]] = {
    "storage": "file",
    "num_replicas": REPLICAS,
    "retention": "limits",
    "discard": "new",
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "allow_direct": True,
    "allow_atomic": True,
    # With a roll-up, whoever may append could take away what is there.
    "allow_rollup_hdrs": False,
    "deny_delete": False,
}


async def find_or_make(link: ServerLink, *, create: bool) -> Meta:
    """The store of the link's address, whose number of shards the link then knows.

    Raises NotAStore, StoreTooNew, StoreUnsafe, StoreReadOnly (it would have to be made),
    StoreUnavailable, InvalidSetting.
    """
    address, names = link.address, link.names
    configured = await _stream(link, names.meta)
    if configured is None:
        if not create:
            raise StoreUnavailable(
                f"{address.place}: expected a store of the name {address.name!r}, found no stream "
                f"{names.meta}; open it with create=True to make one"
            )
        configured = await _make(link, names.meta, {"subjects": [f"{names.prefix}.meta.>"]})
    check_stream(address.place, configured)
    meta = await _meta(link)
    if meta is None:
        if not create:
            raise StoreReadOnly(f"{address.place}: the store was never finished; open it to write")
        meta = await _make_meta(link)
    if address.shards is not None and address.shards != meta.shards:
        raise InvalidSetting(
            f"{address.place}: expected shards={meta.shards}, as the store was made, found "
            f"shards={address.shards}; copy the sessions to a new store to change it"
        )
    link.names = Names(address.name, meta.shards)
    # At once: a server takes its time to make a stream, whatever else it makes meanwhile.
    wanted = _wanted(link.names)
    found = await asyncio.gather(
        *(_checked(link, name, settings, create) for name, settings in wanted),
        return_exceptions=True,
    )
    for one in found:
        if one is not None:
            raise one
    return meta


async def _checked(link: ServerLink, name: str, settings: Mapping[str, Any], create: bool) -> None:
    """Find a stream or make it. Raises what ``find_or_make`` raises."""
    found = await _stream(link, name)
    if found is None:
        if not create:
            raise StoreReadOnly(
                f"{link.address.place}: expected the stream {name}, found none; it was removed, or "
                "the store was never finished"
            )
        found = await _make(link, name, settings)
    check_stream(link.address.place, found)


def _wanted(names: Names) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        (names.caches, {"subjects": [f"{names.prefix}.kv.>"]})
    ]
    for shard in range(names.shards):
        records = f"{names.prefix}.{shard}.r.>"
        live = {
            "src": records,
            "dest": f"{names.prefix}.live.{shard}.>",
            "headers_only": True,
        }
        settings = {"subjects": [f"{names.prefix}.{shard}.>"], "republish": live}
        found.append((names.stream(shard), settings))
    return found


async def _stream(link: ServerLink, name: str) -> dict[str, Any] | None:
    """The configuration of a stream; None if there is no such stream."""
    try:
        found = await link.request(f"$JS.API.STREAM.INFO.{name}")
    except ApiError as error:
        if error.number == STREAM_NOT_FOUND:
            return None
        raise link.translated(error, name) from error
    return dict(found["config"])


async def _make(link: ServerLink, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    tries = Tries(link, name)
    while True:
        try:
            made = await link.request(
                f"$JS.API.STREAM.CREATE.{name}", {"name": name, **_ALL, **settings}
            )
            return dict(made["config"])
        except ApiError as error:
            if error.number == _NAME_IN_USE:  # another process made it in the meantime
                found = await _stream(link, name)
                if found is not None:
                    return found
            if error.number in _TOO_FEW_SERVERS:
                raise StoreUnsafe(
                    f"{link.address.place}: expected a cluster of {REPLICAS} or more servers with "
                    f"JetStream for the stream {name}, found: {error.description}"
                ) from error
            if error.number != _NO_PEERS:
                raise link.translated(error, name) from error
            await tries.after(error)


async def _meta(link: ServerLink) -> Meta | None:
    asking = RetryingReads(link.client, link.names, link.patience)
    last = await asking.last_of(link.names.meta, link.names.meta_subject)
    if last is None:
        return None
    place = link.address.place
    try:
        meta = decode_meta(last.data)
    except msgspec.MsgspecError as error:
        raise NotAStore(
            f"{place}: expected a store of eventctx in the stream {link.names.meta}, found "
            "something else; give the store another name (?name=…)"
        ) from error
    if meta.layout > LAYOUT:
        raise StoreTooNew(
            f"{place}: expected a store of layout {LAYOUT} or older, found {meta.layout}: update "
            "eventctx"
        )
    return meta


async def _make_meta(link: ServerLink) -> Meta:
    """Write the store's first message, unless another process was faster."""
    meta = Meta(LAYOUT, uuid4().hex, link.address.shards or 1)
    message = outgoing(link.names.meta_subject, {EXPECTED: "0"}, msgspec.json.encode(meta))
    tries = Tries(link, link.names.meta)
    while True:
        try:
            await send(link, [message])
            return meta
        except ApiError as error:
            if error.conflict:
                found = await _meta(link)
                if found is not None:
                    return found
            elif not error.passing:
                raise link.translated(error, link.names.meta) from error
            await tries.after(error)
        except DOUBTS as error:
            await tries.after(error)
