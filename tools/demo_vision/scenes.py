"""Contents of pictures: receipts, badges, charts, character cards, and pages for learning to read.

A scene draws a record and returns it. Values are invented words and numbers, so that they must be
read and cannot be known.
"""

import random
from collections.abc import Callable
from typing import Final, Literal

from tools.demo_model.records import Json
from tools.demo_model.words import Split, Words
from tools.demo_vision.picture import ALPHABET, SIDE, Colour, Picture, Sheet

Kind = Literal["receipt", "badge", "chart", "card", "page"]
Record = dict[str, Json]

KINDS: Final[tuple[Kind, ...]] = ("receipt", "badge", "chart", "card")
"""The kinds with questions and answers."""
_ROW: Final = 16
_ROWS: Final = SIDE // _ROW
"""Lines of text are on rows of patches, with a free row between two lines: with that, reading can
be learned in an hour on one core."""
PLAIN: Final = "label"
"""The field of text that is printed on every picture of a kind, such as "Total"."""
PAGE: Final = "page"
"""The field of text on pages; their labels have `UNASKED` in its place."""
FIELDS: Final = (
    PLAIN,
    "receipt.shop", "receipt.date", "receipt.total",
    *(f"receipt.{part}{number}" for number in range(3) for part in ("name", "price")),
    "badge.name", "badge.role", "badge.company", "badge.id",
    "chart.title",
    *(f"chart.{part}{number}" for number in range(4) for part in ("label", "value")),
    "card.name", "card.house", "card.level", "card.wood", "card.core",
)  # fmt: skip
"""All fields that a run of text may have."""


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_SHOPS: Final = ("Foods", "Cafe", "Market", "Books", "Deli", "Bakery", "Store", "Bar")
_GOODS: Final = _listed(
    "Tea Milk Bread Apples Coffee Rice Soap Eggs Butter Cheese Pens Honey Juice Salt Sugar "
    "Beans Pasta Onions Candles Water Plums Oats Ham Soup Jam Cups Paper Glue Pears Flour"
)
_ROLES: Final = _listed(
    "Engineer Designer Nurse Editor Analyst Teacher Manager Chemist Driver Speaker Visitor "
    "Baker Pilot Lawyer Guide Curator Trainee Planner Doctor Staff"
)
_LABELS: Final = (
    _listed("Mon Tue Wed Thu Fri Sat Sun"),
    _listed("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"),
    _listed("Q1 Q2 Q3 Q4"),
    _listed("2021 2022 2023 2024 2025"),
)
_TITLES: Final = _listed(
    "Sales Visits Rain Orders Users Steps Calls Votes Sleep Costs Guests Trips Bikes Books"
)
_WOODS: Final = _listed("holly oak ash yew elm willow cherry ebony maple cedar beech pine hazel")
_CORES: Final = _listed("phoenix dragon unicorn kelpie griffin siren raven wolf")
_SOLID: Final = ALPHABET.replace(" ", "")
_BARS: Final[tuple[Colour, ...]] = (
    (70, 120, 190), (200, 110, 60), (90, 160, 90), (160, 90, 160), (190, 160, 60),
)  # fmt: skip


def draw(
    kind: Kind, seed: object, words: Split, fonts: Split, grey: bool = False
) -> tuple[Record, Picture]:
    """A record and a picture of it: the same for the same arguments."""
    rng = random.Random(f"{kind} {seed} {words} {fonts}")
    sheet = Sheet(rng, fonts, grey)
    record = _SCENES[kind](sheet, Words(rng, words))
    return record, sheet.finished()


def _short(words: Words, make: Callable[[], str], longest: int) -> str:
    """A result of `make` that is short enough and has only characters of the alphabet."""
    while True:
        text = make()
        if len(text) <= longest and set(text) <= set(ALPHABET):
            return text


def _lines(sheet: Sheet, count: int) -> tuple[list[float], int, float]:
    """Baselines of `count` lines, the size of their letters, and the left margin."""
    rng = sheet.rng
    size = rng.randint(15, 18)
    top = rng.randint(0, _ROWS - 2 * count)
    rows = [top + 2 * index for index in range(count)]
    return [_baseline(sheet, row, size) for row in rows], size, rng.uniform(6, 18)


def _baseline(sheet: Sheet, row: int, size: int) -> float:
    """Baseline of letters whose middle is at or near the middle of a row of patches."""
    y = _ROW * (row + 0.5) + 0.34 * size + sheet.rng.uniform(-2, 2)
    return min(max(y, 0.75 * size + 1), SIDE - 0.25 * size - 1)


