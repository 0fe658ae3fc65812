"""The engine with real hybrid models: answers equal those of the plain model's forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from app.engine import Engine, EngineConfig
from tests.engine.harness import (
    LANGUAGES,
    TOKENIZER,
    VOCABULARY,
    Recorder,
    answers_of,
    request,
)
from tests.engine.naive import naive_answer
from tests.fakes import Logits, ScriptedModel
from tests.integrity import check_engine
from tests.model.hybrid import hybrid_runner, lively_model


class _Plain(ScriptedModel):
    """Logits by transformers' forward pass over all tokens, without a cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(VOCABULARY)
        self._model = model

    def logits(self, tokens: Sequence[int]) -> Logits:
        with torch.inference_mode():
            found = self._model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        logits: Logits = found.numpy().astype(np.float64)
        return logits


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kind", ["qwen3_5_text", "falcon_h1", "mamba2", "lfm2"])
def test_leaps_drafts_and_shared_prefixes_give_the_text_of_the_plain_model(
    kind: str, overlap: bool, tmp_path: Path
) -> None:
    model = lively_model(kind, vocab_size=VOCABULARY.size)
    recorder = Recorder()
    config = EngineConfig(max_batch_tokens=24, max_running=4, overlap=overlap)
    runner = hybrid_runner(tmp_path, model)
    engine = Engine(runner, VOCABULARY, TOKENIZER, config, recorder)
    shared = "the same beginning of all prompts: "
    asked = [
        request(f"{turn} {i}", f"{shared}{i % 5}", allowed=allowed, max_tokens=30)
        for turn in range(2)
        for i, allowed in enumerate([*LANGUAGES[:7], None])
    ]
    answers = answers_of(engine, asked)
    check_engine(engine)
    for one in asked:
        plain = naive_answer(one, _Plain(model), VOCABULARY, TOKENIZER)
        assert answers[one.request_id].data == plain.text
        assert answers[one.request_id].tokens == plain.tokens
    assert sum(stats.cached_tokens for stats in recorder.steps) > 100
    assert sum(stats.leapt_tokens for stats in recorder.steps) > 0
    assert sum(stats.drafted_tokens for stats in recorder.steps) > 0
