from __future__ import annotations

import pytest

from app.core.errors import InvalidRequest
from app.http.requests.messages import called_arguments

PLACE = "messages[2].tool_calls[1].function.arguments"


@pytest.mark.parametrize(
    "arguments",
    ["{", "[]", "NaN", '{"a": "\\ud800"}', '{"a": [{"b": -1e999}]}', "[" * 100_000],
)
def test_arguments_that_are_no_json_object_are_refused_by_their_place(arguments: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        called_arguments(arguments, PLACE)
    assert refusal.value.param == PLACE


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert called_arguments("", PLACE) == {}
    assert called_arguments('{"city": "Ulm"}', PLACE) == {"city": "Ulm"}
