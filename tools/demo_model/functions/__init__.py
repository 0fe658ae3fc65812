"""Typical functions for a model, and requests that need them.

The numbers and texts that functions return are made up: the model repeats results, it does not
check them.
"""

from collections.abc import Callable
from typing import Final

from tools.demo_model.functions import numbers, orders, questions
from tools.demo_model.functions.task import Argument, Task
from tools.demo_model.words import Words

FUNCTIONS: Final[dict[str, Callable[[Words], Task]]] = {
    "weather": questions.weather,
    "time": questions.time,
    "arithmetic": numbers.arithmetic,
    "email": orders.email,
    "timer": orders.timer,
    "search": questions.search,
    "reminder": orders.reminder,
    "price": questions.price,
    "table": orders.table,
    "order": orders.order,
    "tracking": questions.tracking,
    "translation": questions.translation,
    "person": questions.person,
    "currency": numbers.currency,
    "listing": questions.listing,
    "invented": orders.invented,
}
"""Generators of a task, by topic."""

_COMMON: Final = ("weather", "arithmetic")
"""Topics drawn twice as often: every tutorial has them."""


def task(words: Words, *without: str) -> Task:
    """A task of any topic except those in `without`."""
    while True:
        drawn = FUNCTIONS[words.pick(*FUNCTIONS, *_COMMON)](words)
        if drawn.topic not in without:
            return drawn


def sibling(words: Words, of: Task) -> Task:
    """A task easily confused with `of`: for arithmetic another operation, else any other topic."""
    while of.topic in numbers.OPERATIONS:
        drawn = numbers.arithmetic(words)
        if drawn.topic != of.topic:
            return drawn
    return task(words, of.topic)


__all__ = ["FUNCTIONS", "Argument", "Task", "sibling", "task"]
