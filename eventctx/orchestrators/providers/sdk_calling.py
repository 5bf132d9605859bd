"""One request to an endpoint of an SDK's client, and its answer in the API's own JSON.

The JSON is used rather than the SDK's objects, so that an answer is stored as it came, also with
fields that this release of the SDK does not know.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.messages.encoding import MAX_DEPTH, decode_json, is_deeper
from eventctx.messages.native_compaction import BETA_HEADER, with_beta
from eventctx.orchestrators.protocol import Ids
from eventctx.orchestrators.providers import failures
from eventctx.text import clip

_OURS: Final = frozenset(("messages", "input", "model", "stream"))
_OF_TOOLS: Final = frozenset(("tool_choice", "parallel_tool_calls"))
"""Options that the APIs refuse in a request without tools."""


class Connection:
    """Asks ``endpoint``, an SDK's resource with a ``create`` method.

    ``options`` go into each request as they are, except those that are None, and those about tools
    where the request has none. With ``propagate`` a request carries its span as ``traceparent``.
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
        self.extra_body = dict(self._options.get("extra_body") or {})
        """What of each request the SDK does not name."""
        self._propagate = propagate

    async def ask(
        self,
        arguments: dict[str, Any],
        ids: Ids,
        without: Container[str] = (),
        call: str = "create",
    ) -> dict[str, Any]:
        """The JSON object of the API's answer. Raises ProviderFailed, InvalidSetting.

        ``call`` is the method of the endpoint, which does not take the options ``without``.
        """
        given = self._with(arguments, ids)
        given = {name: one for name, one in given.items() if name not in without}
        with self._opening():
            raw = await getattr(self._endpoint.with_raw_response, call)(**given)
        content: bytes = await raw.http_response.aread()
        try:
            body = decode_json(content)
        except ValueError as error:
            found = content[: failures.PROBLEM_CHARACTERS].decode(errors="replace")
            raise failures.garbage(self._provider, found) from error
        return self._checked(body)

    async def listen(
        self, arguments: dict[str, Any], ids: Ids
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed answer, as JSON objects. Raises ProviderFailed, InvalidSetting.

        The connection is closed at the end, also when the reader is cancelled or stops early.
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
        beta = arguments.pop(BETA_HEADER, None)
        if beta is not None:
            names = [name for name in headers if name.lower() == BETA_HEADER]
            given = headers.pop(names[0]) if names else None
            headers[BETA_HEADER] = with_beta(given, beta)
        parent = ids.traceparent() if self._propagate else None
        if parent is not None:
            headers["traceparent"] = parent
        options = self._options
        if "tools" not in arguments and "extra_body" not in options:
            options = {name: value for name, value in options.items() if name not in _OF_TOOLS}
        return {**options, **arguments, "extra_headers": headers}

    def _checked(self, body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise failures.unusable(self._provider, "an object", body)
        if isinstance(body.get("error"), dict | str):
            raise failures.reported(self._provider, body)
        return body

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self._reading(opening=True):
                yield
        except (TypeError, ValueError) as error:
            # The SDK checks arguments before it sends: this release does not take one of them.
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
            failed = failures.failure(self._provider, error)
            if failed is None:
                raise
            raise failed from error


class Client(msgspec.Struct, frozen=True):
    """An SDK's client without its own retries, because each attempt is a call in the log.

    ``made`` is true where it was made here, so that its provider must close it.
    """

    sdk: Any
    made: bool

    async def aclose(self) -> None:
        """Close the client if it was made here; a host's own stays open."""
        if self.made:
            await self.sdk.close()


def client_of(
    given: Any,
    extra: str,
    lowest: str,
    classes: Callable[[], tuple[str, type, type, type[Exception]]],
) -> Client:
    """The given client, or one made from the environment, without its retries.

    ``extra`` is the SDK and our extra for it, ``lowest`` its oldest usable release. ``classes``
    imports the SDK and returns its version, its asynchronous and its blocking client, and its base
    of errors. Raises InvalidSetting.
    """
    try:
        version, kind, blocking, failed = classes()
    except ImportError as error:
        raise _missing(extra, lowest, "is not installed") from error
    if is_older(version, lowest):
        raise _missing(extra, lowest, f"{version} is too old")
    client = given
    if given is None:
        try:
            client = kind()
        except failed as error:
            raise InvalidSetting(
                f"client: none can be made from the environment: {error}"
            ) from error
    if isinstance(client, blocking) or not hasattr(client, "with_options"):
        found = type(client).__name__
        raise InvalidSetting(f"client: expected an {kind.__name__} or None, found {found}")
    return Client(client.with_options(max_retries=0), made=given is None)


def _missing(extra: str, lowest: str, state: str) -> InvalidSetting:
    return InvalidSetting(
        f"provider {extra!r}: {extra}>={lowest} is needed and {state}; "
        f"pip install --upgrade 'eventctx[{extra}]'"
    )


def is_older(version: str, lowest: str) -> bool:
    """Whether a version is below another; a suffix of the numbers does not count."""
    return _numbers(version) < _numbers(lowest)


def _numbers(version: str) -> list[int]:
    return [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:3]]


def window(context_window: int | None, max_output_tokens: int | None) -> dict[str, int]:
    """The return value of ``get_info``; empty if the window is not known.

    Raises InvalidSetting for a window without the largest answer, because the budget needs both.
    """
    if context_window is None:
        return {}
    info = {"context_window": context_window, "max_output_tokens": max_output_tokens}
    for name, value in info.items():
        if type(value) is not int or value < 1:
            raise InvalidSetting(f"{name}: expected a positive int, found {value!r}")
    return {name: value for name, value in info.items() if value is not None}


_SHOWN: Final = 200
_MOST_LEVELS: Final = MAX_DEPTH - 8
"""Levels of nesting of arguments; the others are for the message around them."""


def read_arguments(written: object) -> tuple[dict[str, Any], str | None]:
    """The arguments, and the reason why they cannot be used; an empty text means no arguments.

    ``written`` is a JSON text, or an object, which Anthropic and some servers send.
    """
    value = written
    if isinstance(written, str):
        try:
            value = decode_json(written, _MOST_LEVELS) if written.strip() else {}
        except ValueError as error:
            return {}, f"the arguments are no JSON ({error}): {clip(written, _SHOWN + 1)}"
    if value is not None and not isinstance(value, dict):
        return {}, f"the arguments are no JSON object: {shown(written, _SHOWN)}"
    if is_deeper(value, _MOST_LEVELS):
        return {}, f"the arguments are nested deeper than {_MOST_LEVELS} levels"
    return value or {}, None
