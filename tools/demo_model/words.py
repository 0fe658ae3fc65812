"""Invented words, names and numbers for the generated paragraphs.

Every invented word belongs to exactly one split, by a checksum of its letters. So the names in
held-out examples are in no training example, and a model that gets them right has copied them.
"""

import random
import zlib
from functools import cache
from typing import Final, Literal, TypeVar

Split = Literal["train", "held_out"]
T = TypeVar("T")

_HELD_OUT_ONE_IN: Final = 8
_ONSETS: Final = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl sm sn st "
    "str sw t th tr v w y z"
)
_PLAIN_VOWELS: Final = "a e i o u a e i o ai au ea ee ei ia io oa oo ou"
_VOWELS: Final = f"{_PLAIN_VOWELS} y é ü ö á å"
_CODAS: Final = "b ck d f g k l ll ld m mp n nd ng nt p r rd rk rn rs s sh ss st t th x"
_FIRST_NAMES: Final = (
    "Ada Ahmed Aisha Alice Amara Ana Anders Ben Bob Carla Carlos Chen Clara Daniel David Diego "
    "Elena Emma Erik Farah Fatima George Grace Greta Hana Harry Hugo Ines Ivan Jane John José "
    "Julia Karim Kenji Lars Laura Leila Liam Lucía Maria Mark Mei Mina Mohamed Nadia Nina Noah "
    "Nora Olga Oliver Omar Oscar Paul Pedro Peter Priya Rafael Rosa Sam Sara Sofia Thomas Tom Uma "
    "Victor Wei Yara Yuki Zoe Zoë René Jürgen"
)
_SURNAMES: Final = (
    "Adams Becker Brown Carter Costa Dubois Evans Fischer Garcia Hansen Ito Jensen Johnson Jones "
    "Keller Khan Kim Kowalski Larsen Lee Lopez Martin Meyer Miller Murphy Nakamura Nguyen Novak "
    "Okafor Olsen Patel Peterson Rossi Sato Schmidt Silva Singh Smith Tanaka Taylor Walker Weber "
    "Williams Wilson Wright Young Zhang"
)
_COMPOUNDS: Final = (
    "Alder Bay Black Blue Bright Clear Cold East Fair Glen Gold Green High Iron Lake Long North "
    "Oak Red River Rock Sand Silver South Stone Sun West White Wind Wood",
    "bank bridge brook burn dale field ford gate ham haven hill house land mark mill port ridge "
    "shore side stone ton water way well wind wood worth",
)
_MONTHS: Final = (
    "January February March April May June July August September October November December"
)
_RARE: Final = "東京 大阪 北京 서울 Ωmega Łódź Москва Kyōto São Åse naïve Ñandú Çelik Đặng"


def split_of(word: str) -> Split:
    """The split that a word belongs to, regardless of capitals."""
    checksum = zlib.crc32(word.lower().encode())
    return "held_out" if checksum % _HELD_OUT_ONE_IN == 0 else "train"


@cache
def _listed(words: str, split: Split | None = None) -> tuple[str, ...]:
    """The words as a tuple: all, or those of a split."""
    return tuple(word for word in words.split() if split in (None, split_of(word)))


