"""The real engine over the real runner, one step at a time: no server and no event loop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.core.events import StepStats, TokenChunk
from app.core.request import EngineRequest
from app.engine import Engine, EngineConfig
from app.model.checkpoints.loading import eos_token_ids
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.text import HfTokenizer, Vocabulary
from tools.bench.profile_step import WatchedRunner

KV_CACHE_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Words:
    """Tokenizer and vocabulary of a model folder."""

    tokenizer: HfTokenizer
    vocabulary: Vocabulary

    @classmethod
    def of(cls, folder: Path) -> Words:
        tokenizer = HfTokenizer.load(str(folder))
        eos_ids = eos_token_ids(str(folder))
        return cls(tokenizer, Vocabulary.from_tokenizer(tokenizer.hf, eos_ids))


def has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def model_config(folder: Path, words: Words, *, threads: int | None = None) -> ModelConfig:
    """Configuration of a model, with random weights if the folder has none."""
    return ModelConfig(
        str(folder),
        random_weights=not has_weights(folder),
        vocab_size=words.vocabulary.size,
        kv_cache_bytes=KV_CACHE_BYTES,
        threads=threads,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One step; durations in seconds."""

    forward: float
    """The model, from laid-out inputs to logits."""
    host: float
    """Everything else: planning, inputs, masks, sampling, committing."""
    tokens: int
    """Tokens computed, of all answers together."""
    gained: int
    """Tokens added to the answers."""
    ended: Sequence[TokenChunk]
    """The last chunks of the answers that ended."""
    grew: int
    """Answers that grew or ended."""

    @property
    def seconds(self) -> float:
        return self.forward + self.host


class Stepper:
    """An engine whose steps the caller runs one by one and times."""

    def __init__(self, config: ModelConfig, words: Words, most_running: int) -> None:
        runner = load_runner(config)
        about = runner.description
        self.description = f"{about.parameters:,} parameters, {about.dtype}, {about.device}"
        self.words = words
        self.max_model_len = runner.max_model_len
        self._runner = WatchedRunner(runner, time.perf_counter)
        engine_config = EngineConfig(
            max_running=most_running,
            max_batch_tokens=max(512, 4 * most_running),
            spare_tokens=about.spare_tokens,
        )
        self._engine = Engine(
            self._runner,
            words.vocabulary,
            words.tokenizer,
            engine_config,
            self,
            clock=time.perf_counter,
        )
        self._live: set[str] = set()
        self._stats: StepStats | None = None

    def observe_step(self, stats: StepStats) -> None:
        self._stats = stats

    @property
    def live(self) -> int:
        """Answers that were added and have not ended."""
        return len(self._live)

    def add(self, request: EngineRequest) -> None:
        self._engine.add(request)
        self._live.add(request.request_id)

    def step(self) -> Step:
        """Run a step. Raises RuntimeError if an answer ends with an error."""
        chunks = [chunk for output in self._engine.step() for chunk in output.chunks]
        stats = self._stats
        assert stats is not None
        ended = [chunk for chunk in chunks if chunk.finish_reason is not None]
        for chunk in ended:
            if chunk.finish_reason == "error":
                raise RuntimeError(f"an answer failed: {chunk.error}")
            self._live.remove(chunk.request_id)
        inputs = self._runner.inputs  # WatchedRunner lays out twice, times once
        laps = (stats.plan_seconds, stats.mask_seconds, stats.sample_seconds, stats.commit_seconds)
        return Step(
            forward=stats.launch_seconds - 2 * inputs,
            host=inputs + sum(laps),
            tokens=stats.batch_tokens,
            gained=stats.sampled_tokens + stats.leapt_tokens,
            ended=ended,
            grew=len({chunk.request_id for chunk in chunks}),
        )

    def abort(self) -> None:
        """End every answer."""
        for request_id in self._live:
            self._engine.abort(request_id)
        self._live.clear()
