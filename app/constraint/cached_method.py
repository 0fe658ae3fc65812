"""``functools.cache`` for methods, kept with the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_UNKNOWN: Any = object()


def cached_method(method: Callable[Concatenate[Any, P], R]) -> _CachedMethod[P, R]:
    """Memoise a method on its object, by its (hashable) arguments.

    Creates a reference cycle: only for objects that live as long as a compilation.
    """
    return _CachedMethod(method)


class _CachedMethod(Generic[P, R]):
    """A descriptor that replaces itself by a memoising function on first access.

    Many such objects live for a fraction of a millisecond, and creating a ``functools.cache`` would
    take three microseconds for each of their methods.
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
