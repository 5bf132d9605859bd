"""Costs in words, and the option that brings another table of prices."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from eventctx.cli.output.plain import one_line, plural
from eventctx.queries.costs import CallCosts

prices_option: Final = click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A table of prices, instead of the bundled one.",
)


def in_words(costs: CallCosts) -> list[str]:
    """Sentences about what calls cost, and which of them have no price; none without calls."""
    found = []
    if costs.by_model:
        total = costs.total
        found.append(
            f"Cost at list prices of {costs.date}: {dollars(total.total)} (input "
            f"{dollars(total.input)}, cache reads {dollars(total.cache_read)}, cache writes "
            f"{dollars(total.cache_write)}, output {dollars(total.output)})."
        )
    if costs.unpriced:
        names = ", ".join(one_line(name) or "an unknown model" for name in sorted(costs.unpriced))
        count = plural(sum(costs.unpriced.values()), "call")
        found.append(f"No price for {count}, of {names}: --prices FILE brings one.")
    return found


def dollars(amount: float) -> str:
    """``$1.23``; below a cent, two figures that count."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.2g}"
