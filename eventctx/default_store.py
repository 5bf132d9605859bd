"""Where the store is when nobody says otherwise, for the command line and the adapters alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "EVENTCTX_STORE"
"""The environment variable that names the store: a path or a URL."""


def default_path() -> Path:
    """The store in the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_path("eventctx", appauthor=False)) / "contexts.db"


def default_store() -> str:
    """The store that the environment names, else the one in the user's data folder."""
    return os.environ.get(ENVIRONMENT) or str(default_path())
