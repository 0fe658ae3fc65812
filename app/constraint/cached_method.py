"""``functools.cache`` for methods, kept with the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_UNKNOWN: Any = object()


class cached_method(Generic[P, R]):  # noqa: N801 - a decorator
    """Memoises a method on its object, by its (hashable) arguments.

    Replaces itself by a memoising function on first access. That is a reference cycle: only for
    objects that live as long as a compilation, many of them for a fraction of a millisecond, while
    creating a ``functools.cache`` takes three microseconds for each method.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Callable[P, R]:
        method: Callable[P, R] = self._method.__get__(instance)
        known: dict[Any, R] = {}

        def remembered(*args: P.args, **named: P.kwargs) -> R:
            key = (args, *named.items()) if named else args
            result: R = known.get(key, _UNKNOWN)
            if result is _UNKNOWN:
                result = known[key] = method(*args, **named)
            return result

        vars(instance)[self._name] = remembered
        return remembered
