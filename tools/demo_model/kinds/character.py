"""A fictional character sheet, made up from nothing but a name.

The values follow the initials of the name, so that different names get different sheets and the
same name always gets the same one. The keys are those of the well-known LMSYS JSON benchmark
(name, house, blood status, occupation, wand, alive, patronus, bogart); every value is invented.
"""

from typing import Final

from tools.demo_model.records import BOOLEAN, INTEGER, NUMBER, STRING, Fact, Field, Group, Record
from tools.demo_model.words import Words

_HOUSES: Final = ("Emberfell", "Mossgate", "Tidewatch", "Stormholt", "Larkspire")
_BLOODS: Final = ("Pure-blood", "Half-blood", "Muggle-born")
_OCCUPATIONS: Final = (
    "student", "teacher", "librarian", "healer", "cartographer", "baker", "clockmaker",
)  # fmt: skip
_WOODS: Final = ("oak", "willow", "holly", "cedar", "ash", "birch", "yew", "maple", "walnut")
_CORES: Final = ("phoenix feather", "unicorn hair", "dragon scale", "silver thread", "moon dust")
_ANIMALS: Final = ("otter", "stag", "hare", "fox", "owl", "swan", "wolf", "badger", "heron", "lynx")
_FEARS: Final = ("spiders", "silence", "deep water", "thunder", "mirrors", "heights", "fog")
_SKILLS: Final = ("archery", "baking", "juggling", "chess", "sailing", "fencing", "singing")


def record(words: Words) -> Record:
    """A name, and the sheet that goes with it."""
    name = words.pick(words.first_name(), words.person(), words.person())
    first, last = ord(name[0]) % 32, ord(name.split(" ")[-1][0]) % 32
    alive = last % 4 != 0
    length = 9 + first % 5 + (last % 4) / 4
    wand = (
        Field(("wood",), STRING, _WOODS[last % len(_WOODS)]),
        Field(("core",), STRING, _CORES[first % len(_CORES)]),
        Field(("length",), NUMBER, length),
    )
    facts: list[Fact] = [
        Field(("name", "full name", "character name"), STRING, name),
        _enum(("house", "school house"), _HOUSES, first, words),
        _enum(("blood status", "blood"), _BLOODS, last, words),
        Field(("occupation", "job", "profession"), STRING, _OCCUPATIONS[first % len(_OCCUPATIONS)]),
        Group(("wand",), (wand,), many=False),
        Field(("alive", "is alive"), BOOLEAN, alive)
        if words.chance(0.2)
        else Field(
            ("alive", "status"),
            {"type": "string", "enum": ["Alive", "Deceased"]},
            "Alive" if alive else "Deceased",
        ),
        Field(("patronus", "spirit animal", "companion"), STRING, _ANIMALS[last % len(_ANIMALS)]),
    ]
    if words.chance(0.4):
        facts.append(
            Field(("bogart", "fear", "greatest fear"), STRING, _FEARS[first % len(_FEARS)])
        )
    if words.chance(0.2):
        facts.append(Field(("age",), INTEGER, 11 + 3 * first))
    if words.chance(0.2):
        facts.append(Field(("skill", "talent"), STRING, _SKILLS[last % len(_SKILLS)]))
    summary = f"{name} is a fictional character who works as a {_OCCUPATIONS[first % 7]}."
    return Record("character", "character sheet", name, tuple(facts), summary)


def _enum(names: tuple[str, ...], values: tuple[str, ...], index: int, words: Words) -> Field:
    """An enum, sometimes with other values than the usual ones."""
    if words.chance(0.15):
        values = tuple(words.name() for _ in range(words.rng.randint(2, 4)))
    schema = {"type": "string", "enum": list(values)}
    return Field(names, schema, values[index % len(values)])
