"""Reading a YAML document with PyYAML, which is an extra: safe values only, and no deep ones."""

from __future__ import annotations

from typing import Any

from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.source.values import MAX_DEPTH, json_values

_MOST_NODES = 5_000_000
"""Values of a document with each alias written out: reading more takes gigabytes."""


def read_yaml(data: bytes, name: str) -> Any:
    """The value of a document, as JSON could hold it; dates stay the texts that they are.

    Raises UnknownFormat where PyYAML is missing, and MalformedTranscript for text that is no YAML,
    that is nested too deeply, or that repeats itself by aliases until it is too large.
    """
    try:
        import yaml
    except ImportError as error:
        raise UnknownFormat(
            f"{name}: expected PyYAML to read a YAML file, found that it is not installed; "
            "pip install 'eventctx[cassettes]'"
        ) from error
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        """Leaves dates alone, which no JSON body can have held."""

    Loader.yaml_implicit_resolvers = {
        start: [(tag, rule) for tag, rule in rules if not tag.endswith(":timestamp")]
        for start, rules in base.yaml_implicit_resolvers.items()
    }
    try:
        _check_depth(yaml.parse(data, Loader=base), name)
        value = yaml.load(data, Loader=Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())[:200]
        raise MalformedTranscript(
            f"{name}: expected one whole YAML document of at most {MAX_DEPTH} levels, found "
            f"{problem}; if a program is still writing it, import it when that is done"
        ) from error
    _check_size(value, name)
    return json_values(value)


def _check_depth(events: Any, name: str) -> None:
    # The loaders descend by recursion, in C before PyYAML 6.0.4 without a limit: a deep file would
    # end the process.
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH:
            raise MalformedTranscript(
                f"{name}: expected values of at most {MAX_DEPTH} levels, found deeper ones; "
                "import the file without them"
            )


def _check_size(value: Any, name: str) -> None:
    """Refuse a value that is too large without its aliases, or that holds itself."""
    sizes: dict[int, int | None] = {}

    def size(one: Any) -> int:
        if not isinstance(one, dict | list | set | tuple):
            return 1
        known = sizes.get(id(one), 0)
        if known is None:
            raise MalformedTranscript(
                f"{name}: expected a document, found a part that holds itself"
            )
        if known:
            return known
        sizes[id(one)] = None
        inner = [*one.values()] if isinstance(one, dict) else [*one]
        total = sizes[id(one)] = 1 + sum(map(size, inner))
        return total

    if size(value) > _MOST_NODES:
        raise MalformedTranscript(
            f"{name}: expected a document of at most {_MOST_NODES:,} values, found more: its "
            "aliases repeat them; write it without aliases"
        )
