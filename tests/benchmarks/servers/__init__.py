"""What the stores on servers cost, on servers that the benchmark starts itself."""

from __future__ import annotations

from typing import Final

SESSIONS: Final = 100
"""Sessions that append at once."""
