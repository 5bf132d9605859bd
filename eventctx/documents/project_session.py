"""The session that was last active in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventctx.documents.session_list import ordered, summed_sessions
from eventctx.documents.session_texts import project_of
from eventctx.documents.unread import ReadErrors
from eventctx.errors import StreamNotFound
from eventctx.log.store import StreamInfo

if TYPE_CHECKING:
    from eventctx.engine import Engine

_NAMED: Final = 3


async def last_in_project(engine: Engine, folder: Path) -> StreamInfo:
    """The session last active in ``folder`` (resolved), or in one around it; no subagent's.

    Only imported sessions name their folder. Raises StreamNotFound, with the last sessions of the
    store, where none named this one.
    """
    found = ordered(await summed_sessions(engine, ReadErrors()), "last")
    own = [one for one in found if one.sums.belongs_to is None]
    for info, sums in own:
        project = await project_of(engine, info.stream, sums)
        if project is not None and (folder == (at := Path(project)) or at in folder.parents):
            return info
    error = StreamNotFound("")
    names = " or ".join(repr(one.info.stream) for one in own[:_NAMED])
    known = f"name one, such as {names}" if names else "the store holds none yet"
    error.args = (f"no session of this store was used in {folder}: {known}",)
    raise error
