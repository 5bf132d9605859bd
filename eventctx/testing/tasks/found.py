"""Families whose facts stood in results long ago: ids, readings, pages, a guide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eventctx.testing.tasks.noise import PEOPLE
from eventctx.testing.tasks.reading import Action, AgentCall, AgentView, Say, do
from eventctx.testing.tasks.work import Desk, Family, Work, made

# -- inventory -----------------------------------------------------------------------------------

_STOCK: Final = re.compile(r"(QF-\d+) \w+, (\d+) in hand, floor (\d+)")


def _build_inventory(desk: Desk) -> Work:
    """Shelves are gone through, some goods are short; at the end all of them are ordered."""
    codes = {f"QF-{n}" for n in desk.random.sample(range(1_000, 9_999), 60)}
    short = {one: desk.random.randrange(2, 9) for one in sorted(codes)[:4]}
    plants = []
    for one in sorted(codes):
        floor = desk.random.randrange(10, 60)
        hand = floor - short[one] if one in short else floor + desk.random.randrange(1, 40)
        line = f"{one} {desk.random.choice(('hooks', 'cord', 'lamps'))}, {hand} in hand"
        plants.append((desk.random.random(), f"{line}, floor {floor}"))
    persons = [
        "We count the shelves today. Goods that have fewer in hand than their floor are short.",
        *[desk.errand(0.45, plants[at::2]) for at in range(2)],
        "Bring all the short goods up to their floor with `order`, one call for each.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return f"{call.arguments.get('goods')} is ordered."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        ordered = [(str(one["goods"]), one["amount"]) for one in made(calls, "order")]
        return dict(ordered) == short and len(ordered) == len(short)

    return desk.work(persons, answer, succeeded)


def _note_stock(view: AgentView, text: str) -> str:
    found = [
        f"{goods} is short by {int(floor) - int(hand)}."
        for goods, hand, floor in _STOCK.findall(text)
        if int(hand) < int(floor)
    ]
    return " ".join(found)


def _act_on_inventory(view: AgentView) -> Action:
    if "Bring all the short goods" not in view.request:
        return Say("Let us begin.")
    view.look_up("is short by")
    short = {goods: int(by) for goods, by in view.all(r"(QF-\d+) is short by (\d+)")}
    for goods, hand, floor in _STOCK.findall(view.text):
        if int(hand) < int(floor):
            short[goods] = int(floor) - int(hand)
    ordered = {one.get("goods") for one in view.calls("order", of_request=True)}
    left = [one for one in short if one not in ordered]
    if left:
        return do("order", goods=left[0], amount=short[left[0]])
    view.seek_all("what was noticed", "agent", r"QF-\d+ is short by (\d+)", "is short by")
    return Say("All is ordered.")


# -- an id that is needed late -------------------------------------------------------------------


def _build_late_id(desk: Desk) -> Work:
    """Two rollouts are begun, each gets an id; much later one of them is promoted by its id."""
    first, second = desk.name(), desk.name()
    ids = {one: f"ro-{desk.random.randrange(16**6):06x}" for one in (first, second)}
    persons = [
        f"Begin a rollout of {first} with `begin`.",
        desk.errand(0.3),
        f"Begin one of {second}, too.",
        desk.errand(0.6),
        f"Fine. Now `promote` the rollout of {first}; it takes the id.",
    ]
    logs = {one: desk.filler(1_200).splitlines() for one in ids}
    for one, text in logs.items():
        text.insert(len(text) // 2, f"rollout {ids[one]} of {one} is queued")

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        if call.name == "begin":
            return "\n".join(logs.get(str(call.arguments.get("what")), ["unknown"]))
        return "The request is taken."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return made(calls, "promote") == [{"id": ids[first]}]

    return desk.work(persons, answer, succeeded)


def _act_on_late_id(view: AgentView) -> Action:
    words = view.request
    begun = re.search(r"Begin (?:a rollout|one) of (\w+)", words)
    if begun:
        if view.calls("begin", of_request=True):
            return Say("It is queued.")
        return do("begin", what=begun[1])
    wanted = re.search(r"the rollout of (\w+); it takes the id", words)
    if wanted and not view.calls("promote", of_request=True):
        here = rf"rollout (ro-[0-9a-f]{{6}}) of {wanted[1]} is queued"
        found = view.seek("an id", "result", here, f"rollout {wanted[1]} queued")
        return do("promote", id=found or "ro-000000")
    return Say("Done.")


# -- references over several hops ----------------------------------------------------------------


def _build_hops(desk: Desk) -> Work:
    """Service, crew, head, pager: each is named in another text, and none is asked for before."""
    service, other, crew, rest = [desk.name() for _ in range(4)]
    head, second = desk.random.sample(PEOPLE, 2)
    pager = f"{desk.random.randrange(1, 9)}-{desk.random.randrange(1_000, 9_999)}"
    plants = [
        f"{service} is run by crew {crew}",
        f"crew {crew} is headed by {head}",
        f"{head} answers to pager {pager}",
        f"{other} is run by crew {rest}",
        f"crew {rest} is headed by {second}",
    ]
    placed = [(desk.random.random(), one) for one in plants]
    persons = [
        "Get to know the place first.",
        *[desk.errand(0.45, placed[at::2]) for at in range(2)],
        f"Trouble with {service}: `page` the head of the crew that runs it, by pager number.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return "It rings."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return made(calls, "page") == [{"pager": pager}]

    return desk.work(persons, answer, succeeded)


def _act_on_hops(view: AgentView) -> Action:
    service = re.search(r"Trouble with (\w+)", view.request)
    if service is None or view.calls("page", of_request=True):
        return Say("I am with you.")
    crew = view.seek(
        "first hop", "bulk", rf"{service[1]} is run by crew (\w+)", f"{service[1]} crew"
    )
    if crew is None:
        return do("page", pager="0")
    head = view.seek("second hop", "bulk", rf"crew {crew} is headed by (\w+ \w+)", f"{crew} headed")
    if head is None:
        return do("page", pager="0")
    here = rf"{head} answers to pager (\d-\d+)"
    pager = view.seek("third hop", "bulk", here, f"{head} pager")
    return do("page", pager=pager or "0")


# -- a reading to compare with -------------------------------------------------------------------


def _build_baseline(desk: Desk) -> Work:
    """Three gauges are read at the beginning; at the end those that rose are reported."""
    gauges = [desk.name() for _ in range(3)]
    before = {one: desk.random.randrange(200, 800) / 10 for one in gauges}
    rose = set(desk.random.sample(gauges, desk.random.choice((1, 2))))
    after = {
        one: round(value + (1 if one in rose else -1) * desk.random.randrange(5, 90) / 10, 1)
        for one, value in before.items()
    }
    named = ", ".join(gauges)
    persons = [
        f"Read the gauges {named}: `gauge`, one by one.",
        *[desk.errand(0.4) for _ in range(2)],
        f"Read them again ({named}), then `raise_alarm` for those that are higher than at first.",
    ]
    texts = [desk.filler(900).splitlines() for _ in range(6)]

    def answer(call: AgentCall, before_it: Sequence[AgentCall]) -> str:
        if call.name != "gauge":
            return "The alarm is on."
        name = str(call.arguments.get("name"))
        again = sum(one == call for one in before_it) > 0
        text = list(texts[gauges.index(name) + (3 if again else 0)])
        reading = (after if again else before)[name]
        text.insert(len(text) // 2, f"gauge {name} reads {reading} {'now' if again else 'bar'}")
        return "\n".join(text)

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return {str(one["name"]) for one in made(calls, "raise_alarm")} == rose

    return desk.work(persons, answer, succeeded)


def _act_on_baseline(view: AgentView) -> Action:
    words = view.request
    named = re.search(r"\(?\b(\w+, \w+, \w+)\b[:)]", words)
    if named is None:
        return Say("I see.")
    gauges = named[1].split(", ")
    read = [one.get("name") for one in view.calls("gauge", of_request=True)]
    left = [one for one in gauges if one not in read]
    if left:
        return do("gauge", name=left[0])
    if "again" not in words:
        return Say("All three are read.")
    alarms = [one.get("name") for one in view.calls("raise_alarm", of_request=True)]
    for gauge in gauges:
        here = rf"gauge {gauge} reads ([\d.]+) bar"
        first = view.seek("a first reading", "result", here, f"gauge {gauge} reads bar")
        now = view.all(rf"gauge {gauge} reads ([\d.]+) now")
        higher = first is not None and now and float(now[-1][0]) > float(first)
        if higher and gauge not in alarms:
            return do("raise_alarm", name=gauge)
    return Say("That is all.")


# -- configuration, file by file -----------------------------------------------------------------


def _build_migration(desk: Desk) -> Work:
    """A guide says which setting has which new name; then file after file is taken over."""
    old = [f"{desk.name()}_{desk.name()}" for _ in range(6)]
    new = {one: f"{desk.name()}.{desk.name()}" for one in old}
    guide = desk.filler(3_000).splitlines()
    for one in old:
        guide.insert(desk.random.randrange(1, len(guide)), f"{one} has become {new[one]}")
    count = desk.count(0.8, 1_700, 3, 500)
    files: dict[int, str] = {}
    truth: dict[int, dict[str, int]] = {}
    for number in range(1, count + 1):
        chosen = {one: desk.random.randrange(1_000) for one in desk.random.sample(old, 2)}
        text = desk.filler(desk.random.randrange(800, 2_600)).splitlines()
        for name, value in chosen.items():
            text.insert(desk.random.randrange(1, len(text)), f"{name}: {value}")
        files[number] = f"File {number}, of {count} in all\n" + "\n".join(text)
        truth[number] = {new[name]: value for name, value in chosen.items()}
    persons = [
        "The old settings move to the new form. Read the `guide` first.",
        desk.errand(0.1),
        "Take the files over now, all with `take` and then `put`: begin with `take` 1.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        if call.name == "guide":
            return "\n".join(guide)
        if call.name == "take":
            return files.get(int(call.arguments.get("file", 0)), "There is no such file.")
        return f"File {call.arguments.get('file')} is in place."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        return [(one["file"], one["settings"]) for one in made(calls, "put")] == [*truth.items()]

    return desk.work(persons, answer, succeeded)


def _act_on_migration(view: AgentView) -> Action:
    if "Read the `guide`" in view.request:
        return Say("I have read it.") if view.calls("guide", of_request=True) else do("guide")
    if "all with `take` and then `put`" not in view.request:
        return Say("Gladly.")
    if view.last.by_person:
        return do("take", file=1)
    found = view.latest(r"File (\d+), of (\d+) in all\n([^\0]*)")
    if found is None:
        known = view.all(r"File (\d+)(?:, of| is in place)")
        again = max([int(one) for (one,) in known], default=0)
        return do("take", file=again) if again else Say("I have lost the thread.")
    number, last, text = int(found[0]), int(found[1]), found[2]
    if number in [one.get("file") for one in view.calls("put", of_request=True)]:
        return do("take", file=number + 1) if number < last else Say("All files are taken over.")
    settings = {}
    for name, value in re.findall(r"^(\w+_\w+): (\d+)$", text, re.MULTILINE):
        here = rf"{name} has become ([\w.]+)"
        now = view.seek("a new name", "result", here, f"{name} become")
        settings[now or name] = int(value)
    return do("put", file=number, settings=settings)


INVENTORY: Final = Family(
    "inventory",
    "an inventory over many results",
    _build_inventory,
    _act_on_inventory,
    _note_stock,
)
LATE_ID: Final = Family("late_id", "an id that is needed late", _build_late_id, _act_on_late_id)
HOPS: Final = Family("hops", "references over several hops", _build_hops, _act_on_hops)
BASELINE: Final = Family("baseline", "a reading to compare with", _build_baseline, _act_on_baseline)
MIGRATION: Final = Family(
    "migration", "configuration taken over file by file", _build_migration, _act_on_migration
)
