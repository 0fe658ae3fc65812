"""Errors for too long prompts, in words that clients recognise, and too large ``max_tokens``."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.core.errors import BudgetTooSmall, PromptTooLong
from app.http.endpoint import CLIPPED
from tests.http.harness import CHAT, chat, client_of
from tests.serving.fakes import Bench, FakeEngine

LONG = "x" * 200
HI = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: chat(),
    "/v1/completions": {"model": "demo", "prompt": [104, 105]},
    "/v1/responses": {"model": "demo", "input": "hi"},
    "/v1/messages": {"model": "demo", "max_tokens": 9, "messages": [HI]},
}
LIMITS = {CHAT: "max_completion_tokens", "/v1/responses": "max_output_tokens"}


def too_long(path: str) -> dict[str, Any]:
    message = [{"role": "user", "content": LONG}]
    key = {"/v1/completions": "prompt", "/v1/responses": "input"}.get(path, "messages")
    value = {"messages": message, "prompt": [120] * 200, "input": LONG}[key]
    return {**BODIES[path], key: value}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("clips", [True, False])
async def test_a_prompt_that_is_too_long_is_a_400_in_the_api_s_own_words(
    path: str, clips: bool
) -> None:
    async with client_of(Bench(context=100, clip_max_tokens=clips)) as client:
        answer = await client.post(path, json=too_long(path))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    if path == "/v1/messages":
        assert error["message"] == "prompt is too long: 200 tokens > 99 maximum"
    else:
        assert error["message"].startswith(
            "This model's maximum context length is 100 tokens. However, you requested 200 tokens"
        )
        assert "prompt is too long" in error["message"]  # what langchain-openai looks for


@pytest.mark.parametrize("path", BODIES)
async def test_a_max_tokens_above_the_rest_is_clipped_and_told(path: str) -> None:
    bench = Bench(context=100)
    limit = LIMITS.get(path, "max_tokens")
    async with client_of(bench) as client:
        answer = await client.post(path, json={**BODIES[path], limit: 32_000})
        within = await client.post(path, json={**BODIES[path], limit: 98})
    assert answer.status_code == 200, answer.text
    assert answer.headers[CLIPPED] == "98"
    assert CLIPPED not in within.headers
    assert [request.max_tokens for request in bench.engine.added] == [98, 98]


@pytest.mark.parametrize("path", BODIES)
async def test_without_clipping_too_large_max_tokens_are_a_400(path: str) -> None:
    limit = LIMITS.get(path, "max_tokens")
    async with client_of(Bench(context=100, clip_max_tokens=False)) as client:
        answer = await client.post(path, json={**BODIES[path], limit: 99})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    if path == "/v1/messages":
        found = re.match(
            r"input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)", message
        )
        assert found is not None
        assert found.groups() == ("2", "99", "100")
    else:
        assert message.startswith(
            "This model's maximum context length is 100 tokens. However, you requested 101 tokens "
            f"(2 in the prompt, 99 in {limit})."
        )
        assert f"lower {limit} to at most 98" in message


@pytest.mark.parametrize(
    ("asked", "needed", "error"),
    [
        ({"max_tokens": 50}, 60, "budget_too_small"),
        ({"max_tokens": 50}, 120, "context_length_exceeded"),
        ({"max_tokens": 500}, 120, "context_length_exceeded"),
        ({}, 120, "context_length_exceeded"),
    ],
)
async def test_the_error_says_whether_budget_or_prompt_is_the_cause(
    asked: dict[str, Any], needed: int, error: str
) -> None:
    """The error names the budget if a larger one would suffice, otherwise the prompt."""
    engine = FakeEngine()
    engine.refusal = lambda request: BudgetTooSmall(max_tokens=request.max_tokens, needed=needed)
    async with client_of(Bench(engine, context=100)) as client:
        answer = await client.post(CHAT, json=chat(**asked))
    found = answer.json()["error"]
    assert (answer.status_code, found["code"]) == (400, error)
    if error == "context_length_exceeded":
        assert "122 tokens (2 in the prompt, 120 in the shortest valid answer)" in found["message"]
        assert "max_tokens" not in found["message"]


def test_images_are_counted_in_either_message() -> None:
    error = PromptTooLong(prompt_tokens=200, room=100, image_tokens=150)
    assert "200 tokens in the prompt, 150 of them its images'" in str(error)
    assert "fewer or smaller images" in str(error)
    assert error.anthropics.endswith("99 maximum, 150 of them its images'")
