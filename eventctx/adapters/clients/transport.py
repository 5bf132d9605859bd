"""The transport of a wrapped client: it sends through the caller's HTTP client, and records.

Anthropic's and OpenAI's SDKs are built on a client of httpx or httpx2. A copy of the SDK's client
gets an HTTP client of the same library whose transport is the caller's own one, with its pool,
proxies and hooks. So every method of the SDK, its retries, streams and errors are as before.
No library is imported here: it is the one of the client that is wrapped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

_PACKING: Final = ("content-encoding", "content-length", "transfer-encoding")
_SIGNED: Final = "AWS4-"
"""How the authorization of a request begins that holds a digest of its body."""

_recording: Final[WeakSet[Any]] = WeakSet()


class Leaving(NamedTuple):
    """A request that is about to leave; ``content`` is None for a GET.

    ``replaceable``: its body may be another one; a body that was signed may not.
    """

    path: str
    content: bytes | None
    replaceable: bool


class Observer(Protocol):
    """Hears of the calls. Its methods never raise, but for a cancellation."""

    def begin(self, request: Leaving) -> Any:
        """What it returns has the ``content`` to send, if another than the caller's.

        ``received`` of it is set to a function that returns what came of the answer's body so far.
        """
        ...

    def ended(
        self, call: Any, status: int, content: bytes | None, error: BaseException | None
    ) -> Any:
        """The answer's body was read, as far as it came; ``content`` None: there was none."""
        ...

    def close(self) -> None:
        """The client was closed."""
        ...


def library_of(client: Any) -> Any:
    """The HTTP library of a client. Raises LookupError for a client of another kind."""
    names = {"AsyncClient", "Client"}
    home = next((one.__module__ for one in type(client).__mro__ if one.__name__ in names), None)
    if home is None:
        raise LookupError(type(client).__name__)
    return import_module(home.partition(".")[0])


def is_async(client: Any) -> bool:
    """Whether an HTTP client is the one for async."""
    return hasattr(client, "aclose")


def recording_client(inner: Any, observer: Observer) -> Any:
    """An HTTP client that sends through ``inner``, and tells ``observer``."""
    library = library_of(inner)
    kind, transport = (
        (library.AsyncClient, _AsyncTransport) if is_async(inner) else (library.Client, _Transport)
    )
    made = kind(
        transport=transport(library, inner, observer),
        headers=inner.headers,
        cookies=inner.cookies,
        params=inner.params,
        timeout=inner.timeout,
        base_url=inner.base_url,
        follow_redirects=inner.follow_redirects,
        trust_env=False,  # the caller's client has read the environment
    )
    _recording.add(made)
    return made


def is_recording(client: Any) -> bool:
    """Whether ``recording_client`` made this client."""
    return client in _recording


class _Body:
    """What came of an answer's body, and what is told of it once."""

    def __init__(
        self, library: Any, response: Any, headers: Any, call: Any, observer: Observer
    ) -> None:
        self._library = library
        self._response = response
        self._call = call
        self._observer = observer
        self._pieces: list[bytes] = []
        self._told = call is None
        self._headers = headers
        if call is not None:
            call.received = self._received

    def _received(self) -> bytes:
        """The body so far, as it is meant and not as it was packed."""
        content = b"".join(self._pieces)
        try:
            whole = self._library.Response(200, headers=self._headers, content=content)
            found: bytes = whole.content
        except Exception:  # a body that was cut in the middle of a packed block
            return content
        return found

    def _tell(self, error: BaseException | None = None) -> Any:
        if self._told:
            return None
        self._told = True
        content = self._received()
        self._pieces.clear()
        return self._observer.ended(self._call, self._response.status_code, content, error)


class _AsyncBody(_Body):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            read = self._response.is_stream_consumed
            raw = _one(self._response.content) if read else self._response.aiter_raw()
            async for piece in raw:
                if not self._told:
                    self._pieces.append(piece)
                yield piece
        except Exception as error:
            await _awaited(self._tell(error))
            raise
        await _awaited(self._tell())

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            await _awaited(self._tell())


class _SyncBody(_Body):
    def __iter__(self) -> Iterator[bytes]:
        try:
            read = self._response.is_stream_consumed
            for piece in [self._response.content] if read else self._response.iter_raw():
                if not self._told:
                    self._pieces.append(piece)
                yield piece
        except Exception as error:
            self._tell(error)
            raise
        self._tell()

    def close(self) -> None:
        try:
            self._response.close()
        finally:
            self._tell()


class _Sending:
    """What both transports do."""

    def __init__(self, library: Any, inner: Any, observer: Observer) -> None:
        self._library = library
        self._inner = inner
        self._observer = observer
        stream = library.AsyncByteStream if is_async(inner) else library.SyncByteStream
        body = _AsyncBody if is_async(inner) else _SyncBody
        self._stream: Callable[..., Any] = type("RecordedStream", (body, stream), {})

    def _begin(self, request: Any) -> Any:
        path = request.url.path
        if request.method == "GET":
            # An answer that is made in the background is asked for again.
            asks = "/responses/" in path
            return self._observer.begin(Leaving(path, None, False)) if asks else None
        if request.method != "POST":
            return None
        try:
            content = request.content
        except self._library.RequestNotRead:  # an upload, which no model is asked with
            return None
        signed = request.headers.get("authorization", "").startswith(_SIGNED)
        return self._observer.begin(Leaving(path, content, not signed))

    def _to_send(self, request: Any, call: Any) -> Any:
        if call is None or call.content is None:
            return request
        headers = [
            (name, value)
            for name, value in request.headers.raw
            if name.lower() != b"content-length"
        ]
        return self._library.Request(
            request.method,
            request.url,
            headers=headers,
            content=call.content,
            extensions=request.extensions,
        )

    def _passed_on(self, response: Any, call: Any) -> Any:
        headers = response.headers
        if response.is_stream_consumed:  # a hook of the caller's client has read and unpacked it
            headers = [one for one in headers.multi_items() if one[0] not in _PACKING]
        return self._library.Response(
            response.status_code,
            headers=headers,
            stream=self._stream(self._library, response, headers, call, self._observer),
            extensions=response.extensions,
        )


class _AsyncTransport(_Sending):
    async def handle_async_request(self, request: Any) -> Any:
        """Send a request through the caller's client."""
        call = await _awaited(self._begin(request))
        try:
            response = await self._inner.send(
                self._to_send(request, call), stream=True, follow_redirects=False
            )
        except BaseException as error:
            await _awaited(self._observer.ended(call, 0, None, error))
            raise
        return self._passed_on(response, call)

    async def aclose(self) -> None:
        """Close the caller's client."""
        try:
            await self._inner.aclose()
        finally:
            self._observer.close()

    async def __aenter__(self) -> _AsyncTransport:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _Transport(_Sending):
    def handle_request(self, request: Any) -> Any:
        """Send a request through the caller's client."""
        call = self._begin(request)
        try:
            response = self._inner.send(
                self._to_send(request, call), stream=True, follow_redirects=False
            )
        except BaseException as error:
            self._observer.ended(call, 0, None, error)
            raise
        return self._passed_on(response, call)

    def close(self) -> None:
        """Close the caller's client."""
        try:
            self._inner.close()
        finally:
            self._observer.close()

    def __enter__(self) -> _Transport:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


async def _one(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


async def _awaited(value: Awaitable[Any] | None) -> Any:
    return None if value is None else await value
