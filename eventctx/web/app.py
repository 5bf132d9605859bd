"""The application: the gate, the page's files, and the answers behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eventctx.errors import (
    DecodeError,
    EventctxError,
    InvalidSessionId,
    InvalidSetting,
    LogCorrupted,
    StoreError,
    StreamNotFound,
)
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.queries.encoding import encode
from eventctx.reader import Reader
from eventctx.text import without_password
from eventctx.web.access import Access
from eventctx.web.answers import PageAnswers
from eventctx.web.guard import App, Guard
from eventctx.web.page_files import PageFile
from eventctx.web.store_file import StoreGone

SCREENS: Final = ("lost", "compare", "search", "integrity")
"""The screens of a session besides its own; the page itself finds out which one is asked for."""


class Inspector:
    """The inspector of one reader. ``app`` is the ASGI application, with its gate."""

    def __init__(
        self,
        reader: Reader,
        access: Access,
        page: Mapping[str, PageFile],
        *,
        url: str,
        path: Path | None,
        port: int,
        host: str = "127.0.0.1",
        start: str = "/",
        reveal: bool = False,
    ) -> None:
        self._page = page
        self._redactor = ResultRedactor(reveal=reveal)
        self._answers = PageAnswers(reader, url, path, self._redactor)
        inner = Starlette(
            routes=[*self._pages(), *self._answers.routes()],
            exception_handlers={
                EventctxError: self._refused,
                HTTPException: self._no_route,
                Exception: self._broken,
            },
        )
        inner.router.redirect_slashes = False
        self.app: App = Guard(inner, access, port=port, host=host, start=start)

    def end(self) -> None:
        """End all streams, so that the server can."""
        self._answers.streams.over.set()

    async def close(self) -> None:
        """Release what answers questions, once the server has ended."""
        await self._answers.close()

    def _pages(self) -> list[Route]:
        paths = ("/", "/search", "/s/{name}", *(f"/s/{{name}}/{screen}" for screen in SCREENS))
        return [
            *[Route(path, self._index) for path in paths],
            *[Route(f"/page/{name}", _serving(file)) for name, file in self._page.items()],
            Route("/favicon.ico", _nothing),
        ]

    async def _index(self, request: Request) -> Response:
        file = self._page["index.html"]
        return Response(file.data, media_type=file.content_type)

    async def _refused(self, request: Request, error: Exception) -> Response:
        text = self._redactor.text(without_password(str(error)))
        return _error(_status(error), text)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _error(status, "there is nothing at this address")

    async def _broken(self, request: Request, error: Exception) -> Response:
        return _error(500, "this is a bug in eventctx; the terminal says more")


def _serving(file: PageFile) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        return Response(file.data, media_type=file.content_type)

    return serve


async def _nothing(request: Request) -> Response:
    return Response(status_code=204)


def _status(error: Exception) -> int:
    match error:
        case StreamNotFound():
            return 404
        case InvalidSetting() | InvalidSessionId():
            return 400
        case LogCorrupted() | DecodeError():
            return 409
        case StoreGone():
            return 410
        case StoreError():
            return 500
    return 400


def _error(status: int, text: str) -> Response:
    return Response(encode({"error": text}), status, media_type="application/json")
