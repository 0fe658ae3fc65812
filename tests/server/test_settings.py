from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.constraint.json.whitespace import Whitespace
from app.constraint.limits import Limits
from app.core.errors import InvalidSchema
from app.server.backend import warn_of_idle_settings
from app.server.settings import Settings


def test_defaults_serve_the_demo_on_the_loopback() -> None:
    settings = Settings()
    assert (settings.host, settings.port, settings.served_model) == (
        "127.0.0.1",
        8000,
        "leapjson-demo",
    )


def test_the_embedded_models_have_names() -> None:
    settings = Settings(model="demo-vision")
    assert (Path(settings.model) / "processor_config.json").exists()
    assert settings.served_model == "leapjson-demo-vision"
    assert Settings(model="demo") == Settings()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MODEL": "org/name",
        "PORT": "9000",
        "LEAP": "false",
        "MAX_MODEL_LEN": "4096",
        "MAX_RUNNING": "8",
        "COMPILE_SECONDS": "2.5",
        "DTYPE": "bfloat16",
    }.items():
        monkeypatch.setenv(f"LEAPJSON_{name}", value)
    settings = Settings()
    assert (settings.port, settings.served_model) == (9000, "org/name")
    engine = settings.engine_layer(spare_tokens=16)
    model = settings.model_layer(123, engine)
    assert (model.model, model.max_model_len, model.dtype, model.vocab_size) == (
        "org/name",
        4096,
        "bfloat16",
        123,
    )
    assert (engine.leap, engine.max_running, engine.spare_tokens) == (False, 8, 16)
    assert not engine.overlap
    assert settings.engine_layer(256, overlap=True).overlap
    assert (engine.max_prefill_tokens, engine.max_batch_tokens) == (128, 640)
    assert (model.max_batch_tokens, model.max_running) == (640, 8)
    assert model.max_rows_each == 1 + engine.max_draft_tokens
    assert settings.compile_limits().seconds == 2.5


def test_settings_of_the_gpu_are_told_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(max_running=8).set_for_cuda == []
    monkeypatch.setenv("LEAPJSON_CUDA_MEMORY_SHARE", "0.5")
    settings = Settings(cuda_graph_tokens=128, cuda_graphs=False)
    assert settings.set_for_cuda == [
        "LEAPJSON_CUDA_GRAPH_TOKENS",
        "LEAPJSON_CUDA_GRAPHS",
        "LEAPJSON_CUDA_MEMORY_SHARE",
    ]
    model = settings.model_layer(123, settings.engine_layer(spare_tokens=256))
    assert (model.cuda_memory_share, model.cuda_graphs, model.max_graph_tokens) == (0.5, False, 128)
    assert (model.max_batch_tokens, model.max_running) == (2560, 64)


def test_settings_of_the_gpu_are_logged_as_ignored_on_the_cpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_idle_settings(Settings(max_running=8), "cpu")
    warn_of_idle_settings(Settings(cuda_graphs=False), "cuda")
    assert caplog.records == []
    warn_of_idle_settings(Settings(cuda_graphs=False), "cpu")
    assert "ignored on the CPU: LEAPJSON_CUDA_GRAPHS" in caplog.text


def test_numbers_may_have_other_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().constraint_limits() == Limits()
    monkeypatch.setenv("LEAPJSON_MAX_INTEGER_DIGITS", "9")
    monkeypatch.setenv("LEAPJSON_MAX_FRACTION_DIGITS", "2")
    assert Settings().constraint_limits() == Limits(integer_digits=9, fraction_digits=2)


@pytest.mark.parametrize("name", ["spaced", "compact", "flexible", "indent:0", "indent:16"])
def test_every_form_that_a_setting_may_name_is_a_form_of_white_space(name: str) -> None:
    Whitespace.named(Settings(whitespace=name).whitespace)


@pytest.mark.parametrize("name", ["", "pretty", "indent", "indent:", "indent:17", "indent:-1"])
def test_no_other_form_may_be_named(name: str) -> None:
    with pytest.raises(ValidationError, match="whitespace"):
        Settings(whitespace=name)
    with pytest.raises(InvalidSchema):
        Whitespace.named(name)


def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAPJSON_PORT", "9000")
    assert Settings(port=9001).port == 9001


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("MAX_RUNNING", "0"),
        ("DTYPE", "int3"),
        ("CUDA_MEMORY_SHARE", "0"),
        ("CUDA_MEMORY_SHARE", "1.1"),
        ("CUDA_GRAPH_TOKENS", "0"),
        ("MAX_INTEGER_DIGITS", "0"),
        ("MAX_INTEGER_DIGITS", "101"),
        ("MAX_FRACTION_DIGITS", "0"),
        ("MAX_FRACTION_DIGITS", "101"),
    ],
)
def test_a_value_out_of_range_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"LEAPJSON_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_a_local_folder_is_served_under_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    assert Settings(model=str(folder)).served_model == "tiny-llama"
    assert Settings(model=str(folder), served_model_name="x").served_model == "x"


def test_adapters_are_named_and_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def room(**settings: object) -> tuple[int, int] | None:
        made = Settings(**settings)  # type: ignore[arg-type]
        layer = made.model_layer(100, made.engine_layer(spare_tokens=16)).adapters
        return None if layer is None else (layer.count, layer.rank)

    assert room() is None
    assert room(adapter_folder="/adapters") == (8, 32)
    monkeypatch.setenv("LEAPJSON_ADAPTERS", "legal=/a/legal, chat=org/name=1")
    assert Settings().named_adapters == {"legal": "/a/legal", "chat": "org/name=1"}
    assert room() == (2, 32)
    assert room(adapter_folder="/adapters", max_adapter_rank=64) == (8, 64)
    assert room(max_adapters=5) == (5, 32)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"adapters": ["legal"]}, "write it as name=folder"),
        ({"adapters": ["a:b=/x"]}, "write it as name=folder"),
        ({"adapters": ["a="]}, "write it as name=folder"),
        ({"adapters": ["a=/x,a=/y"]}, "two adapters have the name 'a'"),
        ({"adapters": ["a=/x,b=/y"], "max_adapters": 1}, "less than the number of adapters"),
    ],
    ids=str,
)
def test_adapters_that_cannot_be_named_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Settings(**settings)  # type: ignore[arg-type]
