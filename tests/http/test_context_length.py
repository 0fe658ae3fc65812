"""Errors for too long prompts, in words that clients recognise, and too large ``max_tokens``."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.core.errors import BudgetTooSmall, PromptTooLong
from app.http.endpoint import CLIPPED
from tests.http.harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    chat,
    client_of,
    error_of,
    post,
)
from tests.serving.fakes import Bench, FakeEngine

LONG = "x" * 200
ASKED = {**BODIES, COMPLETIONS: {"model": "demo", "prompt": [104, 105]}}
LIMITS = [
    (CHAT, "max_tokens"),
    (CHAT, "max_completion_tokens"),
    (COMPLETIONS, "max_tokens"),
    (RESPONSES, "max_output_tokens"),
    (MESSAGES, "max_tokens"),
]


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (CHAT, "messages", [{"role": "user", "content": LONG}]),
        (COMPLETIONS, "prompt", [120] * 200),
        (RESPONSES, "input", LONG),
        (MESSAGES, "messages", [{"role": "user", "content": LONG}]),
    ],
)
@pytest.mark.parametrize("clips", [True, False])
async def test_a_prompt_that_is_too_long_is_a_400_in_the_api_s_own_words(
    path: str, field: str, value: Any, clips: bool
) -> None:
    bench = Bench(context=100, clip_max_tokens=clips)
    error = error_of(await post(bench, path, {**ASKED[path], field: value}, 400))
    assert (error["param"], error["code"]) == (field, "context_length_exceeded")
    if path == MESSAGES:
        assert error["message"] == "prompt is too long: 200 tokens > 99 maximum"
    else:
        assert error["message"].startswith(
            "This model's maximum context length is 100 tokens. However, you requested 200 tokens"
        )
        assert "prompt is too long" in error["message"]  # what langchain-openai looks for


@pytest.mark.parametrize(("path", "limit"), LIMITS)
async def test_a_max_tokens_above_the_rest_is_clipped_and_told(path: str, limit: str) -> None:
    bench = Bench(context=100)
    async with client_of(bench) as client:
        answer = await client.post(path, json={**ASKED[path], limit: 32_000})
        within = await client.post(path, json={**ASKED[path], limit: 98})
    assert answer.status_code == 200, answer.text
    assert answer.headers[CLIPPED] == "98"
    assert CLIPPED not in within.headers
    assert [request.max_tokens for request in bench.engine.added] == [98, 98]


@pytest.mark.parametrize(("path", "limit"), LIMITS)
async def test_without_clipping_too_large_max_tokens_are_a_400(path: str, limit: str) -> None:
    bench = Bench(context=100, clip_max_tokens=False)
    error = error_of(await post(bench, path, {**ASKED[path], limit: 99}, 400))
    assert (error["param"], error["code"]) == (limit, "context_length_exceeded")
    if path == MESSAGES:
        told = r"input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)"
        found = re.match(told, error["message"])
        assert found is not None
        assert found.groups() == ("2", "99", "100")
    else:
        assert error["message"].startswith(
            "This model's maximum context length is 100 tokens. However, you requested 101 tokens "
            f"(2 in the prompt, 99 in {limit})."
        )
        assert f"lower {limit} to at most 98" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "limit"), LIMITS)
async def test_a_budget_that_no_answer_fits_in_is_a_400_that_says_what_is_needed(
    path: str, limit: str, stream: bool
) -> None:
    bench = Bench()
    bench.engine.refusal = lambda request: BudgetTooSmall(max_tokens=3, needed=9)
    error = error_of(await post(bench, path, {**ASKED[path], limit: 3, "stream": stream}, 400))
    assert (error["param"], error["code"]) == (limit, "budget_too_small")
    assert error["message"] == (
        f"{limit} is 3, but the shortest answer this constraint allows needs 9 tokens; "
        f"raise {limit} to at least 9"
    )


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
    found = error_of(await post(Bench(engine, context=100), CHAT, chat(**asked), 400))
    assert found["code"] == error
    if error == "context_length_exceeded":
        assert "122 tokens (2 in the prompt, 120 in the shortest valid answer)" in found["message"]
        assert "max_tokens" not in found["message"]


def test_images_are_counted_in_either_message() -> None:
    error = PromptTooLong(prompt_tokens=200, room=100, image_tokens=150)
    assert "200 tokens in the prompt, 150 of them its images'" in str(error)
    assert "fewer or smaller images" in str(error)
    assert error.anthropics.endswith("99 maximum, 150 of them its images'")
