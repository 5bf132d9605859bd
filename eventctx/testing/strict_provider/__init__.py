"""A provider on this machine that refuses what the real APIs refuse, with their words.

from eventctx.testing.strict_provider import violations

violations("anthropic", {"messages": view})  # () if the API would accept it
"""

from eventctx.testing.strict_provider.checking import RULES, violations
from eventctx.testing.strict_provider.rule import Api, Rule, Violation

__all__ = ["RULES", "Api", "Rule", "Violation", "violations"]
