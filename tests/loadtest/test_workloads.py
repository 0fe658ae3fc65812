"""The requests of every workload, and their bodies in each dialect."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from loadtest.dialects import DIALECTS, UnsupportedConstraintError
from loadtest.requests import Pattern, Request, Schema
from loadtest.schemas import distinct
from loadtest.workloads import DESCRIPTIONS, Nonces, Workload, workload

NAMES = [name.removesuffix("[:N]") for name in DESCRIPTIONS]


@cache
def built(name: str) -> Workload:
    return workload(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_number_always_gives_the_same_request(name: str) -> None:
    first = [built(name).request(number, "_x") for number in range(24)]
    assert [built(name).request(number, "_x") for number in range(24)] == first


@pytest.mark.parametrize("name", NAMES)
def test_a_nonce_makes_every_constraint_a_new_one(name: str) -> None:
    for number in range(24):
        plain, marked = (built(name).request(number, nonce) for nonce in ("", "_x"))
        assert plain.messages == marked.messages
        assert (plain.constraint is None) == (marked.constraint is None)
        assert plain.constraint is None or plain.constraint != marked.constraint


@pytest.mark.parametrize("dialect", list(DIALECTS))
@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_puts_every_request_as_json_or_says_that_it_cannot(
    name: str, dialect: str
) -> None:
    request = built(name).request(1, "_x")
    try:
        body = DIALECTS[dialect].body(request, "model", 7, 0.5)
    except UnsupportedConstraintError:
        assert isinstance(request.constraint, Pattern)
        return
    assert json.loads(json.dumps(body)) == body
    assert body["stream_options"] == {"include_usage": True}
    assert (body["seed"], body["temperature"], body["model"]) == (7, 0.5, "model")


def test_documents_have_the_length_that_was_asked_for_and_the_order_in_question() -> None:
    request = workload("document:5000").request(3, "")
    (message,) = request.messages
    assert 5000 <= len(message["content"]) < 5500
    order = message["content"].rsplit("order ", 1)[1].split()[0]
    assert message["content"].count(f"order {order}.") == 1


def test_free_text_is_of_one_length_where_the_server_can() -> None:
    request = workload("free:33").request(0, "")
    assert DIALECTS["vllm"].body(request, "m", 0, 1.0)["ignore_eos"] is True
    assert "ignore_eos" not in DIALECTS["openai"].body(request, "m", 0, 1.0)
    assert DIALECTS["openai"].body(request, "m", 0, 1.0)["max_tokens"] == 33


def test_llama_cpp_gets_its_schema_beside_json_object() -> None:
    body = DIALECTS["llama.cpp"].body(Request("t", [], Schema({"type": "null"}), 5), "m", 0, 1.0)
    assert body["response_format"] == {"type": "json_object", "schema": {"type": "null"}}


def test_a_distinct_schema_differs_in_its_last_property_alone() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}, "b": {}}, "required": ["b", "a"]}
    assert distinct(schema, "_x") == {
        "properties": {"a": {}, "b_x": {}}, "required": ["b_x", "a"],
    }  # fmt: skip


def test_nonces_differ_by_run_and_place_and_are_equally_long() -> None:
    nonces = [Nonces(run).nonce(place, n) for run in "ab" for place in "cd" for n in range(100)]
    assert len(set(nonces)) == len(nonces)
    assert {len(nonce) for nonce in nonces} == {7}
