"""Profile a message and a request, and write the page and its pictures."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.benchmarks.blocks import filled
from tests.benchmarks.place import Place
from tests.benchmarks.profile import page, stacks
from tests.benchmarks.profile.work import Spent

SAMPLES_A_SECOND: Final = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.profile")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long to work (40)")
    parser.add_argument(
        "--dir", type=Path, default=Path.cwd(), help="whose disk the session lies on (this one)"
    )
    given = parser.parse_args()
    with Place(given.dir, quick=False) as place:
        text, spent = profiled(place.folder, given.seconds)
    steps = stacks.by_step(text, spent)
    page.PAGE.write_text(
        filled(page.PAGE.read_text("utf-8"), "profile", page.blocks(steps, spent)), "utf-8"
    )
    for name, picture in page.pictures(steps).items():
        (page.FOLDER / name).write_text(picture, "utf-8")
    print(f"wrote {page.PAGE}")


def profiled(folder: Path, seconds: float) -> tuple[str, dict[str, Spent]]:
    """The stacks that the profiler saw, and what the clocks of the work said."""
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        sys.exit("py-spy is missing: `make profile` installs it, and so does the extra bench")
    seen = folder / "stacks.txt"
    # Not stopping the process keeps sleepers asleep; a stack that changed meanwhile is an error
    # that py-spy leaves out.
    subprocess.run(
        [
            spy, "record", "--nonblocking", "--threads", "--function", "--full-filenames",
            "--format", "raw", "--rate", str(SAMPLES_A_SECOND), "--output", str(seen), "--",
            sys.executable, "-m", "tests.benchmarks.profile.work", str(folder), str(seconds),
        ],
        check=True,
    )  # fmt: skip
    spent = msgspec.json.decode((folder / "spent.json").read_bytes(), type=dict[str, Spent])
    return seen.read_text("utf-8"), spent


if __name__ == "__main__":
    main()
