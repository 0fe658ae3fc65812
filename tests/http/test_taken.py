"""Fields of other servers that are supported here, in every API that generates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.request import EngineRequest, SamplingParams
from tests.http.harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    client_of,
    error_of,
    events,
    post,
)
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
    await post(bench, path, {**BODIES[path], **fields})
    (request,) = bench.engine.added
    return request


async def refused(path: str, **fields: Any) -> Mapping[str, Any]:
    return error_of(await post(Bench(), path, {**BODIES[path], **fields}, 400))


@pytest.mark.parametrize("path", BODIES)
async def test_every_sampling_field_reaches_the_engine(path: str) -> None:
    sampling: dict[str, Any] = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1,
        "frequency_penalty": 0.2, "presence_penalty": -0.3,
    }  # fmt: skip
    logprobs: dict[str, Any] = {
        CHAT: {"logprobs": True, "top_logprobs": 3},
        COMPLETIONS: {"logprobs": 3},
        RESPONSES: {"top_logprobs": 3},
    }
    request = await asked(
        path,
        **sampling,
        **logprobs.get(path, {}),
        **{LIMITS[path]: 17, "stop_sequences" if path == MESSAGES else "stop": ["\n", "END"]},
        logit_bias={"7": -100, "8": 5},
        seed=-1,
        stop_token_ids=[9],
        ignore_eos=True,
        min_tokens=4,
        leap=False,
        on_budget="truncate",
    )
    found = request.options
    assert found.sampling == SamplingParams(
        **sampling, logit_bias={7: -100.0, 8: 5.0}, logprobs=3 if path in logprobs else None
    )
    assert (request.max_tokens, request.seed) == (17, 2**64 - 1)
    assert (found.stop, found.stop_token_ids) == ([b"\n", b"END"], (9,))
    assert (found.ignore_eos, found.min_tokens) == (True, 4)
    assert (found.leap, found.on_budget) == (False, "truncate")


@pytest.mark.parametrize("path", BODIES)
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


@pytest.mark.parametrize("path", BODIES)
async def test_a_penalty_has_two_names(path: str) -> None:
    assert (await asked(path, repeat_penalty=1.5)).options.sampling.repetition_penalty == 1.5
    error = await refused(path, repeat_penalty=1.5, repetition_penalty=1.2)
    assert error["param"] == "repetition_penalty"


async def test_completions_keep_their_default_limit() -> None:
    assert (await asked(COMPLETIONS)).max_tokens == 16


@pytest.mark.parametrize("path", BODIES)
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
    body = {**BODIES[RESPONSES], "store": True, "truncation": "auto", "service_tier": "flex"}
    answer = (await post(Bench(), RESPONSES, body)).json()
    told = [answer[name] for name in ("store", "truncation", "service_tier")]
    assert told == [False, "disabled", "flex"]
