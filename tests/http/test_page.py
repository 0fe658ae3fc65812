"""The web page's files: headers, access without a key, and no access to other files."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from app.http.config import ApiConfig
from app.http.keys import ApiKeys
from tests.http.harness import CONFIG, client_of
from tests.serving.fakes import Bench

SCRIPT = b"let leaps = 0;\n" * 200
FILES = {
    "index.html": b"<!doctype html><title>Leapjson</title>",
    "icon.svg": b"<svg/>",
    "docs/index.html": b"<!doctype html><title>The API</title>",
    "docs/start.js": SCRIPT,
    "assets/page-QE43KUBO.js": SCRIPT,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "secret.txt").write_text("not for anybody")
    return tmp_path / "static"


@asynccontextmanager
async def page(folder: Path | None, config: ApiConfig = CONFIG) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(Bench(), replace(config, page=folder)) as client:
        yield client


async def test_each_file_is_sent_as_it_is_with_its_type(folder: Path) -> None:
    paths = {
        "/": ("index.html", "text/html; charset=utf-8"),
        "/docs": ("docs/index.html", "text/html; charset=utf-8"),
        "/page/icon.svg": ("icon.svg", "image/svg+xml"),
        "/page/docs/start.js": ("docs/start.js", "text/javascript; charset=utf-8"),
    }
    async with page(folder) as client:
        for path, (name, kind) in paths.items():
            answer = await client.get(path)
            head = await client.head(path)
            assert (answer.status_code, answer.content) == (200, FILES[name])
            assert answer.headers["content-type"] == kind
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["etag"] == answer.headers["etag"]


async def test_a_policy_keeps_third_parties_and_frames_out(folder: Path) -> None:
    async with page(folder) as client:
        headers = (await client.get("/")).headers
    rules = dict(
        rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";")
    )
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == rules["style-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


async def test_a_large_file_is_compressed_for_those_who_take_it(folder: Path) -> None:
    path = "/page/docs/start.js"
    taken = {"gzip": True, "br, gzip;q=0.5": True, "*": True, "deflate, x-gzip": True}
    taken |= {"": False, "identity": False, "gzip;q=0": False, "br, gzip; q=0.000": False}
    async with page(folder) as client:
        for accepts, zips in taken.items():
            request = client.build_request("GET", path, headers={"accept-encoding": accepts})
            answer = await client.send(request, stream=True)
            sent = b"".join([each async for each in answer.aiter_raw()])
            assert (answer.headers.get("content-encoding") == "gzip") is zips, accepts
            assert answer.headers["vary"] == "accept-encoding"
            assert (gzip.decompress(sent) if zips else sent) == SCRIPT
            assert int(answer.headers["content-length"]) == len(sent)


async def test_a_cached_file_is_not_sent_again(folder: Path) -> None:
    async with page(folder) as client:
        for path in ("/", "/page/docs/start.js"):
            etag = (await client.get(path)).headers["etag"]
            for known in (etag, f'"other", W/{etag}', "*"):
                again = await client.get(path, headers={"if-none-match": known})
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["etag"] == etag
            other = await client.get(path, headers={"if-none-match": '"other"'})
            assert other.status_code == 200


async def test_only_names_that_say_what_is_in_a_file_are_kept_for_good(folder: Path) -> None:
    async with page(folder) as client:
        kept = await client.get("/page/assets/page-QE43KUBO.js")
        asked = await client.get("/page/docs/start.js")
    assert "immutable" in kept.headers["cache-control"]
    assert asked.headers["cache-control"] == "no-cache"


async def test_no_path_leads_out_of_the_folder(folder: Path) -> None:
    outside = ["../secret.txt", "docs/../../secret.txt", "..\\secret.txt", str(folder / "icon.svg")]
    generator = random.Random(5)
    for _ in range(200):
        steps = generator.choices(["..", ".", "", "docs", "secret.txt", "index.html"], k=4)
        outside.append("/".join(steps))
    async with page(folder) as client:
        for path in outside:
            for spelled in (path, quote(path, safe=""), quote(path).replace(".", "%2e")):
                answer = await client.get(httpx.URL("http://test/page/").copy_with(
                    raw_path=b"/page/" + spelled.encode()
                ))  # fmt: skip
                # The client resolves plain dots itself, so that some paths are valid.
                assert answer.status_code == 404 or answer.content in FILES.values(), path


async def test_the_page_needs_no_key_and_everything_else_does(folder: Path) -> None:
    async with page(folder, replace(CONFIG, api_keys=ApiKeys(["key"]))) as client:
        for path in ("/", "/docs", "/page/icon.svg"):
            assert (await client.get(path)).status_code == 200, path
        for path in ("/page/nowhere.js", "/openapi.json", "/v1/models", "/metrics", "/docs/"):
            assert (await client.get(path)).status_code == 401, path


async def test_without_the_page_there_is_nothing_at_its_paths(folder: Path) -> None:
    async with page(None) as client:
        for path in ("/", "/docs", "/redoc", "/page/icon.svg"):
            answer = await client.get(path)
            assert answer.status_code == 404, path
            assert "there is nothing at" in answer.json()["error"]["message"]
        assert (await client.get("/openapi.json")).status_code == 200


async def test_other_methods_are_refused(folder: Path) -> None:
    async with page(folder) as client:
        for path in ("/", "/page/icon.svg"):
            answer = await client.post(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "HEAD, GET")
