"""``POST /tokenize`` and ``POST /detokenize``."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.http.harness import CHAT, COMPLETIONS, HI, client_of, error_of, post, refusal
from tests.serving.fakes import PLAIN, Bench

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}


async def answer(path: str, bench: Bench | None = None, /, **body: Any) -> Any:
    return (await post(bench or Bench(), path, body)).json()


async def test_a_text_becomes_tokens_as_a_completions_prompt_does() -> None:
    bench = Bench()
    found = await answer("/tokenize", model="demo", prompt="é!")
    assert found == {
        "count": 4,
        "max_model_len": 1000,
        "tokens": [256, 0xC3, 0xA9, 0x21],
        "token_strs": None,
    }
    await answer(COMPLETIONS, bench, model="demo", prompt="é!")
    assert list(bench.engine.added[0].prompt) == found["tokens"]


async def test_the_model_and_the_special_tokens_may_be_left_out() -> None:
    found = await answer("/tokenize", prompt="hi", add_special_tokens=False)
    assert found["tokens"] == [104, 105]
    assert (await answer("/tokenize", prompt="", add_special_tokens=False))["count"] == 0


async def test_the_texts_of_the_tokens_come_on_demand() -> None:
    found = await answer("/tokenize", prompt="hé", add_special_tokens=False, return_token_strs=True)
    assert found["token_strs"] == ["h", "\ufffd", "\ufffd"]
    assert len(found["token_strs"]) == found["count"]


async def test_a_chat_becomes_the_tokens_that_its_completion_begins_with() -> None:
    format = replace(PLAIN, variables=frozenset({"enable_thinking"}))
    fields = {
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "short"}]}, HI],
        "tools": [TOOL],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    bench = Bench(chat_format=format, generation_prompt="<go>")
    async with client_of(bench) as client:
        found = (await client.post("/tokenize", json=fields)).json()
        answered = await client.post(CHAT, json={"model": "demo", **fields})
    assert answered.status_code == 200, answered.text
    assert found["tokens"] == list(bench.engine.added[0].prompt)
    assert found["tokens"][-4:] == list(b"<go>")
    assert bench.tokenizer.seen[0] == bench.tokenizer.seen[1]
    assert bench.tokenizer.tools[0] == bench.tokenizer.tools[1]
    assert bench.tokenizer.options[0] == bench.tokenizer.options[1]


async def test_tokens_become_their_text() -> None:
    tokens = list("Grüße".encode())
    assert await answer("/detokenize", model="demo", tokens=tokens) == {"prompt": "Grüße"}
    assert await answer("/detokenize", tokens=[]) == {"prompt": ""}


async def test_a_text_comes_back_from_its_tokens() -> None:
    for text in ("", "a", "Grüße, 世界 😀", "x" * 4097):
        tokens = (await answer("/tokenize", prompt=text))["tokens"]
        assert await answer("/detokenize", tokens=tokens) == {"prompt": text}


async def test_long_inputs_are_worked_on_off_the_event_loop() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        long = {"role": "user", "content": "x" * 9000}
        await client.post("/tokenize", json={"messages": [long]})
    assert threading.get_ident() not in bench.tokenizer.threads


async def test_requests_are_counted_under_their_paths() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        await client.post("/tokenize", json={"prompt": "a"})
        await client.post("/detokenize", json={"tokens": [97]})
    counted = [(stats.endpoint, stats.status) for stats in bench.observer.requests]
    assert counted == [("/tokenize", 200), ("/detokenize", 200)]


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ({}, "prompt", "Missing required parameter: 'prompt'."),
        ({"prompt": 7}, "prompt", "valid string"),
        ({"prompt": ["a"]}, "prompt", "valid string"),
        ({"prompt": "a", "add_special_tokens": 1}, "add_special_tokens", "valid boolean"),
        ({"prompt": "a", "messages": [HI]}, "prompt", "use messages"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [HI] * 9}, "messages", "the limit is 8"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "Missing required parameter"),
        ({"messages": [HI], "add_special_tokens": True}, "add_special_tokens", "not supported"),
        ({"messages": [HI], "chat_template": "{{ x }}"}, "chat_template", "not supported"),
        (
            {"messages": [HI], "continue_final_message": True},
            "continue_final_message",
            "must be the assistant's last message",
        ),
        (
            {"messages": [HI], "chat_template_kwargs": {"tools": []}},
            "chat_template_kwargs.tools",
            "chat_template_kwargs cannot set it",
        ),
        ({"messages": [HI], "tools": [TOOL, TOOL]}, "tools[1].function.name", "two tools"),
    ],
)
async def test_a_bad_tokenize_request_is_400_with_the_field_and_the_reason(
    body: dict[str, Any], param: str, reason: str
) -> None:
    error = await refusal("/tokenize", body)
    assert error["param"] == param
    assert reason in error["message"]


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ({}, "tokens", "Missing required parameter: 'tokens'."),
        ({"tokens": "a"}, "tokens", "valid list"),
        ({"tokens": [1, "a"]}, "tokens[1]", "not a token id"),
        ({"tokens": [1, True]}, "tokens[1]", "not a token id"),
        ({"tokens": [1, -1]}, "tokens[1]", "the token id -1"),
        ({"tokens": [1] * 5000 + [278]}, "tokens[5000]", "has ids 0 to 277"),
        ({"tokens": [[1]]}, "tokens[0]", "not a token id"),
    ],
)
async def test_a_bad_detokenize_request_is_400_with_the_field_and_the_reason(
    body: dict[str, Any], param: str, reason: str
) -> None:
    error = await refusal("/detokenize", body)
    assert error["param"] == param
    assert reason in error["message"]


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_the_limit_of_nesting_holds_and_an_unknown_model_is_404(path: str) -> None:
    async with client_of(Bench()) as client:
        error_of(await client.post(path, content=b'{"prompt":' + b"[" * 99), 400)
    body = {"prompt": "a"} if path == "/tokenize" else {"tokens": [1]}
    assert (await refusal(path, {"model": "gpt-4", **body}, 404))["param"] == "model"
