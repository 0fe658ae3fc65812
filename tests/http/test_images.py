"""Images in requests of each API, up to the prompt that the engine gets."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from PIL import Image

from tests.http.harness import client_of
from tests.serving.fakes import Bench, until
from tests.serving.image_targets import DIES, FAILS, HANGS, HOGS
from tests.serving.seeing import Seeing, data_url, picture, seeing

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
A, B = picture(16, 8, seed=1), picture(8, 8, seed=2)
"""Images of two tokens and of one token."""


def pixels(file: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(file: bytes = A, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(file), **fields}}


def block(file: bytes = A, media_type: str = "image/png") -> dict[str, Any]:
    data = base64.b64encode(file).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def chat(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [user(*content)], **fields}


def tokens_of(answer: dict[str, Any]) -> int:
    tokens: int = answer["usage"]["prompt_tokens"]
    return tokens


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Seeing]:
    async with seeing(image_workers=1, schemas=True) as server:
        yield server


async def test_images_stand_in_the_prompt_where_they_stood_among_the_texts(server: Seeing) -> None:
    answer = await server.answer(CHAT, chat(text("a"), text("b"), image(A), text("c"), image(B)))
    assert server.prompt == "[user]a\nb{2}c{1}"
    for seen, sent in zip(server.images, (A, B), strict=True):
        assert np.array_equal(seen, pixels(sent))
    assert tokens_of(answer) == len("[user]a\nbc") + 3


async def test_every_message_of_the_user_may_have_images(server: Seeing) -> None:
    assistant = {"role": "assistant", "content": "y"}
    messages = [user(image(A)), assistant, user(text("and"), image(B))]
    await server.answer(CHAT, {"messages": messages})
    assert server.prompt == "[user]{2}[assistant]y[user]and{1}"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": data_url(A)},
        {"type": "image_url", "image_url": {"url": data_url(A, "image/jpeg")}},
        {"type": "image_url", "image_url": {"url": data_url(A).replace("data:", "DATA:", 1)}},
        {"type": "image_url", "image_url": {"url": data_url(A), "detail": "high"}},
        {"type": "image_url", "image_url": {"url": data_url(A), "detail": "original"}},
        {"type": "image_url", "image_url": {"url": data_url(A)}, "cache_control": {}, "uuid": "x"},
        {
            "type": "image_url",
            "image_url": {
                "url": "data:image/png;name=x.png;base64,"
                + base64.encodebytes(A).decode().replace("\n", "\r\n")
            },
        },
    ],
    ids=lambda part: str(part)[:60],
)
async def test_every_form_of_an_image_is_the_same_image(
    server: Seeing, part: dict[str, Any]
) -> None:
    await server.answer(CHAT, chat(part))
    assert server.prompt == "[user]{2}"
    assert np.array_equal(server.images[0], pixels(A))


async def _readings(server: Seeing) -> dict[str, float]:
    """The number of images that were prepared so far, by result."""
    exposition = (await server.client.get("/metrics")).text
    found = {}
    for line in exposition.splitlines():
        if line.startswith("leapjson_image_prepare_seconds_count"):
            found[line.split('"')[1]] = float(line.split()[-1])
    return found


async def test_a_file_that_came_before_is_not_read_again() -> None:
    both = chat(image(A), text("and"), image(B))
    async with seeing(image_workers=1) as server:
        await server.answer(CHAT, both)
        first = server.images
        await server.answer(CHAT, both)
        assert await _readings(server) == {"ok": 2, "kept": 2}
        assert server.prompt == "[user]{2}and{1}"
        for one, again, sent in zip(first, server.images, (A, B), strict=True):
            assert np.array_equal(one, again)
            assert np.array_equal(one, pixels(sent))
        await server.answer(MESSAGES, {"max_tokens": 9, "messages": [user(block(A))]})
        assert await _readings(server) == {"ok": 2, "kept": 3}, "all APIs share the cache"
        kept = [each for each in (await server.client.get("/metrics")).text.splitlines()
                if each.startswith("leapjson_kept_image_bytes")]  # fmt: skip
        assert float(kept[0].split()[-1]) > sum(each.nbytes for each in first)


async def test_another_detail_of_a_file_is_another_image() -> None:
    large = picture(64, 64)
    async with seeing(image_workers=1) as server:
        for detail, prompt in (("auto", "{64}"), ("low", "{4}"), ("auto", "{64}"), ("low", "{4}")):
            await server.answer(CHAT, chat(image(large, detail=detail)))
            assert server.prompt == f"[user]{prompt}"
        assert await _readings(server) == {"ok": 2, "kept": 2}


async def test_a_broken_file_is_read_each_time_and_refused_each_time() -> None:
    async with seeing(image_workers=1) as server:
        for _ in range(2):
            await server.refusal(CHAT, chat(image(A[:60])))
        assert await _readings(server) == {"invalid": 2}


@pytest.mark.parametrize(("share", "kept"), [(False, 1), (True, 2)])
async def test_images_are_shared_between_keys_where_the_operator_says_so(
    share: bool, kept: int
) -> None:
    keys: Any = ("first", "second")
    async with seeing(image_workers=1, api_keys=keys, share_between_keys=share) as server:
        for key in ("first", "first", "second"):
            server.client.headers["x-api-key"] = key
            await server.answer(CHAT, chat(image(A)))
        assert await _readings(server) == {"ok": 3 - kept, "kept": kept}


async def test_low_detail_makes_an_image_smaller(server: Seeing) -> None:
    large = picture(64, 64)
    await server.answer(CHAT, chat(image(large)))
    assert server.prompt == "[user]{64}"
    await server.answer(CHAT, chat(image(large, detail="low")))
    assert server.prompt == "[user]{4}"
    item = {"type": "input_image", "image_url": data_url(large), "detail": "low"}
    await server.answer(RESPONSES, {"input": [user(item)]})
    assert server.prompt == "[user]{4}"


async def test_responses_take_images_of_the_user_and_of_functions(server: Seeing) -> None:
    shown = {"type": "input_image", "image_url": data_url(A), "detail": "auto"}
    result = {"type": "input_image", "image_url": data_url(B)}
    called = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    items = [
        user({"type": "input_text", "text": "See"}, shown),
        called,
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "seen"}, result],
        },
    ]
    answer = await server.answer(RESPONSES, {"input": items})
    # The fake's template has no tool calls: they are written as text.
    assert server.prompt.startswith("[user]See{2}[assistant]")
    assert server.prompt.endswith("Result of look:\nseen\n\n{1}")
    assert np.array_equal(server.images[1], pixels(B))
    assert answer["usage"]["input_tokens"] == len(server.engine.added[-1].prompt)


async def test_messages_take_images_of_the_user_and_of_tools(server: Seeing) -> None:
    body: dict[str, Any] = {
        "max_tokens": 5,
        "messages": [
            user(block(A), text("Look")),
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}],
            },
            user(
                {"type": "tool_result", "tool_use_id": "t", "content": [block(B)]},
                text("Well?"),
                block(A),
            ),
        ],
    }
    answer = await server.answer(MESSAGES, body)
    assert server.prompt.startswith("[user]{2}Look[assistant]")
    assert server.prompt.endswith("Result of look:\n[image below]\n\n{1}Well?{2}")
    usage, prompt = answer["usage"], server.engine.added[-1].prompt
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == len(prompt)
    del body["max_tokens"]
    counted = await server.answer(COUNT, body)
    assert counted == {"input_tokens": len(prompt)}


async def test_tokenizing_counts_images_as_an_answer_does(server: Seeing) -> None:
    tokenized = await server.answer("/tokenize", chat(text("a"), image(A)))
    answer = await server.answer(CHAT, chat(text("a"), image(A)))
    assert tokenized["count"] == tokens_of(answer)


async def test_the_model_s_own_mark_in_a_client_s_text_is_text(server: Seeing) -> None:
    await server.answer(CHAT, chat(text("an <image> of"), image(A), text("<image>")))
    assert server.prompt == "[user]an <image> of{2}<image>"
    await server.answer(CHAT, {"messages": [{"role": "user", "content": "<image>"}]})
    assert server.prompt == "[user]<image>"
    assert server.engine.added[-1].images is None


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
async def test_messages_of_other_roles_have_no_images_in_chats(server: Seeing, role: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before = {"role": "assistant", "tool_calls": [call]}
    message = {"role": role, "content": [image()], "tool_call_id": "c"}
    error = await server.refusal(CHAT, {"messages": [before, message]})
    assert error["param"] == "messages[1].content[0]"
    assert f"role '{role}' cannot have images; use a user message" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (RESPONSES, {"input": [{"role": "system", "content": [
            {"type": "input_image", "image_url": data_url(A)}]}]}, "input[0].content[0]"),
        (MESSAGES, {"max_tokens": 1, "messages": [
            {"role": "assistant", "content": [block()]}, user(text("x"))]},
            "messages[0].content[0]"),
    ],
)  # fmt: skip
async def test_system_and_assistant_messages_have_no_images_in_other_apis(
    server: Seeing, path: str, body: dict[str, Any], param: str
) -> None:
    assert (await server.refusal(path, body))["param"] == param


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        (CHAT, chat({"type": "image_url", "image_url": "u"}),
            "messages[0].content[0].image_url", "image URLs are disabled"),
        (CHAT, chat({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
            "messages[0].content[0].image_url.url", "send the image as a data URL"),
        (CHAT, chat({"type": "image_url", "image_url": {"url": "data:image/png,x"}}),
            "messages[0].content[0].image_url.url", "data:image/png;base64,..."),
        (CHAT, chat({"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}),
            "messages[0].content[0].image_url.url", "is not supported"),
        (CHAT, chat({"type": "image_url", "image_url": {
            "url": "data:application/pdf;base64,AAAA"}}),
            "messages[0].content[0].image_url.url", "send pictures of its pages"),
        (CHAT, chat({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}),
            "messages[0].content[0].image_url.url", "it has no data"),
        (CHAT, chat({"type": "image_url"}), "messages[0].content[0].image_url", "Missing"),
        (CHAT, chat({"type": "image_url", "image_url": {"url": data_url(A), "detail": "x"}}),
            "messages[0].content[0].image_url.detail", "'auto', 'low'"),
        (CHAT, chat({"type": "input_audio", "input_audio": {}}),
            "messages[0].content[0]", "use text and image_url"),
        (CHAT, chat(text("x"), {"type": "image_url", "image_url": {
            "url": "data:image/png;base64,A*AA"}}),
            "messages[0].content[1]", "not base64"),
        (CHAT, chat(text("x"), image(b"%PDF-1.7 ...")),
            "messages[0].content[1]", "this looks like a PDF"),
        (CHAT, chat(image(A), image(B[:-60])), "messages[0].content[1]", "corrupt or truncated"),
        (RESPONSES, {"input": [user({"type": "input_image", "file_id": "f"})]},
            "input[0].content[0].file_id", "files cannot be used as images"),
        (RESPONSES, {"input": [user({"type": "input_image"})]},
            "input[0].content[0].image_url", "Missing"),
        (MESSAGES, {"max_tokens": 1, "messages": [user(
            {"type": "image", "source": {"type": "file", "file_id": "f"}})]},
            "messages[0].content[0].source", "files cannot be used as images"),
        (MESSAGES, {"max_tokens": 1, "messages": [user(
            {"type": "image", "source": {"type": "url", "url": "https://example.com/"}})]},
            "messages[0].content[0].source.url", "image URLs are disabled"),
        (MESSAGES, {"max_tokens": 1, "messages": [user(block(b"GIF89a"))]},
            "messages[0].content[0]", "the GIF cannot be decoded"),
        (MESSAGES, {"max_tokens": 1, "messages": [user({"type": "video"})]},
            "messages[0].content[0]", "thinking, tool_use, tool_result and image"),
        (COUNT, {"messages": [user(block(b"GIF89a"))]},
            "messages[0].content[0]", "the GIF cannot be decoded"),
        ("/tokenize", chat(image(b"GIF89a")), "messages[0].content[0]", "GIF cannot be decoded"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_an_invalid_image_is_refused_with_its_position(
    server: Seeing, path: str, body: dict[str, Any], param: str, says: str
) -> None:
    error = await server.refusal(path, body)
    assert error["param"] == param
    assert says in error["message"]
    assert param in error["message"]


async def test_the_list_of_models_says_what_a_prompt_may_have(server: Seeing) -> None:
    async with client_of(Bench()) as blind:
        for client, modalities in ((server.client, ["text", "image"]), (blind, ["text"])):
            [model] = (await client.get("/v1/models")).json()["data"]
            assert model["input_modalities"] == modalities


async def test_a_model_without_a_vision_encoder_refuses_images() -> None:
    bodies: dict[str, tuple[dict[str, Any], str]] = {
        CHAT: (
            chat(image()),
            "messages[0].content[0]: parts of type 'image_url' are not supported; use text",
        ),
        RESPONSES: (
            {"input": [user({"type": "input_image", "image_url": data_url(A)})]},
            "input[0].content[0]: parts of type 'input_image' are not supported; use input_text",
        ),
        MESSAGES: (
            {"max_tokens": 1, "messages": [user(block())]},
            "messages[0].content[0]: blocks of type 'image' are not supported; "
            "use text, document, search_result, thinking, tool_use and tool_result",
        ),
    }
    async with client_of(Bench()) as client:
        for path, (body, message) in bodies.items():
            refused = await client.post(path, json={"model": "demo", **body})
            assert refused.status_code == 400
            assert refused.json()["error"]["message"] == message


async def test_bounds_are_told_in_numbers() -> None:
    bounds: dict[str, Any] = {
        "max_images": 2,
        "max_image_bytes": 8000,
        "max_image_pixels": 1000,
        "max_image_tokens": 8,
    }
    async with seeing(image_workers=1, context=100, **bounds) as server:

        async def message(*content: Any, **fields: Any) -> str:
            error = await server.refusal(CHAT, chat(*content, **fields))
            said: str = error["message"]
            return said

        many = await message(image(), image(), image())
        assert many.startswith("messages[0].content[2]:")
        assert "more than 2 images" in many
        assert "about 9000 bytes and the limit is 8000" in await message(image(b"x" * 9000))
        wide = await message(image(picture(200, 10)))
        assert (
            "200 x 10 (2000 pixels) and the limit is 1000 pixels; scale it down to 141 x 7" in wide
        )
        assert "100 times as long" in await message(image(picture(301, 3)))
        await server.answer(CHAT, chat(image(picture(30, 30)), max_tokens=10))
        assert server.prompt == "[user]{4}", "it is scaled down: 16 tokens exceed the limit of 8"
        long = await message(text("x" * 100), image(A))
        assert "108 tokens in the prompt, 2 of them its images'" in long
        assert "or send fewer or smaller images" in long


async def test_images_share_a_bound_on_memory() -> None:
    large = picture(40, 40)
    async with seeing(image_workers=1, max_images_bytes=20_000, tenant_share=1.0) as server:
        error = await server.refusal(CHAT, chat(image(large), image(large)))
        assert "bytes and the limit is 20000; send fewer or smaller ones" in error["message"]
        server.engine.gate.clear()
        first = asyncio.create_task(server.answer(CHAT, chat(image(large))))
        await until(lambda: bool(server.engine.added))
        busy = await server.refusal(CHAT, chat(image(large)), status=429)
        assert busy["code"] == "images_full"
        assert "leapjson_image_bytes 1" in (await server.client.get("/metrics")).text
        server.engine.gate.set()
        await first
        await server.answer(CHAT, chat(image(large)))
        assert "leapjson_image_bytes 0.0" in (await server.client.get("/metrics")).text


async def test_a_worker_that_fails_at_an_image_fails_its_request_alone() -> None:
    async with seeing(image_workers=1, image_seconds=2.0) as server:
        for size, says in (
            (HANGS, "400 messages[0].content[0]: decoding the image exceeded a limit: time: more"),
            (
                DIES,
                "400 messages[0].content[0]: decoding the image exceeded a limit: the worker",
            ),
            (HOGS, "400 messages[0].content[0]: decoding the image exceeded a limit: memory: more"),
            (FAILS, "500 internal error: the image could not be decoded"),
        ):
            body = {"model": "leapjson-demo", **chat(image(picture(*size)))}
            sick = asyncio.create_task(server.client.post(CHAT, json=body))
            await server.answer(CHAT, chat(image()))
            answer = await sick
            told = f"{answer.status_code} {answer.json()['error']['message']}"
            # On a busy machine the wall-clock limit may come before the limit on CPU time.
            stuck = size == HANGS and told.startswith("503 the image could not be decoded: the mac")
            assert stuck or told.startswith(says), told
        exposition = (await server.client.get("/metrics")).text
        restarts = "leapjson_image_worker_restarts_total 4.0"
        assert restarts in exposition, "a job whose worker was killed is retried once"


async def test_verbatim_values_are_pieces_of_the_text_beside_images(server: Seeing) -> None:
    schema = {"type": "string", "x-verbatim": True, "minLength": 2}
    format = {"type": "json_schema", "json_schema": {"name": "q", "schema": schema}}
    error = await server.refusal(CHAT, chat(image(), response_format=format))
    assert "which has images and no text" in error["message"]
    assert error["param"] == "response_format"
    await server.answer(CHAT, chat(text("the"), image(), text("cat"), response_format=format))
    constraint = server.engine.added[-1].constraint
    assert constraint is not None
    state = constraint.start()
    state.accept_bytes(b'"e\\nca"')
    assert state.is_complete, "text parts are joined by a newline, also around an image"
    named = {**schema, "x-verbatim": "messages[0]"}
    format["json_schema"] = {"name": "q", "schema": named}
    body = {"messages": [user(image()), user(text("some text"))], "response_format": format}
    error = await server.refusal(CHAT, body)
    assert "refers to messages[0], which has images and no text" in error["message"]


async def test_texts_are_answered_while_an_image_is_encoded(server: Seeing) -> None:
    encoder, waiting = server.encoder, "leapjson_num_requests_awaiting_vision"
    encoder.gate = False
    asked = asyncio.create_task(server.answer(CHAT, chat(image(picture(seed=31)))))
    await until(lambda: encoder.asked and not encoder.asked[-1][1].done())
    assert f"{waiting} 1.0" in (await server.client.get("/metrics")).text
    await server.answer(CHAT, chat(text("a")))
    assert not asked.done()
    encoder.finish()
    encoder.gate = True
    await asked
    assert f"{waiting} 0.0" in (await server.client.get("/metrics")).text


async def test_an_encoder_failure_is_a_500_of_its_request(server: Seeing) -> None:
    encoder, before = server.encoder, len(server.encoder.asked)
    encoder.gate = False
    body = chat(image(picture(seed=32)))
    asked = asyncio.create_task(server.refusal(CHAT, body, 500))
    await until(lambda: len(encoder.asked) > before)
    encoder.finish(RuntimeError("shapes do not match"))
    error = await asked
    assert "vision encoder failed" in error["message"]
    assert "shapes" not in error["message"]
    encoder.gate = True
    await server.answer(CHAT, body)


async def test_a_request_whose_time_ends_meanwhile_is_not_encoded(server: Seeing) -> None:
    encoder, before = server.encoder, len(server.encoder.asked)
    encoder.gate = False
    error = await server.refusal(CHAT, chat(image(picture(seed=33)), timeout=3), 504)
    assert error["code"] == "deadline_exceeded"
    assert len(encoder.asked) == before + 1
    _, _, is_wanted = encoder.asked[-1]
    assert not is_wanted()
    encoder.gate = True
    await server.answer(CHAT, chat(image(picture(seed=34))))
