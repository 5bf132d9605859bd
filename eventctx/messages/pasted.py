"""The blocks of a person's message that the person did not type, told by form.

What a person typed stays in a view word for word; a pasted block is shortened as a result is. A
fence of more than ``LEAST_CHARACTERS`` is pasted, and so is a run of paragraphs whose lines are
mostly a machine's (logs, code, data), or what a harness wrote in front of the person's words. Prose
counts as typed, however long it is.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from eventctx.messages.speaker import persons_part
from eventctx.text import pattern

LEAST_CHARACTERS: Final = 2_000
"""A block of more characters was not typed."""

_FENCES: Final = ("```", "~~~")
_LOOKED_AT: Final = 400
"""Characters at the beginning of a line that tell whether a machine wrote it."""

_PROSE: Final = pattern(r"\b(?:[^\W\d_]{2,}[,;:]? ){3}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Four words one after the other, or a script without spaces."""

_SIGNS: Final = pattern(r"[(){}\[\]<>=;:/\\_|#\"][^(){}\[\]<>=;:/\\_|#\"]*[(){}\[\]<>=;:/\\_|#\"]")
"""Two signs of code or data in a line."""

_MACHINE: Final = pattern(
    r"(?:\t| {2})\s*(?![-*•]|\d{1,3}[.)])\S|[<{}\[\]|$+@]|\W?\d{2,4}[-:/.]\d|at |File "
)
"""The beginning of a line of code, data or a log; lists may be indented by hand."""

_Kind = Literal["fence", "machine", "prose"]


class PastedBlock(NamedTuple):
    """A part of a text, from ``start`` to before ``stop``."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """In characters."""
        return self.stop - self.start


def pasted_spans(text: str) -> list[PastedBlock]:
    """The pasted blocks of a text in a person's message, in order; most texts have none."""
    if len(text) <= LEAST_CHARACTERS:
        return []
    begins = persons_part(text)
    if begins is None:
        return [PastedBlock(0, len(text))]
    spans = [PastedBlock(0, begins), *_of_machines(text, begins)]
    return [span for span in spans if span.length > LEAST_CHARACTERS]


def _of_machines(text: str, at: int) -> list[PastedBlock]:
    """The fences from ``at`` on, and the runs of paragraphs of which a machine wrote most lines."""
    spans: list[PastedBlock] = []
    run: PastedBlock | None = None
    for block, kind in _blocks(text, at):
        if kind == "machine" and run is not None:
            run = PastedBlock(run.start, block.stop)
            continue
        if run is not None:
            spans.append(run)
        run = block if kind == "machine" else None
        if kind == "fence":
            spans.append(block)
    return spans if run is None else [*spans, run]


def _blocks(text: str, at: int) -> list[tuple[PastedBlock, _Kind]]:
    """The fences and paragraphs from ``at`` on."""
    blocks: list[tuple[PastedBlock, _Kind]] = []
    fence = ""
    begins = machines = lines = 0
    for line in text[at:].splitlines(keepends=True):
        stripped = line.strip()
        opens = not fence and stripped.startswith(_FENCES)
        if lines and not fence and (opens or not stripped):
            kind: _Kind = "machine" if machines * 2 > lines else "prose"
            blocks.append((PastedBlock(begins, at), kind))
            machines = lines = 0
        if stripped or fence:
            begins = begins if lines else at
            lines += 1
            machines += _is_machines(line)
        at += len(line)
        if fence and stripped.startswith(fence) and not stripped.strip(fence[0]):
            blocks.append((PastedBlock(begins, at), "fence"))
            fence, machines, lines = "", 0, 0
        elif opens:
            fence = stripped[:3]
    if lines:
        kind = "fence" if fence else "machine" if machines * 2 > lines else "prose"
        blocks.append((PastedBlock(begins, at), kind))
    return blocks


def _is_machines(line: str) -> bool:
    line = line[:_LOOKED_AT]
    if _MACHINE.match(line):
        return True
    # The signs first: most lines of prose have none, and words are looked for longer.
    return _SIGNS.search(line) is not None and _PROSE.search(line) is None
