from __future__ import annotations

from typing import Any

import pytest

from app.core.constraint import ConstraintSpec
from app.core.errors import LeapjsonError
from app.core.request import EngineRequest, SamplingParams
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from tests.http.harness import CHAT, chat, client_of, events, post
from tests.serving.fakes import Bench, FakeEngine


async def engine_request(**fields: Any) -> EngineRequest:
    """The engine request that a chat request with these fields causes."""
    bench = Bench()
    await post(bench, CHAT, chat(**fields))
    return bench.engine.added[0]


async def test_an_answer_has_every_key_that_clients_look_at() -> None:
    response = await post(Bench(), CHAT, chat())
    body = response.json()
    request_id = response.headers["x-request-id"].removeprefix("req_")
    assert body.pop("created") > 1700000000
    assert body == {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "model": "demo",
        "system_fingerprint": "fp_test",
        "service_tier": "default",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hello",
                    "refusal": None,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 2,
            "total_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
                "leapt_tokens": 1,
                "drafted_tokens": 0,
                "held_tokens": 0,
                "forward_passes": 2,
            },
        },
    }


async def test_the_tokens_of_all_choices_are_counted_and_the_prompt_once() -> None:
    body = (await post(Bench(), CHAT, chat(n=3))).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (2, 6)


async def test_a_truncated_answer_says_length() -> None:
    body = (await post(Bench(), CHAT, chat(max_completion_tokens=1))).json()
    assert body["choices"][0]["message"]["content"] == "Hel"
    assert body["choices"][0]["finish_reason"] == "length"


async def test_logprobs_spell_the_answer_and_are_finite() -> None:
    body = (await post(Bench(), CHAT, chat(logprobs=True, top_logprobs=2))).json()
    content = body["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in content) == b"Hello"
    assert content[0]["token"] == "Hel"
    assert content[0]["logprob"] == -0.25
    likely, end = content[0]["top_logprobs"]
    assert likely == {"token": "H", "logprob": -0.5, "bytes": [72]}
    assert end["logprob"] == -9999.0


async def test_a_stream_opens_with_the_role_and_ends_with_reason_usage_and_done() -> None:
    response = await post(Bench(), CHAT, chat(stream=True, stream_options={"include_usage": True}))
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, last, done = events(response.text)
    assert done == "[DONE]"
    assert {chunk["id"] for chunk in [*chunks, last]} == {chunks[0]["id"]}
    assert all(chunk["usage"] is None for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(delta.get("content", "") for delta in deltas) == "Hello"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2)


async def test_without_include_usage_no_chunk_has_usage() -> None:
    response = await post(Bench(), CHAT, chat(stream=True))
    *chunks, _ = events(response.text)
    assert all("usage" not in chunk for chunk in chunks)
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)


async def test_continuous_usage_is_in_every_chunk_of_text() -> None:
    async with client_of(Bench()) as client:
        options = {"include_usage": True, "continuous_usage_stats": True}
        response = await client.post(CHAT, json=chat(stream=True, stream_options=options))
    _, *chunks, _ = events(response.text)
    assert all(chunk["usage"]["prompt_tokens"] == 2 for chunk in chunks)


async def test_a_stream_introduces_its_choices_in_order() -> None:
    response = await post(Bench(), CHAT, chat(stream=True, n=3))
    *chunks, _ = events(response.text)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["index"] for choice in choices[:3]] == [0, 1, 2]
    assert all(choice["delta"].get("role") == "assistant" for choice in choices[:3])
    for index in range(3):
        texts = [c["delta"].get("content", "") for c in choices if c["index"] == index]
        assert "".join(texts) == "Hello"


async def test_a_streams_logprobs_are_those_of_its_text() -> None:
    response = await post(Bench(), CHAT, chat(stream=True, logprobs=True))
    *chunks, _ = events(response.text)
    spelled = b""
    for chunk in chunks:
        logprobs = chunk["choices"][0]["logprobs"]
        for token in logprobs["content"] if logprobs else []:
            spelled += bytes(token["bytes"])
    assert spelled == b"Hello"


async def test_a_failure_in_a_stream_is_an_event_and_no_done_follows() -> None:
    bench = Bench(FakeEngine(lambda request: [b"a", b"b"]))
    bench.engine.finish_with = "error"
    async with client_of(bench) as client:
        response = await client.post(CHAT, json=chat(stream=True))
    *_, last = events(response.text)
    assert response.status_code == 200
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert last["error"]["type"] == "server_error"


SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}


@pytest.mark.parametrize(
    ("response_format", "spec"),
    [
        ({"type": "text"}, None),
        (None, None),
        ({"type": "json_object"}, JsonObject()),
        ({"type": "json_object", "whitespace": "compact"}, JsonObject("compact")),
        ({"type": "json_object", "whitespace": None}, JsonObject()),
        (
            {
                "type": "json_schema",
                "whitespace": "indent:16",
                "json_schema": {"name": "x", "schema": SCHEMA},
            },
            JsonSchema(SCHEMA, close_objects=True, whitespace="indent:16"),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
            JsonSchema(SCHEMA, close_objects=True),
        ),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA, "strict": False},
            },
            JsonSchema(SCHEMA, close_objects=False, relax=True),
        ),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": True, "strict": None, "description": "d"},
            },
            JsonSchema(True, close_objects=True),
        ),
        ({"type": "regex", "pattern": "a+"}, Regex("a+")),
        ({"type": "regex", "regex": "a+"}, Regex("a+")),
        ({"type": "choice", "choices": ["a", "b"]}, Choice(("a", "b"))),
        ({"type": "grammar", "grammar": 'root ::= "a"'}, Grammar('root ::= "a"')),
        (
            {"type": "grammar", "grammar": 'start: "a"', "syntax": "lark"},
            Grammar('start: "a"', syntax="lark"),
        ),
    ],
)
async def test_a_response_format_is_a_constraint(
    response_format: Any, spec: ConstraintSpec | None
) -> None:
    bench = Bench()
    await post(bench, CHAT, chat(response_format=response_format))
    assert bench.compiled == ([] if spec is None else [spec])
    if isinstance(spec, JsonSchema) and spec.schema is not True:
        (compiled,) = bench.compiled
        assert isinstance(compiled, JsonSchema)
        assert list(compiled.schema["properties"]) == ["b", "a"]


async def test_null_means_the_default() -> None:
    names = "temperature top_p top_k min_p n stop seed max_tokens logprobs top_logprobs stream"
    nulls = dict.fromkeys(names.split())
    assert (await engine_request(**nulls)).options.sampling == SamplingParams()


async def test_top_p_of_zero_keeps_only_the_likeliest() -> None:
    sampling = (await engine_request(top_p=0)).options.sampling
    assert (sampling.top_p, sampling.top_k) == (1.0, 1)


async def test_messages_reach_the_template_as_text() -> None:
    bench = Bench()
    messages = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": None, "annotations": []},
        {"role": "user", "content": "e", "name": "Ada"},
    ]
    await post(bench, CHAT, chat(messages=messages))
    assert bench.tokenizer.seen == [
        [
            {"role": "system", "content": "be short"},
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "e", "name": "Ada"},
        ]
    ]


async def test_fields_that_ask_for_nothing_are_taken() -> None:
    await engine_request(
        user="u",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        parallel_tool_calls=True,
        tools=[],
        tool_choice="none",
        best_of=1,
        skip_special_tokens=True,
        reasoning_effort="none",
        modalities=["text"],
        ignore_eos=False,
        min_tokens=0,
        safety_identifier="s",
        prompt_cache_key="k",
    )


async def test_an_unplanned_error_is_500_and_keeps_its_text_to_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def compile(spec: ConstraintSpec, *_: object) -> Any:
        raise ZeroDivisionError("a secret")

    bench = Bench(compile=compile)
    async with client_of(bench) as client:
        body = chat(response_format={"type": "json_object"})
        response = await client.post(CHAT, json=body)
    assert response.status_code == 500
    assert response.headers["x-request-id"]
    assert "secret" not in response.text
    assert response.json()["error"]["code"] == "internal_error"
    assert bench.observer.requests[0].status == 500
    assert bench.admission.live == 0


def test_every_error_of_the_tree_is_a_leapjson_error() -> None:
    from app.core import errors

    kinds = [
        e for e in vars(errors).values() if isinstance(e, type) and e.__module__ == errors.__name__
    ]
    assert all(issubclass(kind, LeapjsonError) for kind in kinds)
