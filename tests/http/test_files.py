"""``/v1/files``, ``/v1/batches`` and ``/v1/usage``: requests, errors, separation of keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from app.core.events import RequestStats
from app.http.config import ApiConfig
from app.http.keys import ApiKeys
from app.serving.admission.admission import UPLOADS
from app.serving.kept_responses import KeptResponse, StoredResponses
from app.serving.usage import UsageByKey
from app.store.rows import SCHEMA
from app.store.store import Store
from app.store.tables import files
from tests.http.harness import CONFIG, application, chat, client_of
from tests.http.responses import asking
from tests.serving.fakes import Bench, until
from tests.store.lines import jsonl, open_folder

FILES, BATCHES = "/v1/files", "/v1/batches"
KEYED = replace(CONFIG, api_keys=ApiKeys(["ann", "bob"]))
ANN, BOB = {"authorization": "Bearer ann"}, {"authorization": "Bearer bob"}
DOCUMENT = application(Bench()).openapi()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_folder(tmp_path)
    yield store
    store.state.close()
    store._lock.close()


@asynccontextmanager
async def using(
    store: Store, config: ApiConfig = CONFIG, bench: Bench | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(bench or Bench(), config, store=store) as client:
        yield client


async def upload(client: httpx.AsyncClient, data: bytes = b"{}\n", **more: Any) -> httpx.Response:
    form = {"purpose": "batch", **more.pop("form", {})}
    return await client.post(FILES, data=form, files={"file": ("in.jsonl", data)}, **more)


async def made(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    file = (await upload(client, **more)).json()
    body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
    answer = await client.post(BATCHES, json={**body, "completion_window": "24h"}, **more)
    assert answer.status_code == 200, answer.text
    batch: dict[str, Any] = answer.json()
    return batch


def fits(answer: httpx.Response, path: str) -> bool:
    operation = DOCUMENT["paths"][path][answer.request.method.lower()]
    told = operation["responses"][str(answer.status_code)]
    schema = told["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**DOCUMENT, "$ref": "#/x", "x": schema})
    return bool(validator.is_valid(answer.json()))


async def test_a_file_is_kept_listed_read_and_deleted(store: Store) -> None:
    data = jsonl(3) * 20_000  # more than one read
    async with using(store) as client:
        answer = await upload(client, data)
        assert answer.status_code == 200, answer.text
        file = answer.json()
        assert fits(answer, FILES)
        assert (file["bytes"], file["filename"], file["purpose"]) == (
            len(data),
            "in.jsonl",
            "batch",
        )
        assert file["expires_at"] == file["created_at"] + 30 * 86_400
        one = f"{FILES}/{file['id']}"
        assert (await client.get(one)).json() == file
        content = await client.get(f"{one}/content")
        assert content.content == data
        assert content.headers["content-length"] == str(len(data))
        gone = await client.delete(one)
        assert gone.json() == {"id": file["id"], "object": "file", "deleted": True}
        missing = await client.get(f"{one}/content")
        assert missing.status_code == 404
        assert fits(missing, f"{FILES}/{{file_id}}/content")
    assert list((store.files.scratch or Path()).iterdir()) == []


async def test_lists_go_on_behind_an_id(store: Store) -> None:
    async with using(store) as client:
        ids = [(await upload(client)).json()["id"] for _ in range(5)]
        answer = await client.get(FILES, params={"limit": 2})
        assert fits(answer, FILES)
        assert [each["id"] for each in answer.json()["data"]] == [ids[4], ids[3]]
        assert (answer.json()["has_more"], answer.json()["last_id"]) == (True, ids[3])
        rest = (await client.get(FILES, params={"after": ids[3]})).json()
        assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (ids[2::-1], False)
        up = (await client.get(FILES, params={"order": "asc", "limit": 1})).json()
        assert up["data"][0]["id"] == ids[0]
        assert (await client.get(FILES, params={"purpose": "batch_output"})).json()["data"] == []
        for wrong in (
            {"limit": "0"},
            {"limit": "x"},
            {"limit": "0" * 5000 + "1"},
            {"limit": "00000000199999"},
            {"order": "up"},
        ):
            assert (await client.get(FILES, params=wrong)).status_code == 400


async def test_nothing_is_seen_across_keys(store: Store) -> None:
    async with using(store, KEYED) as client:
        batch = await made(client, headers=ANN)
        file = f"{FILES}/{batch['input_file_id']}"
        one = f"{BATCHES}/{batch['id']}"
        for headers, status in ((ANN, 200), (BOB, 404), ({}, 401)):
            for path in (file, f"{file}/content", one):
                assert (await client.get(path, headers=headers)).status_code == status
        assert (await client.delete(file, headers=BOB)).status_code == 404
        assert (await client.post(f"{one}/cancel", headers=BOB)).status_code == 404
        for path in (FILES, BATCHES):
            assert (await client.get(path, headers=BOB)).json()["data"] == []
        theirs = {"input_file_id": batch["input_file_id"], "completion_window": "24h"}
        theirs["endpoint"] = "/v1/completions"
        stolen = await client.post(BATCHES, json=theirs, headers=BOB)
        assert (stolen.status_code, stolen.json()["error"]["param"]) == (400, "input_file_id")


def test_an_owner_is_the_key_whatever_others_there_are() -> None:
    both, one = ApiKeys(["ann", "bob"]), ApiKeys(["bob"])
    assert both.owners["key 2"] == one.owners["key 1"]
    assert both.owners["key 1"] != both.owners["key 2"]
    assert "bob" not in repr(both.owners)


async def test_a_key_has_its_bytes_and_no_more(store: Store) -> None:
    config = replace(KEYED, file_bytes=100_000, key_bytes=2000)
    async with using(store, config) as client:
        first = await upload(client, b"x" * 1000, headers=ANN)
        assert first.status_code == 200
        over = await upload(client, b"x" * 1000, headers=ANN)
        assert (over.status_code, over.json()["error"]["code"]) == (400, "quota_exceeded")
        assert "the limit is 2000 (LEAPJSON_KEY_BYTES)" in over.json()["error"]["message"]
        assert (await upload(client, b"x" * 1000, headers=BOB)).status_code == 200
        await client.delete(f"{FILES}/{first.json()['id']}", headers=ANN)
        assert (await upload(client, b"x" * 1000, headers=ANN)).status_code == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_above_the_limit_is_refused(store: Store, announced: bool) -> None:
    config = replace(CONFIG, file_bytes=100_000)
    async with using(store, config) as client:
        request = client.build_request(
            "POST", FILES, data={"purpose": "batch"}, files={"file": ("a", b"x" * 200_000)}
        )
        if not announced:
            del request.headers["content-length"]
            request.headers["transfer-encoding"] = "chunked"
        answer = await client.send(request)
        assert answer.status_code == 413
        assert "LEAPJSON_FILE_BYTES" in answer.json()["error"]["message"]
        assert (await client.get(FILES)).json()["data"] == []
    with store.state._engine.connect() as connection:
        assert connection.execute(files.select()).all() == []


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"purpose": "fine-tune"}, "purpose"),
        ({"expires_after[anchor]": "created_at"}, "expires_after.seconds"),
        ({"expires_after[seconds]": "7200"}, "expires_after.anchor"),
        (
            {"expires_after[anchor]": "created_at", "expires_after[seconds]": "60"},
            "expires_after.seconds",
        ),
    ],
)
async def test_a_form_that_asks_for_something_else_is_refused(
    store: Store, form: dict[str, str], param: str
) -> None:
    async with using(store) as client:
        answer = await upload(client, form=form)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_bodies_that_are_no_form_are_refused(store: Store) -> None:
    async with using(store) as client:
        for body in ({"json": {"purpose": "batch"}}, {"data": {"purpose": "batch"}}):
            assert (await client.post(FILES, **body)).status_code == 400  # type: ignore[arg-type]
        broken = {"content-type": "multipart/form-data; boundary=x"}
        for content in (b"", b"--x\r\n", b"nothing", b"--x\r\nContent-Disposition: form\r\n\r\n"):
            answer = await client.post(FILES, content=content, headers=broken)
            assert answer.status_code == 400, content
        without = await client.post(FILES, data={"purpose": "batch"}, files={"other": b"x"})
        assert without.json()["error"]["param"] == "file"
        page = await upload(client, headers={"origin": "https://evil.example"})
        assert (page.status_code, "CORS" in page.text) == (400, True)


async def test_a_file_expires(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = open_folder(tmp_path, lambda: now[0])
    form = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    async with using(store) as client:
        file = (await upload(client, form=form)).json()
        assert file["expires_at"] == 1_003_600
        now[0] += 3600
        assert (await client.get(f"{FILES}/{file['id']}")).status_code == 404
    times = {"upload_seconds": 60, "batch_seconds": 60, "response_seconds": 60}
    assert store.state.forget_old(**times) == [file["id"]]
    await store.close()


async def test_a_batch_is_made_listed_and_cancelled(store: Store) -> None:
    async with using(store) as client:
        first, second = await made(client), await made(client)
        assert first["status"] == "validating"
        assert first["expires_at"] == first["created_at"] + 86_400
        listed = await client.get(BATCHES, params={"limit": 1})
        assert fits(listed, BATCHES)
        assert (listed.json()["data"], listed.json()["has_more"]) == ([second], True)
        rest = (await client.get(BATCHES, params={"after": second["id"]})).json()
        assert (rest["data"], rest["has_more"]) == ([first], False)
        held = await client.delete(f"{FILES}/{first['input_file_id']}")
        assert (held.status_code, first["id"] in held.text) == (400, True)
        cancelled = await client.post(f"{BATCHES}/{first['id']}/cancel")
        assert fits(cancelled, f"{BATCHES}/{{batch_id}}/cancel")
        assert cancelled.json()["status"] == "cancelling"
        assert cancelled.json()["cancelling_at"] is not None
        unknown = await client.get(f"{BATCHES}/batch_x")
        assert (unknown.status_code, fits(unknown, f"{BATCHES}/{{batch_id}}")) == (404, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-x"}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a" * 65: "b"}}, "metadata." + "a" * 65),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}},
         "output_expires_after.seconds"),
    ],
)  # fmt: skip
async def test_a_batch_that_cannot_be_is_refused(
    store: Store, fields: dict[str, Any], param: str
) -> None:
    async with using(store) as client:
        file = (await upload(client)).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
        answer = await client.post(BATCHES, json={**body, "completion_window": "24h", **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_the_batches_of_a_key_are_bounded(store: Store) -> None:
    async with using(store, replace(CONFIG, key_batches=2)) as client:
        file = (await made(client))["input_file_id"]
        await made(client)
        body = {"input_file_id": file, "endpoint": "/v1/responses", "completion_window": "24h"}
        answer = await client.post(BATCHES, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "quota_exceeded")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", FILES),
        ("GET", FILES),
        ("GET", f"{FILES}/x"),
        ("DELETE", f"{FILES}/x"),
        ("GET", f"{FILES}/x/content"),
        ("POST", BATCHES),
        ("GET", BATCHES),
        ("GET", f"{BATCHES}/x"),
        ("POST", f"{BATCHES}/x/cancel"),
        ("GET", "/v1/usage"),
    ],
)
async def test_without_a_store_every_call_names_the_setting(method: str, path: str) -> None:
    async with client_of(Bench()) as client:
        answer = await client.request(method, path, json={} if method == "POST" else None)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "store_off"
    assert "LEAPJSON_DATA" in answer.json()["error"]["message"]


async def test_a_store_that_is_away_is_a_503(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: object, **named: object) -> None:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(store.state, "find_file", away)
    async with using(store) as client:
        answer = await client.get(f"{FILES}/file-x")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "store_unavailable"


async def test_usage_is_counted_by_key_and_day(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    usage, bench = UsageByKey(store), Bench()
    seen = bench.observer.observe_request

    def observe(stats: RequestStats) -> None:
        usage.observe(stats)
        seen(stats)

    bench.observer.observe_request = observe  # type: ignore[method-assign]
    async with client_of(bench, KEYED, store=store, usage=usage) as client:
        for _ in range(2):
            assert (await client.post("/v1/chat/completions", json=chat(), headers=ANN)).is_success
        assert (await client.post("/v1/chat/completions", json={}, headers=ANN)).is_client_error
        counted = await client.get("/v1/usage", headers=ANN)
        assert fits(counted, "/v1/usage")
        [day] = counted.json()["data"]
        assert (day["requests"], day["prompt_tokens"] > 0, day["completion_tokens"] > 0) == (
            2, True, True,
        )  # fmt: skip
        assert (await client.get("/v1/usage", headers=BOB)).json()["data"] == []
        await client.post("/v1/chat/completions", json=chat(), headers=ANN)
        [again] = (await client.get("/v1/usage", headers=ANN)).json()["data"]
        assert again["requests"] == 3
        span = {"start": "2020-01-01", "end": "2020-12-31"}
        assert (await client.get("/v1/usage", params=span, headers=ANN)).json()["data"] == []
        others = {"start": "2\u0660\u0662\u0660-01-01", "end": "2020-02-01"}  # Arabic digits
        for wrong in ({"start": "2020-01-01"}, {"end": "2020-13-01"}, {"start": "x"}, others):
            assert (await client.get("/v1/usage", params=wrong, headers=ANN)).status_code == 400
    await store.close()


async def test_a_conversation_goes_on_at_another_server(store: Store) -> None:
    def responses() -> StoredResponses:
        return StoredResponses(store, max_bytes=1 << 20, max_seconds=100)

    async with client_of(Bench(), KEYED, responses(), store) as client:
        first = (await client.post("/v1/responses", json=asking(), headers=ANN)).json()
    body = asking(input="and?", previous_response_id=first["id"])
    bench = Bench()
    async with client_of(bench, KEYED, responses(), store) as client:
        assert (await client.post("/v1/responses", json=body, headers=BOB)).status_code == 400
        assert (await client.post("/v1/responses", json=body, headers=ANN)).status_code == 200
        assert [each["content"] for each in bench.tokenizer.seen[0]] == ["hi", "Hello", "and?"]
        one = f"/v1/responses/{first['id']}"
        assert (await client.get(one, headers=ANN)).json() == first
        assert (await client.delete(one, headers=ANN)).json()["deleted"]
        assert (await client.get(one, headers=ANN)).status_code == 404


async def test_only_responses_are_found_as_responses(store: Store) -> None:
    await store.run(store.state.keep, SCHEMA, "", "schema_1", b"{}", 2, 1000)
    responses = StoredResponses(store, max_bytes=1 << 20, max_seconds=100)
    async with client_of(Bench(), CONFIG, responses, store) as client:
        for method in ("GET", "DELETE"):
            answer = await client.request(method, "/v1/responses/schema_1")
            assert answer.status_code == 404
        later = asking(previous_response_id="schema_1")
        assert (await client.post("/v1/responses", json=later)).status_code == 400
    assert await store.run(store.state.find_kept, SCHEMA, "schema_1") == b"{}"


async def test_kept_responses_have_their_room_and_time(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = open_folder(tmp_path, lambda: now[0])
    responses = StoredResponses(store, max_bytes=5000, max_seconds=100)
    for number in range(5):  # each takes 1,024 bytes and its content
        now[0] += 1
        await responses.keep("ann", KeptResponse(f"resp_{number}", None, b"{}" * 100, b"[]"))
    assert await responses.find("ann", "resp_0") is None
    assert await responses.find("ann", "resp_1") is not None
    assert await responses.find("bob", "resp_1") is None
    now[0] += 101
    assert await responses.find("ann", "resp_4") is None
    await store.close()


async def test_an_answer_is_given_though_the_store_that_should_keep_it_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object, **named: object) -> None:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(store.state, "keep", away)
    monkeypatch.setattr(store.state, "find_kept", away)
    responses = StoredResponses(store, max_bytes=1 << 20, max_seconds=100)
    async with client_of(Bench(), CONFIG, responses, store) as client:
        assert (await client.post("/v1/responses", json=asking())).status_code == 200
        later = asking(previous_response_id="resp_x")
        assert (await client.post("/v1/responses", json=later)).status_code == 503


async def test_a_keys_slow_uploads_leave_room_for_those_of_others(store: Store) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"--x"
        await gate.wait()

    bench = Bench(tenant_share=0.9)
    form = {"content-type": "multipart/form-data; boundary=x"}
    async with using(store, KEYED, bench) as client:
        sent = [client.post(FILES, content=slow(), headers={**ANN, **form}) for _ in range(UPLOADS)]
        slow_ones = [asyncio.create_task(each) for each in sent]
        await until(lambda: bench.admission.uploads.used == UPLOADS)
        refused = await upload(client, headers=ANN)
        assert refused.status_code == 429
        assert f"the limit is {UPLOADS}" in refused.json()["error"]["message"]
        assert fits(refused, FILES)
        assert (await upload(client, headers=BOB)).status_code == 200
        gate.set()
        assert {each.status_code for each in await asyncio.gather(*slow_ones)} == {400}
        assert (await upload(client, headers=ANN)).status_code == 200
    assert bench.admission.uploads.used == 0
