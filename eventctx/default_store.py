"""Where the store is when nobody says otherwise, for the command line and the adapters alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from eventctx.errors import InvalidSetting

ENVIRONMENT: Final = "EVENTCTX_STORE"
"""The environment variable that names the store: a path or a URL."""


def default_path() -> Path:
    """The store in the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_path("eventctx", appauthor=False)) / "contexts.db"


def default_store() -> str:
    """The store that the environment names, else the one in the user's data folder.

    Raises InvalidSetting for a ``~`` of nobody.
    """
    named = os.environ.get(ENVIRONMENT)
    return in_users_folder(named) if named else str(default_path())


def in_users_folder(store: str, setting: str = "store") -> str:
    """A path or URL with ``~`` put in full, which no shell did. Raises InvalidSetting."""
    head, separator, path = ("", "", store)
    if store.startswith("sqlite:///"):
        head, separator, path = store.partition(":///")
    if not path.startswith("~"):
        return store
    try:
        return head + separator + str(Path(path).expanduser())
    except RuntimeError as error:
        raise InvalidSetting(
            f"{setting}: expected the folder of a user of this machine, found {store!r}"
        ) from error
