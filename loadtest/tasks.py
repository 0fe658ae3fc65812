"""The two tasks of LMSYS's post on compressed finite-state machines (2024), as JSON Schemas.

Regular expressions of the post for bounded strings are patterns here; the order of keys is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadtest.schemas import strict_object

_WORDS = {"type": "string", "pattern": r"^[\w\d\s]{1,16}$"}
_COORDINATE = {"type": "string", "pattern": r"^[-+]?[0-9]{1,2}\.[0-9]{1,4}$"}


CHARACTER = strict_object(
    {
        "name": _WORDS,
        "house": {"enum": ["Gryffindor", "Slytherin", "Ravenclaw", "Hufflepuff"]},
        "blood status": {"enum": ["Pure-blood", "Half-blood", "Muggle-born"]},
        "occupation": {
            "enum": [
                "student",
                "teacher",
                "auror",
                "ministry of magic",
                "death eater",
                "order of the phoenix",
            ]
        },
        "wand": strict_object(
            {
                "wood": _WORDS,
                "core": _WORDS,
                "length": {"type": "string", "pattern": r"^[0-9]{1,2}\.[0-9]$"},
            }
        ),
        "alive": {"enum": ["Alive", "Deceased"]},
        "patronus": _WORDS,
        "bogart": _WORDS,
    }
)

CITY = strict_object(
    {
        "name": {"type": "string", "pattern": r"^[\w\d\s]{1,16}$"},
        "country": {"type": "string", "pattern": r"^[\w\d\s]{1,16}$"},
        "latitude": _COORDINATE,
        "population": {"type": "string", "pattern": r"^[-+]?[0-9]{1,9}$"},
        "top 3 landmarks": {"type": "array", "items": _WORDS, "minItems": 3, "maxItems": 3},
    }
)


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    prompt: str
    schema: dict[str, Any]


CHARACTER_PROMPT = "Please fill in the character sheet of {}."
CITY_PROMPT = "Please fill in the facts about the city of {}."
CHARACTERS = ["Hermione Granger", "Harry Potter", "Ron Weasley", "Luna Lovegood", "Severus Snape"]
CITIES = ["Paris", "Kyoto", "Nairobi", "Lima", "Reykjavik"]


def task(number: int) -> Task:
    """The task of the number-th request: characters and cities alternate, names rotate."""
    place = number // 2
    if number % 2 == 0:
        name = CHARACTERS[place % len(CHARACTERS)]
        return Task("character", CHARACTER_PROMPT.format(name), CHARACTER)
    name = CITIES[place % len(CITIES)]
    return Task("city", CITY_PROMPT.format(name), CITY)
