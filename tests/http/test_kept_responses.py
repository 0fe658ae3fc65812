"""Stored responses, and requests that continue them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response
from openai.types.responses.response_item_list import ResponseItemList

from app.http.keys import ApiKeys
from app.http.requests.wire import HEADER
from app.serving.kept_responses import KeptResponse, MemoryResponses
from tests.http.harness import CONFIG, HI, RESPONSES, application, client_of, listening, writing
from tests.http.responses import CALL, REASONER, WEATHER, WITH_TOOLS, asking
from tests.serving.fakes import Bench


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def memory(max_bytes: int = 1 << 20, seconds: float = 100.0, clock: Any = None) -> MemoryResponses:
    return MemoryResponses(max_bytes=max_bytes, max_seconds=seconds, clock=clock or Clock())


@asynccontextmanager
async def keeping(bench: Bench, **config: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(bench, replace(CONFIG, **config), memory()) as client:
        yield client


async def made(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post(RESPONSES, json=asking(**fields))
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def test_a_response_goes_on_from_another() -> None:
    bench = Bench()
    async with keeping(bench) as client:
        first = await made(client, instructions="Be brief.")
        second = await made(client, input="and?", previous_response_id=first["id"])
        await made(client, input=[HI], previous_response_id=second["id"])
    hello = {"role": "assistant", "content": "Hello"}
    assert bench.tokenizer.seen[1] == [HI, hello, {"role": "user", "content": "and?"}]
    assert bench.tokenizer.seen[2] == [*bench.tokenizer.seen[1], hello, HI]
    assert (first["store"], first["previous_response_id"]) == (True, None)
    assert second["previous_response_id"] == first["id"]


async def test_a_call_and_its_result_need_not_be_sent_again() -> None:
    bench = writing(CALL, WITH_TOOLS)
    async with keeping(bench) as client:
        first = await made(client, tools=[WEATHER])
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"}
        await made(client, tools=[WEATHER], input=[output], previous_response_id=first["id"])
    user, called, result = bench.tokenizer.seen[1]
    assert (user, called["role"]) == (HI, "assistant")
    assert called["tool_calls"][0]["function"]["name"] == "weather"
    assert (result["role"], result["content"]) == ("tool", "Rain")


async def test_a_stream_is_kept_before_its_end_is_told() -> None:
    bench = writing("<think>\nHm.\n</think>\n\nHello", REASONER)
    async with keeping(bench) as client:
        async with client.stream("POST", RESPONSES, json=asking(stream=True)) as stream:
            text = "".join([part async for part in stream.aiter_text()])
        name = text.partition('"id":"')[2].partition('"')[0]
        kept = (await client.get(f"{RESPONSES}/{name}")).json()
        await made(client, input="and?", previous_response_id=name)
    Response.model_validate(kept, strict=True)
    assert (kept["status"], kept["output"][-1]["content"][0]["text"]) == ("completed", "Hello")
    assert bench.tokenizer.seen[1][1]["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    ("item", "param", "message"),
    [
        ({"role": "user"}, "input[1].content", "Missing required parameter: 'input[1].content'."),
        ({"role": "x", "content": ""}, "input[1].role", "input[1].role: Input should be"),
        ({"type": "x"}, "input[1]", "input[1]: items of type 'x'"),
        ({**HI, "extra": 1}, "input[1].extra", "supplied: input[1].extra"),
    ],
)
async def test_an_error_names_an_item_as_the_request_numbers_it(
    item: dict[str, Any], param: str, message: str
) -> None:
    async with keeping(Bench(), unknown_fields="refuse") as client:
        first = await made(client)
        known = {"type": "item_reference", "id": first["output"][0]["id"]}
        asked = asking(input=[known, item], previous_response_id=first["id"])
        answer = await client.post(RESPONSES, json=asked)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), answer.text
    assert message in error["message"]


async def test_an_item_reference_is_the_item() -> None:
    bench = writing(CALL, WITH_TOOLS)
    async with keeping(bench) as client:
        first = await made(client, tools=[WEATHER])
        (call,) = first["output"]
        items = (await client.get(f"{RESPONSES}/{first['id']}/input_items")).json()["data"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"}
        references = [{"id": items[0]["id"]}, {"type": "item_reference", "id": call["id"]}]
        await made(client, input=[*references, output])
        twice = await made(client, input=[references[1], output], previous_response_id=first["id"])
        listed = (await client.get(f"{RESPONSES}/{twice['id']}/input_items")).json()["data"]
        unknown = await client.post(
            RESPONSES, json=asking(input=[{"type": "item_reference", "id": "x"}])
        )
        wrong = {"type": "item_reference", "id": call["id"].replace("_0", "_7")}
        other = await client.post(RESPONSES, json=asking(input=[HI, wrong]))
    for seen in bench.tokenizer.seen[1:3]:  # items of the conversation are not repeated
        assert [each["role"] for each in seen] == ["user", "assistant", "tool"]
    assert [each["type"] for each in listed[::-1]] == [
        *("message", "function_call", "function_call_output")
    ]
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "input[0].id")
    assert (other.status_code, other.json()["error"]["param"]) == (400, "input[1].id")


@pytest.mark.parametrize("id", [{"a": 1}, 5, "", None])
async def test_an_item_of_another_server_may_have_any_id(id: Any) -> None:
    bench = Bench()
    async with keeping(bench) as client:
        first = await made(client, input=[{"type": "web_search_call", "id": id}, HI])
        await made(client, input="and?", previous_response_id=first["id"])
        items = (await client.get(f"{RESPONSES}/{first['id']}/input_items")).json()
    assert items["data"][1]["id"].endswith("_input0")
    assert len(bench.tokenizer.seen[1]) == 3


async def test_store_false_keeps_nothing() -> None:
    async with keeping(Bench()) as client:
        response = await made(client, store=False)
        got = await client.get(f"{RESPONSES}/{response['id']}")
        on = await client.post(RESPONSES, json=asking(previous_response_id=response["id"]))
    assert response["store"] is False
    assert got.status_code == 404
    assert (on.status_code, on.json()["error"]["code"]) == (400, "previous_response_not_found")
    assert on.json()["error"]["param"] == "previous_response_id"


async def test_a_response_can_be_fetched_listed_and_deleted() -> None:
    bench = Bench()
    said = [HI, {"role": "assistant", "content": "Hm."}, {**HI, "content": "and?"}]
    async with keeping(bench) as client:
        response = await made(client, input=said)
        place = f"{RESPONSES}/{response['id']}"
        assert (await client.get(place)).json() == response
        listed = (await client.get(f"{place}/input_items", params={"order": "asc"})).json()
        newest = (await client.get(f"{place}/input_items", params={"limit": 1})).json()
        second = (
            await client.get(
                f"{place}/input_items", params={"after": newest["last_id"], "limit": 1}
            )
        ).json()
        wrong = [
            (await client.get(f"{place}/input_items", params=params)).json()["error"]["param"]
            for params in ({"limit": "0"}, {"limit": "x"}, {"order": "up"}, {"after": "x"})
        ]
        streamed = await client.get(place, params={"stream": "true"})
        cancelled = await client.post(f"{place}/cancel")
        deleted = await client.delete(place)
        again = [
            (await client.request(method, place + path)).status_code
            for method, path in (
                *(("GET", ""), ("DELETE", "")),
                *(("POST", "/cancel"), ("GET", "/input_items")),
            )
        ]
    ResponseItemList.model_validate(listed, strict=True)
    texts = [each["content"][0]["text"] for each in listed["data"]]
    assert texts == ["hi", "Hm.", "and?"]
    assert (listed["has_more"], newest["has_more"]) == (False, True)
    assert newest["data"] == listed["data"][2:]
    assert second["data"] == listed["data"][1:2]
    assert wrong == ["limit", "limit", "order", "after"]
    assert (streamed.status_code, cancelled.status_code) == (400, 400)
    assert deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
    assert again == [404] * 4


async def test_keys_see_their_own_responses_alone() -> None:
    config = {"api_keys": ApiKeys(["one", "two"])}
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    async with keeping(Bench(), **config) as client:
        response = (await client.post(RESPONSES, json=asking(), headers=one)).json()
        place = f"{RESPONSES}/{response['id']}"
        own = await client.get(place, headers=one)
        others = await client.get(place, headers=two)
        on = await client.post(
            RESPONSES, json=asking(previous_response_id=response["id"]), headers=two
        )
        deleted = await client.delete(place, headers=two)
    assert [each.status_code for each in (own, others, on, deleted)] == [200, 404, 400, 404]


async def test_a_server_that_keeps_none_says_so() -> None:
    async with client_of(Bench()) as client:
        stored = await client.post(RESPONSES, json=asking(store=True))
        on = await client.post(RESPONSES, json=asking(previous_response_id="resp_1"))
        reference = {"type": "item_reference", "id": "msg_1_0"}
        refers = await client.post(RESPONSES, json=asking(input=[reference]))
    assert stored.json()["store"] is False
    assert stored.headers[HEADER] == "store"
    assert "stores no responses" in on.json()["error"]["message"]
    assert "stores no responses" in refers.json()["error"]["message"]


async def test_the_tokens_of_a_request_are_counted_with_all_that_it_goes_on_from() -> None:
    bench = Bench()
    async with keeping(bench) as client:
        first = await made(client)
        asked = {"input": "and?", "previous_response_id": first["id"], "model": "demo"}
        counted = await client.post(f"{RESPONSES}/input_tokens", json=asked)
        second = await made(client, **asked)
        missing = await client.post(f"{RESPONSES}/input_tokens", json={"model": "demo"})
    assert counted.json() == {
        "object": "response.input_tokens",
        "input_tokens": second["usage"]["input_tokens"],
    }
    assert second["usage"]["input_tokens"] == len("hi" + "Hello" + "and?")
    assert missing.status_code == 400


async def test_the_sdk_goes_on() -> None:
    bench = Bench()
    async with (
        bench.running(),
        listening(application(bench, responses=memory())) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        first = await client.responses.create(model="demo", input="hi")
        again = await client.responses.retrieve(first.id)
        assert again.output_text == first.output_text == "Hello"
        second = await client.responses.create(
            model="demo", input="and?", previous_response_id=first.id
        )
        items = [item async for item in client.responses.input_items.list(second.id)]
        count = await client.responses.input_tokens.count(model="demo", input="hi")
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match="there is no response"):
            await client.responses.create(model="demo", input="", previous_response_id=second.id)
    assert (len(items), count.input_tokens) == (3, 2)


async def test_a_conversation_is_bounded_as_a_body_is() -> None:
    bench = Bench(context=10**5)
    async with keeping(bench, max_body_bytes=6000, max_messages=8) as client:
        first = await made(client, input="x" * 3000)
        second = await made(client, input="y" * 2900, previous_response_id=first["id"])
        third = await client.post(RESPONSES, json=asking(previous_response_id=second["id"]))
        items = await made(client, input=[HI] * 8)
        more = await client.post(RESPONSES, json=asking(previous_response_id=items["id"]))
    assert (third.status_code, third.json()["error"]["code"]) == (413, "body_too_large")
    assert "there are 10 items and the limit is 8" in more.json()["error"]["message"]


def kept(name: str, size: int = 0, previous: str | None = None) -> KeptResponse:
    return KeptResponse(name, previous, b"x" * size, b"[]")


EMPTY = kept("").nbytes


async def test_memory_is_bounded_and_the_owner_of_most_gives_way() -> None:
    store = memory(max_bytes=5 * EMPTY)
    for name in "abcd":
        await store.keep("large", kept(name))
    await store.find("large", "a")
    await store.keep("small", kept("e"))
    await store.keep("small", kept("f"))
    assert store.nbytes <= 5 * EMPTY
    found = [name for name in "abcd" if await store.find("large", name)]
    assert found == ["a", "c", "d"], "b is the least recently used"
    assert await store.find("small", "e")
    assert not await store.find("small", "a")
    await store.keep("small", kept("huge", size=5 * EMPTY))
    assert not await store.find("small", "huge")
    assert sum(map(len, store._owners.values())) == 5


async def test_a_response_is_forgotten_some_time_after_its_last_use() -> None:
    clock = Clock()
    store = memory(seconds=10.0, clock=clock)
    await store.keep("", kept("a"))
    await store.keep("", kept("b"))
    clock.now = 8.0
    assert await store.find("", "a")
    clock.now = 12.0
    assert not await store.find("", "b")
    assert await store.find("", "a")
    clock.now = 30.0
    assert not await store.delete("", "a")
    assert (store.nbytes, store._owners) == (0, {})
