"""The servers that a recorded program would ask, and the addresses that it is given instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from eventctx.errors import InvalidSetting
from eventctx.proxy.call_copy import Headers

_ANTHROPIC: Final = "https://api.anthropic.com"
_OPENAI: Final = "https://api.openai.com/v1"
_CHATGPT: Final = "https://chatgpt.com/backend-api/codex"
_HERE: Final = "127.0.0.1,localhost"


class Upstream(NamedTuple):
    """The server that gets the requests whose path begins with a prefix."""

    url: SplitResult

    @classmethod
    def of(cls, url: str) -> Upstream:
        """The server at ``url``. Raises InvalidSetting for what is no http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSetting(f"expected an http or https URL of a model's API, found {url!r}")
        return cls(parts)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        secure = self.url.scheme == "https"
        return self.url.scheme, self.url.hostname or "", self.url.port or (443 if secure else 80)


Choose = Callable[[str, Headers], tuple[Upstream, str] | None]
"""Gets a request's path and headers; returns where it goes and the path there, or None."""


def by_prefix(upstreams: Mapping[str, Upstream]) -> Choose:
    """Choose the upstream by the first part of the path, which is not passed on."""

    def choose(path: str, headers: Headers) -> tuple[Upstream, str] | None:
        _, first, rest = (*path.split("/", 2), "", "")[:3]
        upstream = upstreams.get(first)
        return None if upstream is None else (upstream, f"{upstream.url.path.rstrip('/')}/{rest}")

    return choose


class Upstreams(NamedTuple):
    """The servers that a program would ask without us."""

    anthropic: Upstream
    openai: Upstream
    chatgpt: Upstream

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Upstreams:
        """The servers of the environment, else the providers' own. Raises InvalidSetting."""
        openai = environment.get("OPENAI_BASE_URL") or environment.get("OPENAI_API_BASE")
        return cls(
            Upstream.of(environment.get("ANTHROPIC_BASE_URL") or _ANTHROPIC),
            Upstream.of(openai or _OPENAI),
            Upstream.of(openai or _CHATGPT),
        )

    def choose(self) -> Choose:
        """Choose by the path of a request, and for Codex by whether a login or a key pays."""
        plain = by_prefix({"anthropic": self.anthropic, "openai": self.openai})
        login = by_prefix({"openai": self.chatgpt})

        def chosen(path: str, headers: Headers) -> tuple[Upstream, str] | None:
            by_login = any(name == b"chatgpt-account-id" for name, _ in headers)
            return (login(path, headers) if by_login else None) or plain(path, headers)

        return chosen


def environment_of(relay: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that asks ``relay``, a URL to which paths are appended."""
    found = dict(environment)
    found.update(addresses(relay))
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(filter(None, (found.get(name), _HERE)))
    return found


def addresses(relay: str) -> dict[str, str]:
    """The variables that tell a program where to ask."""
    return {
        "ANTHROPIC_BASE_URL": f"{relay}/anthropic",
        "OPENAI_BASE_URL": f"{relay}/openai",
        "OPENAI_API_BASE": f"{relay}/openai",
    }


def command_of(command: Sequence[str], relay: str) -> list[str]:
    """The command to run; Codex takes the address as options, and not from the environment."""
    program, *arguments = command
    if PurePath(program).stem.lower() != "codex":
        return [program, *arguments]
    provider = (
        f'model_providers.eventctx={{name="OpenAI", base_url="{relay}/openai", '
        'wire_api="responses", requires_openai_auth=true}'
    )
    return [program, "-c", provider, "-c", 'model_provider="eventctx"', *arguments]