def _receipt(sheet: Sheet, words: Words) -> Record:
    rng = sheet.rng
    shop = _short(
        words, lambda: words.name() + (f" {rng.choice(_SHOPS)}" if rng.random() < 0.5 else ""), 14
    )
    date = _date(words)
    count = rng.choice((1, 2, 2, 3))
    names = [
        rng.choice(_GOODS) if rng.random() < 0.5 else _short(words, words.name, 8)
        for _ in range(count)
    ]
    cents = [rng.randint(50, 1999) for _ in range(count)]
    ys, size, left = _lines(sheet, count + 3)
    right = SIDE - rng.uniform(7, 18)
    room, rest = right - left, iter(ys)
    centred = rng.random() < 0.5
    at = (SIDE / 2, next(rest)) if centred else (left, next(rest))
    sheet.write(shop, "receipt.shop", at, size, room=room, align="lm"[centred], strong=True)
    dated_first = rng.random() < 0.5
    if dated_first:
        sheet.write(date, "receipt.date", (left, next(rest)), size, room=room)
    for number, (name, price) in enumerate(zip(names, cents, strict=True)):
        y = next(rest)
        sheet.write(name, f"receipt.name{number}", (left, y), size, room=room * 0.58)
        sheet.write(
            _amount(price), f"receipt.price{number}", (right, y), size, room=room * 0.36, align="r"
        )
    y = next(rest)
    if rng.random() < 0.5:
        sheet.line((left, y - size - 2), (right, y - size - 2))
    word = rng.choice(("Total", "TOTAL", "Sum", "Total:"))
    sheet.write(word, PLAIN, (left, y), size, room=room * 0.5, strong=True)
    sheet.write(_amount(sum(cents)), "receipt.total", (right, y), size, room=room * 0.42, align="r")
    if not dated_first:
        sheet.write(date, "receipt.date", (left, next(rest)), size, room=room)
    items: list[Json] = [
        {"name": name, "price": price / 100} for name, price in zip(names, cents, strict=True)
    ]
    return {"shop": shop, "date": date, "items": items, "total": sum(cents) / 100}


def _badge(sheet: Sheet, words: Words) -> Record:
    rng = sheet.rng
    name = _short(words, words.person, 15)
    company = _short(words, words.company, 15)
    role = rng.choice(_ROLES)
    number = rng.choice(("{}", "{}", "A-{}", "K{}")).format(words.digits(rng.choice((4, 5))))
    ys, size, left = _lines(sheet, 4)
    right, centred = SIDE - left, rng.random() < 0.6
    company_first = rng.random() < 0.6
    fields = [("badge.name", name), ("badge.role", role), ("badge.id", number)]
    fields.insert(0 if company_first else 2, ("badge.company", company))
    for y, (field, text) in zip(ys, fields, strict=True):
        at = (SIDE / 2, y) if centred else (left, y)
        align, room = "lm"[centred], right - left
        strong = field == "badge.name"
        if field == "badge.id":
            sign = rng.choice(("ID", "No.", "#"))
            x = at[0] - (45 if centred else 0)
            sheet.write(sign, PLAIN, (x, y), size, room=36)
            sheet.write(text, field, (x + 38, y), size, room=room - 48)
        else:
            sheet.write(text, field, at, size, room=room, align=align, strong=strong)
    return {"name": name, "role": role, "company": company, "id": number}


def _chart(sheet: Sheet, words: Words) -> Record:
    rng = sheet.rng
    title = rng.choice(_TITLES) if rng.random() < 0.6 else _short(words, words.name, 10)
    count = rng.choice((3, 3, 4))
    if rng.random() < 0.6:
        labels = rng.sample(rng.choice([some for some in _LABELS if len(some) >= count]), count)
    else:
        labels = [_short(words, words.name, 4) for _ in range(count)]
    values = [rng.randint(2, 99) for _ in range(count)]
    size = rng.randint(15, 18)
    middle, top = rng.random() < 0.5, _baseline(sheet, rng.randint(0, 1), size)
    at = (SIDE / 2, top) if middle else (rng.uniform(6, 18), top)
    sheet.write(title, "chart.title", at, size, room=150, align="lm"[middle], strong=True)
    colour = rng.choice(_BARS)
    (_across if rng.random() < 0.4 else _upward)(sheet, labels, values, size, colour)
    bars: list[Json] = [
        {"label": label, "value": value} for label, value in zip(labels, values, strict=True)
    ]
    return {"title": title, "bars": bars}


