"""``POST /v1/completions`` on a fake engine: prompts in, text out."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from openai.types import Completion

from app.core.events import AnswerToken
from app.core.request import EngineRequest, SamplingParams
from app.core.step import TokenLogprob
from app.http.completions.write import ChoiceLogprobs
from tests.http.harness import (
    BODIES,
    COMPLETIONS,
    events,
    post,
    refusal,
    sdk_of,
)
from tests.serving.fakes import Bench, FakeEngine


def ask(**fields: Any) -> dict[str, Any]:
    """The body of a request with the prompt ``hi``."""
    return {**BODIES[COMPLETIONS], **fields}


async def answer(bench: Bench | None = None, **fields: Any) -> Any:
    """The complete answer, validated with the types of OpenAI's SDK."""
    response = await post(bench or Bench(), COMPLETIONS, ask(**fields))
    Completion.model_validate_json(response.content, strict=True)
    return response.json()


async def stream(bench: Bench | None = None, **fields: Any) -> list[Any]:
    """The chunks of a streamed answer.

    Validated with the types of OpenAI's SDK, except that ``finish_reason`` is null until a choice
    ends: OpenAI's server sends null too.
    """
    response = await post(bench or Bench(), COMPLETIONS, ask(stream=True, **fields))
    *chunks, done = events(response.text)
    assert done == "[DONE]"
    for chunk in chunks:
        choices = [
            {**each, "finish_reason": each["finish_reason"] or "stop"} for each in chunk["choices"]
        ]
        Completion.model_validate({**chunk, "choices": choices}, strict=True)
    return chunks


async def engine_requests(**fields: Any) -> list[EngineRequest]:
    """The requests that the engine gets when a client sends ``fields``."""
    bench = Bench()
    await answer(bench, **fields)
    return bench.engine.added


