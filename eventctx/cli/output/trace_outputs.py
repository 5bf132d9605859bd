"""The outputs of ``trace``: a Jaeger file, an OTLP file, a collector."""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final, Protocol

from eventctx.aio import in_own_thread
from eventctx.cli.output.plain import size
from eventctx.cli.output.program import complain
from eventctx.cli.output.trace_tree import counted
from eventctx.cli.output.whole_file import whole_file
from eventctx.hooks.otlp import Sender, resource_attributes
from eventctx.projections.trace import files
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.fold import OpenTurns
from eventctx.projections.trace.spans import Span
from eventctx.text import escape_breaks
from eventctx.version import __version__

BATCH: Final = 512
"""Spans in one export and in one line of a file; OpenTelemetry's own batch processor has 512."""


BATCH_TEXT: Final = 4_000_000
"""Characters of text after which a batch is full: with contents, 512 spans may have 250 million."""


def text_of(span: Span) -> int:
    """The characters of a span's texts, by which its size is judged."""
    return sum(len(value) for value in span.attributes.values() if isinstance(value, str))


class Output(Protocol):
    """A destination of spans, with a summary at the end."""

    async def put(self, spans: Sequence[Span]) -> None:
        """Take up to ``BATCH`` spans."""
        ...

    async def finish(self) -> str:
        """End, and return one line with the number of spans and the destination."""
        ...


class JaegerFile:
    """A file that Jaeger's user interface opens. The encoded spans are in memory until the end."""

    def __init__(self, path: Path, file: IO[bytes], resource: dict[str, Attribute]) -> None:
        self._path, self._file, self._resource = path, file, resource
        self._traces: dict[str, list[files.JaegerSpan]] = {}

    async def put(self, spans: Sequence[Span]) -> None:
        """Encode the spans, and keep them by trace."""
        for span in spans:
            encoded = files.jaeger_span(span, __version__)
            self._traces.setdefault(span.trace_id, []).append(encoded)

    async def finish(self) -> str:
        """Write the file; returns the summary."""
        written = 0
        for part in files.jaeger_file(self._traces, self._resource):
            written += self._file.write(part)
        spans = sum(map(len, self._traces.values()))
        what = counted(spans, len(self._traces))
        where = escape_breaks(str(self._path))
        return f"wrote {where}: {what}, {size(written)}; open it in Jaeger's upload tab"


class OtlpFile:
    """A file of OTLP JSON lines."""

    def __init__(self, path: Path, file: IO[bytes], resource: dict[str, Attribute]) -> None:
        self._path, self._file, self._resource = path, file, resource
        self._traces: set[str] = set()
        self._spans = self._written = 0

    async def put(self, spans: Sequence[Span]) -> None:
        """Write a line."""
        line = files.otlp_line(spans, self._resource, __version__)
        self._written += self._file.write(line + b"\n")
        self._spans += len(spans)
        self._traces.update(span.trace_id for span in spans)

    async def finish(self) -> str:
        """Return the summary; the lines are written already."""
        what = counted(self._spans, len(self._traces))
        return f"wrote {escape_breaks(str(self._path))}: {what}, {size(self._written)}"


class Collector:
    """A collector or Jaeger, by OTLP. A batch is sent after the answer to the one before.

    Without ``unfinished``, a session's last turn is left out while it has no end.
    """

    def __init__(self, url: str, *, unfinished: bool = True) -> None:
        # gRPC's core writes what it fails in to stderr; our error says the same, once.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._sender = Sender(url)
        self._open = None if unfinished else OpenTurns()
        self._traces: set[str] = set()
        self._remarked = False

    async def put(self, spans: Sequence[Span]) -> None:
        """Send a batch, and what waited for it. Raises ExportFailed."""
        await self._send(spans if self._open is None else self._open.ready(spans))

    async def _send(self, spans: Sequence[Span]) -> None:
        for at in range(0, len(spans), BATCH):
            await self._batch(spans[at : at + BATCH])

    async def _batch(self, spans: Sequence[Span]) -> None:
        # In a thread of the loop's pool, Ctrl-C would wait for a collector that hangs.
        remark = await in_own_thread(partial(self._sender.send, spans), "eventctx-send")
        self._traces.update(span.trace_id for span in spans)
        if remark and not self._remarked:
            self._remarked = True
            complain(f"{self._sender.shown} took the spans, and says: {remark}")

    async def finish(self) -> str:
        """Return the summary, with the service name under which the spans are found.

        Raises ExportFailed if the collector rejected some of them.
        """
        if self._open is not None:
            await self._send(self._open.rest())
        self._sender.finish()
        what = counted(self._sender.arrived, len(self._traces))
        sent = f"sent {what} to {self._sender.shown}, as service {self._sender.service}"
        return sent + _left_out(0 if self._open is None else self._open.left_out)

    def stopped(self) -> None:
        """Say how much arrived, as Ctrl-C stops the rest."""
        complain(f"{self._sender.arrived:,} spans had arrived at {self._sender.shown}")

    def close(self) -> None:
        """Release the connection."""
        self._sender.close()


def _left_out(turns: int) -> str:
    if turns == 1:
        return "; left out 1 turn that is still open (--unfinished sends it)"
    return f"; left out {turns} turns that are still open (--unfinished sends them)" * (turns > 0)


@contextmanager
def _collector(url: str, unfinished: bool) -> Iterator[Collector]:
    collector = Collector(url, unfinished=unfinished)
    try:
        yield collector
    except CancelledError:
        collector.stopped()
        raise
    finally:
        collector.close()


@contextmanager
def outputs(
    jaeger: Path | None, otlp_file: Path | None, otlp: str | None, *, unfinished: bool
) -> Iterator[list[Output]]:
    """The requested outputs; files appear at the end, and only without an error.

    A collector gets turns that are still open only with ``unfinished``.
    Raises InvalidSetting for a text that is no URL, and for a missing extra.
    """
    resource = resource_attributes()
    with ExitStack() as files:
        found: list[Output] = []
        if otlp is not None:
            found.append(files.enter_context(_collector(otlp, unfinished)))
        if jaeger is not None:
            found.append(JaegerFile(jaeger, files.enter_context(whole_file(jaeger)), resource))
        if otlp_file is not None:
            file = files.enter_context(whole_file(otlp_file))
            found.append(OtlpFile(otlp_file, file, resource))
        yield found
