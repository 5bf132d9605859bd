"""The right to ask: a token that is used once buys a cookie, and the cookie buys everything else.

The token is in the address that the program prints, so it may end in a browser's history or in
a list of processes; after its first use it is worth nothing. The cookie is a second secret. Cookies
ignore ports, so its name carries the port: two inspectors of one machine do not take each other's.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

_BYTES: Final = 32


class Access:
    """The two secrets of one run of the server. Neither is ever logged."""

    def __init__(self, port: int) -> None:
        self.cookie_name = f"eventctx-{port}"
        self._cookie = secrets.token_urlsafe(_BYTES)
        self._token: str | None = secrets.token_urlsafe(_BYTES)

    @property
    def token(self) -> str:
        """The token to print. Raises LookupError when it was used."""
        if self._token is None:
            raise LookupError("the token was used")
        return self._token

    def exchange(self, token: str) -> str | None:
        """The value of ``Set-Cookie`` for the right token, once; None for any other."""
        if self._token is None or not _same(token, self._token):
            return None
        self._token = None
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def holds(self, cookies: list[bytes]) -> bool:
        """Whether the ``Cookie`` headers of a request hold the cookie."""
        found = False
        for header in cookies:
            for pair in header.decode("latin-1").split(";"):
                name, _, value = pair.strip().partition("=")
                # Every pair is compared, so that the time says nothing of which one fits.
                found |= name == self.cookie_name and _same(value, self._cookie)
        return found


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())
