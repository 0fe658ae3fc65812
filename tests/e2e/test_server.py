"""The whole server as its users meet it: a process, the demo model, the openai package, curl."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import jsonschema
import openai
import pytest
from pydantic import BaseModel

from loadtest.server import Server
from loadtest.server_metrics import metric_value
from tests.e2e.schemas import random_schema
from tests.servers import running_server
from tests.wide import many

MODEL = "leapjson-demo"
REVIEW = (
    "Extract the contact from this text: You can reach Mira Tolano of Bexford Systems at "
    "mira.tolano@bexford.com or +1 555 0142."
)


class Contact(BaseModel):
    name: str
    email: str
    kind: Literal["person", "company"]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


PLAIN = httpx.Client(verify=False, timeout=300)
"""A shared client for frequent requests: each new client would read certificates."""


@pytest.fixture(scope="module", autouse=True)
def plain_is_closed() -> Iterator[None]:
    """Close ``PLAIN``: a connection open at exit gives a warning after the tests' summary."""
    with PLAIN:
        yield


def metric(server: Server, name: str) -> float:
    """The sum of a metric's samples."""
    text = PLAIN.get(f"{server.url}/metrics").text
    assert f"\n{name}" in text, f"no metric {name}"
    return metric_value(text, name)


def wait_for(server: Server, name: str, value: float) -> None:
    deadline = time.monotonic() + 300
    while metric(server, name) != value:
        assert time.monotonic() < deadline, f"{name} is {metric(server, name)}, not {value}"
        time.sleep(0.05)


def wait_until_not_ready(server: Server) -> None:
    deadline = time.monotonic() + 300
    while PLAIN.get(f"{server.url}/ready").status_code == 200:
        assert time.monotonic() < deadline, "the server does not drain"
        time.sleep(0.01)


def test_a_schema_in_the_prompt_is_computed_once_for_all_texts_of_users(
    client: openai.OpenAI,
) -> None:
    """The demo model gets the schema in its prompt only on request."""

    def usage(text: str, **fields: Any) -> Any:
        completion = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            max_tokens=100,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "contact", "schema": Contact.model_json_schema()},
            },
            extra_body=fields,
        )
        assert completion.usage is not None
        return completion.usage

    plain = usage("Extract the contact from: Mira Tolano.")
    told = usage("Extract the contact from: Mira Tolano.", schema_in_prompt=True)
    schema = told.prompt_tokens - plain.prompt_tokens
    assert schema > 50
    other = usage("A contact: Ivo Brandt, ivo@brandt.example.", schema_in_prompt=True)
    assert other.prompt_tokens_details.cached_tokens >= schema // 16 * 16 - 16


def test_the_sdk_creates_a_valid_answer_and_the_metrics_count_the_leap(
    server: Server, client: openai.OpenAI
) -> None:
    before = metric(server, "leapjson_tokens_skipped_total")
    completion = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": REVIEW}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "contact", "schema": Contact.model_json_schema()},
        },
        max_tokens=200,
    )
    content = completion.choices[0].message.content
    assert content is not None
    Contact.model_validate_json(content)
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    details = completion.usage.completion_tokens_details
    assert details is not None
    assert details.model_extra is not None
    assert details.model_extra["leapt_tokens"] > 0
    assert metric(server, "leapjson_tokens_skipped_total") > before


def test_the_sdk_parses_into_a_pydantic_model(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": REVIEW}], response_format=Contact
    )
    assert isinstance(completion.choices[0].message.parsed, Contact)


def test_the_sdk_streams_what_it_would_get_whole(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": REVIEW}],
        response_format=Contact,
        temperature=0,
        stream_options={"include_usage": True},
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    whole = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": REVIEW}],
        response_format={
            "type": "json_schema",
            "json_schema": {
                "name": "Contact",
                "schema": openai.lib._pydantic.to_strict_json_schema(Contact),
            },
        },
        temperature=0,
    )
    assert "".join(pieces) == final.choices[0].message.content
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.usage is not None


def test_free_text_and_json_objects_end_by_themselves(client: openai.OpenAI) -> None:
    hello = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello!"}], max_tokens=200
    )
    assert hello.choices[0].message.content
    free = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": REVIEW}],
        response_format={"type": "json_object"},
        max_tokens=300,
    )
    assert isinstance(json.loads(free.choices[0].message.content or ""), dict)


def test_a_bad_schema_is_a_400_that_names_keyword_and_place(client: openai.OpenAI) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"a": {"not": {"uniqueItems": True}}},
    }
    with pytest.raises(openai.BadRequestError, match=r"'uniqueItems' at /properties/a/not"):
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "x"}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "bad", "schema": schema},
            },
        )


def test_a_budget_is_kept_by_finishing_or_on_request_by_cutting(client: openai.OpenAI) -> None:
    schema = {"type": "array", "items": {"type": "string", "minLength": 40}, "minItems": 2}
    shape = {"type": "json_schema", "json_schema": {"name": "texts", "schema": schema}}

    def ask(max_tokens: int, **extra: str) -> tuple[str, str]:
        completion = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": REVIEW}],
            response_format=cast(Any, shape),
            max_tokens=max_tokens,
            extra_body=extra,
        )
        assert completion.usage is not None
        assert completion.usage.completion_tokens <= max_tokens
        choice = completion.choices[0]
        return choice.message.content or "", choice.finish_reason

    with pytest.raises(openai.BadRequestError) as caught:
        ask(3)
    assert caught.value.code == "budget_too_small"
    needed = int(caught.value.message.split("needs ")[1].split(" ")[0])
    text, reason = ask(needed + 2)
    jsonschema.validate(json.loads(text), schema)
    assert reason == "stop"
    for tokens in (3, needed + 2):
        text, reason = ask(tokens, on_budget="truncate")
        assert reason == "length" or jsonschema.validate(json.loads(text), schema) is None
        assert text.startswith('["')
    assert ask(3, on_budget="truncate")[1] == "length"


