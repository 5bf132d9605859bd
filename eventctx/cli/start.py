"""The program's entry point: Ctrl-C stops it cleanly even while it still loads."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Load the program and run it."""
    # In a checkout two folders are symbolic links; git writes text files where there are none.
    link = Path(__file__).parents[1] / "projections"
    if link.is_file():
        sys.stderr.write(
            f"eventctx: expected a symbolic link, found a file: {link}. This checkout was made "
            "without symbolic links. Turn them on (on Windows: developer mode), then run\n"
            "git config core.symlinks true && git checkout -- eventctx\n"
        )
        sys.exit(2)
    try:
        from eventctx.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("eventctx: stopped\n")
        sys.exit(130)
    run()
