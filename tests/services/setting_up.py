"""Our server and hooks in the settings of a real program, as ``eventctx setup`` writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def set_up(host: str, home: Path, *options: str, **variables: str) -> str:
    """Run it for one program in a home, with this checkout's program; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "eventctx.cli", "setup", host, "--yes", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout
