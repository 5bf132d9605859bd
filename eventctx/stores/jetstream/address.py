"""The URL of a JetStream store: servers, credentials, and settings of ours in its query.

    nats://user:password@a:4222,b:4222,c:4222/?name=EVENTCTX&monitor=http://a:8222,http://b:8222

What the URL leaves out is taken from the environment variables of the ``nats`` command line:
``NATS_USER``, ``NATS_PASSWORD``, ``NATS_CREDS``, ``NATS_NKEY``, ``NATS_CA``, ``NATS_CERT`` and
``NATS_KEY``.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from eventctx.errors import InvalidSetting
from eventctx.text import without_password

DEFAULT_NAME: Final = "EVENTCTX"
MOST_SHARDS: Final = 256

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FILES: Final = {
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "tls_ca": "NATS_CA",
    "tls_cert": "NATS_CERT",
    "tls_key": "NATS_KEY",
}
_KNOWN: Final = ("name", "shards", "monitor", "system", *_FILES)


class ServerAddress(NamedTuple):
    """Where a store is and how to reach it. Only ``place`` may be shown."""

    servers: tuple[str, ...]
    name: str
    shards: int | None
    monitors: tuple[str, ...]
    system: str | None
    user: str | None
    password: str | None
    token: str | None
    files: Mapping[str, str]
    place: str

    def options(self) -> dict[str, Any]:
        """The credentials, as arguments of nats-py. Raises InvalidSetting."""
        found: dict[str, Any] = {}
        if self.user is not None:
            found["user"], found["password"] = self.user, self.password or ""
        if self.token is not None:
            found["token"] = self.token
        if "creds" in self.files or "nkey" in self.files:
            _need_nkeys()
        if "creds" in self.files:
            found["user_credentials"] = self.files["creds"]
        if "nkey" in self.files:
            found["nkeys_seed"] = self.files["nkey"]
        context = self._tls()
        if context is not None:
            found["tls"] = context
        return found

    def _tls(self) -> ssl.SSLContext | None:
        if not any(name.startswith("tls_") for name in self.files):
            return None
        try:
            context = ssl.create_default_context(cafile=self.files.get("tls_ca"))
            if "tls_cert" in self.files:
                context.load_cert_chain(self.files["tls_cert"], self.files.get("tls_key"))
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(
                f"{self.place}: expected readable PEM files in tls_ca, tls_cert and tls_key, "
                f"found: {error}"
            ) from error
        return context


def parse(url: str, environment: Mapping[str, str] | None = None) -> ServerAddress:
    """The address that a URL names. Raises InvalidSetting, which shows no password."""
    env = os.environ if environment is None else environment
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.netloc or parts.fragment:
            raise ValueError
        hosts, user, password = _hosts(parts.netloc)
        if not hosts or not all(_is_host(host) for host in hosts):
            raise ValueError
    except ValueError:  # whose own text may quote a password
        raise InvalidSetting(
            f"store: expected nats://HOST[:PORT], found {_shown(url)!r}; write /, ?, #, @ and "
            "commas of a password as %2F, %3F, %23, %40 and %2C"
        ) from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(query) - set(_KNOWN))
    if unknown or parts.path.strip("/"):
        strange = ", ".join(repr(_shown(one)) for one in unknown)
        raise InvalidSetting(
            f"store: expected nats://HOST,…/?{'=…&'.join(_KNOWN)}=…, found "
            f"{strange or f'the path {_shown(parts.path)!r}'}"
        )
    name = query.get("name", DEFAULT_NAME)
    if not _NAME.fullmatch(name):
        raise InvalidSetting(
            "store: expected a name of at most 64 of A-Z, a-z, 0-9, _ and -, found "
            f"{_shown(name)!r}"
        )
    files = {
        option: str(Path(found).expanduser())
        for option, variable in _FILES.items()
        if (found := query.get(option) or env.get(variable))
    }
    if user is None and "creds" not in files and "nkey" not in files:
        user, password = env.get("NATS_USER") or None, env.get("NATS_PASSWORD")
    # As nats-py has it: a user without a password is a token.
    token, user = (user, None) if user is not None and password is None else (None, user)
    monitors = tuple(one.rstrip("/") for one in query.get("monitor", "").split(",") if one)
    return ServerAddress(
        servers=tuple(f"{parts.scheme}://{host}" for host in hosts),
        name=name,
        shards=_shards(query.get("shards")),
        monitors=monitors,
        system=query.get("system"),
        user=user,
        password=password,
        token=token,
        files=files,
        place=f"{parts.scheme}://{','.join(hosts)}/?name={name}",
    )


def _hosts(netloc: str) -> tuple[list[str], str | None, str | None]:
    """The hosts, and the user and password before any of them."""
    hosts, user, password = [], None, None
    for one in netloc.split(","):
        credentials, at, host = one.rpartition("@")
        if at:
            name, colon, secret = credentials.partition(":")
            user = unquote(name)
            password = unquote(secret) if colon else None
        if host:
            hosts.append(host)
    return hosts, user, password


def _is_host(host: str) -> bool:
    parts = urlsplit(f"nats://{host}")
    # ``port`` raises ValueError for what is none.
    return bool(parts.hostname) and parts.port != 0 and host.isprintable()


def _shown(text: str) -> str:
    """The given text without the part before the last @: a password may be cut anywhere."""
    before, at, after = text.rpartition("@")
    scheme = next((one for one in ("nats://", "tls://") if before.startswith(one)), "")
    return without_password(f"{scheme}[redacted:password]@{after}" if at else text)


def _shards(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SHARDS:
        raise InvalidSetting(
            f"shards: expected a number from 1 to {MOST_SHARDS}, found {_shown(text)!r}"
        )
    return int(text)


def _need_nkeys() -> None:
    # nats-py imports it when it connects, and says nothing of an extra.
    if find_spec("nkeys") is None:
        raise InvalidSetting(
            "store: expected the package that signs with nkeys and creds files, found none: run "
            "pip install 'eventctx[nats]'"
        )