def _across(sheet: Sheet, labels: list[str], values: list[int], size: int, colour: Colour) -> None:
    """Bars from left to right."""
    for number, (label, value) in enumerate(zip(labels, values, strict=True)):
        y = _baseline(sheet, 3 + 2 * number, size)
        end = 66 + 82 * value / max(values)
        sheet.write(label, f"chart.label{number}", (56, y), size, room=48, align="r")
        sheet.block((62, y - size + 2, end, y + 2), colour)
        sheet.write(str(value), f"chart.value{number}", (end + 6, y), size, room=36)


def _upward(sheet: Sheet, labels: list[str], values: list[int], size: int, colour: Colour) -> None:
    """Bars from the bottom up."""
    wide = 168 / len(values)
    for number, (label, value) in enumerate(zip(labels, values, strict=True)):
        x, top = 12 + (number + 0.5) * wide, 156 - 92 * value / max(values)
        sheet.block((x - wide * 0.3, top, x + wide * 0.3, 156), colour)
        above = _baseline(sheet, int((top - 13) // _ROW), size)
        sheet.write(str(value), f"chart.value{number}", (x, above), size, room=40, align="m")
        below = _baseline(sheet, _ROWS - 2, size)
        sheet.write(label, f"chart.label{number}", (x, below), size, room=wide - 6, align="m")
    sheet.line((8, 156), (184, 156))


def _card(sheet: Sheet, words: Words) -> Record:
    rng = sheet.rng
    name, house = _short(words, words.person, 15), _short(words, words.name, 9)
    level, wood, core = rng.randint(1, 99), rng.choice(_WOODS), rng.choice(_CORES)
    ys, size, left = _lines(sheet, 5)
    if rng.random() < 0.4:
        sheet.block((3, 3, SIDE - 4, SIDE - 4), None, edge=True)
    centred, room = rng.random() < 0.4, SIDE - 2 * left
    at = (SIDE / 2, ys[0]) if centred else (left, ys[0])
    sheet.write(name, "card.name", at, size, room=room, align="lm"[centred], strong=True)
    colon, column = rng.choice(("", ":")), left + rng.uniform(62, 70)
    rows = [("House", house), ("Level", str(level)), ("Wood", wood), ("Core", core)]
    for y, (label, text) in zip(ys[1:], rows, strict=True):
        sheet.write(label + colon, PLAIN, (left, y), size, room=56)
        sheet.write(text, f"card.{label.lower()}", (column, y), size, room=SIDE - 6 - column)
    return {"name": name, "house": house, "level": level, "wand": {"wood": wood, "core": core}}


def _page(sheet: Sheet, words: Words) -> Record:
    """A page full of meaningless text: four times the characters of the other pictures."""
    rng = sheet.rng
    for row in range(rng.randint(0, 1), _ROWS, 2):
        size, left = rng.randint(15, 18), rng.uniform(4, 20)
        y = _baseline(sheet, row, size)
        # As much as fits: a character is half as wide as it is high, or a little more.
        longest = int((SIDE - 6 - left) / (0.56 * size))
        text = _scrap(words)
        while len(more := f"{text} {_scrap(words)}") <= longest:
            text = more
        sheet.write(text[:longest].strip(), PAGE, (left, y), size, room=SIDE - 4 - left)
    return {}


def _scrap(words: Words) -> str:
    """A word, a number, or characters in a row."""
    rng = words.rng
    shape = rng.random()
    if shape < 0.55:
        return _short(words, words.name, 12)
    if shape < 0.62:
        return _short(words, words.word, 12)
    if shape < 0.9:
        return rng.choice(
            (_date(words), _amount(rng.randint(50, 9999)), str(rng.randint(1, 99999)))
        )
    return "".join(rng.choice(_SOLID) for _ in range(rng.randint(1, 7)))


def _date(words: Words) -> str:
    draw = words.rng.randint
    year, month, day = draw(2018, 2031), draw(1, 12), draw(1, 28)
    return words.pick(
        f"{year}-{month:02}-{day:02}", f"{day:02}.{month:02}.{year}", f"{day:02}/{month:02}/{year}"
    )


def _amount(cents: int) -> str:
    return f"{cents / 100:.2f}"


_SCENES: Final[dict[Kind, Callable[[Sheet, Words], Record]]] = {
    "receipt": _receipt, "badge": _badge, "chart": _chart, "card": _card, "page": _page,
}  # fmt: skip