async def test_an_answer_has_every_key_that_clients_look_at() -> None:
    response = await post(Bench(), COMPLETIONS, ask())
    body = response.json()
    request_id = response.headers["x-request-id"].removeprefix("req_")
    assert body.pop("created") > 1700000000
    assert body.pop("usage")["completion_tokens_details"]["leapt_tokens"] == 1
    assert body == {
        "id": f"cmpl-{request_id}",
        "object": "text_completion",
        "model": "demo",
        "system_fingerprint": "fp_test",
        "choices": [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}],
    }


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("hi", [[256, 104, 105]]),
        (["a", "b"], [[256, 97], [256, 98]]),
        ([1, 2, 277], [[1, 2, 277]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
async def test_prompts_are_texts_or_tokens_one_or_several(
    prompt: Any, tokens: list[list[int]]
) -> None:
    added = await engine_requests(prompt=prompt)
    assert [list(each.prompt) for each in added] == tokens


async def test_choices_of_the_first_prompt_come_before_those_of_the_second() -> None:
    bench = Bench(FakeEngine(lambda request: [bytes(request.prompt), b"%d" % request.seed]))
    body = await answer(bench, prompt=[[97], [98]], n=2, seed=5)
    found = [(choice["index"], choice["text"]) for choice in body["choices"]]
    assert found == [(0, "a5"), (1, "a6"), (2, "b5"), (3, "b6")]


async def test_the_prompts_and_all_choices_are_counted() -> None:
    usage = (await answer(prompt=[[1, 2], [3]], n=2))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 8)
    assert usage["total_tokens"] == 11


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}])
async def test_an_answer_has_sixteen_tokens_unless_the_request_says_more(
    fields: dict[str, Any],
) -> None:
    bench = Bench(FakeEngine(lambda request: [b"x"] * 40))
    (choice,) = (await answer(bench, **fields))["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("x" * 16, "length")
    assert (await engine_requests(max_tokens=17))[0].max_tokens == 17


async def test_null_means_the_default() -> None:
    names = "temperature top_p n best_of stop seed max_tokens logprobs stream suffix echo user"
    (request,) = await engine_requests(**dict.fromkeys(names.split()))
    assert request.options.sampling == SamplingParams()


async def test_each_token_has_its_logprob_and_the_likeliest_ones_beside_it() -> None:
    # The fake engine's top tokens are H (log-probability -0.5) and the end token (-inf).
    bench = Bench(FakeEngine(lambda request: [b"Yel", b"lo"]))
    (choice,) = (await answer(bench, logprobs=2))["choices"]
    assert choice["logprobs"] == {
        "tokens": ["Yel", "lo"],
        "token_logprobs": [-0.25, -0.25],
        "top_logprobs": [
            {"H": -0.5, "": -9999.0, "Yel": -0.25},
            {"H": -0.5, "": -9999.0, "lo": -0.25},
        ],
        "text_offset": [0, 3],
    }


def test_the_drawn_token_is_named_once_among_the_likeliest() -> None:
    top = [TokenLogprob(72, -0.25), TokenLogprob(73, -2.0), TokenLogprob(74, -3.0)]
    names = {73: "I", 74: "I"}
    drawn = AnswerToken(72, b"H", "sampled", -0.25, top)
    alone = AnswerToken(72, b"H", "sampled", -0.25)
    found = ChoiceLogprobs(names.__getitem__).of([drawn, alone])
    assert found["top_logprobs"] == [{"H": -0.25, "I": -2.0}, {"H": -0.25}]


def test_tokens_that_add_no_text_have_no_logprobs() -> None:
    tokens = [AnswerToken(1, b"", "sampled"), AnswerToken(2, b"a", "leapt")]
    found = ChoiceLogprobs(str).of(tokens)
    assert (found["tokens"], found["token_logprobs"]) == (["a"], [0.0])


async def test_a_token_that_is_part_of_a_character_is_named_by_its_bytes() -> None:
    bench = Bench(FakeEngine(lambda request: [b"a\xe2\x82", b"\xac", b"b"]))
    (choice,) = (await answer(bench, logprobs=1))["choices"]
    assert choice["text"] == "a€b"
    assert choice["logprobs"]["tokens"] == [r"bytes:\x61\xe2\x82", r"bytes:\xac", "b"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]


def pieces_of(text: str, seed: int) -> list[bytes]:
    """The bytes of ``text``, cut at random positions, also inside characters."""
    data = text.encode()
    source = random.Random(seed)
    cuts = sorted({0, len(data), *(source.randrange(len(data)) for _ in range(12))})
    return [data[start:end] for start, end in pairwise(cuts)]


def random_text(source: random.Random) -> str:
    return "".join(source.choice("ab é€😀\n\u0301") for _ in range(source.randrange(1, 40)))


async def test_offsets_count_the_characters_before_the_one_a_token_begins_in() -> None:
    source = random.Random(4)
    for seed in range(20):
        text = random_text(source)
        pieces = pieces_of(text, seed)
        bench = Bench(FakeEngine(lambda request, pieces=pieces: pieces))  # type: ignore[misc]
        (choice,) = (await answer(bench, logprobs=0, max_tokens=99))["choices"]
        character_at = [index for index, each in enumerate(text) for _ in each.encode()]
        starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
        assert choice["text"] == text
        assert choice["logprobs"]["text_offset"] == [character_at[start] for start in starts]


async def test_a_streams_chunks_put_together_are_the_whole_answer() -> None:
    source = random.Random(5)
    for _ in range(10):
        texts = {(97,): random_text(source), (98,): random_text(source)}

        def script(request: EngineRequest, texts: Any = texts) -> list[bytes]:
            return pieces_of(texts[tuple(request.prompt)], request.seed)

        fields: dict[str, Any] = {
            "prompt": [[97], [98]], "n": 2, "seed": 3, "logprobs": 2, "max_tokens": 99,
        }  # fmt: skip
        whole = await answer(Bench(FakeEngine(script)), **fields)
        chunks = await stream(Bench(FakeEngine(script)), **fields)
        deltas = [choice for chunk in chunks for choice in chunk["choices"]]
        for choice in whole["choices"]:
            own = [delta for delta in deltas if delta["index"] == choice["index"]]
            assert "".join(delta["text"] for delta in own) == choice["text"]
            assert [delta["finish_reason"] for delta in own][:-1] == [None] * (len(own) - 1)
            assert own[-1]["finish_reason"] == choice["finish_reason"]
            for key, values in choice["logprobs"].items():
                parts = [delta["logprobs"][key] for delta in own if delta["logprobs"]]
                assert [each for part in parts for each in part] == values
        assert len({chunk["id"] for chunk in chunks}) == 1


async def test_a_stream_ends_with_the_reason_and_done() -> None:
    chunks = await stream(max_tokens=1)
    (choice,) = chunks[-1]["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hel", "length")
    assert all("usage" not in chunk for chunk in chunks)


async def test_a_stream_reports_its_usage_in_the_end_or_all_along() -> None:
    *chunks, last = await stream(stream_options={"include_usage": True}, n=2)
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4

    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = await stream(stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 2


async def test_a_failure_in_a_stream_is_an_event_and_no_done_follows() -> None:
    bench = Bench(FakeEngine(lambda request: [b"a", b"b"]))
    bench.engine.finish_with = "error"
    response = await post(bench, COMPLETIONS, ask(stream=True))
    *_, last = events(response.text)
    assert set(last["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"prompt": None}, "prompt", "Missing required parameter: 'prompt'."),
        ({"prompt": []}, "prompt", "a list of texts"),
        ({"prompt": 7}, "prompt", "a list of texts"),
        ({"prompt": {"text": "a"}}, "prompt", "a list of texts"),
        ({"prompt": [[]]}, "prompt[0]", "a list of lists of token ids"),
        ({"prompt": ["a", [1]]}, "prompt[0]", "a list of lists of token ids"),
        ({"prompt": [[1], "a"]}, "prompt[1]", "a list of lists of token ids"),
        ({"prompt": [1, "a"]}, "prompt[1]", "not a token id"),
        ({"prompt": [1, 1.0]}, "prompt[1]", "not a token id"),
        ({"prompt": [1, True]}, "prompt[1]", "not a token id"),
        ({"prompt": [1, -1]}, "prompt[1]", "the token id -1"),
        ({"prompt": [1, 278]}, "prompt[1]", "has ids 0 to 277"),
        ({"prompt": [1, 2**70]}, "prompt[1]", "has ids 0 to 277"),
        ({"prompt": [[1], [2, 278]]}, "prompt[1][1]", "has ids 0 to 277"),
        ({"prompt": "x" * 2000}, "prompt", "you requested 2001 tokens in the prompt"),
        ({"prompt": [1] * 1000}, "prompt", "you requested 1000 tokens in the prompt"),
        ({"n": 5}, "n", "the limit is 4"),
        ({"prompt": ["a"] * 5}, "prompt", "5 prompts with n = 1 ask for 5 choices"),
        ({"prompt": ["a"] * 3, "n": 2}, "prompt", "ask for 6 choices and the limit is 4"),
        ({"n": 2, "best_of": 3}, "best_of", "leave best_of out"),
        ({"best_of": 2}, "best_of", "best_of is 2 and n is 1"),
        ({"logprobs": 6}, "logprobs", "less than or equal to 5"),
        ({"logprobs": True}, "logprobs", "valid integer"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "requires stream"),
        ({"messages": []}, "messages", "use prompt"),
        ({"logit_bias": {"5000": 1}}, "logit_bias", "the token id 5000"),
    ],
)
async def test_a_bad_field_is_400_with_its_name_and_the_reason(
    fields: dict[str, Any], param: str, reason: str
) -> None:
    error = await refusal(COMPLETIONS, ask(**fields))
    assert error["param"] == param
    assert reason in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "end"),
        ("prompt_embeds", "AAAA"),
        ("prompt_logprobs", 1),
        ("truncate_prompt_tokens", 10),
        ("add_special_tokens", False),
        ("use_beam_search", True),
        ("stop_regex", "a+"),
    ],
)
async def test_a_known_field_that_is_not_served_is_400_with_its_name(
    field: str, value: Any, stream: bool
) -> None:
    error = await refusal(COMPLETIONS, ask(**{field: value, "stream": stream}))
    assert error["param"] == field
    assert f"{field} is not supported" in error["message"]


