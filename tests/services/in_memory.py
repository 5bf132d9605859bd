"""Where tests keep data without waiting for a disk, whose commits take most of their time.

What a killed process leaves there is the same as on a disk; what a power cut leaves is not.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

_PLACE: Final = Path("/dev/shm")
_LEAST: Final = 4 * 2**30
"""Bytes that must be free there; a container often has 64 MB."""


def memory_folder() -> Path | None:
    """A folder in memory for the ``dir`` of `tempfile`; None, its default, where there is none."""
    if not os.access(_PLACE, os.W_OK) or shutil.disk_usage(_PLACE).free < _LEAST:
        return None
    return _PLACE
