"""The program's entry point: Ctrl-C stops it cleanly even while it still loads."""

from __future__ import annotations

import sys


def main() -> None:
    """Load the program and run it."""
    try:
        from eventctx.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("eventctx: stopped\n")
        sys.exit(130)
    run()
