"""Adapters as models: named, listed, found, loaded and unloaded over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from app.core.request import Adapter
from tests.http.harness import CHAT, CONFIG, chat, client_of, sdk_of
from tests.serving.fakes import Bench, FakeSlots

LEGAL = Adapter("legal", 1, 0, "/adapters/legal", "identity", 1700000001)
OTHER = Adapter("other.v2", 2, 1, "org/other", "another", 1700000001)
MESSAGES: Any = [{"role": "user", "content": "hi"}]


def bench(folder: Path | None = None) -> Bench:
    place = None if folder is None else str(folder)
    return Bench(slots=FakeSlots(3), loaded=[LEGAL, OTHER], adapter_folder=place)


async def test_the_sdk_lists_adapters_as_models_with_their_parent() -> None:
    async with sdk_of(bench()) as client:
        listed = [model async for model in client.models.list()]
        found = await client.models.retrieve("demo:legal")
    extra = [(each.id, *(getattr(each, name) for name in ("root", "parent"))) for each in listed]
    assert extra == [
        ("demo", "demo", None),
        ("demo:legal", "/adapters/legal", "demo"),
        ("demo:other.v2", "org/other", "demo"),
    ]
    assert found == listed[1]
    assert found.created == LEGAL.created


async def test_every_api_runs_with_the_adapter_that_is_named() -> None:
    own = bench()
    async with sdk_of(own) as client:
        chat = await client.chat.completions.create(model="demo:legal", messages=MESSAGES)
        base = await client.chat.completions.create(model="demo", messages=MESSAGES)
        other = await client.completions.create(model="demo:other.v2", prompt="hi")
        response = await client.responses.create(model="demo:legal", input="hi")
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="demo:other.v2", messages=MESSAGES, stream=True
            )
        ]
    assert [each.adapter for each in own.engine.added] == [1, 0, 2, 1, 2]
    assert chat.model == response.model == "demo:legal"
    assert {chunk.model for chunk in chunks} == {"demo:other.v2"}
    prints = [chat.system_fingerprint, base.system_fingerprint, other.system_fingerprint]
    assert len(set(prints)) == 3
    assert chunks[0].system_fingerprint == other.system_fingerprint
    assert [each.adapter for each in own.observer.requests] == ["legal", "", *OTHERS]


OTHERS = ("other.v2", "legal", "other.v2")


@pytest.mark.parametrize("model", ["demo:none", "legal", "demo:", "other:legal", ":legal"])
async def test_an_unknown_adapter_is_an_unknown_model(model: str) -> None:
    async with client_of(bench()) as client:
        answers = [
            await client.post(CHAT, json=chat() | {"model": model}),
            await client.post("/tokenize", json={"model": model, "prompt": "hi"}),
            await client.get(f"/v1/models/{model}"),
        ]
        known = await client.post("/tokenize", json={"model": "demo:legal", "prompt": "hi"})
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "model_not_found")
        assert error["message"].endswith("serves 'demo', 'demo:legal', 'demo:other.v2'")
    assert known.json()["count"] == 3


async def test_adapters_are_loaded_and_unloaded_as_vllm_and_openai_call_it(tmp_path: Path) -> None:
    for name in ("new", "bad"):
        (tmp_path / name).mkdir()
    load = {"lora_name": "new", "lora_path": "new"}
    async with client_of(bench(tmp_path)) as client:
        loaded = await client.post("/v1/load_lora_adapter", json=load)
        listed = (await client.get("/v1/models")).json()["data"]
        again = await client.post("/v1/load_lora_adapter", json=load)
        bad = await client.post(
            "/v1/load_lora_adapter", json={"lora_name": "b", "lora_path": "bad"}
        )
        answered = await client.post(CHAT, json=chat() | {"model": "demo:new"})
        unloaded = await client.post("/v1/unload_lora_adapter", json={"lora_name": "new"})
        twice = await client.post("/v1/unload_lora_adapter", json={"lora_name": "new"})
        deleted = await client.delete("/v1/models/demo:legal")
        base = await client.delete("/v1/models/demo")
    assert loaded.json() == listed[-1]
    assert loaded.json()["root"] == "new"
    assert answered.json()["model"] == "demo:new"
    assert (again.status_code, again.json()["error"]["param"]) == (400, "lora_name")
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_adapter")
    assert unloaded.json() == {"id": "demo:new", "object": "model", "deleted": True}
    assert twice.status_code == 404
    assert deleted.json()["id"] == "demo:legal"
    assert (base.status_code, base.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize("has_adapters", [False, True])
async def test_openapi_admits_names_of_adapters_where_there_may_be_some(has_adapters: bool) -> None:
    async with client_of(bench(), replace(CONFIG, has_adapters=has_adapters)) as client:
        document = (await client.get("/openapi.json")).json()
    model = document["components"]["schemas"]["ChatCompletionRequest"]["properties"]["model"]
    assert model.get("enum") == (None if has_adapters else ["demo"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"lora_name": "a:b", "lora_path": "x"}, "lora_name"),
        ({"lora_name": "a\n", "lora_path": "x"}, "lora_name"),
        ({"lora_name": "a"}, "lora_path"),
        ({"lora_name": "a", "lora_path": "x", "load_inplace": True}, "load_inplace"),
    ],
    ids=str,
)
async def test_a_load_that_is_wrong_names_its_field(
    fields: dict[str, Any], param: str, tmp_path: Path
) -> None:
    async with client_of(bench(tmp_path)) as client:
        response = await client.post("/v1/load_lora_adapter", json=fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_without_the_setting_nobody_loads_or_unloads() -> None:
    load = {"lora_name": "new", "lora_path": "/etc"}
    async with client_of(bench()) as client:
        answers = [
            await client.post("/v1/load_lora_adapter", json=load),
            await client.post("/v1/unload_lora_adapter", json={"lora_name": "legal"}),
            await client.delete("/v1/models/demo:legal"),
        ]
        listed = (await client.get("/v1/models")).json()["data"]
    for answer in answers:
        assert answer.status_code == 400
        assert "LEAPJSON_ADAPTER_FOLDER" in answer.json()["error"]["message"]
    assert len(listed) == 3


async def test_the_sdk_deletes_an_adapter(tmp_path: Path) -> None:
    async with sdk_of(bench(tmp_path)) as client:
        assert (await client.models.delete("demo:legal")).deleted
        with pytest.raises(openai.NotFoundError, match="demo:legal"):
            await client.chat.completions.create(model="demo:legal", messages=MESSAGES)
