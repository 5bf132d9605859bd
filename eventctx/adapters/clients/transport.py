"""The transport of a wrapped client: it sends through the caller's HTTP client, and records.

Anthropic's and OpenAI's SDKs are built on a client of httpx or httpx2. A copy of the SDK's client
gets an HTTP client of the same library whose transport is the caller's own one, with its pool,
proxies and hooks. So every method of the SDK, its retries, streams and errors are as before.

Invariant: the answer is the response of the caller's client, the same object. Its stream is
replaced by one that passes on each iteration and each close of the stream before, and keeps a copy.
No library is imported here: it is the one of the client that is wrapped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from eventctx.messages.native_compaction import BETA_HEADER, with_beta

_SIGNED: Final = "AWS4-"
"""Prefix of the authorization of a request that holds a digest of its body."""

_recording: Final[WeakSet[Any]] = WeakSet()


class OwnRequest(NamedTuple):
    """A request of ours, like one of the caller's: its body, and what is added to its path.

    ``beta`` is what Anthropic's API needs for it.
    """

    content: bytes
    suffix: str = ""
    beta: str | None = None


Again = Callable[[OwnRequest], Any]
"""Sends a request of ours with the caller's client; returns, or awaits, its status and body."""


class Leaving(NamedTuple):
    """A request that is about to leave to ``url``; ``content`` is None for a GET.

    ``replaceable``: its body may be another one; a body that was signed may not. ``again`` sends
    another request like it (``Again``).
    """

    path: str
    content: bytes | None
    replaceable: bool
    url: str = ""
    again: Again | None = None


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

    def left(self, call: Any, status: int, content: bytes | None, error: None) -> None:
        """As ``ended``, of a stream that is collected: nothing may wait for it there."""
        ...

    def close(self) -> Any:
        """The client was closed, and with it each answer that is still read."""
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
        max_redirects=inner.max_redirects,
        default_encoding=getattr(inner, "_default_encoding", "utf-8"),
        trust_env=False,  # the caller's client has read the environment
    )
    _recording.add(made)
    return made


def is_recording(client: Any) -> bool:
    """Whether ``recording_client`` made this client."""
    return client in _recording


class _Body:
    """The stream of an answer's body, with its received part. Its end is reported once.

    A stream may be iterated again, which reads on where the iteration before it is: so an SDK
    drains what follows the last event. Each iteration here is one of the caller's own stream.
    """

    def __init__(self, library: Any, response: Any, call: Any, observer: Observer) -> None:
        self._library = library
        self._stream = response.stream
        self._headers = response.headers
        self._status = response.status_code
        self._call = call
        self._observer = observer
        self._pieces: list[bytes] = []
        self._told = False
        call.received = self._received

    def _keep(self, piece: bytes) -> None:
        if not self._told:
            self._pieces.append(piece)

    def _received(self) -> bytes:
        """The body so far, unpacked as far as it came."""
        packed = self._library.Response(200, headers=self._headers, content=iter(self._pieces))
        found: list[bytes] = []
        try:
            for piece in packed.iter_bytes():
                found.append(piece)  # noqa: PERF402 - what came before a fault counts
        except self._library.DecodingError:  # a body that was cut in the middle of a packed block
            pass
        return b"".join(found)

    def _tell(
        self, error: BaseException | None = None, tell: Callable[..., Any] | None = None
    ) -> Any:
        """A stream that is left or cancelled is no error: what came of it may be the answer."""
        if self._told:
            return None
        self._told = True
        content = self._received()
        self._pieces.clear()
        failure = error if isinstance(error, Exception) else None
        return (tell or self._observer.ended)(self._call, self._status, content, failure)


class _AsyncBody(_Body):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._stream.__aiter__()
        try:
            try:
                async for piece in stream:
                    self._keep(piece)
                    yield piece
            finally:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()
        except GeneratorExit:  # nothing may be awaited: all generators of a stream end at once
            self._tell(tell=self._observer.left)
            raise
        except BaseException as error:  # httpx 0.28 closes no response whose iteration ends so
            await _awaited(self._tell(error))
            raise

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            await _awaited(self._tell())


class _SyncBody(_Body):
    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._keep(piece)
                yield piece
        except GeneratorExit:
            self._tell(tell=self._observer.left)
            raise
        except BaseException as error:  # as above
            self._tell(error)
            raise

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._tell()


class _Sending:
    """The common part of both transports."""

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
        again = partial(self._again, request)
        return self._observer.begin(Leaving(path, content, not signed, str(request.url), again))

    def _again(self, request: Any, own: OwnRequest) -> Any:
        raise NotImplementedError

    def _to_send(self, request: Any, call: Any) -> Any:
        if call is None or call.content is None:
            return request
        return self._like(request, OwnRequest(call.content, beta=call.beta))

    def _like(self, request: Any, own: OwnRequest) -> Any:
        left_out = {b"content-length", *([b"anthropic-beta"] if own.beta else [])}
        headers = [
            (name, value) for name, value in request.headers.raw if name.lower() not in left_out
        ]
        if own.beta:
            betas = with_beta(request.headers.get(BETA_HEADER), own.beta) or ""
            headers.append((b"anthropic-beta", betas.encode()))
        path = request.url.path.rstrip("/") + own.suffix
        return self._library.Request(
            request.method,
            request.url.copy_with(path=path) if own.suffix else request.url,
            headers=headers,
            content=own.content,
            extensions=request.extensions,
        )

    def _observed(self, response: Any, call: Any) -> Any:
        """Observe the body as it is read; where it was read already, tell of it."""
        if call is None:
            return None
        if response.is_closed:  # a hook of the caller's client has read it
            content = _content(response, self._library.ResponseNotRead)
            return self._observer.ended(call, response.status_code, content, None)
        response.stream = self._stream(self._library, response, call, self._observer)
        return None


class _AsyncTransport(_Sending):
    async def _again(self, request: Any, own: OwnRequest) -> tuple[int, bytes]:
        response = await self._inner.send(self._like(request, own), follow_redirects=False)
        return response.status_code, response.content

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
        await _awaited(self._observed(response, call))
        return response

    async def aclose(self) -> None:
        """Close the caller's client."""
        try:
            await self._inner.aclose()
        finally:
            await _awaited(self._observer.close())

    async def __aenter__(self) -> _AsyncTransport:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _Transport(_Sending):
    def _again(self, request: Any, own: OwnRequest) -> tuple[int, bytes]:
        response = self._inner.send(self._like(request, own), follow_redirects=False)
        return response.status_code, response.content

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
        self._observed(response, call)
        return response

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


def _content(response: Any, not_read: type[Exception]) -> bytes:
    """The body of a closed response; empty where it was closed unread."""
    try:
        return response.content  # type: ignore[no-any-return]
    except not_read:
        return b""


async def _awaited(value: Awaitable[Any] | None) -> Any:
    return None if value is None else await value
