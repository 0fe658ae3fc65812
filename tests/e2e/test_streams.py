"""Streams join to the whole answer: random requests with all options, to whole servers.

Two servers have the demo model: one with its own template, which has no tools, one with a Hermes
template and reasoning. Every request is sent twice with one seed, whole and as a stream.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from app.demo import MODEL_PATH
from loadtest.server import Server
from tests.e2e.schemas import random_schema
from tests.servers import running_server
from tests.wide import many

HERMES_THAT_REASONS = """\
{%- if tools %}<|system|>Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
<tool_call>
{"name": ..., "arguments": ...}
</tool_call><|end|>{% endif -%}
{%- for message in messages -%}
<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endfor -%}
<|assistant|>{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}"""

TEXT = "Extract the review: I bought the Tolano kettle — great, ★★★★! It is grün, 很好. Verified."
STOPS = ['", "', "e", '": ', "{", "ß", "很", "\n", "tool", "na", '"}']


@dataclass
class Answer:
    """One choice, as a client assembles it."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    logprobs: list[tuple[str, float]] = field(default_factory=list)
    finish_reason: str | None = None
    confidence: list[dict[str, Any]] = field(default_factory=list)


def random_request(rng: random.Random, template_knows_tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": TEXT[rng.randrange(20) :]}],
        "n": rng.choice([1, 1, 2, 4]),
        "seed": rng.randrange(2**40),
        "temperature": rng.choice([0, 0.7, 1, 1.3]),
        "max_tokens": rng.choice([24, 60, 120]),
        "on_budget": rng.choice(["finish", "truncate"]),
        "logprobs": rng.random() < 0.3,
    }
    if rng.random() < 0.5:
        body["stop"] = rng.sample(STOPS, rng.randint(1, 3))
    if rng.random() < 0.5:
        body["tools"] = [
            {"type": "function", "function": {"name": f"f{i}", "parameters": random_schema(rng, 1)}}
            for i in range(rng.randint(1, 3))
        ]
        body["tool_choice"] = rng.choice(["auto", "required", "required", "none"])
        body["parallel_tool_calls"] = rng.random() < 0.5
    kind = rng.choice(["text", "text", "object", "schema", "unicode"])
    if kind == "object":
        body["response_format"] = {"type": "json_object"}
    elif kind == "schema":
        schema = {"name": "s", "schema": random_schema(rng)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "unicode":
        body["response_format"] = {"type": "regex", "regex": "[ßü很好★—🎉]{4,12}( [a-z]{1,3})?"}
    if kind in ("object", "schema") or body.get("tool_choice", "none") != "none":
        own = random.Random(body["seed"])
        body["confidence"] = own.random() < 0.5
        body["choices"] = own.choice(["tokens", "exact"])
    if template_knows_tools and rng.random() < 0.3:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    return body


def whole(body: dict[str, Any]) -> list[Answer]:
    return [
        Answer(
            content=choice["message"]["content"] or "",
            reasoning=choice["message"].get("reasoning_content", ""),
            calls=[
                (call["function"]["name"], call["function"]["arguments"])
                for call in choice["message"].get("tool_calls", ())
            ],
            logprobs=_logprobs(choice["logprobs"]),
            finish_reason=choice["finish_reason"],
            confidence=choice.get("confidence", []),
        )
        for choice in body["choices"]
    ]


def joined(events: str, n: int) -> list[Answer]:
    """The choices that a client assembles from the deltas."""
    answers = [Answer() for _ in range(n)]
    data = [event.removeprefix("data: ") for event in events.strip().split("\n\n")]
    assert data[-1] == "[DONE]"
    for chunk in map(json.loads, data[:-1]):
        assert "error" not in chunk, chunk
        for choice in chunk["choices"]:
            answer, delta = answers[choice["index"]], choice["delta"]
            assert answer.finish_reason is None, "a delta after the finish reason"
            answer.content += delta.get("content") or ""
            answer.reasoning += delta.get("reasoning_content", "")
            answer.logprobs += _logprobs(choice["logprobs"])
            answer.finish_reason = choice["finish_reason"]
            assert answer.finish_reason or "confidence" not in choice
            answer.confidence = choice.get("confidence", [])
            for part in delta.get("tool_calls", ()):
                if "id" in part:
                    assert part["index"] == len(answer.calls)
                    answer.calls.append((part["function"]["name"], ""))
                name, arguments = answer.calls[part["index"]]
                answer.calls[part["index"]] = (name, arguments + part["function"]["arguments"])
    return answers


def _logprobs(logprobs: dict[str, Any] | None) -> list[tuple[str, float]]:
    return [(each["token"], each["logprob"]) for each in (logprobs or {"content": []})["content"]]


def _values(answer: Answer) -> list[float]:
    return [logprob for _, logprob in answer.logprobs]


def _text(answer: Answer) -> Answer:
    return replace(answer, logprobs=[], confidence=[])


def _entries(answer: Answer) -> list[tuple[Any, ...]]:
    """The entries of the confidence without their numbers."""
    names = ("tool_call", "pointer", "value", "next", "tokens")
    return [tuple([each.get(name) for name in names]) for each in answer.confidence]


def _check_confidence(body: dict[str, Any], answer: Answer) -> None:
    """Check that each value of each text has one entry, in order, with a probability."""
    texts: list[tuple[int | None, str]] = []
    if body.get("response_format", {}).get("type") in ("json_object", "json_schema"):
        texts = [(None, answer.content)]
    if answer.calls:
        texts = [*enumerate(arguments for _, arguments in answer.calls)]
    for call, text in texts:
        entries = [each for each in answer.confidence if each.get("tool_call") == call]
        values = [each for each in entries if "next" not in each]
        parsed = json.loads(text, object_pairs_hook=_Members)
        assert [each["pointer"] for each in values] == [*_pointers(parsed, "")]
        for each in entries:
            assert 0 <= each["probability"] <= 1
            assert 0 <= each.get("mass", 0) <= 1
            if "alternatives" in each and "tokens" not in each:
                total = each["probability"] + sum(a["probability"] for a in each["alternatives"])
                assert total == pytest.approx(1) or "value" not in each


class _Members(list[tuple[str, Any]]):
    """An object's members; additional names may occur twice."""


def _pointers(value: Any, pointer: str) -> Iterator[str]:
    yield pointer
    members = enumerate(value) if isinstance(value, list) else ()
    for name, member in value if isinstance(value, _Members) else members:
        token = str(name).replace("~", "~0").replace("/", "~1")
        yield from _pointers(member, f"{pointer}/{token}")


def check(body: dict[str, Any], answer: Answer) -> None:
    """Check that an answer is valid if it ended by itself."""
    if body.get("confidence") and answer.finish_reason != "length" and "stop" not in body:
        _check_confidence(body, answer)
    if answer.finish_reason == "tool_calls":
        schemas = {each["function"]["name"]: each["function"] for each in body["tools"]}
        assert answer.calls
        for name, arguments in answer.calls:
            jsonschema.validate(json.loads(arguments), schemas[name]["parameters"])
        return
    format = body.get("response_format", {"type": "text"})
    if answer.finish_reason == "stop" and "stop" not in body and not answer.calls:
        if format["type"] == "json_schema":
            jsonschema.validate(json.loads(answer.content), format["json_schema"]["schema"])
        elif format["type"] == "json_object":
            assert isinstance(json.loads(answer.content), dict)
    if body["logprobs"] and not answer.calls:
        text = "".join(token for token, _ in answer.logprobs)
        assert answer.content.replace("�", "") in text.replace("�", "") or not text.isascii()


@pytest.fixture(scope="module")
def reasoning_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "reasoner"
    shutil.copytree(MODEL_PATH, folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "chat_template": HERMES_THAT_REASONS}))
    return folder


