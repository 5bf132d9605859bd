"""The mark in a store that an erasure or a deletion has something left to do.

Every opening looks for it, and few find it: so it stands apart from what erases.
"""

from __future__ import annotations

from typing import Final

ERASING: Final = "eventctx:erasing"
"""The checkpoint that is 1 while an erasure or a deletion has something left to do."""
