"""The gate before every route: which requests come from our own page on this machine.

Any page that a person visits may send requests to 127.0.0.1, and a name that resolves to 127.0.0.1
(DNS rebinding) makes such a page one of ours in the browser's eyes. The address that the socket is
bound to helps against neither. So the names in ``Host`` and ``Origin`` are checked, and what the
browser says of the page that asks (``Sec-Fetch-Site``), on every request and before anything else
is read of it. This is plain ASGI: no route, no middleware of a framework comes before it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from eventctx.web.access import Access

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types eventctx",  # the one policy that makes the address of our own worker
    )
)

HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer, refusals included."""

MOST_TARGET: Final = 8_192
"""Bytes of the longest path with its query."""

MOST_HEADERS: Final = 32 * 1024
"""Bytes of a request's line and headers together."""

_MOST_FIELDS: Final = 16
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_OURS: Final = (b"same-origin", b"none")


class Guard:
    """Lets a request through to ``app``, or answers it with a refusal.

    ``host`` is the address that the server is bound to. ``start`` is the path to which the token's
    address leads.
    """

    def __init__(self, app: App, access: Access, *, port: int, host: str, start: str = "/") -> None:
        self._app = app
        self._access = access
        self._port = port
        self._start = start
        self._any_address = _is_unspecified(host)
        names = {*_LOOPBACK, *(() if self._any_address else (_in_url(host),))}
        self._hosts = {f"{name}:{port}" for name in names}
        if port == 80:
            self._hosts |= names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        foreign = find_foreign(headers, self._is_ours, "inspect")
        refusal = (403, foreign) if foreign else _unfit(scope)
        if refusal is not None:
            await _refuse(guarded, scope, *refusal)
            return
        is_entry = scope["raw_path"] == b"/" and scope["method"] == "GET"
        if is_entry and (given := _tokens(scope)):
            # A HEAD, or a browser's guess of what is opened next, does not use the token up.
            if any(b"prefetch" in one.lower() for one in _purposes(headers)):
                await _refuse(guarded, scope, 403, _NOT_BEFOREHAND)
                return
            await self._exchange(guarded, scope, given[0])
            return
        if not self._access.holds(_values(headers, b"cookie")):
            await _refuse(guarded, scope, 403, _NO_COOKIE)
            return
        # Routes see the path as it was sent: a name in it is decoded once, where it is used.
        inner = {**scope, "path": scope["raw_path"].decode("ascii")}
        await self._app(inner, receive, guarded)

    def _is_ours(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower()
        if name in self._hosts:
            return True
        # Bound to every address, all of the machine's own are right. A name that an attacker
        # points at us is none of them.
        bare, _, port = name.rpartition(":")
        return self._any_address and port == str(self._port) and _is_address(bare)

    async def _exchange(self, send: Send, scope: Scope, token: str) -> None:
        cookie = self._access.exchange(token)
        if cookie is None and not self._access.holds(_values(scope["headers"], b"cookie")):
            await _refuse(send, scope, 403, _USED)
            return
        # A redirect, so that the token stands neither in the address bar nor in a link.
        headers = [(b"location", self._start.encode("ascii")), (b"content-length", b"0")]
        if cookie is not None:
            headers.append((b"set-cookie", cookie.encode("ascii")))
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


_NO_COOKIE: Final = (
    "this browser has no access: open the address that `eventctx inspect` printed, in the browser "
    "in which you want to look"
)
_NOT_BEFOREHAND: Final = "this address works once, so it is not to be read before it is opened"
_USED: Final = (
    "this address was used already, or is that of an earlier run: end `eventctx inspect` and start "
    "it again, and it prints a new one"
)


def find_foreign(
    headers: list[tuple[bytes, bytes]], is_ours: Callable[[bytes], bool], command: str
) -> str | None:
    """The reason why a request is not for us, or comes from another page than our own.

    ``is_ours`` gets the ``Host``. ``command`` printed our address, or gave it to a program.
    """
    hosts = _values(headers, b"host")
    if len(hosts) != 1 or not is_ours(hosts[0]):
        return f"Host: expected the address that `eventctx {command}` printed"
    if any(origin != b"http://" + hosts[0] for origin in _values(headers, b"origin")):
        return f"Origin: expected no page but one of `eventctx {command}` itself"
    if any(site not in _OURS for site in _values(headers, b"sec-fetch-site")):
        return f"Sec-Fetch-Site: expected a request of no page but one of `eventctx {command}`"
    return None


def _unfit(scope: Scope) -> tuple[int, str] | None:
    """The refusal of a request that no route could answer."""
    path: bytes = scope["raw_path"]
    if scope["method"] not in ("GET", "HEAD"):
        return 405, "expected GET or HEAD: the inspector only reads"
    if not path.startswith(b"/"):
        return 400, "expected a path that begins with /, not a whole address"
    if len(path) + len(scope["query_string"]) > MOST_TARGET:
        return 400, f"expected a path of at most {MOST_TARGET:,} bytes"
    # The parser counts a head only while it is incomplete; one that comes at once is not counted.
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADERS:
        return 431, f"expected headers of at most {MOST_HEADERS:,} bytes"
    return None


async def _refuse(send: Send, scope: Scope, status: int, text: str) -> None:
    api = scope["raw_path"].startswith(b"/api/")
    body = msgspec.json.encode({"error": text}) if api else text.encode() + b"\n"
    kind = b"application/json" if api else b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def _purposes(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [*_values(headers, b"sec-purpose"), *_values(headers, b"purpose")]


def _tokens(scope: Scope) -> list[str]:
    try:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return []
    return [value for name, value in pairs if name == "token"]


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _is_unspecified(host: str) -> bool:
    return _is_address(_in_url(host)) and ipaddress.ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True