async def test_fields_that_ask_for_nothing_are_taken() -> None:
    added = await engine_requests(
        echo=False, suffix="", n=2, best_of=2, user="u", use_beam_search=False,
        add_special_tokens=True, priority=0, length_penalty=1.0, truncate_prompt_tokens=None,
        metadata={"a": "b"}, skip_special_tokens=True,
    )  # fmt: skip
    assert len(added) == 2


async def test_a_missing_prompt_is_named_and_an_unknown_model_is_404() -> None:
    error = await refusal(COMPLETIONS, {"model": "demo"})
    assert error["message"] == "Missing required parameter: 'prompt'."
    unknown = await refusal(COMPLETIONS, ask(model="davinci-002"), 404)
    assert unknown["code"] == "model_not_found"


async def test_a_finished_request_is_counted_under_its_path() -> None:
    bench = Bench()
    await answer(bench)
    (stats,) = bench.observer.requests
    assert (stats.endpoint, stats.status, stats.finish_reason) == (COMPLETIONS, 200, "stop")


async def test_the_sdk_completes_whole_and_as_a_stream() -> None:
    async with sdk_of(Bench()) as client:
        whole = await client.completions.create(model="demo", prompt=["a", "b"], logprobs=1)
        assert [choice.text for choice in whole.choices] == ["Hello", "Hello"]
        Completion.model_validate(whole.to_dict(), strict=True)
        texts = ["", ""]
        chunks = await client.completions.create(model="demo", prompt=["a", "b"], stream=True)
        async for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == ["Hello", "Hello"]
