"""What the peers' shared model learns: LMSYS's two tasks, answered in the JSON they ask for.

    for prompt, answer in sheets(seed=1):
        ...

Every answer is valid against its schema in ``loadtest.tasks``. Each name has values of its own that
most of its sheets show; one field in three differs, so that an answer is likely but never certain.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

from loadtest.tasks import CHARACTER, CHARACTERS, CITIES

_OTHER_CHARACTERS: Final = (
    "Ada Fenn", "Bram Alder", "Celia Marsh", "Dorian Pike", "Edith Vale", "Felix Thorne",
    "Greta Holm", "Hugo Penn", "Iris Blake", "Jonas Reed", "Klara Voss", "Leo Hart",
    "Mina Frost", "Nora Quill", "Oscar Dale", "Petra Lind", "Quentin Ash", "Rosa Bell",
    "Silas Crow", "Tilda Moss", "Ursula Kent", "Victor Stone", "Wanda Grey", "Yara Finch",
)  # fmt: skip
_OTHER_CITIES: Final = (
    "Oslo", "Cairo", "Berlin", "Quito", "Hanoi", "Dakar", "Madrid", "Lisbon", "Vienna", "Prague",
    "Tokyo", "Delhi", "Sydney", "Boston", "Toronto", "Bogota", "Athens", "Dublin", "Riga", "Tunis",
)  # fmt: skip
_WOODS: Final = ("holly", "willow", "oak", "ash", "yew", "vine", "cedar", "elm")
_CORES: Final = ("phoenix feather", "unicorn hair", "dragon string", "veela hair")
_ANIMALS: Final = ("stag", "otter", "hare", "fox", "swan", "doe", "wolf", "lynx", "terrier")
_FEARS: Final = ("spiders", "failure", "the dark", "heights", "a mummy", "silence", "a snake")
_COUNTRIES: Final = ("France", "Japan", "Kenya", "Peru", "Iceland", "Norway", "Egypt", "Canada")
_PLACES: Final = ("Old", "Royal", "Grand", "City", "North", "River", "Stone", "Golden")
_SIGHTS: Final = ("Tower", "Palace", "Museum", "Bridge", "Market", "Garden", "Square", "Gate")
_CHARACTER_PROMPTS: Final = (
    "Please fill in the character sheet of {}.",
    "{} is a character. Please fill in the following information about this character.",
    "Describe the character {} in JSON.",
)
_CITY_PROMPTS: Final = (
    "Please fill in the facts about the city of {}.",
    "Please fill in the following information about the city {}.",
    "Describe the city of {} in JSON.",
)
_USUAL: Final = 0.8
"""Share of the prompts that are worded as those of ``loadtest.tasks``."""
_TYPICAL: Final = 0.67
"""Share of the fields that have the value which the name has as a rule."""


def sheets(seed: int) -> Iterator[tuple[str, str]]:
    """Endless pairs of a prompt and its JSON, characters and cities in turn. Microseconds each."""
    rng = random.Random(seed)
    while True:
        name = rng.choice((*CHARACTERS, *_OTHER_CHARACTERS))
        yield _worded(_CHARACTER_PROMPTS, name, rng), _written(_character(name, rng))
        city = rng.choice((*CITIES, *_OTHER_CITIES))
        yield _worded(_CITY_PROMPTS, city, rng), _written(_city(city, rng))


class _Values:
    """Draws the fields of one sheet: as a rule the name's own, now and then any."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._own = random.Random(name)
        self._any = rng

    def one_of(self, values: Sequence[str]) -> str:
        own = self._own.choice(values)
        return own if self._any.random() < _TYPICAL else self._any.choice(values)

    def number(self, lowest: int, highest: int) -> int:
        own = self._own.randint(lowest, highest)
        return own if self._any.random() < _TYPICAL else self._any.randint(lowest, highest)


def _character(name: str, rng: random.Random) -> dict[str, Any]:
    values = _Values(name, rng)
    choices = CHARACTER["properties"]
    return {
        "name": name,
        "house": values.one_of(choices["house"]["enum"]),
        "blood status": values.one_of(choices["blood status"]["enum"]),
        "occupation": values.one_of(choices["occupation"]["enum"]),
        "wand": {
            "wood": values.one_of(_WOODS),
            "core": values.one_of(_CORES),
            "length": f"{values.number(9, 14)}.{values.number(0, 3)}",
        },
        "alive": values.one_of(choices["alive"]["enum"]),
        "patronus": values.one_of(_ANIMALS),
        "bogart": values.one_of(_FEARS),
    }


def _city(name: str, rng: random.Random) -> dict[str, Any]:
    values = _Values(name, rng)
    return {
        "name": name,
        "country": values.one_of(_COUNTRIES),
        "latitude": f"{values.number(10, 65)}.{values.number(10, 99)}",
        "population": str(values.number(100, 900) * 10_000),
        "top 3 landmarks": [f"{values.one_of(_PLACES)} {values.one_of(_SIGHTS)}" for _ in range(3)],
    }


def _worded(prompts: Sequence[str], name: str, rng: random.Random) -> str:
    wording = prompts[0] if rng.random() < _USUAL else rng.choice(prompts)
    return wording.format(name)


def _written(sheet: dict[str, Any]) -> str:
    """As ``json.dumps`` writes it, which every peer's grammar allows."""
    return json.dumps(sheet)
