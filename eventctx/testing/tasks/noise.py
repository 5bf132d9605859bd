"""Texts that nobody needs later: logs, tables, settings and notes, with names and numbers in them.

A fact that a task needs is a line among them and looks like its neighbours. The same key gives the
same text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Final

NAMES: Final = (
    *("alder", "amber", "anvil", "basalt", "beacon", "birch", "bramble", "brook", "cedar"),
    *("cinder", "cobalt", "copper", "coral", "dune", "ember", "fennel", "fern", "flint", "garnet"),
    *("gorse", "granite", "harbour", "hazel", "heron", "indigo", "juniper", "kelp", "kestrel"),
    *("larch", "lichen", "linden", "marlin", "marsh", "meadow", "moss", "nettle", "ochre", "osier"),
    *("otter", "pebble", "pilot", "plover", "quartz", "raven", "reed", "rowan", "sable", "saffron"),
    *(
        "sorrel",
        "tallow",
        "tern",
        "thistle",
        "topaz",
        "umber",
        "walnut",
        "willow",
        "wren",
        "yarrow",
    ),
)
"""Names of what tasks are about."""

_OTHERS: Final = (
    *("abbot", "acorn", "argon", "aspen", "barley", "bishop", "bobbin", "burdock", "canal", "carp"),
    *("chalk", "clover", "cobble", "cornice", "damson", "dapple", "drover", "eider", "elder"),
    *(
        "fathom",
        "ferry",
        "fiddle",
        "gable",
        "galley",
        "gimlet",
        "hamlet",
        "heath",
        "hollow",
        "jetty",
    ),
    *("lantern", "lattice", "magnet", "maple", "mortar", "oriel", "parcel", "pewter", "quarry"),
    *("rafter", "ribbon", "satin", "slate", "spindle", "sundial", "tiller", "turret", "velvet"),
)
"""Names of all else. Some lines have one of ``NAMES``: what is asked for has namesakes."""

NAMESAKES: Final = 0.03
"""The share of names in these texts that are of ``NAMES``."""

PEOPLE: Final = (
    *("Ona Brandt", "Maren Tolk", "Ilse Varga", "Tomas Rehn", "Bela Okafor", "Noor Haddad"),
    *("Siri Lunde", "Pavel Cech", "Yuki Arata", "Lena Moreau", "Dario Conti", "Aino Saari"),
)
_VERBS: Final = ("opened", "closed", "moved", "counted", "checked", "renamed", "loaded", "sent")
_THINGS: Final = ("batch", "ledger", "queue", "crate", "report", "index", "valve", "draft", "route")
_HOW: Final = ("late", "twice", "by hand", "as planned", "in part", "after lunch", "at night")


def _name(random: Random) -> str:
    return random.choice(NAMES if random.random() < NAMESAKES else _OTHERS)


def _log(random: Random) -> str:
    return (
        f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02} "
        f"{_name(random)}[{random.randrange(100, 9999)}]: {random.choice(_THINGS)} "
        f"{random.randrange(10_000)} {random.choice(_VERBS)}, {random.randrange(900)} ms"
    )


def _table(random: Random) -> str:
    return (
        f"| KD-{random.randrange(1_000, 9_999)} | {_name(random)} {random.choice(_THINGS)} | "
        f"{random.randrange(500)} | {random.choice(PEOPLE)} | {random.choice(_HOW)} |"
    )


def _setting(random: Random) -> str:
    return (
        f"{_name(random)}.{random.choice(_THINGS)}.{_name(random)} = "
        f"{random.choice((random.randrange(9000), _name(random), random.random() < 0.5))}"
    )


def _note(random: Random) -> str:
    return (
        f"{random.choice(PEOPLE)} {random.choice(_VERBS)} the {_name(random)} "
        f"{random.choice(_THINGS)} {random.choice(_HOW)}; {_name(random)} is at "
        f"{random.randrange(100)} of {random.randrange(100, 200)}."
    )


_LETTERS: Final = (
    "{who} wrote that the {what} {thing} {verb} {how}",
    "the {thing} of {what} was {verb} {how}, {who} says",
    "{what} has {number} of them, and {what2} has {number2}",
    "as for the {thing}: {who} {verb} it {how}",
    "nobody at {what} has seen the {thing} since {number}",
    "{number} more are on their way to {what}, {how}",
    "please tell {who} about {what}",
    "{what} and {what2} share one {thing}",
    "{who}, {who2} and the {thing} of {what} were all {how}",
    "at {number} the {thing} was {verb}",
    "why {what} {verb} the {thing} is not known to {who}",
    "{thing} {number} belongs to {what}",
    "{what} is now with {who}",
    "{who} keeps {number} of {what2} under {thing} {number2}",
)


def _letter(random: Random) -> str:
    """Sentences of many forms: a line of a task looks like any of them."""
    words = {
        "who": random.choice(PEOPLE),
        "who2": random.choice(PEOPLE),
        "what": _name(random),
        "what2": _name(random),
        "thing": random.choice(_THINGS),
        "verb": random.choice(_VERBS),
        "how": random.choice(_HOW),
        "number": random.randrange(10, 10_000),
        "number2": random.randrange(10, 100),
    }
    sentences = [one.format(**words) for one in random.sample(_LETTERS, random.choice((1, 1, 2)))]
    return (" - " if random.random() < 0.2 else ". ").join(sentences)


STYLES: Final[Mapping[str, Callable[[Random], str]]] = {
    "build log": _log,
    "register": _table,
    "settings": _setting,
    "diary": _note,
    "letters": _letter,
}


@lru_cache(maxsize=20_000)
def lines(key: str, style: str, characters: int, least: int = 0) -> tuple[str, ...]:
    """Lines of a style, of about so many characters together, and at least so many lines."""
    random = Random(key)  # noqa: S311 - nothing here is secret
    make = STYLES[style]
    found: list[str] = []
    size = 0
    while size < characters or len(found) < least:
        found.append(make(random))
        size += len(found[-1]) + 1
    return tuple(found)
