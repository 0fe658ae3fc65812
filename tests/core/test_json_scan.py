"""The end of a JSON value is found in chunks of any size."""

from __future__ import annotations

import json
import random

import pytest

from app.core.json_scan import JsonScan

VALUES = [
    '{"a": [1, {"b": "}\\"]é"}, null], "c": "\\\\"}',
    '[["\\u005d"], {"": {}}, "]}日本"]',
    " \n{}",
    json.dumps({"text": 'he said "{[]}" \\', "n": [-1.5e3, True]}),
]


@pytest.mark.parametrize("value", VALUES)
def test_the_end_of_a_value_is_found_however_it_comes(value: str) -> None:
    dice = random.Random(value)
    for _ in range(50):
        scan, read = JsonScan(), 0
        text = value + ' {"more": 1}'
        while True:
            size = dice.randrange(1, 6)
            end = scan.end_in(text[read : read + size])
            if end is not None:
                break
            read += size
        assert read + end == len(value)
