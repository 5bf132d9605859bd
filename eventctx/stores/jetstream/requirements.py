"""Requirements of the servers, so that no acknowledged append is lost, and their check.

A client cannot see ``sync_interval``, and with its default of two minutes a power cut of all
machines took every append since the last sync, and a stream created meanwhile. So each server's
monitoring is asked, by HTTP or, with credentials of the system account, over NATS itself. A
server that cannot be checked is refused; one that is down is checked when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import msgspec
from nats.aio.client import Client

from eventctx.errors import InvalidSetting, StoreUnsafe
from eventctx.stores.jetstream.connection import ServerLink

OLDEST: Final = (2, 15)
REPLICAS: Final = 3

_ASK_SECONDS: Final = 3.0
_SILENCE_SECONDS: Final = 0.5
_ELECTION_SECONDS: Final = 15.0
_ASK_AGAIN_SECONDS: Final = 0.2
_direct = build_opener(ProxyHandler({}))  # no proxy: the servers are the user's own
_HOW: Final = (
    "give the address of every server's monitoring (?monitor=http://a:8222,http://b:8222,…), or "
    "credentials of the system account (?system=USER:PASSWORD or ?system=FILE.creds)"
)


class Server(NamedTuple):
    """A server, as its monitoring describes it."""

    name: str
    version: str
    sync_always: bool
    sync_interval: str


class Servers:
    """The monitoring of all servers of a cluster."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._names: dict[str, str] = {}

    async def ask(self, what: str, **query: str) -> dict[str, Any]:
        """The answers to ``varz``, ``jsz`` or ``raftz``, by the servers' names.

        A server that does not answer is left out.
        """
        if self._link.address.system is not None:
            return await self._by_nats(what.upper(), query)
        return await self._by_http(what, query)

    async def _by_http(self, what: str, query: Mapping[str, str]) -> dict[str, Any]:
        monitors = self._link.address.monitors
        suffix = f"?{urlencode(query)}" if query else ""
        answers = await asyncio.gather(
            *(asyncio.to_thread(_get, f"{monitor}/{what}{suffix}") for monitor in monitors)
        )
        if what == "varz":
            for monitor, answer in zip(monitors, answers, strict=True):
                if answer is not None:
                    self._names[monitor] = answer.get("server_name", "")
        elif any(monitor not in self._names for monitor in monitors):
            await self._by_http("varz", {})
        return {
            self._names[monitor]: answer
            for monitor, answer in zip(monitors, answers, strict=True)
            if answer is not None and monitor in self._names
        }

    async def _by_nats(self, what: str, query: Mapping[str, str]) -> dict[str, Any]:
        options = self._link.address._replace(files={}).options()
        system = self._link.address.system or ""
        user, colon, password = system.partition(":")
        if colon:
            options |= {"user": user, "password": password}
        else:
            options = {**self._link.address.options(), "user_credentials": system}
        client = Client()
        found: dict[str, Any] = {}

        async def quiet(_error: Exception) -> None:
            return

        async with asyncio.timeout(_ASK_SECONDS):
            await client.connect(
                list(self._link.address.servers), allow_reconnect=False, error_cb=quiet, **options
            )
        try:
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            asked = {"account" if key == "acc" else key: value for key, value in query.items()}
            await client.publish(
                f"$SYS.REQ.SERVER.PING.{what}", msgspec.json.encode(asked), reply=inbox
            )
            with suppress(TimeoutError, Exception):
                while True:
                    answer = await answers.next_msg(timeout=_SILENCE_SECONDS)
                    decoded = msgspec.json.decode(answer.data)
                    found[decoded["server"]["name"]] = decoded.get("data", {})
        finally:
            await client.close()
        return found

    async def check(self) -> tuple[Server, ...]:
        """The servers of the cluster, each of which may hold appends.

        Raises StoreUnsafe for one that could lose an acknowledged append, or cannot be checked.
        """
        place = self._link.address.place
        if not self._link.address.monitors and self._link.address.system is None:
            raise StoreUnsafe(
                f"{place}: expected servers that sync each append to disk (sync_interval: always), "
                f"found none that tells: {_HOW}"
            )
        clusters = await self._clusters()
        # Last: a server that joined the cluster while this waited is checked as well.
        seen = await self.ask("varz")
        known = [_members(name, one) for name, one in clusters.items() if one.get("leader")]
        if not seen or not known:
            raise StoreUnsafe(
                f"{place}: expected a cluster of {REPLICAS} or more servers whose monitoring "
                f"answers, found {_describe_found(seen, list(clusters.values()))}: {_HOW}"
            )
        servers = tuple(_server(name, seen[name]) for name in sorted(seen))
        for server in servers:
            _check(place, server)
        members = max(known, key=len)
        if len(members) < REPLICAS:
            raise StoreUnsafe(
                f"{place}: expected {REPLICAS} or more servers, so that a copy is left when a "
                f"machine is lost, found {', '.join(sorted(members))}"
            )
        unseen = sorted(name for name, away in members.items() if name not in seen and not away)
        down = self._silent()
        if len(unseen) > down or len(seen) <= len(members) // 2:
            raise StoreUnsafe(
                f"{place}: expected to see how every server of the cluster syncs, found no answer "
                f"of {', '.join(unseen) or 'most'}: {_HOW}"
            )
        return servers

    async def changed(self) -> StoreUnsafe | None:
        """The error for a server that now runs with unsafe settings; None if there is none."""
        for name, seen in (await self.ask("varz")).items():
            try:
                _check(self._link.address.place, _server(name, seen))
            except StoreUnsafe as error:
                return error
        return None

    async def _clusters(self) -> dict[str, dict[str, Any]]:
        """The cluster as each of its servers sees it; waits while none knows a leader."""
        until = self._link.loop.time() + min(self._link.patience, _ELECTION_SECONDS)
        while True:
            found = {
                name: one["meta_cluster"]
                for name, one in (await self.ask("jsz")).items()
                if one.get("meta_cluster")
            }
            led = any(one.get("leader") for one in found.values())
            if led or not found or self._link.loop.time() > until:
                return found
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    def _silent(self) -> int:
        """How many monitors never answered with a name: their servers are down."""
        return sum(one not in self._names for one in self._link.address.monitors)


