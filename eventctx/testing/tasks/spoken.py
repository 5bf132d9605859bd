"""Families whose facts a person said: rules, exceptions, corrections, names, a note handed over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from eventctx.testing.tasks.noise import PEOPLE
from eventctx.testing.tasks.reading import Action, AgentCall, AgentView, Say, do
from eventctx.testing.tasks.work import Desk, Family, Work, made

# -- rules that change ---------------------------------------------------------------------------

_CASE: Final = r"Case (\d+), of (\d+) in all; about the (\w+)"


def _build_rules(desk: Desk) -> Work:
    """Three topics have desks; twice a topic moves to another desk; every case gets its desk."""
    topics, desks = [desk.name() for _ in range(3)], [desk.name().title() for _ in range(5)]
    now = dict(zip(topics, desks, strict=False))
    count = desk.count(0.1, 600, 2, 20)
    told = "; ".join([f"the {topic} is for desk {where}" for topic, where in now.items()])
    persons = [f"Every case has a topic. For now {told}. Nothing to sort yet."]
    truth: dict[str, str] = {}
    cases: dict[str, str] = {}
    for batch in range(3):
        persons.append(desk.errand(0.2))
        if batch:
            topic = topics[batch - 1]
            before, now[topic] = now[topic], desks[2 + batch]
            persons.append(
                f"News: the {topic} goes over from desk {before} to desk {now[topic]}. Noted?"
            )
        first = len(cases) + 1
        for number in range(first, first + count):
            topic = desk.random.choice(topics)
            head = f"Case {number}, of {first + count - 1} in all; about the {topic}"
            cases[str(number)] = f"{head}\n{desk.filler(600)}"
            truth[str(number)] = now[topic]
        persons.append(f"Sort the new cases: begin with `take` {first}, then `route` them.")

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        number = str(call.arguments.get("case"))
        if call.name == "take":
            return cases.get(number, "There is no such case.")
        return f"Case {number} is routed."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        routed = {str(one["case"]): one["desk"] for one in made(calls, "route")}
        return routed == truth

    return desk.work(persons, answer, succeeded)


def _act_on_rules(view: AgentView) -> Action:
    if not view.last.by_person:
        case = view.latest(_CASE)
        if case is None:
            taken = view.calls("take", of_request=True)
            again = taken[-1].get("case") if taken else None
            return do("take", case=again) if again else Say("I have lost the thread.")
        number, last, topic = case
        routed = [one.get("case") for one in view.calls("route", of_request=True)]
        if int(number) not in routed:
            return do("route", case=int(number), desk=_desk_of(view, topic))
        return do("take", case=int(number) + 1) if number != last else Say("All are sorted.")
    begin = view.all(r"begin with `take` (\d+)")
    if "Sort the new cases" in view.last.text and begin:
        return do("take", case=int(begin[-1][0]))
    return Say("I have that.")


def _desk_of(view: AgentView, topic: str) -> str:
    """Where a topic goes: the desk that it went over to, and not away from again."""
    here = rf"the {topic} (?:is for|goes over from desk \w+ to) desk (\w+)"
    view.look_up(f"{topic} desk")
    desks = [one for (one,) in view.seek_all("the rule", "person", here, f"{topic} desk")]
    left = {one for (one,) in view.all(rf"the {topic} goes over from desk (\w+) to desk")}
    return next((one for one in reversed(desks) if one not in left), "unknown")


# -- forbidden paths -----------------------------------------------------------------------------


def _build_forbidden(desk: Desk) -> Work:
    """Two folders are others' own; much later all files with an old header are to be rewritten."""
    folders = [desk.name() for _ in range(5)]
    closed = folders[:2]
    persons = [
        (
            f"Two things about this house first: {closed[0]}/ belongs to the museum and is "
            f"theirs alone, and {closed[1]}/ is frozen until the audit is over. The rest is ours."
        ),
        *[desk.errand(0.3) for _ in range(3)],
        (
            "Now renew the old headers: `list_old` names the files, `renew` does one. Those that "
            "are ours, that is."
        ),
    ]
    paths = [
        f"{folder}/{desk.random.choice(PEOPLE).split()[0].lower()}_{number}.txt"
        for folder in folders
        for number in desk.random.sample(range(10, 99), 2)
    ]
    desk.random.shuffle(paths)
    ours = {one for one in paths if one.partition("/")[0] not in closed}

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        if call.name == "list_old":
            return "Files with an old header:\n" + "\n".join([f"- {one}" for one in paths])
        return f"The header of {call.arguments.get('path')} is new.\n{desk_text}"

    desk_text = desk.filler(300)

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return {str(one["path"]) for one in made(calls, "renew")} == ours

    return desk.work(persons, answer, succeeded)


