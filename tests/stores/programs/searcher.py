"""Fills the search index of a store and prints how many messages hold a word.

Arguments: path of the store, word, how often to delete the index and begin anew.
"""

import asyncio
import os
import sys
from pathlib import Path

from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.stores.sqlite import SqliteStore


async def main() -> None:
    path = Path(sys.argv[1])
    store = await SqliteStore.open(path)
    recall = Recall(store, SqliteTextIndex(path))
    for left in range(int(sys.argv[3]), -1, -1):
        found = await recall.search(sys.argv[2], limit=1000)
        os.write(1, f"{len(found)}\n".encode())
        if left:
            path.with_name(path.name + ".eventctx-recall").unlink(missing_ok=True)
    await recall.close()
    await store.close()


asyncio.run(main())