def check_stream(place: str, config: Mapping[str, Any]) -> None:
    """Raise StoreUnsafe for a stream that could lose what it acknowledged, or drops messages."""
    name = config.get("name")
    replicas = config.get("num_replicas", 1)
    if replicas < REPLICAS:
        raise StoreUnsafe(
            f"{place}: expected {REPLICAS} or more replicas of stream {name}, found {replicas}: "
            f"`nats stream edit {name} --replicas {REPLICAS}`"
        )
    for setting, expected in (
        ("storage", "file"), ("retention", "limits"), ("discard", "new"), ("max_age", 0),
        ("max_msgs_per_subject", -1), ("allow_atomic", True), ("allow_direct", True),
        ("allow_rollup_hdrs", False),
    ):  # fmt: skip
        found = config.get(setting)
        if found != expected and not (expected in (0, -1) and found in (0, -1, None)):
            raise StoreUnsafe(
                f"{place}: expected {setting} {expected!r} of stream {name}, found {found!r}: "
                f"somebody changed it; change it back with `nats stream edit {name}`"
            )


def _members(seer: str, cluster: Mapping[str, Any]) -> dict[str, bool]:
    """The servers of a cluster as one of them sees it, and whether each is known to be down."""
    found = {seer: False, str(cluster["leader"]): False}
    for replica in cluster.get("replicas") or ():
        found[str(replica["name"])] = bool(replica.get("offline"))
    return found


def _server(name: str, seen: Mapping[str, Any]) -> Server:
    config = (seen.get("jetstream") or {}).get("config") or {}
    interval = int(config.get("sync_interval", 0)) / 1e9
    return Server(
        name, str(seen.get("version", "0")), bool(config.get("sync_always")), f"{interval:g} s"
    )


def _check(place: str, server: Server) -> None:
    numbers = tuple(int(part) for part in server.version.split("-")[0].split(".")[:2])
    if numbers < OLDEST:
        raise StoreUnsafe(
            f"{place}: expected nats-server {OLDEST[0]}.{OLDEST[1]} or newer, found "
            f"{server.version} on {server.name}; older ones store a batch message by message, or "
            "sync each alone"
        )
    if not server.sync_always:
        raise StoreUnsafe(
            f"{place}: expected `sync_interval: always` in the jetstream section of every server, "
            f"found {server.sync_interval} on {server.name}: a power cut would lose appends that "
            "were acknowledged"
        )


def _describe_found(seen: Mapping[str, Any], clusters: list[Any]) -> str:
    if not seen:
        return "no answer"
    return "a cluster without a leader" if any(clusters) else "a server that stands alone"


def _get(url: str) -> Any:
    """The decoded answer at a URL; None without one. Raises InvalidSetting for another scheme."""
    if not url.startswith(("http://", "https://")):
        raise InvalidSetting("monitor: expected http:// or https:// and the monitoring's address")
    try:
        with _direct.open(url, timeout=_ASK_SECONDS) as answer:
            return msgspec.json.decode(answer.read())
    except (OSError, ValueError):
        return None
