"""Posts OTLP requests by HTTP with protobuf, and reads the whole answer: status, type and body."""

from __future__ import annotations

import gzip
import re
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import BadStatusLine
from typing import Final

import requests
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from eventctx.hooks.otlp_answers import ExportAnswer, decoded, decoded_json, environment, excerpt
from eventctx.version import __version__

_SENT: Final = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "gzip",
    "User-Agent": f"eventctx/{__version__}",
}
_PROTOBUF: Final = ("application/x-protobuf", "application/protobuf")
_UNTYPED: Final = ("", "application/octet-stream")
_HTML: Final = ("text/html", "application/xhtml+xml")
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{1,200})<", re.IGNORECASE)
_AGAIN: Final = (429, 502, 503, 504)
"""The statuses after which OTLP wants a request to be sent again."""
_TOO_LARGE: Final = 413
_GRPC: Final = "if that is a port of gRPC, write grpc:// for http://"
_NOT_CONNECTED: Final = ("NewConnectionError", "NameResolutionError")
"""The classes of urllib3, of which requests may bring its own copy."""


class Http:
    """A connection to one URL. Follows no redirect: OTLP has none, and a login page is one."""

    def __init__(self, url: str) -> None:
        found = environment("HTTP")
        self._url = url
        self._session = found.provider or requests.Session()
        self._headers = {**_SENT, **found.headers}
        self._verify = found.certificate or True
        self._cert = (
            (found.client_certificate, found.client_key)
            if found.client_certificate and found.client_key
            else found.client_certificate
        )

    def post(self, request: bytes, seconds: float) -> ExportAnswer:
        """Send a request, and wait for its answer."""
        try:
            response = self._session.post(
                self._url,
                data=gzip.compress(request, 6),
                headers=self._headers,
                timeout=seconds,
                allow_redirects=False,
                verify=self._verify,
                cert=self._cert,
            )
        except (requests.exceptions.RequestException, OSError) as error:
            return _failed(error, seconds)
        return _read(response)

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


def _failed(error: Exception, seconds: float) -> ExportAnswer:
    match error:
        case requests.exceptions.SSLError():
            return ExportAnswer("never", f"no secure connection: {_innermost(error)}")
        case requests.exceptions.ConnectTimeout():
            return ExportAnswer("unreached", f"it could not be reached within {seconds:.1f} s")
        case requests.exceptions.Timeout():
            return ExportAnswer("again", f"it did not answer within {seconds:.1f} s")
        case requests.exceptions.ProxyError():
            return ExportAnswer("again", f"the proxy failed: {_innermost(error)}")
        case requests.exceptions.ConnectionError():
            return _without_answer(error)
        case requests.exceptions.ChunkedEncodingError():
            return ExportAnswer("again", "its answer broke off")
    return ExportAnswer("never", f"{type(error).__name__}: {excerpt(str(error))}")


def _without_answer(error: Exception) -> ExportAnswer:
    causes = _causes(error)
    if any(isinstance(one, ConnectionRefusedError) for one in causes):
        return ExportAnswer("unreached", "connection refused, nobody listens there")
    if any(type(one).__name__ in _NOT_CONNECTED for one in causes):
        return ExportAnswer("unreached", _innermost(error))
    # A connection that was closed is one of a derived class.
    if any(type(one) is BadStatusLine for one in causes):
        return ExportAnswer("never", f"it does not speak HTTP; {_GRPC}")
    why = f"it closed the connection without an answer of HTTP ({_innermost(error)})"
    return ExportAnswer("again", f"{why}; {_GRPC}")


def _causes(error: BaseException) -> list[BaseException]:
    """The error and those behind it, the innermost last."""
    found: list[BaseException] = []
    behind: BaseException | None = error
    while behind is not None and behind not in found:
        found.append(behind)
        behind = behind.__cause__ or behind.__context__
    return found


def _innermost(error: BaseException) -> str:
    last = _causes(error)[-1]
    return excerpt(str(last) or type(last).__name__)


def _read(response: requests.Response) -> ExportAnswer:
    status = response.status_code
    told = f"{status} {response.reason}".rstrip()
    if status < 300:
        return _success(response, told)
    if status < 400:
        place = excerpt(response.headers.get("Location", "nowhere"))
        return ExportAnswer("never", f"it answers {told} and sends to {place}: no OTLP answer")
    words = "" if _kind(response) in _HTML else _words(response)
    says = f"{told}: {words}" if words else told
    if status == _TOO_LARGE:
        return ExportAnswer("too_large", says)
    if status in _AGAIN:
        wait = _retry_after(response.headers.get("Retry-After"))
        later = "" if wait is None else f", to be asked again after {wait:.0f} s"
        return ExportAnswer("again", says + later, wait=wait)
    return ExportAnswer("never", says)


def _success(response: requests.Response, told: str) -> ExportAnswer:
    kind, body = _kind(response), response.content
    if kind in _PROTOBUF or kind in _UNTYPED:
        return decoded(body)
    if kind == "application/json":
        return decoded_json(body)
    if not body and kind not in _HTML:
        return ExportAnswer("taken")
    words = _words(response)
    shown = f" ({words})" if words else ""
    return ExportAnswer("never", f"it answers {told} with {kind}{shown}, which is no OTLP answer")


def _kind(response: requests.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _words(response: requests.Response) -> str:
    """What the body says: a status' message, a page's title, the beginning of a text."""
    kind, body = _kind(response), response.content
    if kind in _PROTOBUF:
        with suppress(DecodeError):
            return excerpt(Status.FromString(body).message)
        return ""
    text = body[:65_536].decode(errors="replace")
    if kind in _HTML:
        title = _TITLE.search(text)
        return f"a page with the title {excerpt(title[1])!r}" if title else "a page"
    return excerpt(text)


def _retry_after(value: str | None) -> float | None:
    """The header's seconds or date as seconds from now."""
    if value is None:
        return None
    with suppress(ValueError, TypeError, OverflowError):
        if value.strip().isdigit():
            return float(value)
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    return None
