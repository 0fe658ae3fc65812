"""JSON objects of requests whose members are read one by one, with the path to what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from app.core.errors import InvalidRequest
from app.http.requests.body import check_size
from app.http.requests.wire import Ignored, refusal


class Fields:
    """The members of one JSON object. What the reader does not ask for is left out."""

    def __init__(self, value: Any, param: str) -> None:
        if not isinstance(value, dict):
            raise refusal(param, "it has to be an object")
        self.value = value
        self.param = param
        self._asked: set[str] = set()

    def needed(self, name: str, expected: type | tuple[type, ...] = object) -> Any:
        if name not in self.value:
            raise refusal(f"{self.param}.{name}", "it is missing")
        return self.optional(name, expected, None)

    def optional(self, name: str, expected: type | tuple[type, ...], default: Any) -> Any:
        self._asked.add(name)
        value = self.value.get(name, default)
        if name in self.value and (
            not isinstance(value, expected) or (expected is int and isinstance(value, bool))
        ):
            raise self.wrong(name, f"it has to be {_described(expected)}")
        return value

    def texts(self, name: str, default: Sequence[str] | None = None) -> list[str]:
        """A list of texts that are not empty; needed unless there is a default."""
        if default is None:
            self.needed(name)
        texts = self.optional(name, list, default)
        for index, text in enumerate(texts):
            if not isinstance(text, str) or not text:
                raise self.wrong(f"{name}[{index}]", "it has to be text that is not empty")
        return list(texts)

    def items(self, name: str) -> list[tuple[Any, str]]:
        """The members of a list that is not empty, and the path of each."""
        values = self.needed(name, list)
        if not values:
            raise self.wrong(name, "it may not be empty")
        return [(value, f"{self.param}.{name}[{index}]") for index, value in enumerate(values)]

    def wrong(self, name: str, reason: str) -> InvalidRequest:
        return refusal(f"{self.param}.{name}", reason)

    def finish(self, ignored: Ignored) -> None:
        """Leave out the members that nothing asked for."""
        for name in self.value:
            if name not in self._asked:
                ignored.leave_out(f"{self.param}.{name}")


def parsed(text: str, param: str) -> Any:
    """The value of JSON that is sent as text, in the field ``param``. Raises ``InvalidRequest``."""
    check_size(text.encode(), param)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise refusal(param, f"it could not be parsed as JSON: {error}") from None


def _described(expected: type | tuple[type, ...]) -> str:
    names = {str: "text", list: "a list", int: "an integer", bool: "true or false"}
    types = expected if isinstance(expected, tuple) else (expected,)
    return " or ".join(names.get(each, "null") for each in types)