@pytest.mark.parametrize("budget", [30, 60])
def test_any_model_may_reason_before_its_json(client: openai.OpenAI, budget: int) -> None:
    """The demo model was not trained to reason: its reasoning is poor, its answer complete."""
    completion = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": REVIEW}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "contact", "schema": Contact.model_json_schema()},
        },
        max_tokens=160,
        extra_body={"reasoning": {"max_tokens": budget}},
    )
    message, usage = completion.choices[0].message, completion.usage
    Contact.model_validate_json(message.content or "")
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == message.model_extra["reasoning"] != ""
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert 0 < (usage.completion_tokens_details.reasoning_tokens or 0) <= budget
    assert usage.completion_tokens <= 160


def test_answers_to_a_schema_are_served_without_outlines_and_its_cache_of_pickles(
    server: Server, client: openai.OpenAI, imports: Path
) -> None:
    """CVE-2025-69872: diskcache reads pickles from a folder."""
    parsed = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": REVIEW}], response_format=Contact
    )
    assert parsed.choices[0].message.parsed is not None
    assert imports.joinpath("watching").exists()
    assert not imports.joinpath("imported").exists(), imports.joinpath("imported").read_text()


@pytest.mark.needs("curl")
def test_curl_gets_an_answer(server: Server) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Is it raining?"}],
        "response_format": {"type": "choice", "choices": ["yes", "no"]},
    }
    command = ["curl", "-sS", f"{server.url}/v1/chat/completions", "-d", json.dumps(body)]
    output = subprocess.run(
        [*command, "-H", "content-type: application/json"], capture_output=True, check=True
    ).stdout
    assert json.loads(output)["choices"][0]["message"]["content"] in ("yes", "no")


def test_random_schemas_at_concurrency_sixteen_are_all_valid(client: openai.OpenAI) -> None:
    rng = random.Random(3)
    schemas = [random_schema(rng) for _ in range(many(48, 3))]

    def answer(number: int) -> None:
        completion = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"Fill in form {number}."}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "form", "schema": schemas[number]},
            },
            temperature=1.0,
            max_tokens=400,
            n=1 + number % 2,
        )
        for choice in completion.choices:
            assert choice.finish_reason == "stop"
            jsonschema.validate(
                json.loads(choice.message.content or ""),
                schemas[number],
                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
            )

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(answer, range(len(schemas))))


async def test_killing_a_client_mid_stream_frees_its_blocks(server: Server) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hello!"}],
        "stream": True,
        "response_format": {"type": "regex", "regex": "[a-z ]{1900,2000}"},
    }

    async def leave_early() -> None:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=300) as client,
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            assert response.status_code == 200
            async for _ in response.aiter_lines():
                return

    await asyncio.gather(*(leave_early() for _ in range(8)))
    await asyncio.to_thread(wait_for, server, "leapjson_num_requests_running", 0)
    await asyncio.to_thread(wait_for, server, "leapjson_kv_cache_usage_ratio", 0)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for many requests, with time to drain. The last test of this file ends it."""
    log = tmp_path_factory.mktemp("roomy") / "log"
    settings = {"MAX_QUEUE": "1000", "MAX_RUNNING": "64", "DRAIN_SECONDS": "600"}
    with running_server(None, log, {"DTYPE": "float32", **settings}) as server:
        yield server


async def test_hundreds_of_requests_drain_with_none_lost(roomy: Server) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Pick one."}],
        "response_format": {"type": "choice", "choices": ["left", "right", "straight on"]},
    }
    limits = httpx.Limits(max_connections=1000)
    async with httpx.AsyncClient(base_url=roomy.url, timeout=600, limits=limits) as client:
        replies = await asyncio.gather(
            *(client.post("/v1/chat/completions", json=body) for _ in range(many(1000)))
        )
    answers = [reply.json()["choices"][0]["message"]["content"] for reply in replies]
    assert len(answers) == many(1000)
    assert set(answers) <= {"left", "right", "straight on"}


async def test_sigterm_finishes_what_runs_refuses_the_rest_and_exits_with_0(
    roomy: Server,
) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hello!"}],
        "response_format": {"type": "regex", "regex": "[a-z ]{400,450}"},
    }
    async with httpx.AsyncClient(base_url=roomy.url, timeout=600) as client:
        running = [
            asyncio.create_task(client.post("/v1/chat/completions", json=body)) for _ in range(4)
        ]
        await asyncio.to_thread(wait_for, roomy, "leapjson_num_requests_running", 4)
        roomy.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(wait_until_not_ready, roomy)
        refused = await client.post("/v1/chat/completions", json=body)
        finished = await asyncio.gather(*running)
    assert refused.status_code == 503
    assert [reply.status_code for reply in finished] == [200] * 4
    for reply in finished:
        assert len(reply.json()["choices"][0]["message"]["content"]) >= 400
    assert await asyncio.to_thread(roomy.process.wait, 300) == 0