@pytest.fixture(scope="module")
def servers(
    server: Server, tmp_path_factory: pytest.TempPathFactory, reasoning_model: Path
) -> Iterator[dict[str, Server]]:
    log = tmp_path_factory.mktemp("reasoner") / "log"
    settings = {"DTYPE": "float32", "CPU_THREADS": "1", "COMPILE_WORKERS": "1"}
    with running_server(reasoning_model, log, settings) as reasoner:
        yield {"leapjson-demo": server, "reasoner": reasoner}


async def exchange(
    client: httpx.AsyncClient, url: str, body: dict[str, Any]
) -> tuple[list[Answer], list[Answer]]:
    path = f"{url}/v1/chat/completions"
    probe = await client.post(path, json={**body, "n": 1})
    if probe.status_code == 400 and probe.json()["error"]["code"] == "budget_too_small":
        body["on_budget"] = "truncate"
    plain, streamed = await asyncio.gather(
        client.post(path, json=body), client.post(path, json={**body, "stream": True})
    )
    assert plain.status_code == streamed.status_code == 200, plain.text + streamed.text
    return whole(plain.json()), joined(streamed.text, body["n"])


@pytest.mark.parametrize(("model", "count"), [("leapjson-demo", 120), ("reasoner", many(480))])
async def test_the_deltas_of_random_streams_join_to_the_whole_answers(
    servers: dict[str, Server], model: str, count: int
) -> None:
    rng = random.Random(model)
    requests = [{**random_request(rng, model == "reasoner"), "model": model} for _ in range(count)]
    limit = asyncio.Semaphore(8)

    async with httpx.AsyncClient(timeout=300) as client:

        async def one(body: dict[str, Any]) -> tuple[list[Answer], list[Answer]]:
            async with limit:
                return await exchange(client, servers[model].url, body)

        pairs = await asyncio.gather(*map(one, requests))
    for body, (plain, streamed) in zip(requests, pairs, strict=True):
        assert [each.finish_reason for each in plain] == [each.finish_reason for each in streamed]
        for first, other in zip(plain, streamed, strict=True):
            # The two ran in batches of different shapes, where sums round differently.
            assert [token for token, _ in first.logprobs] == [token for token, _ in other.logprobs]
            assert _values(first) == pytest.approx(_values(other), abs=1e-3)
            assert _entries(first) == _entries(other)
            assert _text(first) == _text(other), body
        for answer in plain:
            check(body, answer)
    answers = [answer for plain, _ in pairs for answer in plain]
    ends = {answer.finish_reason for answer in answers}
    assert ends == {"stop", "length", "tool_calls"}
    if model == "reasoner":
        assert any(answer.reasoning for answer in answers)
    assert any(answer.calls for answer in answers)
