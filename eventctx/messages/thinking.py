"""The thinking that a model takes back: the generations of Claude, by the name of a model.

A provider signs a model's thinking. Whether it is accepted later depends on the reading model:

- *manual* (Claude 3.7 to 4.5): in an open tool loop the last answer begins with its thinking, byte
  for byte. A signature there is not bound to what is before it.
- *adaptive* (Opus 4.6 to 5, Sonnet 4.6 and 5, Fable 5): neither is asked for.
- *preserved* (Fable and Mythos 5.1 and 5.2; Opus, Sonnet and Haiku 5.5): a signature is bound to
  all that is before it. After any change there the thinking after it must be left out.
- *unknown*: a model that this table does not name. The rule that is safe for all holds: the
  thinking after a change is left out, but for the answer that the open tool loop is at.

Source: Anthropic's documentation of extended, adaptive and preserved thinking, November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from eventctx.text import pattern

Generation = Literal["manual", "adaptive", "preserved", "unknown"]

ThinkingSetting = Literal["by_model", "keep", "strip"]
"""``by_model``: by the generation of the model that is called. ``keep``: no view leaves thinking
out. ``strip``: the thinking after a change is left out, whatever the model, and no compaction
waits for the end of a tool loop to spare it."""

_VERSION: Final = pattern(
    r"(?:claude[-_. ]?(?P<first>\d)(?:[-.](?P<second>\d{1,2})(?!\d))?[-.](?:sonnet|opus|haiku))|"
    r"(?P<family>opus|sonnet|haiku|fable|mythos)[-_. ]?(?P<major>\d{1,2})(?!\d)"
    r"(?:[-.](?P<minor>\d{1,2})(?!\d))?"
)

_FIRST_MANUAL: Final = (3, 7)
_LAST_MANUAL: Final = (4, 5)

_LATER: Final[Mapping[tuple[str, int, int], Generation]] = {
    ("opus", 4, 6): "adaptive",
    ("opus", 4, 7): "adaptive",
    ("opus", 4, 8): "adaptive",
    ("opus", 5, 0): "adaptive",
    ("sonnet", 4, 6): "adaptive",
    ("sonnet", 5, 0): "adaptive",
    ("fable", 5, 0): "adaptive",
    ("fable", 5, 1): "preserved",
    ("fable", 5, 2): "preserved",
    ("mythos", 5, 1): "preserved",
    ("mythos", 5, 2): "preserved",
    ("opus", 5, 5): "preserved",
    ("sonnet", 5, 5): "preserved",
    ("haiku", 5, 5): "preserved",
}
"""The generations of the models after the manual ones."""

_READABLE_BY_ALL: Final = ("haiku", 5, 5)
"""The one model of preserved thinking whose thinking other models read."""


def generation_of(model: str | None) -> Generation:
    """The generation of a model by its name, under which provider ever it is called."""
    found = _named(model)
    if found is None:
        return "unknown"
    if _FIRST_MANUAL <= found[1:] <= _LAST_MANUAL:
        return "manual"
    return _LATER.get(found, "unknown")


def _named(model: str | None) -> tuple[str, int, int] | None:
    """Family and version of a Claude model; None for another name."""
    found = None if model is None else _VERSION.search(model.lower())
    if found is None:
        return None
    family = found["family"] or "claude"
    return (
        family,
        int(found["major"] or found["first"]),
        int(found["minor"] or found["second"] or 0),
    )


class ThinkingRule(NamedTuple):
    """By what thinking is left out of a view that ``model`` will read.

    ``said`` is what the request says of itself, and wins over the model's name.
    """

    setting: ThinkingSetting = "by_model"
    model: str | None = None
    said: Generation | None = None

    @property
    def generation(self) -> Generation:
        """The generation whose rule holds."""
        if self.setting == "by_model":
            return self.said or generation_of(self.model)
        return "adaptive" if self.setting == "keep" else "preserved"

    @property
    def spares_loops(self) -> bool:
        """Whether a cut in an open tool loop may cost thinking, so that it had better wait."""
        return self.setting == "by_model" and self.generation in ("preserved", "unknown")


BY_MODEL: Final = ThinkingRule()
"""The rule for a model whose name is not known."""


def reads_thinking_of(model: str | None, producer: str | None) -> bool:
    """Whether ``model`` may be sent the thinking that ``producer`` made; true where one is unknown.

    Models without a prefix check read each other's. A model with one reads its own.
    """
    if model is None or producer is None or model == producer:
        return True
    reader, writer = _named(model), _named(producer)
    if reader is None or writer is None or reader == writer or writer == _READABLE_BY_ALL:
        return True
    return "preserved" not in (generation_of(model), generation_of(producer))
