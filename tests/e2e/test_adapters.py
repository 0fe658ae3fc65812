"""Adapters end to end: engine and runner token by token, and a whole server with its clients."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import openai
import pytest
import torch

from app.demo import MODEL_PATH
from app.engine import Engine, EngineConfig
from app.model.composition import load_runner
from app.model.config import AdaptersConfig, ModelConfig
from loadtest.server import Server
from tests.e2e.test_exactness import SHAPE, EagerModel, random_requests
from tests.engine.harness import TOKENIZER, VOCABULARY, answers_of
from tests.engine.naive import naive_answer
from tests.model.peft_files import ATTENTION, MLP, merge, save_adapter
from tests.model.tiny import eager_model, load_model, runner_config, save_config
from tests.servers import running_server


@pytest.mark.parametrize("overlap", [False, True])
def test_answers_of_a_mixed_batch_equal_plain_loops_over_merged_models(
    overlap: bool, tmp_path: Path
) -> None:
    folder = save_config(tmp_path / "model", "llama", **SHAPE)
    adapters = [
        save_adapter(tmp_path / str(seed), eager_model(folder), seed=seed) for seed in (1, 2)
    ]
    models = [eager_model(folder), *(merge(eager_model(folder), each) for each in adapters)]
    named = {each.name: str(each) for each in adapters}
    runner = load_runner(
        runner_config(
            folder,
            adapters=AdaptersConfig(named=named, count=2, rank=4),
            kv_cache_bytes=90 * 1024,  # few blocks: some answers are preempted
            vocab_size=VOCABULARY.size,
        )
    )
    engine = Engine(runner, VOCABULARY, TOKENIZER, EngineConfig(overlap=overlap, max_running=6))
    rng = random.Random(3)
    # All requests share a prompt: cached blocks and draft statistics must not cross adapters.
    requests = [
        replace(one, adapter=index % 3, scope=str(index % 3), prompt=TOKENIZER.encode("ab" * 9))
        for index, one in enumerate(random_requests(rng, [], 12))
    ]
    answers = answers_of(engine, requests)
    for one in requests:
        model = EagerModel(models[one.adapter])
        expected = naive_answer(one, model, VOCABULARY, TOKENIZER, leap=True)
        assert answers[one.request_id].tokens == expected.tokens
    said = {answers[one.request_id].data[:5] for one in requests}
    assert len(said) == 3


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two adapters of the demo model."""
    folder = tmp_path_factory.mktemp("adapters")
    config = ModelConfig(str(MODEL_PATH), dtype="float32", device="cpu")
    model = load_model(config, torch.device("cpu"), torch.float32)
    save_adapter(folder / "first", model, size=0.1)
    save_adapter(folder / "second", model, ATTENTION + MLP, rank=2, seed=2, size=0.1)
    return folder


@pytest.fixture(scope="module")
def server(adapters: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    settings = {
        "DTYPE": "float32",
        "ADAPTERS": f"first={adapters / 'first'}",
        "ADAPTER_FOLDER": str(adapters),
    }
    with running_server(None, log, settings) as server:
        yield server


def test_openais_client_lists_names_loads_and_deletes_adapters(
    server: Server, adapters: Path
) -> None:
    def answer(model: str) -> str:
        completion = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Extract the contact from: Ada, ada@b.org"}],
            temperature=0,
            max_tokens=60,
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": "contact",
                    "schema": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "note": {"type": "string"}},
                        "required": ["name", "note"],
                    },
                },
            },
        )
        assert completion.model == model
        prints.add(completion.system_fingerprint)
        content = completion.choices[0].message.content or ""
        assert set(json.loads(content)) == {"name", "note"}
        return content

    prints: set[str | None] = set()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        first, base = "leapjson-demo:first", "leapjson-demo"
        assert [each.id for each in client.models.list()] == [base, first]
        plain = answer(base)
        assert answer(first) != plain
        assert answer(base) == plain
        client.post(
            "/load_lora_adapter",
            cast_to=object,
            body={"lora_name": "second", "lora_path": "second"},
        )
        second = "leapjson-demo:second"
        assert answer(second) not in (plain, answer(first))
        assert len(prints) == 3
        assert client.models.delete(second).deleted
        with pytest.raises(openai.NotFoundError, match="leapjson-demo:first"):
            answer(second)
        for path in ("../first", "/etc", "first\0"):
            with pytest.raises(openai.BadRequestError, match="not a folder inside"):
                client.post(
                    "/load_lora_adapter",
                    cast_to=object,
                    body={"lora_name": "other", "lora_path": path},
                )
