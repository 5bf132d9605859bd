"""Locates a store by URL or path; without one, by the environment or the user's data folder."""

from __future__ import annotations

import os
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import is_text, shown
from eventctx.log.private_files import make_folder
from eventctx.log.store import EventStore
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.text import without_password

ENVIRONMENT: Final = "EVENTCTX_STORE"
"""The environment variable that names the store: a path or a URL."""


class _Server(NamedTuple):
    """The store of a scheme: the extra with its driver, its module and its class."""

    extra: str
    module: str
    store: str


_POSTGRES: Final = _Server("postgres", "eventctx.stores.postgres.store", "PostgresStore")
_JETSTREAM: Final = _Server("nats", "eventctx.stores.jetstream.store", "JetStreamStore")
SERVERS: Final = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "nats": _JETSTREAM,
    "tls": _JETSTREAM,
}
"""The stores on servers, by the schemes of their URLs."""

_DURABILITIES: Final = {
    _POSTGRES: ("local", "replicated"),
    _JETSTREAM: (),
}
_OF_FILES: Final = ("full", "normal")

EXPECTED: Final = "a path, sqlite:///PATH, memory://, postgresql://… or nats://…"


def is_on_a_server(url: str) -> bool:
    """Whether a store's URL is that of a server, and not of a file or of this process."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in SERVERS


def durabilities(url: str) -> tuple[str, ...]:
    """The values of ``durability`` for the store at a URL, its default first."""
    return _DURABILITIES[SERVERS[url.partition("://")[0]]] if is_on_a_server(url) else _OF_FILES


def default_path() -> Path:
    """The path of the store in the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_path("eventctx", appauthor=False)) / "contexts.db"


def default_tapes() -> Path:
    """The folder of the tapes of recorded programs in the user's data folder."""
    return default_path().parent / "recordings"


def default_book(store: Path) -> Path:
    """The path of a store's receipts in the user's state folder; ``store`` is its ``cache_path``.

    A file has its receipts by its own path, a store on a server by its own id.
    """
    import platformdirs

    if store.parent == _server_caches():
        named = store.name
    else:
        named = sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:32]
    folder = Path(platformdirs.user_state_path("eventctx", appauthor=False))
    return folder / "receipts" / f"{named}.jsonl"


def default_key() -> Path:
    """The path of the key in the user's state folder with which caches are sealed."""
    import platformdirs

    return Path(platformdirs.user_state_path("eventctx", appauthor=False)) / "cache.key"


def default_setup() -> Path:
    """The folder of what `setup` wrote for other programs, in the user's state folder."""
    import platformdirs

    return Path(platformdirs.user_state_path("eventctx", appauthor=False)) / "setup"


def book_of(
    store: EventStore, receipts: bool | str | os.PathLike[str], *, read_only: bool
) -> ReceiptBook | None:
    """A store's book of receipts: True names its own, a path another; None for none.

    Raises InvalidSetting for a path in the folder of a user that there is not.
    """
    kept = store.cache_path
    if receipts is False or kept is None:
        return None
    if receipts is True:
        return ReceiptBook(default_book(kept), read_only=read_only)
    path = Path(in_users_folder(os.fspath(receipts), "receipts"))
    return ReceiptBook(path, read_only=read_only)


def default_store() -> str:
    """The store that the environment names, else the one in the user's data folder.

    Raises InvalidSetting for ``~name`` if there is no such user.
    """
    named = os.environ.get(ENVIRONMENT)
    return in_users_folder(named) if named else str(default_path())


def in_users_folder(store: str, setting: str = "store") -> str:
    """``store`` with a leading ``~`` of its path expanded, since no shell has seen it.

    Raises InvalidSetting, which names ``setting``, for ``~name`` if there is no such user.
    """
    head, separator, path = ("", "", store)
    if store.startswith("sqlite:///"):
        head, separator, path = store.partition(":///")
    if not path.startswith("~"):
        return store
    try:
        return head + separator + str(Path(path).expanduser())
    except RuntimeError as error:
        raise InvalidSetting(
            f"{setting}: expected the folder of a user of this machine, found {store!r}"
        ) from error


def cache_base(kind: str, store_id: str) -> Path:
    """Path prefix of the local cache files of a store on a server, in a private folder.

    ``store_id`` is stored there, so another store at the same address has other caches.
    """
    folder = _server_caches()
    make_folder(folder)
    return folder / f"{kind}-{store_id}"


def _server_caches() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_path("eventctx", appauthor=False)) / "stores"


def path_or_url(url: object) -> str:
    """The name of a store, as a text. Raises InvalidSetting for anything else."""
    path = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    if not isinstance(path, str) or not is_text(path) or "\0" in path:
        raise InvalidSetting(f"store: expected {EXPECTED}, found {shown(url)}")
    return path


async def open_store(url: str, **options: Any) -> EventStore:
    """Open the store at a URL or path.

    Raises NotAStore, StoreTooNew, StoreUnavailable, StoreUnsafe, InvalidSetting.
    """
    if url in ("memory://", ":memory:"):
        if options.get("read_only"):
            raise InvalidSetting(f"read_only: expected a store that there is, found {url}")
        from eventctx.stores.memory import MemoryStore

        return MemoryStore()
    url = in_users_folder(url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        _check_no_url(url)
        path = url
    elif scheme in SERVERS:
        return await _on_a_server(url, SERVERS[scheme], options)
    elif scheme == "sqlite":
        path = rest.removeprefix("/")
    else:
        raise InvalidSetting(f"store: expected {EXPECTED}, found {without_password(url)!r}")
    if not path:
        raise InvalidSetting(f"store: expected a path after sqlite:///, found {url!r}")
    from eventctx.stores.sqlite import SqliteStore

    return await SqliteStore.open(Path(path), **options)


def _check_no_url(path: str) -> None:
    """Raise InvalidSetting for a path that is meant as a URL: a file would get that odd name."""
    scheme = path.partition(":")[0]
    meant = {"memory": "memory://", "sqlite": "sqlite:///PATH"}
    meant |= {name: f"{name}://HOST/…" for name in SERVERS}
    if scheme in meant and path.partition(":")[1]:
        raise InvalidSetting(f"store: expected {meant[scheme]}, found {without_password(path)!r}")


async def _on_a_server(url: str, server: _Server, options: dict[str, Any]) -> EventStore:
    # Waiting for another process's lock is a matter of files.
    options = {name: value for name, value in options.items() if name != "lock_timeout"}
    try:
        # By name, so that only users of a store load its driver.
        store = getattr(import_module(server.module), server.store)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("eventctx"):
            raise
        raise InvalidSetting(
            f"store: expected the driver that {without_password(url)} needs, found no package "
            f"{error.name!r}: run pip install 'eventctx[{server.extra}]'"
        ) from error
    return cast(EventStore, await store.open(url, **options))
