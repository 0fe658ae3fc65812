"""``functools.cache`` for methods, kept with the object."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def cached_method(
    method: Callable[Concatenate[Any, P], R],
) -> cached_property[Callable[P, R]]:
    """A method whose results are kept with the object, by its arguments, which are hashable.

    For objects that live as long as a compilation does: they then are part of a reference cycle.
    """
    return cached_property(lambda instance: cast("Callable[P, R]", cache(method.__get__(instance))))
