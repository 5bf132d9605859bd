"""Connections to servers: through the proxy that the environment names, with its authorities.

Which proxy a host has, ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` say, as for
most programs. A server on this machine is asked without one.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from eventctx.errors import InvalidSetting

MOST_HEAD: Final = 256 * 1024
"""Bytes that the head of a request or answer may have."""

_AUTHORITIES: Final = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
"""Variables that name files of authorities, in addition to OpenSSL's own ``SSL_CERT_FILE``."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TunnelRefused(OSError):
    """A proxy did not connect us to the server."""


class Dialer:
    """Connects to servers. Raises InvalidSetting for a proxy that no http URL names."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        lower = {name.lower(): value for name, value in environment.items() if value}
        everywhere = lower.get("all_proxy")
        self._proxies = {
            scheme: _Proxy.of(found)
            for scheme in ("http", "https")
            if (found := lower.get(f"{scheme}_proxy") or everywhere)
        }
        self._without = [one.strip().lower() for one in lower.get("no_proxy", "").split(",")]
        self._authorities = [environment[name] for name in _AUTHORITIES if environment.get(name)]
        self._trusted: ssl.SSLContext | None = None

    def proxy(self, url: SplitResult) -> _Proxy | None:
        """The proxy of a URL's host; None where it is asked directly."""
        host = url.hostname or ""
        if _is_here(host) or any(_is_in(url, one) for one in self._without):
            return None
        return self._proxies.get(url.scheme)

    async def connect(self, url: SplitResult) -> Streams:
        """A connection to the server of a URL, or to the proxy that passes plain http on.

        Raises OSError.
        """
        host = url.hostname or ""
        secure = url.scheme == "https"
        port = url.port or (443 if secure else 80)
        proxy = self.proxy(url)
        if proxy is None:
            context = self._context() if secure else None
            return await asyncio.open_connection(host, port, ssl=context, limit=MOST_HEAD)
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port, limit=MOST_HEAD)
        if secure:
            try:
                await _tunnel(reader, writer, f"{host}:{port}", proxy)
                await writer.start_tls(self._context(), server_hostname=host)
            except BaseException:
                writer.close()
                raise
        return reader, writer

    def _context(self) -> ssl.SSLContext:
        if self._trusted is None:
            self._trusted = ssl.create_default_context()  # 20 ms
            for file in self._authorities:
                with suppress(OSError):  # as the programs do that are meant by these variables
                    self._trusted.load_verify_locations(file)
        return self._trusted


class _Proxy(NamedTuple):
    """A proxy: where it listens, and the header line that names us to it."""

    host: str
    port: int
    authorization: bytes

    @classmethod
    def of(cls, value: str) -> _Proxy:
        url = urlsplit(value if "://" in value else f"http://{value}")
        if url.scheme != "http" or not url.hostname:
            raise InvalidSetting(
                f"record: expected an http URL of a proxy, found one of {url.scheme}; "
                "name the server in NO_PROXY, or an http proxy in HTTPS_PROXY"
            )
        authorization = b""
        if url.username is not None:
            named = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            authorization = b"proxy-authorization: Basic %s\r\n" % base64.b64encode(named)
        return cls(url.hostname, url.port or 80, authorization)


async def _tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: str, proxy: _Proxy
) -> None:
    name = server.encode()
    writer.write(b"CONNECT %s HTTP/1.1\r\nhost: %s\r\n" % (name, name))
    writer.write(proxy.authorization + b"\r\n")
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise TunnelRefused(f"the proxy {proxy.host}:{proxy.port} closed the connection") from None
    status = head.split(b"\r\n", 1)[0].split(b" ", 1)[-1]
    if not status.startswith(b"200"):
        answer = status.decode("latin-1")
        raise TunnelRefused(f"the proxy {proxy.host}:{proxy.port} answered {answer}")


def _is_in(url: SplitResult, without: str) -> bool:
    """Whether an entry of ``NO_PROXY`` is about a URL: a host, its domain, or ``*`` for all."""
    domain, _, port = without.lstrip("*.").partition(":")
    if not domain or (port and port != str(url.port)):
        return without == "*"
    return f".{url.hostname}".endswith(f".{domain}")


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
