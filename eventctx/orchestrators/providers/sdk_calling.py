"""One endpoint of an SDK's client: asked once, answered in the API's own JSON.

The JSON is used rather than the SDK's objects: what is stored is what came, whatever the SDK's
release knows of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Ids
from eventctx.orchestrators.providers import sdk_failing

_OURS: Final = frozenset(("messages", "input", "model", "stream"))


class Connection:
    """Asks ``endpoint``, an SDK's resource with ``create``.

    ``options`` go into each request as they are; one that is None is left out. With ``propagate``
    a request carries its span as ``traceparent``.
    """

    def __init__(
        self, provider: str, endpoint: Any, options: Mapping[str, Any], propagate: bool
    ) -> None:
        taken = sorted(_OURS & options.keys())
        if taken:
            raise InvalidSetting(
                f"options of {provider}: {', '.join(taken)} cannot be one, the provider says it"
            )
        self._provider = provider
        self._endpoint = endpoint
        self._options = {name: value for name, value in options.items() if value is not None}
        self._propagate = propagate

    async def ask(self, arguments: dict[str, Any], ids: Ids) -> dict[str, Any]:
        """The JSON object with which the API answers. Raises ProviderFailed, InvalidSetting."""
        with self._opening():
            raw = await self._endpoint.with_raw_response.create(**self._with(arguments, ids))
        content: bytes = await raw.http_response.aread()
        try:
            body = msgspec.json.decode(content)
        except ValueError as error:
            found = content[: sdk_failing.PROBLEM_CHARACTERS].decode(errors="replace")
            raise sdk_failing.garbage(self._provider, found) from error
        return self._checked(body)

    async def listen(
        self, arguments: dict[str, Any], ids: Ids
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed answer, as JSON objects. Raises ProviderFailed, InvalidSetting.

        The connection is closed at the end, also of a reader that is cancelled or stops early.
        """
        with self._opening():
            stream = await self._endpoint.create(stream=True, **self._with(arguments, ids))
        try:
            with self._reading():
                async for event in stream:
                    to_dict = getattr(event, "to_dict", None)
                    yield self._checked(event if to_dict is None else to_dict(warnings=False))
        finally:
            await stream.close()

    def _with(self, arguments: dict[str, Any], ids: Ids) -> dict[str, Any]:
        headers = dict(self._options.get("extra_headers", ()))
        parent = ids.traceparent() if self._propagate else None
        if parent is not None:
            headers["traceparent"] = parent
        return {**self._options, **arguments, "extra_headers": headers}

    def _checked(self, body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise sdk_failing.unusable(self._provider, "an object", body)
        if isinstance(body.get("error"), dict | str):
            raise sdk_failing.told(self._provider, body)
        return body

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self._reading(opening=True):
                yield
        except (TypeError, ValueError) as error:
            # Before anything is sent: an argument that this release of the SDK does not take.
            raise InvalidSetting(
                f"the SDK of {self._provider} did not take the request: {error}; check the "
                "options, the API key, and the SDK's version"
            ) from error

    @contextmanager
    def _reading(self, opening: bool = False) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if opening and isinstance(error, TypeError | ValueError):
                raise
            failed = sdk_failing.failure(self._provider, error)
            if failed is None:
                raise
            raise failed from error


class Client(msgspec.Struct, frozen=True):
    """An SDK's client without its own retries: each attempt is a call of its own in the log.

    ``made`` says that it was made here, so that nobody else closes it.
    """

    sdk: Any
    made: bool

    async def aclose(self) -> None:
        """Close a client that was made here; a host's own stays open."""
        if self.made:
            await self.sdk.close()


def without_retries(client: Any, kind: str, blocking: type, made: bool) -> Client:
    """The client as it is used here. Raises InvalidSetting for one that is not asynchronous."""
    if isinstance(client, blocking) or not hasattr(client, "with_options"):
        raise InvalidSetting(f"client: expected {kind}, found {type(client).__name__}")
    return Client(client.with_options(max_retries=0), made)


def missing(extra: str, lowest: str, found: str | None = None) -> InvalidSetting:
    """What to say of an SDK that is not there, or is older than ``lowest``."""
    state = "is not installed" if found is None else f"{found} is too old"
    return InvalidSetting(
        f"provider {extra!r}: {extra}>={lowest} is needed and {state}; "
        f"pip install --upgrade 'eventctx[{extra}]'"
    )


def is_older(version: str, lowest: str) -> bool:
    """Whether a version is below another; what stands behind the numbers does not count."""
    return _numbers(version) < _numbers(lowest)


def _numbers(version: str) -> list[int]:
    return [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:3]]


def window(context_window: int | None, max_output_tokens: int | None) -> dict[str, int]:
    """What ``get_info`` says for the budget; nothing where the window is not known.

    Raises InvalidSetting for a window without the largest answer, which the budget needs as well.
    """
    if context_window is None:
        return {}
    info = {"context_window": context_window, "max_output_tokens": max_output_tokens}
    for name, value in info.items():
        if type(value) is not int or value < 1:
            raise InvalidSetting(f"{name}: expected a positive int, found {value!r}")
    return {name: value for name, value in info.items() if value is not None}
