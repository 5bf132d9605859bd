"""The addresses that the server listens at."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import suppress
from typing import Final

from eventctx.errors import InvalidSetting

LOOPBACK: Final = "127.0.0.1"
_TRIES: Final = 20
_QUEUED: Final = 128


def listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at ``host``; of the loopback address also the one of IPv6.

    Port 0 takes any free one. ``localhost`` may mean either address, and on the one that is left
    free somebody else could wait for our cookie. Raises InvalidSetting.
    """
    if host != LOOPBACK:
        return [_bound(_family(host), host, port)]
    for _ in range(_TRIES):
        first = _bound(socket.AF_INET, LOOPBACK, port)
        try:
            return [first, _bound(socket.AF_INET6, "::1", first.getsockname()[1])]
        except InvalidSetting as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
                return [first]  # this machine has no IPv6
            first.close()
            if port:
                raise
    raise InvalidSetting(f"port: expected one free for IPv4 and IPv6, found none in {_TRIES} tries")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _family(host: str) -> socket.AddressFamily:
    try:
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return socket.AF_INET


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    made = None
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
        # A server that was killed must not keep its port for a minute.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(_QUEUED)
        made.setblocking(False)
    except (OSError, OverflowError) as error:
        if made is not None:
            made.close()
        told = getattr(error, "strerror", None) or error
        raise InvalidSetting(f"cannot listen at {host}, port {port}: {told}") from error
    return made
