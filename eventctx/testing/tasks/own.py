"""Families whose facts are the agent's own: plans, tallies, what it began and what helped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eventctx.testing.tasks.reading import Action, AgentCall, AgentView, Say, do
from eventctx.testing.tasks.work import Desk, Family, Work, made

# -- a plan that is resumed ----------------------------------------------------------------------

_STEP: Final = r"Step (\d): (\w+) the (\w+)"


def _build_plan(desk: Desk) -> Work:
    """The agent plans five steps, does two, is interrupted for long, and goes on."""
    doings = desk.random.sample(("drain", "seal", "lift", "paint", "weigh", "label"), 5)
    steps = [(doing, desk.name()) for doing in doings]
    sheet = desk.filler(1_500).splitlines()
    placed = sorted(desk.random.sample(range(1, len(sheet)), len(steps)))
    for at, (doing, what) in reversed([*zip(placed, steps, strict=True)]):
        sheet.insert(at, f"to do: {doing} {what}")
    persons = [
        "Read the `sheet` and tell me your steps, in the order of the sheet.",
        "Good. Do the first two, with `work`.",
        *[desk.errand(0.42) for _ in range(2)],
        "Back to your steps: go on with what is left of them.",
    ]
    log = desk.filler(700)

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        if call.name == "sheet":
            return "\n".join(sheet)
        return f"{call.arguments.get('what')}: ready.\n{log}"

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return [(one["doing"], one["what"]) for one in made(calls, "work")] == steps

    return desk.work(persons, answer, succeeded)


def _act_on_plan(view: AgentView) -> Action:
    words = view.request
    if "Read the `sheet`" in words:
        if not view.calls("sheet", of_request=True):
            return do("sheet")
        found = view.all(r"to do: (\w+) (\w+)")
        told = [f"Step {n}: {doing} the {what}." for n, (doing, what) in enumerate(found, 1)]
        return Say(" ".join(told))
    if "first two" not in words and "your steps" not in words:
        return Say("Good.")
    steps = view.seek_all("the plan", "agent", _STEP, "step the")
    plan = {int(number): (doing, what) for number, doing, what in steps}
    if "your steps" in words:
        _look_for_done(view, plan)
    done = {(str(one.get("doing")), str(one.get("what"))) for one in view.calls("work")}
    done |= {(doing, what) for doing, what in view.all(r'"doing": "(\w+)", "what": "(\w+)"')}
    ready = {one for (one,) in view.all(r"\b(\w+): ready\.")}
    left = [one for _, one in sorted(plan.items()) if one not in done and one[1] not in ready]
    if not left or ("first two" in words and len(plan) - len(left) >= 2):
        return Say("These are done.")
    return do("work", doing=left[0][0], what=left[0][1])


def _look_for_done(view: AgentView, plan: dict[int, tuple[str, str]]) -> None:
    """Whether the first steps were done already: in view, or else in the log."""
    for _, (_, what) in sorted(plan.items())[:2]:
        here = rf'(?:"what": "{what}"|\b{what}: ready)()'
        view.seek_all("a step that is done", "call", here, f"{what} ready")


# -- an error and its remedy ---------------------------------------------------------------------

_FLAGS: Final = ("--calm", "--narrow", "--twin", "--slow", "--cold")


def _build_remedy(desk: Desk) -> Work:
    """A build fails until a flag helps; much later another fails alike, with two tries in all."""
    first, second = desk.name(), desk.name()
    error = f"E-{desk.random.randrange(100, 999)}"
    remedy = desk.random.choice(_FLAGS[2:])
    persons = [
        f"Build {first} with `build`; flags that may help are {', '.join(_FLAGS)}.",
        *[desk.errand(0.42) for _ in range(2)],
        (
            f"Now build {second}. The line is shared: two tries, then it is shut for the day. "
            f"Flags as before: {', '.join(_FLAGS)}."
        ),
    ]
    logs = [desk.filler(900) for _ in range(3)]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        tries = [one for one in before if one.arguments.get("part") == second]
        if call.arguments.get("part") == second and len(tries) >= 2:
            return "The line is shut."
        if call.arguments.get("flag") == remedy:
            return f"{call.arguments.get('part')} is built."
        log = logs[len(before) % 3].splitlines()
        return "\n".join([*log, f"{error}: the spool ran over", log[0]])

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        tries = [one for one in made(calls, "build") if one["part"] == second]
        return remedy in [one["flag"] for one in tries[:2]]

    return desk.work(persons, answer, succeeded)


def _act_on_remedy(view: AgentView) -> Action:
    asked = re.search(r"[Bb]uild (\w+)(?: with|\.)", view.request)
    if asked is None:
        return Say("I see.")
    part = asked[1]
    tried = [str(one.get("flag")) for one in view.calls("build") if one.get("part") == part]
    if re.search(rf"\b{part} is built\.|The line is shut", view.last.text):
        helped = tried[-1] if tried else ""
        if helped and "shut" not in view.last.text and len(tried) > 1:
            return Say(f"{part} is built; what helped against the error was {helped}.")
        return Say(f"{part} is at its end.")
    if not tried:
        return do("build", part=part, flag="")
    if "two tries" in view.request:
        here = r"what helped against the error was (--\w+)"
        known = view.seek("the remedy", "agent", here, "what helped against the error")
        if known:
            return do("build", part=part, flag=known)
    left = [one for one in _FLAGS if one not in tried]
    return do("build", part=part, flag=left[0]) if left else Say("Nothing helps.")


# -- counters ------------------------------------------------------------------------------------


def _build_counters(desk: Desk) -> Work:
    """Sightings are counted aloud while texts are read; at the end the tallies are filed."""
    birds = [desk.name() for _ in range(3)]
    truth = {one: desk.random.randrange(2, 5) for one in birds}
    seen = [one for one, count in truth.items() for _ in range(count)]
    placed = [(desk.random.random(), f"sighting: one {one} at the weir") for one in seen]
    persons = [
        f"Count the sightings of {', '.join(birds)} as you read, and say each new tally aloud.",
        *[desk.errand(0.3, placed[at::3]) for at in range(3)],
        f"File the tallies ({', '.join(birds)}) with `file_tally`, one call for each.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return "Filed."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        filed = [(str(one["bird"]), one["count"]) for one in made(calls, "file_tally")]
        return sorted(filed) == sorted(truth.items())

    return desk.work(persons, answer, succeeded)


def _note_sightings(view: AgentView, text: str) -> str:
    seen = re.findall(r"sighting: one (\w+) at", text)
    now = {bird: _tally(view, bird) + seen.count(bird) for bird in dict.fromkeys(seen)}
    return " ".join([f"The tally of {bird} is now {count}." for bird, count in now.items()])


def _tally(view: AgentView, bird: str, *, known: bool = False) -> int:
    """The tally until now; ``known``: there is one, so that none in view is a loss."""
    here, words = rf"tally of {bird} is now (\d+)", f'"tally of {bird} is now"'
    view.look_up(words)
    told = view.seek_all("a tally", "agent", here, words) if known else view.all(here)
    return max([int(one) for (one,) in told], default=0)


def _act_on_counters(view: AgentView) -> Action:
    asked = re.search(r"File the tallies \(([^)]*)\)", view.request)
    if asked is None:
        return Say("I shall count.")
    filed = [one.get("bird") for one in view.calls("file_tally", of_request=True)]
    for bird in asked[1].split(", "):
        if bird not in filed:
            return do("file_tally", bird=bird, count=_tally(view, bird, known=True))
    return Say("All tallies are filed.")


# -- nested tasks --------------------------------------------------------------------------------


def _build_nested(desk: Desk) -> Work:
    """A release needs a part, which needs a part: each is begun, and closed with its own seal."""
    parts = [desk.name() for _ in range(3)]
    seals = {one: f"seal-{desk.random.randrange(1_000, 9_999)}" for one in parts}
    persons = [
        f"Release {parts[0]}: `begin` it, and first what it needs.",
        desk.errand(0.28),
        f"Go one deeper: `begin` what {parts[1]} needs.",
        *[desk.errand(0.28) for _ in range(2)],
        "Now `close` all that was begun, the innermost first, each with its seal.",
    ]
    logs = [desk.filler(700).splitlines() for _ in parts]
    for at, one in enumerate(parts):
        needs = f" and needs {parts[at + 1]} first" if at + 1 < len(parts) else ""
        logs[at].insert(len(logs[at]) // 2, f"{one} is begun under {seals[one]}{needs}")

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        part = str(call.arguments.get("part"))
        if call.name == "begin":
            return "\n".join(logs[parts.index(part)]) if part in parts else "unknown"
        return "Closed."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        closed = [(str(one["part"]), one["seal"]) for one in made(calls, "close")]
        return closed == [(one, seals[one]) for one in reversed(parts)]

    return desk.work(persons, answer, succeeded)


def _act_on_nested(view: AgentView) -> Action:
    words = view.request
    begun = [str(one.get("part")) for one in view.calls("begin", of_request=True)]
    release, deeper = re.search(r"Release (\w+):", words), re.search(r"what (\w+) needs", words)
    if release:
        if not begun:
            return do("begin", part=release[1])
        return _begin_needed(view, release[1], begun)
    if deeper:
        return _begin_needed(view, deeper[1], begun)
    if "close" not in words:
        return Say("I see.")
    return _close_next(view)


def _begin_needed(view: AgentView, part: str, begun: Sequence[str]) -> Action:
    here = rf"\b{part} is begun under seal-\d+ and needs (\w+) first"
    needed = view.seek("what is needed", "result", here, f"{part} begun needs")
    if needed is None or needed in begun:
        return Say("Begun.")
    return do("begin", part=needed)


def _close_next(view: AgentView) -> Action:
    here = r"\b(\w+) is begun under (seal-\d+)(?: and needs (\w+) first)?"
    view.look_up('"is begun under"')
    view.seek_all("a seal", "result", here, '"is begun under"')
    open_ones = {part: (seal, needs) for part, seal, needs in view.all(here)}
    closed = {one.get("part") for one in view.calls("close", of_request=True)}
    for part, (_, needs) in open_ones.items():
        if needs and needs not in open_ones and needs not in closed:
            found = view.seek("a seal", "result", rf"\b{needs} is begun under (seal-\d+)", needs)
            return do("close", part=needs, seal=found or f"seal-of-{part}")
    left = [one for one in open_ones if one not in closed]
    ready = [one for one in left if open_ones[one][1] in (None, "", *closed)]
    if not ready:
        return Say("All are closed.")
    return do("close", part=ready[0], seal=open_ones[ready[0]][0])


PLAN: Final = Family("plan", "a plan that is resumed", _build_plan, _act_on_plan)
REMEDY: Final = Family("remedy", "an error and its remedy", _build_remedy, _act_on_remedy)
COUNTERS: Final = Family("counters", "tallies", _build_counters, _act_on_counters, _note_sightings)
NESTED: Final = Family("nested", "tasks in tasks", _build_nested, _act_on_nested)
