"""Fields of other servers that are supported here, in every API that generates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.request import EngineRequest
from tests.http.harness import CHAT, client_of, events
from tests.http.test_ignored import BODIES, COMPLETIONS, GENERATING, MESSAGES, RESPONSES
from tests.serving.fakes import Bench

LIMITS = {
    CHAT: "max_tokens",
    COMPLETIONS: "max_tokens",
    RESPONSES: "max_output_tokens",
    MESSAGES: "max_tokens",
}


async def asked(path: str, **fields: Any) -> EngineRequest:
    """The request that the engine gets."""
    bench = Bench()
    async with client_of(bench) as client:
        answer = await client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 200, answer.text
    (request,) = bench.engine.added
    return request


async def refused(path: str, **fields: Any) -> Mapping[str, Any]:
    async with client_of(Bench()) as client:
        answer = await client.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 400
    error: Mapping[str, Any] = answer.json()["error"]
    return error


@pytest.mark.parametrize("path", GENERATING)
async def test_a_limit_of_minus_one_is_none(path: str) -> None:
    field = LIMITS[path]
    unlimited = await asked(CHAT)
    assert (await asked(path, **{field: -1})).max_tokens > 900
    assert unlimited.max_tokens > 900
    assert (await asked(path, **{field: 7})).max_tokens == 7
    assert (await refused(path, **{field: 0}))["param"] == field
    assert (await refused(path, **{field: -2}))["param"] == field


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
async def test_llama_cpps_names_are_taken(path: str) -> None:
    assert (await asked(path, n_predict=7)).max_tokens == 7
    assert (await asked(path, n_predict=-1)).max_tokens > 900
    assert (await asked(path, **{"n_predict": 7, LIMITS[path]: 7})).max_tokens == 7
    error = await refused(path, **{"n_predict": 7, LIMITS[path]: 8})
    assert "differ; send only one of them" in error["message"]


@pytest.mark.parametrize("path", GENERATING)
async def test_a_penalty_has_two_names(path: str) -> None:
    assert (await asked(path, repeat_penalty=1.5)).options.sampling.repetition_penalty == 1.5
    error = await refused(path, repeat_penalty=1.5, repetition_penalty=1.2)
    assert error["param"] == "repetition_penalty"


async def test_completions_keep_their_default_limit() -> None:
    assert (await asked(COMPLETIONS)).max_tokens == 16


@pytest.mark.parametrize("path", GENERATING)
async def test_a_prediction_reaches_the_engine(path: str) -> None:
    parts = [{"type": "text", "text": "Hé"}, {"type": "text", "text": "llo"}]
    assert (await asked(path)).options.prediction == b""
    prediction: dict[str, Any] = {"type": "content", "content": "Hello"}
    assert (await asked(path, prediction=prediction)).options.prediction == b"Hello"
    prediction["content"] = parts
    assert (await asked(path, prediction=prediction)).options.prediction == "Héllo".encode()
    assert (await refused(path, prediction={"type": "x"}))["param"].startswith("prediction")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_openrouters_usage_asks_for_the_usage_of_a_stream(path: str) -> None:
    async with client_of(Bench()) as client:
        for include in (True, False):
            body = {**BODIES[path], "stream": True, "usage": {"include": include}}
            sent = events((await client.post(path, json=body)).text)
            assert ("usage" in sent[-2]) == include
        body = {**BODIES[path], "usage": {"include": True}}
        assert (await client.post(path, json=body)).json()["usage"]["completion_tokens"] > 0


async def test_a_response_that_is_not_stored_says_so() -> None:
    async with client_of(Bench()) as client:
        body = {**BODIES[RESPONSES], "store": True, "truncation": "auto", "service_tier": "flex"}
        answer = (await client.post(RESPONSES, json=body)).json()
    told = [answer[name] for name in ("store", "truncation", "service_tier")]
    assert told == [False, "disabled", "flex"]
