"""``echo`` in completions: the prompt before the answer, with log-probabilities of its tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from openai.types import Completion

from app.core.events import AnswerToken
from app.core.step import TokenLogprob
from app.http.completions.write import ChoiceLogprobs
from tests.engine.harness import VOCABULARY, make_engine
from tests.fakes import ScriptedModel
from tests.http.harness import COMPLETIONS, client_of, events, post
from tests.serving.fakes import Bench

MODEL = ScriptedModel(VOCABULARY, eos=-100.0)
PROMPTS = ([115, 97, 121], [*b'say: {"name": "ab"}', VOCABULARY.special, 120])


def real() -> Bench:
    """The real engine over a scripted model."""
    engine = cast(Any, make_engine(model=MODEL, num_blocks=500))
    engine.gate = threading.Event()
    return Bench(engine)


async def answered(bench: Bench, **fields: Any) -> dict[str, Any]:
    return dict((await post(bench, COMPLETIONS, {"model": "demo", **fields})).json())


async def test_texts_begin_with_their_prompts() -> None:
    found = await answered(Bench(), prompt=["hi ", "ho "], n=2, echo=True)
    assert [each["text"] for each in found["choices"]] == ["hi Hello"] * 2 + ["ho Hello"] * 2
    found = await answered(Bench(), prompt=[104, 105], echo=True)
    assert found["choices"][0]["text"] == "hiHello"
    Completion.model_validate(found, strict=True)


async def test_a_stream_s_first_chunk_has_the_prompt() -> None:
    body = {"model": "demo", "prompt": ["hi ", "ho "], "echo": True, "stream": True}
    response = await post(Bench(), COMPLETIONS, body)
    texts: dict[int, list[str]] = {}
    for chunk in events(response.text):
        for choice in chunk["choices"] if chunk != "[DONE]" else ():
            texts.setdefault(choice["index"], []).append(choice["text"])
    assert {index: "".join(each) for index, each in texts.items()} == {0: "hi Hello", 1: "ho Hello"}
    assert texts[0][0].startswith("hi ")


def logprobs(prompt: Sequence[int]) -> list[float]:
    found = []
    for position in range(1, len(prompt)):
        logits = MODEL.logits(prompt[:position])
        found.append(float(logits[prompt[position]] - np.logaddexp.reduce(logits)))
    return found


@pytest.mark.parametrize("alternatives", [0, 1, 5])
async def test_every_token_of_the_prompt_has_its_log_probability(alternatives: int) -> None:
    """As lm-eval uses it: token ids, ``max_tokens`` 1. The first token has no log-probability."""
    fields = {"prompt": PROMPTS, "max_tokens": 1, "logprobs": alternatives, "echo": True}
    found = await answered(real(), temperature=0, **fields)
    for prompt, choice in zip(PROMPTS, found["choices"], strict=True):
        told = choice["logprobs"]
        assert {len(each) for each in told.values()} == {len(prompt) + 1}
        assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
        assert told["token_logprobs"][1:-1] == pytest.approx(logprobs(prompt), abs=1e-6)
        for position, top in enumerate(told["top_logprobs"][1:-1], start=1):
            logits = MODEL.logits(prompt[:position])
            best = float(logits.max() - np.logaddexp.reduce(logits))
            if alternatives:
                assert max(top.values()) == pytest.approx(best, abs=1e-6)
            assert told["tokens"][position] in top
        text = choice["text"]
        for name, offset in zip(told["tokens"], told["text_offset"], strict=True):
            assert text.startswith(name, offset) or name.startswith("bytes:")


async def test_a_stream_has_the_same() -> None:
    fields = {"prompt": PROMPTS[1], "max_tokens": 3, "logprobs": 2, "echo": True, "temperature": 0}
    (whole,) = (await answered(real(), **fields))["choices"]
    response = await post(real(), COMPLETIONS, {"model": "demo", "stream": True, **fields})
    joined: dict[str, list[Any]] = {name: [] for name in whole["logprobs"]}
    for chunk in events(response.text):
        for choice in chunk["choices"] if chunk != "[DONE]" else ():
            for name, values in (choice["logprobs"] or {}).items():
                joined[name] += values
    assert joined == whole["logprobs"]


async def test_a_constraint_and_the_prompt_s_probabilities_exclude_each_other() -> None:
    async with client_of(Bench()) as client:
        body = {"model": "demo", "prompt": "hi", "echo": True, "regex": "a+"}
        alone = await client.post(COMPLETIONS, json=body)
        both = await client.post(COMPLETIONS, json={**body, "logprobs": 1})
    assert alone.json()["choices"][0]["text"] == "hiHello"
    assert (both.status_code, both.json()["error"]["param"]) == (400, "echo")


def test_a_token_without_text_is_counted_behind_an_echo() -> None:
    """The end token counts: evaluation tools cut the answer's tokens off by their number."""
    names = ChoiceLogprobs(lambda token: "</s>")
    prompt = [AnswerToken(104, b"h", "leapt"), AnswerToken(105, b"i", "leapt", -1.0)]
    end = AnswerToken(2, b"", "sampled", -0.5, [TokenLogprob(2, -0.5)])
    told = names.of([end], prompt, "hi")
    assert told["tokens"] == ["h", "i", "</s>"]
    assert told["token_logprobs"] == [None, -1.0, -0.5]
    assert told["top_logprobs"] == [None, {"i": -1.0}, {"</s>": -0.5}]
    assert told["text_offset"] == [0, 1, 2]
