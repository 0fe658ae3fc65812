from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.core.kernels import kernel


def test_a_loop_that_can_be_kept_nowhere_is_compiled_all_the_same() -> None:
    names: dict[str, Any] = {}
    exec("def total(count):\n    return sum(range(count))", names)  # in no file, so beside none
    total: Callable[[int], int] = kernel()(names["total"])
    assert total(5) == 10
