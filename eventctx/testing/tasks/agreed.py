"""Families whose facts agent and person have agreed on: an offer that was taken, bookings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eventctx.testing.tasks.noise import PEOPLE
from eventctx.testing.tasks.reading import Action, AgentCall, AgentView, Say, do
from eventctx.testing.tasks.work import Desk, Family, Work, made

# -- an offer that was taken ---------------------------------------------------------------------


def _build_choice(desk: Desk) -> Work:
    """The agent offers three ways, a person takes one in four words; much later it is booked."""
    towns = [desk.name() for _ in range(3)]
    crates = desk.random.sample(range(10, 99), 3)
    days = desk.random.sample(("Monday", "Tuesday", "Thursday", "Friday"), 3)
    chosen = desk.random.randrange(3)
    word = ("first", "second", "third")[chosen]
    offers = desk.filler(1_500).splitlines()
    for town, crate, day in zip(towns, crates, days, strict=True):
        offers.insert(desk.random.randrange(1, len(offers)), f"via {town}: {crate} crates, {day}")
    persons = [
        f"Ask the `carrier` for ways ({', '.join(towns)}) and offer them to me in that order.",
        f"The {word} one then. It can wait a little.",
        *[desk.errand(0.42) for _ in range(2)],
        "Now `book` the way that we settled on.",
    ]

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        return "\n".join(offers) if call.name == "carrier" else "It is booked."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        booked = {"town": towns[chosen], "crates": crates[chosen], "day": days[chosen]}
        return made(calls, "book") == [booked]

    return desk.work(persons, answer, succeeded)


def _act_on_choice(view: AgentView) -> Action:
    words = view.request
    asked = re.search(r"for ways \(([^)]*)\)", words)
    if asked:
        if not view.calls("carrier", of_request=True):
            return do("carrier")
        said = []
        for number, town in enumerate(asked[1].split(", "), 1):
            ways = view.all(rf"via {town}: (\d+) crates, (\w+)")
            crates, day = ways[-1] if ways else ("0", "Sunday")
            said.append(f"Offer {number}: {crates} crates by way of {town} on a {day}.")
        return Say(" ".join(said))
    if "settled on" not in words or view.calls("book", of_request=True):
        return Say("Very well.")
    taken = view.seek("the choice", "person", r"The (first|second|third) one then", "one then")
    if taken is None:
        return do("book", town="", crates=0, day="")
    number = ("first", "second", "third").index(taken) + 1
    here = rf"Offer {number}: (\d+) crates by way of (\w+) on a (\w+)"
    offers = view.seek_all("the offer", "agent", here, f"offer {number} crates")
    crates, town, day = offers[-1] if offers else ("0", "", "")
    return do("book", town=town, crates=int(crates), day=day)


# -- what was booked -----------------------------------------------------------------------------


def _build_schedule(desk: Desk) -> Work:
    """Rooms are booked one by one; at the end all bookings of one group move by an hour."""
    mine, other = desk.name(), desk.name()
    wanted = [mine, other, mine, other, mine]
    days = desk.random.sample(range(1, 29), len(wanted))
    rooms = desk.random.sample(range(100, 400), len(wanted))
    keeper = desk.random.choice(PEOPLE)
    persons = []
    for who, day in zip(wanted, days, strict=True):
        persons += [f"`book_room` for the {who} group, day {day}; any room.", desk.errand(0.18)]
    persons.append(f"The {mine} group begins an hour later: `shift` each of its bookings, by room.")

    def answer(call: AgentCall, before: Sequence[AgentCall]) -> str:
        day = call.arguments.get("day")
        if call.name != "book_room" or day not in days:
            return "It is noted."
        room = rooms[days.index(day)]
        return f"Room {room} is booked on day {day}; {keeper} has the key."

    def succeeded(calls: Sequence[AgentCall]) -> bool:
        shifted = [one["room"] for one in made(calls, "shift")]
        own = [room for room, who in zip(rooms, wanted, strict=True) if who == mine]
        return sorted(map(str, shifted)) == sorted(map(str, own))

    return desk.work(persons, answer, succeeded)


def _act_on_schedule(view: AgentView) -> Action:
    words = view.request
    asked = re.search(r"for the (\w+) group, day (\d+)", words)
    if asked:
        if view.calls("book_room", of_request=True):
            room = re.search(r"Room (\d+) is booked", view.last.text)
            return Say(f"The {asked[1]} group has room {room[1] if room else '?'}.")
        return do("book_room", group=asked[1], day=int(asked[2]))
    moved = re.search(r"The (\w+) group begins an hour later", words)
    if moved is None:
        return Say("I see.")
    query = f'"{moved[1]} group has room"'
    view.look_up(query)
    here = rf"The {moved[1]} group has room (\d+)"
    rooms = [int(one) for (one,) in view.seek_all("bookings", "agent", here, query)]
    shifted = [one.get("room") for one in view.calls("shift", of_request=True)]
    left = [one for one in dict.fromkeys(rooms) if one not in shifted]
    return do("shift", room=left[0]) if left else Say("All are an hour later.")


CHOICE: Final = Family("choice", "an offer that was taken", _build_choice, _act_on_choice)
SCHEDULE: Final = Family("schedule", "bookings to be moved", _build_schedule, _act_on_schedule)
