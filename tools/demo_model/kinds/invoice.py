"""A paragraph with the content of an invoice."""

from typing import Final

from tools.demo_model.records import INTEGER, NUMBER, STRING, Fact, Field, Group, Record
from tools.demo_model.words import Words, listing

_SYMBOLS: Final = {"EUR": "€", "USD": "$", "GBP": "£"}
_QUALITIES: Final = (
    "brass", "wooden", "blue", "small", "heavy", "paper", "steel", "glass", "green",
)  # fmt: skip
_THINGS: Final = (
    "lamp", "chair", "notebook", "kettle", "screw", "cable", "table", "pen", "shelf", "mug", "box",
    "keyboard", "hammer", "rope",
)  # fmt: skip


def record(words: Words) -> Record:
    """A number, date, vendor, items with quantity and price, total and currency."""
    rng = words.rng
    number, date, vendor = _number(words), words.date(), words.company()
    currency = words.pick("EUR", "USD", "GBP", "EUR", "USD", "CHF", "JPY", "SEK")
    items = [(_item(words), rng.randint(1, 40), _price(words)) for _ in range(rng.randint(1, 3))]
    total = round(sum(count * price for _, count, price in items), 2)
    money = _money(words, currency)
    amount = money.format(f"{total:,.2f}" if words.chance(0.3) else f"{total:.2f}")
    opening = words.pick(
        f"Invoice {number} from {vendor}, dated {date}.",
        f"{vendor} sent invoice {number} on {date}.",
        f"On {date} we received invoice no. {number} from {vendor}.",
        f"Invoice number: {number}. Date: {date}. Vendor: {vendor}.",
        f"{vendor}\nInvoice: {number}\nDate: {date}\n",
        f"This is invoice {number} of {date}, issued by {vendor}.",
    )
    shape = words.pick(0, 0, 1, 2, 3)
    unit = money if words.chance(0.25) else "{}"
    goods = listing(
        [_line(shape, name, count, unit.format(f"{price:.2f}")) for name, count, price in items]
    )
    lines = words.pick(
        f"It lists {goods}.", f"We bought {goods}.", f"Items: {goods}.", f"For {goods}."
    )
    end = words.pick(
        f"The total is {amount}.", f"Total: {amount}.", f"In total {amount} is due.",
        f"Please pay {amount}.", f"Amount due: {amount}.",
    )  # fmt: skip
    rows = tuple(
        (
            Field(("description", "name", "item", "product"), STRING, name),
            Field(("quantity", "qty", "count"), INTEGER, count),
            Field(("price", "unit price"), NUMBER, price),
        )
        for name, count, price in items
    )
    facts: tuple[Fact, ...] = (
        Field(("number", "invoice number", "invoice id", "id"), STRING, number),
        Field(("date", "invoice date"), STRING, date),
        Field(("vendor", "seller", "supplier", "company"), STRING, vendor),
        Group(("items", "line items", "lines"), rows, many=True),
        Field(("total", "total amount", "amount", "amount due"), NUMBER, total),
        Field(("currency", "currency code"), STRING, currency),
    )
    summary = f"{vendor} asks for {amount} with invoice {number}."
    return Record("invoice", "invoice", f"{opening} {lines} {end}", facts, summary)


def _money(words: Words, currency: str) -> str:
    """Format of an amount, with `{}` for the digits."""
    if currency in _SYMBOLS and words.chance(0.4):
        return _SYMBOLS[currency] + "{}"
    return words.pick("{} " + currency, currency + " {}")


def _number(words: Words) -> str:
    d = words.digits
    return words.pick(
        f"INV-{d(5)}", f"INV-{words.rng.randint(2018, 2031)}-{d(4)}", f"{d(4)}/{d(3)}", d(6),
        f"{words.pick(*'ABCDEFGHKLMNPRSTVWXZ')}-{d(5)}", f"{words.name()[:2].upper()}{d(6)}",
    )  # fmt: skip


def _item(words: Words) -> str:
    thing = words.pick(*_THINGS) if words.chance(0.5) else words.word()
    if words.chance(0.5):
        return f"{words.pick(*_QUALITIES)} {thing}"
    return thing if words.chance(0.6) else f"{words.word()} {thing}"


def _price(words: Words) -> float:
    cents = words.rng.randint(1, 99) if words.chance(0.7) else words.pick(0, 50, 0, 20, 90)
    return round(words.rng.randint(0, 40 if words.chance(0.6) else 900) + cents / 100, 2) or 0.5


def _line(shape: int, name: str, count: int, price: str) -> str:
    return (
        f"{count} x {name} at {price}",
        f"{count} {name} for {price} each",
        f"{name} (quantity {count}, price {price})",
        f"{count} pieces of {name}, {price} per piece",
    )[shape]
