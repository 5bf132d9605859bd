"""Port for rooms that record calls of model APIs themselves: the proxy, and adapters of clients.

A call is read from its bodies here as the importers read it from a file, and a tape is written as
``formats/cassettes/tape.py`` reads it.
"""

from eventctx.importers.formats.amplifier_requests import RequestHistory
from eventctx.importers.formats.cassettes.cassette import model_request
from eventctx.importers.formats.cassettes.rows import cache_marks, plain_form, without_marks
from eventctx.importers.formats.cassettes.tape import KEPT_HEADERS, as_written, header_line
from eventctx.importers.formats.provider_answers import answers, finish_of, joined_answer
from eventctx.importers.source.http_recording import Exchange, events_of, is_stream
from eventctx.importers.source.lines import object_or_empty, text_or_none
from eventctx.importers.source.naming import session_name

__all__ = [
    "KEPT_HEADERS",
    "Exchange",
    "RequestHistory",
    "answers",
    "as_written",
    "cache_marks",
    "events_of",
    "finish_of",
    "header_line",
    "is_stream",
    "joined_answer",
    "model_request",
    "object_or_empty",
    "plain_form",
    "session_name",
    "text_or_none",
    "without_marks",
]