class Words:
    """Draws words of one split from one random stream."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.rng = rng
        self.split = split

    def pick(self, *choices: T) -> T:
        """One of the choices, with equal probabilities."""
        return choices[self.rng.randrange(len(choices))]

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.rng.random() < probability

    def word(self) -> str:
        """An invented lower-case word of one to three syllables."""
        while True:
            word = "".join(self._syllable() for _ in range(self.pick(1, 2, 2, 2, 3)))
            if len(word) > 2 and split_of(word) == self.split:
                return word

    def name(self) -> str:
        """An invented capitalised word, some of English parts; sometimes in another script."""
        if self.chance(0.02):
            return self.pick(*_listed(_RARE, self.split))
        return self._compound() if self.chance(0.12) else self.word().capitalize()

    def surname(self) -> str:
        """A last name: a common one about a quarter of the time."""
        return self.pick(*_listed(_SURNAMES, self.split)) if self.chance(0.25) else self.name()

    def first_name(self) -> str:
        """A first name: a common one about half of the time."""
        if self.chance(0.45):
            return self.pick(*_listed(_FIRST_NAMES, self.split))
        return self.name()

    def person(self) -> str:
        """A person's full name: two or three words, a few with initials or hyphens."""
        shape = self.rng.random()
        if shape < 0.75:
            return f"{self.first_name()} {self.surname()}"
        if shape < 0.83:
            return f"{self.first_name()} {self.pick(*'ABCDEFGHJKLMNPRSTVW')}. {self.name()}"
        if shape < 0.92:
            return f"{self.first_name()} {self.name()}-{self.name()}"
        return f"{self.first_name()} {self.pick('van', 'de', 'el', 'von', 'Mc')} {self.name()}"

    def place(self) -> str:
        """A town or a country: one word, sometimes two."""
        if self.chance(0.25):
            return f"{self.pick('New', 'San', 'Port', 'Upper', 'Saint', 'North')} {self.name()}"
        return self.name()

    def company(self) -> str:
        """A company's name."""
        tail = self.pick(
            "Ltd", "Inc.", "GmbH", "Labs", "Group", "& Sons", "Supplies", "Foods", "Systems",
            "Books", "Traders", "Media",
        )  # fmt: skip
        if self.chance(0.25):
            return f"{self.name()} {self.name()} {tail}"
        return f"{self.name()} {tail}" if self.chance(0.85) else self.name()

    def street(self) -> str:
        """A street and house number."""
        number = self.rng.randint(1, 299)
        kind = self.pick("Street", "Lane", "Road", "Avenue", "Square", "Way")
        return f"{number} {self.name()} {kind}"

    def digits(self, count: int) -> str:
        """Random digits, the first one not zero."""
        return "".join(
            [self.pick(*"123456789"), *(self.pick(*"0123456789") for _ in range(count - 1))]
        )

    def phone(self) -> str:
        """A telephone number in one of several forms."""
        d = self.digits
        return self.pick(
            f"+{d(2)} {d(2)} {d(4)} {d(4)}",
            f"+{d(1)}-{d(3)}-{d(3)}-{d(4)}",
            f"({d(3)}) {d(3)}-{d(4)}",
            f"{d(3)}-{d(4)}",
            f"0{d(3)} {d(6)}",
            f"+{d(11)}",
            f"{d(3)}.{d(3)}.{d(4)}",
        )

    def email(self, person: str) -> str:
        """An address that often looks like the person's name."""
        names = person.lower().replace("-", " ").replace(".", "").split()
        parts = [name for name in names if name.isascii()]
        first = parts[0] if parts else self.word()
        last = parts[-1] if len(parts) > 1 else self.word()
        local = self.pick(
            f"{first}.{last}", f"{first[0]}{last}", first, f"{first}_{last}", self.word(),
            f"{last}{self.rng.randint(1, 99)}",
        )  # fmt: skip
        host = self.pick("example", "mail", self.word(), self.word(), self.word())
        return f"{local}@{host}.{self.pick('com', 'org', 'net', 'io', 'de', 'co.uk')}"

    def date(self) -> str:
        """A date as people write it: ISO half of the time."""
        draw = self.rng.randint
        year, month, day = draw(2018, 2031), draw(1, 12), draw(1, 28)
        if self.chance(0.5):
            return f"{year}-{month:02}-{day:02}"
        named = _listed(_MONTHS)[month - 1]
        return self.pick(
            f"{day} {named} {year}", f"{named} {day}, {year}", f"{day:02}/{month:02}/{year}",
            f"{day} {named[:3]} {year}",
        )  # fmt: skip

    def time(self) -> str:
        """A time of day."""
        hour, minute = self.rng.randint(7, 21), self.pick(0, 15, 30, 45, 5, 20)
        if self.chance(0.6):
            return f"{hour:02}:{minute:02}"
        half = "pm" if hour >= 12 else "am"
        return self.pick(f"{hour % 12 or 12}:{minute:02} {half}", f"{hour % 12 or 12} {half}")

    def _compound(self) -> str:
        """A word such as "Brightwater"."""
        while True:
            word = "".join(self.pick(*_listed(parts)) for parts in _COMPOUNDS)
            if split_of(word) == self.split:
                return word

    def _syllable(self) -> str:
        coda = self.pick(*_listed(_CODAS)) if self.chance(0.5) else ""
        vowels = _PLAIN_VOWELS if self.chance(0.94) else _VOWELS
        return self.pick(*_listed(_ONSETS)) + self.pick(*_listed(vowels)) + coda


def listing(parts: list[str]) -> str:
    """Joins with commas and a final "and", as prose does."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
