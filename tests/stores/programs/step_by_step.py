# ruff: noqa: T201
"""Backs a store up or restores one, and is killed before a given step. Arguments:

``backup`` or ``restore``, the file to read, the file to make, and the number of the step, from 0: a
step is a change of names, rights or contents in the new file's folder that Python makes. Prints
"done" if there were fewer steps.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from eventctx.stores.sqlite import SqliteStore

STEPS = ("os.link", "os.rename", "os.remove", "os.chmod", "os.chown", "open")
left = int(sys.argv[4])


def count(event: str, arguments: tuple[object, ...]) -> None:
    global left
    if event in STEPS and str(Path(sys.argv[3]).parent) in str(arguments[0]):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1


async def back_up(source: Path, target: Path) -> None:
    store = await SqliteStore.open(source)
    sys.addaudithook(count)
    await store.backup(target)
    await store.close()


def restore(backup: Path, store: Path) -> None:
    from eventctx.stores.sqlite_backup import fetch_copy, put_in_place

    sys.addaudithook(count)
    with fetch_copy(backup, store) as copy:
        put_in_place(copy, store, replace=True)


if sys.argv[1] == "backup":
    asyncio.run(back_up(Path(sys.argv[2]), Path(sys.argv[3])))
else:
    restore(Path(sys.argv[2]), Path(sys.argv[3]))
print("done")
