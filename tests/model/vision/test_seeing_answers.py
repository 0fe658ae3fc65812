"""The engine with real vision models: answers equal those of the whole model's forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from app.core.request import EngineRequest
from app.engine import Engine, EngineConfig
from app.model.composition import load_runner
from app.model.runner import TorchRunner
from tests.engine.harness import Recorder, answers_of, request
from tests.engine.naive import naive_answer
from tests.fakes import FiniteConstraint, Logits, ScriptedModel
from tests.model.tiny import runner_config
from tests.model.vision.seeing import (
    KINDS,
    TOKENIZER,
    VOCABULARY,
    Seeing,
    encoded,
    picture,
    seeing,
)

PICTURES = (picture(1), picture(2, 30, 90), picture(3, 56, 56))
LANGUAGES: tuple[FiniteConstraint | None, ...] = (
    FiniteConstraint(
        [f'{{"name": "{a}", "me": {b}}}'.encode() for a in ("ab", "anana") for b in (1, 12)],
        VOCABULARY,
        tight=True,
    ),
    FiniteConstraint([b"yes", b"no", b"none", b"name"], VOCABULARY, tight=False),
    None,
)


_MOST_TOGETHER = {"gemma4": 90}
"""Maximum tokens of a step, for kinds whose images need more than the others'."""


class _Whole(ScriptedModel):
    """Logits by transformers' own code over all tokens and all images, from the pixels on."""

    def __init__(self, model: Seeing, inputs: dict[str, torch.Tensor]) -> None:
        super().__init__(VOCABULARY)
        self._model, self._inputs = model, inputs

    def logits(self, tokens: Sequence[int]) -> Logits:
        prompt = self._inputs["input_ids"][0].tolist()
        assert list(tokens[: len(prompt)]) == prompt, "prompts must be expanded as by transformers"
        found = self._model.logits(self._inputs, tokens[len(prompt) :])[-1]
        logits: Logits = found.numpy().astype(np.float64)
        return logits


class _Asked:
    """Requests with images, and transformers' inputs for each."""

    def __init__(self, model: Seeing, runner: TorchRunner) -> None:
        assert runner.vision is not None, "the model is served as text"
        self.model, self.runner, self.vision = model, runner, runner.vision
        self.requests: list[EngineRequest] = []
        self.inputs: dict[str, dict[str, torch.Tensor]] = {}

    def ask(self, name: str, prompt: str, *pictures: Image.Image, **more: Any) -> None:
        model = self.model
        expanded = self.vision.expand(model.tokens(prompt), model.prepared(*pictures))
        plain = request(name, expanded.tokens, **({"max_tokens": 16} | more))
        images = encoded(self.runner, expanded.images) if pictures else None
        self.requests.append(replace(plain, images=images))
        if pictures:
            self.inputs[name] = model.inputs(prompt, *pictures)
        else:
            self.inputs[name] = {"input_ids": torch.tensor([expanded.tokens])}

    def compare(self, engine: Engine) -> None:
        answers = answers_of(engine, self.requests)
        for one in self.requests:
            whole = _Whole(self.model, self.inputs[one.request_id])
            plain = naive_answer(one, whole, VOCABULARY, TOKENIZER)
            assert answers[one.request_id].data == plain.text, one.request_id
            assert answers[one.request_id].tokens == plain.tokens, one.request_id


def _runner(model: Seeing, **changes: Any) -> TorchRunner:
    return load_runner(runner_config(model.folder, random_weights=False, **changes))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_images_cut_into_chunks_among_texts_give_the_text_of_the_whole_model(
    kind: str, overlap: bool, tmp_path: Path
) -> None:
    model, recorder = seeing(tmp_path, kind), Recorder()
    runner = _runner(model)
    asked = _Asked(model, runner)
    first, second, third = PICTURES
    for turn, allowed in enumerate(LANGUAGES):
        asked.ask(f"one {turn}", "look at IMAGE: ", first, allowed=allowed)
        asked.ask(f"text {turn}", "this is text alone, ", allowed=allowed)
        asked.ask(f"three {turn}", "IMAGE, IMAGE and IMAGE!", first, second, third, allowed=allowed)
        asked.ask(f"twice {turn}", "IMAGE is IMAGE", second, second, allowed=allowed)
    most = _MOST_TOGETHER.get(kind, 23)
    config = EngineConfig(
        max_batch_tokens=most, max_running=5, max_prefill_tokens=11, overlap=overlap
    )
    engine = Engine(runner, VOCABULARY, TOKENIZER, config, recorder)
    asked.compare(engine)
    assert sum(stats.leapt_tokens for stats in recorder.steps) > 0
    assert sum(stats.cached_tokens for stats in recorder.steps) > 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("kind", "room"),
    [("llava", 3 << 14), ("qwen3_vl", 3 << 14), ("gemma3", 3 << 15), ("qwen3_5", 43_008)],
)
def test_a_sequence_that_lost_its_blocks_reads_its_images_again(
    kind: str, room: int, overlap: bool, tmp_path: Path
) -> None:
    model, recorder = seeing(tmp_path, kind), Recorder()
    runner = _runner(model, kv_cache_bytes=room, max_model_len=100)
    config = EngineConfig(max_batch_tokens=32, max_running=3, share_prefixes=False, overlap=overlap)
    engine = Engine(runner, VOCABULARY, TOKENIZER, config, recorder)
    for tokens in (1, 30):  # in round 2 all images are encoded, and all run together
        asked = _Asked(model, runner)
        for number, one in enumerate(PICTURES):
            asked.ask(f"{number}", f"{number} is IMAGE: ", one, max_tokens=tokens)
        asked.compare(engine)
    assert sum(stats.preemptions for stats in recorder.steps) > 0


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl", "gemma3"])
def test_prefixes_are_shared_up_to_another_image(kind: str, tmp_path: Path) -> None:
    model, recorder = seeing(tmp_path, kind), Recorder()
    runner = _runner(model)
    engine = Engine(runner, VOCABULARY, TOKENIZER, EngineConfig(), recorder)
    beginning = "the same beginning: "
    found = []
    for name, one in (("a", picture(1)), ("b", picture(1)), ("c", picture(9))):
        asked = _Asked(model, runner)
        asked.ask(name, beginning + "IMAGE and the same end", one)
        recorder.steps.clear()
        asked.compare(engine)
        found.append(sum(stats.cached_tokens for stats in recorder.steps))
    prompt = len(asked.requests[0].prompt)
    assert found[0] == 0
    assert prompt - 4 <= found[1] < prompt, "all but the last block"
    images = asked.requests[0].images
    assert images is not None
    start = images.images[0].start
    assert start - 4 < found[2] <= start, "up to the image, which differs"
