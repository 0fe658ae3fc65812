"""A message that announces a meeting, a party or another event."""

from tools.demo_model.records import INTEGER, STRING, STRINGS, Fact, Field, Record
from tools.demo_model.words import Words, listing


def record(words: Words) -> Record:
    """A title, date, time, location and attendees; sometimes a duration and an organizer."""
    title, date, time = _title(words), words.date(), words.time()
    location = words.pick(
        f"Room {words.name()}", f"Room {words.rng.randint(1, 480)}", f"Café {words.name()}",
        f"{words.name()} Hall", words.street(), f"the {words.name()} Centre", words.place(),
    )  # fmt: skip
    people = [
        words.first_name() if words.chance(0.5) else words.person()
        for _ in range(words.rng.randint(1, 4))
    ]
    sentences = [
        words.pick(
            f"{title} takes place on {date} at {time} in {location}.",
            f"We meet for {title} on {date} at {time}. The place is {location}.",
            f'You are invited to "{title}" at {location}, on {date}, {time}.',
            f"Reminder: {title}, {date}, {time}, {location}.",
            f"Let us hold {title} on {date}. It starts at {time} and the location is {location}.",
            f"On {date} at {time} there will be {title} in {location}.",
            f"Title: {title}. Date: {date}. Time: {time}. Location: {location}.",
        ),
        words.pick(
            f"{listing(people)} will attend.",
            f"Attendees: {', '.join(people)}.",
            f"Expected are {listing(people)}.",
            f"I have invited {listing(people)}.",
            f"Those who come: {listing(people)}.",
        ),
    ]
    facts: list[Fact] = [
        Field(("title", "event", "event name", "name"), STRING, title),
        Field(("date", "day", "event date"), STRING, date),
        Field(("time", "start time", "start"), STRING, time),
        Field(("location", "place", "venue"), STRING, location),
        Field(("attendees", "participants", "people", "guests"), STRINGS, people),
    ]
    if words.chance(0.2):
        minutes = words.pick(15, 30, 45, 60, 90, 120, 150)
        sentences.append(words.pick(f"It lasts {minutes} minutes.", f"Plan {minutes} minutes."))
        facts.append(Field(("duration minutes", "duration", "minutes"), INTEGER, minutes))
    if words.chance(0.2):
        host = words.person()
        sentences.append(words.pick(f"The organizer is {host}.", f"It is organized by {host}."))
        facts.append(Field(("organizer", "host"), STRING, host))
    if words.chance(0.2):
        sentences.append(f"Please bring your {words.word()}.")
    summary = f"{title} is on {date} at {time} in {location}."
    return Record("event", "event", " ".join(sentences), tuple(facts), summary)


def _title(words: Words) -> str:
    topic = words.pick(
        "Budget", "Design", "Project", "Team", "Sales", "Product", words.name(), words.name(),
        words.name(),
    )  # fmt: skip
    kind = words.pick(
        "Review", "Workshop", "Kickoff", "Party", "Meeting", "Lunch", "Planning", "Concert",
        "review", "meeting", "Conference", "Training",
    )  # fmt: skip
    return words.pick(
        f"{topic} {kind}", f"{topic} {kind}", f"{words.name()} {topic} {kind}",
        f"{kind} with {words.first_name()}", f"{topic} {kind} {words.rng.randint(2, 2030)}",
    )  # fmt: skip
