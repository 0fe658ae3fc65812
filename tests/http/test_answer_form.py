"""The form of JSON answers, from the request or the settings to the enforced constraint."""

from __future__ import annotations

from typing import Any

import pytest

from app.constraint import JsonSchema
from tests.http.compiled import Served, admits, served
from tests.http.harness import CHAT, chat

NUMBERS = {"type": "array", "items": {"type": "number"}}


async def admitted(server: Served, text: str, schema: Any, **fields: Any) -> bool:
    named = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}, **fields}
    body = chat(response_format=named) | {"model": "leapjson-demo"}
    return admits(await server.constraint(CHAT, **body), text)


async def test_a_request_says_where_white_space_stands() -> None:
    async with served() as server:
        for whitespace, text in {
            "spaced": "[1, 2]",
            "compact": "[1,2]",
            "indent:1": "[\n 1,\n 2\n]",
            "flexible": "[ 1,2\n]",
        }.items():
            assert await admitted(server, text, NUMBERS, whitespace=whitespace)
            assert await admitted(server, text, NUMBERS) == (whitespace == "spaced")


async def test_the_server_has_a_default_that_a_request_overrides() -> None:
    async with served(whitespace="compact") as server:
        assert await admitted(server, "[1,2]", NUMBERS)
        assert not await admitted(server, "[1, 2]", NUMBERS)
        assert await admitted(server, "[1, 2]", NUMBERS, whitespace="spaced")


async def test_a_preloaded_type_is_compiled_in_the_server_s_form() -> None:
    numbers = JsonSchema(NUMBERS, close_objects=True)
    async with served(preloads={"numbers": numbers}, whitespace="compact") as server:
        assert await admitted(server, "[1,2]", NUMBERS)
        exposition = (await server.client.get("/metrics")).text
    assert "leapjson_schema_cache_misses_total 1.0" in exposition


async def test_unbounded_numbers_have_as_many_digits_as_the_settings_say() -> None:
    async with served(max_integer_digits=3, max_fraction_digits=2) as server:
        assert await admitted(server, "[999, 0.25]", NUMBERS)
        assert not await admitted(server, "[1000]", NUMBERS)
        assert not await admitted(server, "[0.125]", NUMBERS)
        bounded = {"type": "integer", "minimum": 0, "maximum": 123456}
        assert await admitted(server, "123456", bounded), "a bound overrides the setting"


@pytest.mark.parametrize(("digits", "within"), [(100, True), (99, False)])
async def test_numbers_have_no_more_digits_than_the_limit(digits: int, within: bool) -> None:
    async with served(max_integer_digits=digits, max_fraction_digits=digits) as server:
        number = "9" * 100
        assert await admitted(server, number, {"type": "integer"}) == within
        assert await admitted(server, "0." + number, {"type": "number"}) == within
