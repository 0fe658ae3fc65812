"""API keys, and the requests that need one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import ValidationError

from app.core.errors import LeapjsonError
from app.http.keys import ApiKeys, read_api_keys
from app.server.settings import Settings
from tests.http.harness import CHAT, CONFIG, application, chat, client_of, listening
from tests.serving.fakes import Bench

KEYED = replace(CONFIG, api_keys=ApiKeys(["first-key", "second-key"]))
FIRST = {"authorization": "Bearer first-key"}


@asynccontextmanager
async def keyed_client(**changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(Bench(), replace(KEYED, **changes)) as client:
        yield client


async def test_each_of_several_keys_is_taken_and_nothing_else() -> None:
    async with keyed_client() as client:
        for value, status in (
            ("Bearer first-key", 200),
            ("Bearer second-key", 200),
            ("bearer  first-key ", 200),  # schemes ignore case (RFC 9110, section 11.1)
            ("Bearer first-ke", 401),
            ("Bearer first-key2", 401),
            ("Bearer", 401),
            ("Bearer ", 401),
            ("first-key", 401),
            ("Basic first-key", 401),
            ("Bearer first-key,second-key", 401),
            ("Bearer \xff", 401),
        ):
            headers = {b"authorization": value.encode("latin-1")}
            response = await client.get("/v1/models", headers=headers)
            assert response.status_code == status, value


async def test_a_refusal_has_openais_shape_and_says_which_scheme() -> None:
    async with keyed_client() as client:
        missing = await client.get("/v1/models")
        wrong = await client.get("/v1/models", headers={"authorization": "Bearer guessed"})
    for response in (missing, wrong):
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["x-request-id"].startswith("req_")
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert (error["param"], error["code"]) == (None, "invalid_api_key")
    assert "no API key" in missing.json()["error"]["message"]
    assert "guessed" not in wrong.text


async def test_every_path_needs_a_key_but_health_and_ready() -> None:
    async with keyed_client() as client:
        for path in ("/health", "/ready"):
            assert (await client.get(path)).status_code == 200
            assert (await client.head(path)).status_code == 200
        for path in ("/metrics", "/version", "/openapi.json", "/docs", "/nowhere", "/health/", "/"):
            assert (await client.get(path)).status_code == 401, path
        assert (await client.get("/nowhere", headers=FIRST)).status_code == 404
        assert (await client.post(CHAT, json=chat())).status_code == 401
        assert (await client.post(CHAT, json=chat(), headers=FIRST)).status_code == 200


async def test_metrics_can_be_public() -> None:
    async with keyed_client(metrics_public=True) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/version")).status_code == 401


async def test_without_keys_any_key_is_taken() -> None:
    async with client_of(Bench()) as client:
        assert (await client.get("/v1/models", headers=FIRST)).status_code == 200
        assert (await client.get("/v1/models")).status_code == 200


async def test_the_body_of_what_is_refused_is_not_read() -> None:
    app = application(Bench(), KEYED)
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 401


async def test_the_sdk_reports_an_authentication_error() -> None:
    bench = Bench()
    async with bench.running(), listening(application(bench, KEYED)) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="wrong") as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.models.list()
        assert caught.value.code == "invalid_api_key"
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="second-key") as client:
            assert [model.id async for model in client.models.list()] == ["demo"]


def test_a_file_has_a_key_on_each_line_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# the team's keys\n\n  one \r\ntwo\n#three\n", encoding="utf-8")
    keys = read_api_keys(["zero"], str(file))
    assert len(keys) == 3
    for key, taken in ((b"zero", True), (b"one", True), (b"two", True), (b"three", False)):
        assert (keys.number(key) is not None) is taken


def test_files_and_keys_that_cannot_be_used_are_named_without_showing_a_key(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        LeapjsonError, match=r"cannot read the API key file .*nothing-here: No such file"
    ):
        read_api_keys([], str(tmp_path / "nothing-here"))
    file = tmp_path / "keys"
    file.write_text("# none\n", encoding="utf-8")
    with pytest.raises(LeapjsonError, match="contains no key"):
        read_api_keys(["one"], str(file))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(LeapjsonError, match="not UTF-8"):
        read_api_keys([], str(file))
    file.write_text("fine\ns3cret key\n", encoding="utf-8")
    with pytest.raises(LeapjsonError, match="line 2 of") as caught:
        read_api_keys([], str(file))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(LeapjsonError, match="API key 2 "):
        read_api_keys(["fine", "schlüssel"], None)


def test_keys_are_in_no_repr_and_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEAPJSON_API_KEYS", "s3cret-one, s3cret-two")
    settings = Settings()
    values = [key.get_secret_value() for key in settings.api_keys or ()]
    assert values == ["s3cret-one", "s3cret-two"]
    keys = read_api_keys(values, None)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%r %r %r", settings, keys, replace(CONFIG, api_keys=keys))
    assert "s3cret" not in caplog.text
    assert "s3cret" not in settings.model_dump_json()


def test_origins_that_no_browser_would_send_are_refused_at_start_up() -> None:
    assert Settings(cors_origins="https://a.example, http://localhost:3000").cors_origins == (  # type: ignore[arg-type]
        "https://a.example",
        "http://localhost:3000",
    )
    for bad in ("https://a.example/", "a.example", "https://a.example/path", "null"):
        with pytest.raises(ValidationError, match="is not an origin"):
            Settings(cors_origins=(bad,))


def test_a_setting_that_holds_no_key_does_not_leave_the_server_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEAPJSON_API_KEYS", " , ")
    with pytest.raises(ValidationError, match="contains no key"):
        Settings()
