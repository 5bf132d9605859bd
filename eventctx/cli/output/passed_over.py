"""What a listing could not read, said on stderr behind its full output."""

from __future__ import annotations

from eventctx.cli.output.plain import one_line, plural
from eventctx.cli.output.program import FOUND, CommandFailed, complain
from eventctx.queries.read_errors import ReadErrors


def tell(errors: ReadErrors) -> None:
    """Say what was passed over. Raises CommandFailed where it is damage.

    An error that is none of the library's own is raised again: it is a bug, to be reported.
    """
    for aside in errors.asides:
        complain(one_line(aside))
    for what, count in errors.later.items():
        complain(
            f"{plural(count, 'record')} passed over: {what}, written by a later release; "
            "update eventctx to read what is missing here"
        )
    for problem in errors.damaged:
        complain(f"{problem}; passed over; `eventctx verify` lists all damage")
    if errors.broken:
        raise errors.broken[0]
    if errors.damaged:
        raise CommandFailed(FOUND)
