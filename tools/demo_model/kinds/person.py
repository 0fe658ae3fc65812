"""A sentence about somebody's age, city and job: the first extraction in many tutorials."""

from tools.demo_model.records import INTEGER, STRING, Fact, Field, Record
from tools.demo_model.words import Words

_JOBS = ("teacher", "nurse", "baker", "engineer", "painter", "pilot", "student", "lawyer")


def record(words: Words) -> Record:
    """A name and an age, often with a city or a job."""
    name = words.first_name() if words.chance(0.5) else words.person()
    age, city, job = words.rng.randint(1, 99), words.place(), words.pick(*_JOBS)
    facts: list[Fact] = [
        Field(("name", "full name", "first name"), STRING, name),
        Field(("age", "age", "years"), INTEGER, age),
    ]
    text = words.pick(
        f"{name} is {age} years old", f"{name} is {age}", f"{name}, {age}", f"{name} is {age} years"
        " old", f"Name: {name}, age: {age}", f"My name is {name} and I am {age} years old",
    )  # fmt: skip
    if words.chance(0.4):
        text += words.pick(f" and lives in {city}", f", from {city}", f". City: {city}")
        facts.append(Field(("city", "city", "location", "town"), STRING, city))
    if words.chance(0.25):
        text += words.pick(f". The job is {job}", f". Works as a {job}")
        facts.append(Field(("job", "occupation", "profession"), STRING, job))
    text += words.pick(".", ".", "")
    noun = words.pick("person", "user", "user")
    return Record("person", noun, text, tuple(facts), f"{name} is {age} years old.")
