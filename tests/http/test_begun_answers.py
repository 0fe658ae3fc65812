"""Answers begun by the client (assistant prefills): their prompts, results and refusals."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import jsonschema
import pytest

from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES, PLAIN
from app.answer.formats.literals import PYTHONIC
from app.answer.formats.reasoning import ContentFormat, ReasoningFormat
from app.answer.language import answer
from app.constraint import Compiler
from app.core.constraint import ConstraintSpec
from app.core.specs import JsonSchema
from tests.engine.harness import VOCABULARY, make_engine
from tests.fakes import ByteVocabulary, ScriptedModel
from tests.http import harness
from tests.http.harness import CHAT, HI, MESSAGES, chat, client_of, events, post
from tests.serving.fakes import Bench

COMPILER = Compiler(ByteVocabulary())
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "sizes": {"type": "array", "items": {"enum": [1, 12, 120]}, "maxItems": 3},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
BARE = ChatFormat(PLAIN)
WHOLE = '{"name": "ab", "sizes": [1, 12]}'


async def compile(spec: ConstraintSpec, *_: object) -> Any:
    return COMPILER.compile(spec)


def real(format: ChatFormat = BARE, **bench: Any) -> Bench:
    """A bench with the real engine over a scripted model, and with real constraints."""
    engine = cast(Any, make_engine(model=ScriptedModel(VOCABULARY, eos=2.0), num_blocks=2000))
    engine.gate = threading.Event()
    return Bench(engine, compile=compile, chat_format=format, **bench)


def writing(text: str, format: ChatFormat = BARE) -> Bench:
    """A bench whose model writes ``text`` after any prefill, with real constraints."""
    return harness.writing(text, format, compile=compile)


def beginning(text: str, **fields: Any) -> dict[str, Any]:
    begun = {"role": "assistant", "content": text}
    return chat(messages=[HI, begun], continue_final_message=True, **fields)


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
async def test_what_was_begun_and_what_comes_are_valid_together(cut: int) -> None:
    async with client_of(real()) as client:
        body = beginning(WHOLE[:cut], response_format=FORMAT, max_tokens=60, seed=cut)
        response = await client.post(CHAT, json=body)
        streamed = await client.post(CHAT, json={**body, "stream": True})
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "stop"
    value = json.loads(WHOLE[:cut] + choice["message"]["content"])
    jsonschema.validate(value, SCHEMA)
    chunks = [each for each in events(streamed.text) if each != "[DONE]"]
    deltas = [each["choices"][0]["delta"].get("content") or "" for each in chunks]
    assert "".join(deltas) == choice["message"]["content"]


async def test_a_prefill_follows_the_prompt_and_counts_as_prompt_tokens() -> None:
    bench = writing("llo")
    async with client_of(bench) as client:
        response = (await client.post(CHAT, json=beginning("He"))).json()
        counted = (await client.post("/tokenize", json=beginning("He"))).json()
    (asked,) = bench.engine.added
    assert bytes(asked.prompt) == b"hiHe"
    assert bench.tokenizer.seen[0] == [HI]
    assert response["choices"][0]["message"]["content"] == "llo"
    assert response["usage"]["prompt_tokens"] == counted["count"] == 4


@pytest.mark.parametrize(
    ("begun", "place"),
    [
        ('{"nick', "after '{\"n' comes 'ick'"),
        ("Here it is: {", "after '' comes 'Here"),
        (WHOLE + "}", "comes '}'"),
        ('{"name": "abcdefg', "comes 'g'"),
        ("{" + " " * 300, "comes ' "),
    ],
)
@pytest.mark.parametrize("api", [CHAT, MESSAGES])
async def test_a_prefill_that_no_valid_answer_continues_is_a_400_with_its_place(
    api: str, begun: str, place: str
) -> None:
    body = beginning(begun, response_format=FORMAT, stream=True)
    if api == MESSAGES:
        format = {"type": "json_schema", "schema": SCHEMA}
        body = {
            "model": "demo",
            "max_tokens": 50,
            "messages": body["messages"],
            "output_config": {"format": format},
        }
    async with client_of(real()) as client:
        response = await client.post(api, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "messages")
    assert "the assistant prefill is not the start of a valid answer" in error["message"]
    assert place in error["message"]


async def test_a_whole_answer_that_was_begun_ends_at_once() -> None:
    response = await post(real(), CHAT, beginning(WHOLE, response_format=FORMAT))
    (choice,) = response.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


async def test_max_tokens_does_not_count_the_prefill() -> None:
    async with client_of(real()) as client:
        body = beginning(WHOLE[:20], response_format=FORMAT, max_tokens=3)
        refused = (await client.post(CHAT, json=body)).json()["error"]
        needed = int(refused["message"].split("needs ")[1].split()[0])
        fits = await client.post(CHAT, json={**body, "max_tokens": needed})
    assert refused["code"] == "budget_too_small"
    assert fits.json()["choices"][0]["finish_reason"] == "stop"
    jsonschema.validate(
        json.loads(WHOLE[:20] + fits.json()["choices"][0]["message"]["content"]), SCHEMA
    )


async def test_anthropic_s_last_message_begins_the_answer() -> None:
    body: dict[str, Any] = {
        "model": "demo",
        "max_tokens": 60,
        "messages": [HI, {"role": "assistant", "content": [{"type": "text", "text": WHOLE[:9]}]}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }
    async with client_of(real()) as client:
        message = (await client.post(MESSAGES, json=body)).json()
        del body["max_tokens"]
        counted = (await client.post(f"{MESSAGES}/count_tokens", json=body)).json()
    (block,) = message["content"]
    jsonschema.validate(json.loads(WHOLE[:9] + block["text"]), SCHEMA)
    assert message["stop_reason"] == "end_turn"
    usage = message["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]


THINK = ReasoningFormat("<think>", "</think>")


@pytest.mark.parametrize(
    ("format", "generation_prompt", "message", "prompt"),
    [
        (ChatFormat(PLAIN, THINK), "", {"content": "{"}, "hi{"),
        (ChatFormat(PLAIN, THINK), "<think>\n", {"content": "{"}, "hi<think>\n\n</think>\n\n{"),
        (
            ChatFormat(PLAIN, THINK),
            "<think>\n",
            {"content": "{", "reasoning_content": "Hm."},
            "hi<think>\nHm.\n</think>\n\n{",
        ),
        (
            ChatFormat(PLAIN, THINK),
            "",
            {"content": "{", "reasoning_content": "Hm."},
            "hi<think>\nHm.\n</think>\n\n{",
        ),
        (
            ChatFormat(PLAIN, THINK),
            "",
            {"content": "", "reasoning_content": "Hm"},
            "hi<think>\nHm",
        ),
        (
            ChatFormat(PLAIN, ReasoningFormat("<mm>", "</mm>", unreasoned="</mm>")),
            "",
            {"content": "{"},
            "hi</mm>{",
        ),
        (
            ChatFormat(PLAIN, content=ContentFormat("<|START|>", "<|END|>")),
            "",
            {"content": "{"},
            "hi<|START|>{",
        ),
    ],
)
async def test_a_prefill_follows_the_marks_that_the_model_writes_first(
    format: ChatFormat, generation_prompt: str, message: dict[str, Any], prompt: str
) -> None:
    bench = real(format, generation_prompt=generation_prompt)
    added: list[Any] = []
    add = bench.engine.add

    def noted(request: Any) -> None:
        added.append(request)
        add(request)

    bench.engine.add = noted  # type: ignore[method-assign]
    body = chat(
        messages=[HI, {"role": "assistant", **message}],
        continue_final_message=True,
        response_format=FORMAT,
        schema_in_prompt=False,
        max_tokens=200,
    )
    response = await post(bench, CHAT, body)
    assert bytes(added[0].prompt).decode() == prompt
    found = response.json()["choices"][0]["message"]
    jsonschema.validate(json.loads(message["content"] + found["content"]), SCHEMA)
    if message["content"]:
        assert "reasoning_content" not in found


async def test_the_end_of_a_prefill_is_not_repeated() -> None:
    """``<tool_`` may begin a mark, so the reader of the answer holds it back."""
    format = ChatFormat(HERMES)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    bench = writing("box> is nice", format)
    response = await post(bench, CHAT, beginning("A <tool_", tools=[tool]))
    assert response.json()["choices"][0]["message"]["content"] == "box> is nice"


async def test_values_are_told_as_they_become_whole_and_those_that_were_begun_too() -> None:
    bench = writing('b", "sizes": [1]}')
    options = {"fields": True}
    body = beginning('{"name": "a', response_format=FORMAT, stream=True, stream_options=options)
    answer = await post(bench, CHAT, body)
    told = [
        (field["pointer"], field["value"])
        for each in events(answer.text)
        if each != "[DONE]"
        for choice in each["choices"]
        for field in choice.get("fields", ())
    ]
    assert told[:2] == [("/name", "ab"), ("/sizes/0", 1)]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"confidence": True}, "confidence"),
        ({"spans": True}, "spans"),
        ({"choices": "exact"}, "choices"),
        ({"add_generation_prompt": True}, "add_generation_prompt"),
        ({"messages": [HI]}, "continue_final_message"),
        ({"messages": [HI, {"role": "assistant", "content": ""}]}, "continue_final_message"),
    ],
    ids=str,
)
async def test_a_field_that_excludes_prefills_is_named(fields: dict[str, Any], param: str) -> None:
    async with client_of(real()) as client:
        body = {**beginning("{", response_format=FORMAT), **fields}
        response = await client.post(CHAT, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_a_call_cannot_be_begun() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    begun = '<tool_call>\n{"name": "f"'
    async with client_of(real(ChatFormat(HERMES))) as client:
        response = await client.post(CHAT, json=beginning(begun, tools=[tool]))
        calling = {"id": "a", "name": "f", "input": {}, "type": "tool_use"}
        messages = [HI, {"role": "assistant", "content": [calling]}]
        body = {"model": "demo", "max_tokens": 9, "messages": messages}
        blocks = await client.post(MESSAGES, json=body)
    assert "prefill starts a tool call" in response.json()["error"]["message"]
    assert (blocks.status_code, blocks.json()["error"]["param"]) == (400, "messages[1]")


@pytest.mark.parametrize("begun", ["[f(a=]", "[f(a=?"])
async def test_a_begun_call_in_no_notation_is_refused_too(begun: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with client_of(real(ChatFormat(PYTHONIC))) as client:
        response = await client.post(CHAT, json=beginning(begun, tools=[tool]))
    assert "prefill starts a tool call" in response.json()["error"]["message"]


async def test_no_message_need_be_opened() -> None:
    bench = writing("ok")
    await post(bench, CHAT, chat(add_generation_prompt=False))
    assert bench.tokenizer.opened == [False]


def test_the_language_of_a_begun_answer_is_the_whole_answer_s() -> None:
    """Completions do not repeat the prefill: brute force over one small language."""
    spec = answer(JsonSchema({"enum": ["ab", "abab", 12]}), None, PLAIN)
    assert spec is not None
    constraint = COMPILER.compile(spec)
    wholes = [b'"ab"', b'"abab"', b"12"]
    for whole in wholes:
        for cut in range(len(whole)):
            state = constraint.start()
            state.accept_bytes(whole[:cut])
            assert state.shortest_completion() in {
                each[cut:] for each in wholes if each.startswith(whole[:cut])
            }
