from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from app.__main__ import main
from app.constraint import Compiler, from_python_type
from app.constraint.limits import Limits
from app.core.constraint import ConstraintSpec
from app.core.errors import LeapjsonError
from app.server.composition import assemble
from app.server.preload import load_types, warm
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.fakes import ByteVocabulary
from tests.server.backend import compiling, started
from tests.serving.fakes import FakeEngine

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"


class Review(BaseModel):
    product: str
    rating: int | None = None


def server(
    settings: Settings, answer: bytes, preloads: Mapping[str, ConstraintSpec] | None = None
) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """A client of the assembled server: the real compiler, and an engine that sends ``answer``."""
    parts = compiling(FakeEngine(lambda request: [answer]))
    return started(assemble(settings, parts, Metrics(), preloads))


async def test_the_first_request_of_openais_sdk_finds_a_preloaded_model_compiled() -> None:
    settings = Settings(compile_workers=1, preload=(f"{__name__}:Review",))
    preloads = {"Review": from_python_type(Review, strict=True, close_objects=True)}
    async with server(settings, b'{"product": "lamp", "rating": 5}', preloads) as client:
        http: Any = client  # the SDK expects the client type of the next httpx version
        sdk = openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", http_client=http)
        answer = await sdk.chat.completions.parse(
            model="leapjson-demo",
            messages=[{"role": "user", "content": "hi"}],
            response_format=Review,
        )
        assert answer.choices[0].message.parsed == Review(product="lamp", rating=5)
        exposition = (await client.get("/metrics")).text
    assert "leapjson_schema_cache_misses_total 1.0" in exposition
    assert "leapjson_schema_cache_hits_total 1.0" in exposition


async def test_a_grammar_is_served_and_a_bad_one_is_shown_its_place() -> None:
    body: dict[str, Any] = {
        "model": "leapjson-demo",
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {"type": "grammar", "grammar": 'root ::= "a" | "(" root ")"'},
    }
    async with server(Settings(compile_workers=1), b"(a)") as client:
        good = await client.post(CHAT, json=body)
        assert good.json()["choices"][0]["message"]["content"] == "(a)"
        body["response_format"]["grammar"] = 'root ::= "a" | other'
        bad = await client.post(CHAT, json=body)
        exposition = (await client.get("/metrics")).text
    error = bad.json()["error"]
    assert (bad.status_code, error["code"]) == (400, "invalid_schema")
    assert "other is not defined" in error["message"]
    assert "line 1, column 16" in error["message"]
    assert 'schema_compile_seconds_count{kind="grammar",result="ok"} 1.0' in exposition


def test_types_are_named_in_the_environment_or_by_repeated_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import app.server.serve

    seen: list[Settings] = []

    def serve(settings: Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(app.server.serve, "serve", serve)
    monkeypatch.setenv("LEAPJSON_PRELOAD", "a:B, c:D")
    main(["serve"])
    main(["serve", "--preload", "e:F", "--preload", "g:H"])
    assert [settings.preload for settings in seen] == [("a:B", "c:D"), ("e:F", "g:H")]


@pytest.mark.needs("outlines")
def test_types_are_found_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shapes_of_test.py").write_text("class A:\n    import decimal as B\n    C = 'x'\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    loaded = load_types(["shapes_of_test:A.C"], Limits())
    assert loaded == {"shapes_of_test:A.C": from_python_type("x")}
    assert sys.path == before


@pytest.mark.needs("outlines")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("json", "write it as module:Type"),
        ("no_such_module_at_all:X", "No module named"),
        ("json:Nothing", "has no attribute 'Nothing'"),
        ("builtins:complex", "complex cannot be converted"),
        ("broken_of_test:X", "importing it failed: ZeroDivisionError"),
    ],
)
def test_a_type_that_cannot_be_used_ends_the_start_with_its_name(
    name: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_of_test.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LeapjsonError, match=reason):
        load_types([name], Limits())
    assert main(["serve", "--preload", name]) == 1
    assert f"leapjson: cannot preload {name}: " in capsys.readouterr().err


def test_types_are_held_to_the_limits_that_requests_are_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "narrow_of_test.py").write_text(
        "import pydantic\nclass A(pydantic.BaseModel):\n"
        "    a: float = pydantic.Field(gt=1.2, lt=1.3)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load_types(["narrow_of_test:A"], Limits(fraction_digits=2))
    with pytest.raises(LeapjsonError, match="cannot preload narrow_of_test:A"):
        load_types(["narrow_of_test:A"], Limits(fraction_digits=1))


def test_warming_computes_the_masks_of_a_shortest_answer() -> None:
    constraint = Compiler(ByteVocabulary()).compile(from_python_type(Review, strict=True))
    before = constraint.nbytes
    warm(constraint)
    warmed = constraint.nbytes
    assert warmed > before
    warm(constraint)
    assert constraint.nbytes == warmed