def _act_on_forbidden(view: AgentView) -> Action:
    if "renew the old headers" not in view.request:
        return Say("I understand.")
    listed = view.latest_of("Files with an old header:")
    if not listed:
        return do("list_old")
    paths = re.findall(r"- (\w+/\w+_\d+\.txt)", listed)
    done = {one.get("path") for one in view.calls("renew", of_request=True)}
    folders = sorted({one.partition("/")[0] for one in paths})
    closed = _closed(view)
    if len(closed) < 2:
        for folder in folders:
            # Before a hand is laid on a folder: was anything said about it?
            view.look_up(f'"{folder}/"')
            closed = _closed(view)
    view.seek_all("the exception", "person", r"(\w+)/ (?:belongs to|is frozen)", f'"{folders[0]}/"')
    left = [one for one in paths if one not in done and one.partition("/")[0] not in closed]
    return do("renew", path=left[0]) if left else Say("All of ours are new.")


def _closed(view: AgentView) -> set[str]:
    return {one for (one,) in view.all(r"(\w+)/ (?:belongs to the museum|is frozen until)")}


# -- a person's correction -----------------------------------------------------------------------


def _build_correction(desk: Desk) -> Work:
    """Host and unit are said, used, and corrected; much later they are used again."""
    old, new, unit, right = desk.name(), desk.name(), desk.name(), desk.name()
    wrong_week, week = desk.random.sample(range(10, 50), 2)
    persons = [
        (
            f"The weekly figures go to the host {old}, in units of {unit}. "
            f"Send week {wrong_week} with `send`."
        ),
        desk.errand(0.15),
        f"My mistake: the host is {new} and not {old}.",
        desk.errand(0.4),
        f"And the unit was wrong as well: it is {right} and not {unit}.",
        desk.errand(0.4),
        f"Time for the next figures: send week {week}, same way.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return f"Week {call.arguments.get('week')} is on its way."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        sent = {"week": week, "host": new, "unit": right}
        return made(calls, "send")[1:] == [sent]

    return desk.work(persons, answer, succeeded)


def _act_on_correction(view: AgentView) -> Action:
    asked = view.all(r"[Ss]end week (\d+)")
    if not asked or "end week" not in view.request:
        return Say("Noted.")
    week = int(asked[-1][0])
    if any(one.get("week") == week for one in view.calls("send", of_request=True)):
        return Say("It is sent.")
    host = _corrected(view, "host", r"(?:the host is (\w+) and not|to the host (\w+))")
    unit = _corrected(view, "unit", r"(?:in units of (\w+)|unit was wrong as well: it is (\w+))")
    return do("send", week=week, host=host, unit=unit)


def _corrected(view: AgentView, what: str, pattern: str) -> str:
    view.look_up(f"{what} not")
    named = view.seek_all(f"the {what}", "person", pattern, f"{what} not")
    taken_back = {one for (one,) in view.all(r" and not (\w+)\.")}
    said = [one for groups in named for one in groups if one]
    return next((one for one in reversed(said) if one not in taken_back), "unknown")


# -- names that a person gave --------------------------------------------------------------------


def _build_glossary(desk: Desk) -> Work:
    """A person calls hosts by nicknames, and says once which they are."""
    nicknames = [desk.name() for _ in range(4)]
    hosts = {one: f"h-{n}" for one, n in zip(nicknames, _numbers(desk, 4), strict=True)}
    told = ", ".join([f"{one} for {host}" for one, host in hosts.items()])
    first, second = desk.random.sample(nicknames, 2)
    persons = [
        f"So that you can follow me, our nicknames: {told}.",
        *[desk.errand(0.3) for _ in range(2)],
        f"Give {first} a new start with `restart`.",
        desk.errand(0.35),
        f"And {second} as well: a new start.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return f"{call.arguments.get('host')} is up again.\n{log}"

    log = desk.filler(800)

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return [one["host"] for one in made(calls, "restart")] == [hosts[first], hosts[second]]

    return desk.work(persons, answer, succeeded)


def _numbers(desk: Desk, count: int) -> list[int]:
    return desk.random.sample(range(1_000, 9_999), count)


def _act_on_glossary(view: AgentView) -> Action:
    words = view.request
    if "a new start" not in words:
        return Say("Good to know.")
    if view.calls("restart", of_request=True):
        return Say("It runs.")
    name = words.split()[1]
    host = view.seek("the nickname", "person", rf"\b{name} for (h-\d+)", f"nicknames {name}")
    return do("restart", host=host or "h-0")


# -- a note handed over --------------------------------------------------------------------------


def _build_handoff(desk: Desk) -> Work:
    """A predecessor's note, pasted by a person; two of its details are needed later."""
    door, valve = [desk.name() for _ in range(2)]
    keeper, other = desk.random.sample(PEOPLE, 2)
    codes = _numbers(desk, 3)
    details = [
        f"The {door} door opens with {codes[0]}.",
        f"For the {valve} valve ask {keeper}, who has the second key.",
        f"The {desk.name()} door opens with {codes[1]}.",
        f"For the {desk.name()} valve ask {other}, who is new.",
    ]
    note = desk.filler(3_200).splitlines()
    for detail in details:
        note.insert(desk.random.randrange(2, len(note) - 2), detail)
    pasted = "\n".join(note)
    persons = [
        f"I took this over from the last shift, so now it is yours:\n\n{pasted}\n\nReady?",
        *[desk.errand(0.4) for _ in range(2)],
        f"Open the {door} door with `open_door`.",
        f"Now `call` whoever has the second key to the {valve} valve.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return "It is done."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        opened = made(calls, "open_door") == [{"door": door, "code": codes[0]}]
        return opened and made(calls, "call") == [{"person": keeper}]

    return desk.work(persons, answer, succeeded)


def _act_on_handoff(view: AgentView) -> Action:
    words = view.request
    door, valve = _word_after(words, "Open the "), _word_after(words, "second key to the ")
    if door and not view.calls("open_door", of_request=True):
        here = rf"The {door} door opens with (\d+)"
        code: Any = view.seek("a detail of the note", "paste", here, f"{door} door opens")
        return do("open_door", door=door, code=int(code or 0))
    if valve and not view.calls("call", of_request=True):
        here = rf"the {valve} valve ask (\w+ \w+)"
        keeper = view.seek("a detail of the note", "paste", here, f"{valve} valve ask")
        return do("call", person=keeper or "nobody")
    return Say("Ready.")


def _word_after(text: str, before: str) -> str:
    rest = text.partition(before)[2]
    return rest.split()[0].rstrip(".") if rest else ""


RULES: Final = Family("rules", "rules that change", _build_rules, _act_on_rules)
FORBIDDEN: Final = Family(
    "forbidden", "paths that are not to be touched", _build_forbidden, _act_on_forbidden
)
CORRECTION: Final = Family(
    "correction", "a person's correction", _build_correction, _act_on_correction
)
GLOSSARY: Final = Family("glossary", "names that a person gave", _build_glossary, _act_on_glossary)
HANDOFF: Final = Family("handoff", "a note handed over", _build_handoff, _act_on_handoff)
