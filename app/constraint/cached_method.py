"""``functools.cache`` for methods, kept with the object."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class cached_method(Generic[P, R]):  # noqa: N801  (a decorator, as ``functools.cached_property``)
    """A method whose results are kept with the object, by its arguments, which are hashable.

    For objects that live as long as a compilation does: they then are part of a reference cycle.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[P, R]:
        bound = cast("Callable[P, R]", cache(partial(self._method, instance)))
        vars(instance)[self._method.__name__] = bound  # found before this descriptor from now on
        return bound
