"""Functions that calculate."""

from typing import Final

from tools.demo_model.functions.task import Argument, Task
from tools.demo_model.records import INTEGER, NUMBER, STRING
from tools.demo_model.words import Words

OPERATIONS: Final = ("add", "multiply", "subtract", "divide")
"""Topics of `arithmetic`."""


def arithmetic(words: Words) -> Task:
    """Two numbers and one of four operations."""
    whole = words.chance(0.7)
    left, right = (
        words.rng.randint(0, 10 ** words.rng.randint(1, 3)) if whole
        else round(words.rng.uniform(0, 99), 1) for _ in range(2)
    )  # fmt: skip
    verb, names, about, asked = words.pick(
        ("add", ("add", "add", "add_numbers", "sum", "plus"), "Add two numbers",
         (f"Add {left} and {right}.", f"What is {left} plus {right}?",
          f"What is {left} + {right}?", f"{left} + {right}", f"Sum {left} and {right}.")),
        ("multiply", ("multiply", "multiply", "multiply_numbers", "times", "product"),
         "Multiply two numbers",
         (f"Multiply {left} by {right}.", f"What is {left} times {right}?",
          f"What is {left} * {right}?", f"Multiply {left} and {right}.")),
        ("subtract", ("subtract", "minus", "difference"), "Subtract two numbers",
         (f"What is {left} minus {right}?", f"What is {left} - {right}?")),
        ("divide", ("divide", "divide_numbers", "quotient"), "Divide two numbers",
         (f"Divide {left} by {right}.", f"What is {left} divided by {right}?")),
    )  # fmt: skip
    schema = INTEGER if whole and words.chance(0.5) else NUMBER
    total = words.rng.randint(0, 9999)
    first, second = words.pick(
        (("a",), ("b",)), (("a",), ("b",)), (("x",), ("y",)), (("first",), ("second",)),
        (("left",), ("right",)), (("number1",), ("number2",)),
    )  # fmt: skip
    return Task(
        verb,
        names,
        (f"{about}.", about, f"{about} and return the result."),
        (Argument(first, schema, left, "The first number"),
         Argument(second, schema, right, "The second number")),
        words.pick(*asked),
        words.pick(total, str(total), {"result": total}),
        f"The result is {total}.",
    )  # fmt: skip


def currency(words: Words) -> Task:
    """An amount in another currency."""
    amount = words.rng.randint(1, 900) if words.chance(0.7) else round(words.rng.random() * 99, 2)
    source, target = words.rng.sample(("EUR", "USD", "GBP", "CHF", "JPY", "SEK"), 2)
    found = round(words.rng.uniform(1, 999), 2)
    return Task(
        "currency",
        ("convert_currency", "convert", "exchange", "currency_converter"),
        ("Convert money into another currency.", "Currency conversion"),
        (
            Argument(("amount", "value"), NUMBER, amount, "How much"),
            Argument(("from", "from_currency", "source"), STRING, source, "Its currency"),
            Argument(("to", "to_currency", "target"), STRING, target, "The new currency"),
        ),
        words.pick(f"Convert {amount} {source} to {target}.", f"What is {amount} {source} in "
                   f"{target}?", f"How much is {amount} {source} in {target}?"),
        words.pick(found, {"result": found}, f"{found} {target}"),
        f"{amount} {source} is {found} {target}.",
    )  # fmt: skip
