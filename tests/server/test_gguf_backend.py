"""A server from a GGUF file alone, which has weights, tokenizer and chat template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from app.constraint import compile_program
from app.core.errors import UnsatisfiableSchema, UnsupportedModel
from app.core.request import EngineRequest
from app.core.specs import JsonObject, JsonSchema
from app.model.checkpoints.gguf.hub import file_on_disk
from app.server.backend import load_backend, weights_identity
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.model.checkpoints.gguf.files import Kind, all_as, tiny_model, write_gguf


def test_a_file_is_all_that_a_server_needs(tmp_path: Path) -> None:
    tokens = ["<unk>", "<s>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    model = tiny_model("llama", vocab_size=len(tokens))
    path = write_gguf(tmp_path / "tiny-q8_0.gguf", model, all_as(Kind.F32), tokens=tokens)
    settings = Settings(model=path, dtype="float32", device="cpu", kv_cache_bytes=1 << 22)
    backend = load_backend(settings, Metrics())
    assert settings.served_model == "tiny-q8_0"
    assert backend.vocabulary.eos_ids == {2}
    assert backend.max_sequence_tokens == 128
    prompt = backend.tokenizer.render_chat([{"role": "user", "content": "é"}])
    assert [backend.vocabulary.token_bytes[token] for token in prompt.tokens] == [b"\xc3", b"\xa9"]


def test_a_tokenizer_without_some_bytes_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The tokenizer lacks 0xF1, 0xF2 and ``{``, with which objects start."""
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - {"ñ", "ò", "{"})
    tokens = ["<unk>", "<s>", "<|im_end|>", *alphabet]
    model = tiny_model("llama", vocab_size=len(tokens))
    path = write_gguf(tmp_path / "tiny.gguf", model, all_as(Kind.F32), tokens=tokens)
    settings = Settings(model=path, dtype="float32", device="cpu", kv_cache_bytes=1 << 22)
    backend = load_backend(settings, Metrics())
    assert "no tokens for 3 bytes of UTF-8 (0x7B, 0xF1, 0xF2)" in caplog.text
    with pytest.raises(UnsatisfiableSchema, match=r"cannot spell '{' \(U\+007B\)"):
        compile_program(JsonObject(), *backend.compile_arguments)
    schema = JsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2})
    program = compile_program(schema, *backend.compile_arguments)
    prompt = backend.tokenizer.encode("list: ")
    request = EngineRequest("r", prompt, 30, seed=1, constraint=backend.link(program))
    backend.engine.add(request)
    chunks = []
    while backend.engine.has_work:
        chunks += [chunk for output in backend.engine.step() for chunk in output.chunks]
    assert chunks[-1].finish_reason == "stop"
    assert len(json.loads(b"".join(chunk.data for chunk in chunks))) >= 2


def test_files_are_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_on_disk("folder/model") == "folder/model"
    with pytest.raises(UnsupportedModel, match=r"no file .*none\.gguf; .*repository:file\.gguf"):
        file_on_disk(str(tmp_path / "none.gguf"))
    for path in (tmp_path, tmp_path / "none", "./none", tmp_path / "model.GGUF"):
        with pytest.raises(UnsupportedModel, match="not the folder of a model: its config"):
            file_on_disk(str(path))
    monkeypatch.setattr("transformers.utils.hub.cached_file", lambda *names, **_: "/".join(names))
    assert file_on_disk("owner/repository:q4.gguf") == "owner/repository/q4.gguf"


def test_a_files_identity_follows_its_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(b"GGUF one")
    second.write_bytes(b"GGUF two")
    assert weights_identity(str(first)) != weights_identity(str(second))
