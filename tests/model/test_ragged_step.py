"""A ragged step over the paged cache against transformers' own eager attention, in float32."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from app.core.request import SamplingParams
from app.core.step import Draw, Span
from app.kv.manager import BlockManager
from tests.model.rows import expected_logprobs, random_sequences, row_logprobs, run_randomly
from tests.model.tiny import CONFIGS, VOCAB, PagedSequence, eager_model, tiny_runner
from tests.steps import planned

GREEDY = SamplingParams(temperature=0.0)


class ManagedSequence(PagedSequence):
    """A sequence whose blocks come from a ``BlockManager``; ``end`` returns them."""

    def __init__(self, tokens: Sequence[int], manager: BlockManager) -> None:
        super().__init__(tokens, [])
        prefix = manager.match(tokens)
        self.computed = self.cached = len(prefix) * manager.block_size
        self.table = manager.allocate(len(tokens), prefix)
        self._manager = manager

    def span(self, length: int, block_size: int) -> Span:
        start, end = self.computed, self.computed + length
        self._manager.advance(self.table, self.tokens, start)
        self._manager.grow(self.table, end)
        self.computed = end
        return Span(self.tokens[start:end], start, self.table.views())

    def end(self) -> None:
        self._manager.advance(self.table, self.tokens, self.computed)
        self._manager.free(self.table)


@pytest.mark.parametrize("name", CONFIGS)
def test_random_batches_give_the_logits_of_plain_eager_attention(name: str, tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, name)
    model = eager_model(str(tmp_path))
    dice = random.Random(name)
    sequences = random_sequences(runner, (41, 3, 17, 30), dice)
    found = run_randomly(runner, sequences, dice)
    assert sum(map(len, found)) > 10
    for sequence, rows in zip(sequences, found, strict=True):
        expected = expected_logprobs(model, sequence.tokens)
        for position, row in rows.items():
            np.testing.assert_allclose(row, expected[position], atol=2e-4)


WINDOWED = {
    "gemma2 with softcap and a window": (91 + 51) * 512,
    "gemma3 with a window": (91 + 5 * 51) * 512,
    "gpt-oss with sinks and a window": (91 + 51) * 512,
    "mistral with a window": 2 * 51 * 512,
}
"""Bytes for 90 blocks of 4 tokens with full attention, and 50 for each layer with a window."""


@pytest.mark.parametrize("name", WINDOWED)
def test_blocks_that_windows_give_back_are_used_by_others(name: str, tmp_path: Path) -> None:
    """Three sequences longer than many windows, then three that share prefixes with them."""
    runner = tiny_runner(
        tmp_path, name, kv_cache_bytes=WINDOWED[name], max_running=4, max_batch_tokens=20
    )
    model = eager_model(str(tmp_path))
    assert runner.cache_groups[0].num_blocks == (50 if name.startswith("mistral") else 90)
    assert runner.cache_groups[-1].num_blocks == 50
    manager = BlockManager(runner.cache_groups, runner.block_size, step_tokens=20)
    dice = random.Random(name)
    texts = [[dice.randrange(VOCAB) for _ in range(length)] for length in (110, 95, 120)]
    cached = 0
    for round_texts in (texts, [[*text[:80], *text[20:50]] for text in texts]):
        sequences = [ManagedSequence(text, manager) for text in round_texts]
        assert sum(map(len, round_texts)) > 4 * 60
        found = run_randomly(runner, sequences, dice)
        for sequence, rows in zip(sequences, found, strict=True):
            expected = expected_logprobs(model, sequence.tokens)
            for position, row in rows.items():
                np.testing.assert_allclose(row, expected[position], atol=2e-4)
            assert sequence.table.columns[-1].first > 0
            cached += sequence.cached
            sequence.end()
    assert cached, "no prefix was found in the cache"
    assert manager.usage == 0.0


def test_a_sequence_that_starts_on_shared_blocks_sees_them(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama")
    model = eager_model(str(tmp_path))
    pool = list(range(40))
    first = PagedSequence(range(10, 22), pool)
    runner.launch([first.span(12, 4)])
    runner.sample([])

    second = PagedSequence([*range(10, 18), 50, 51, 52], pool, shared=first.tables[0][:2])
    second.computed = 8
    [found] = row_logprobs(runner, [second.span(3, 4)], [(0, 2)])
    expected = expected_logprobs(model, second.tokens)[-1]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_recomputing_from_an_earlier_position_overwrites_what_was_there(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama")
    model = eager_model(str(tmp_path))
    sequence = PagedSequence([5, 6, 7, 8, 9, 10], list(range(40)))
    runner.launch([sequence.span(6, 4)])
    runner.sample([])

    sequence.tokens[3:] = [20, 21]
    sequence.computed = 3
    [found] = row_logprobs(runner, [sequence.span(2, 4)], [(0, 1)])
    expected = expected_logprobs(model, [5, 6, 7, 20, 21])[-1]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3 with a window"])
def test_greedy_generation_equals_transformers_generate(name: str, tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, name)
    model = eager_model(str(tmp_path))
    prompts = [[3, 4, 5, 6, 7], [9, 8, 7], [11] * 9]
    pool = list(range(runner.cache_groups[-1].num_blocks))
    groups = len(runner.cache_groups)
    sequences = [PagedSequence(prompt, pool, groups=groups) for prompt in prompts]
    for _ in range(20):
        spans = [s.span(len(s.tokens) - s.computed, runner.block_size) for s in sequences]
        rows = [(i, len(span.tokens) - 1) for i, span in enumerate(spans)]
        runner.launch(planned(spans=spans, rows=rows))
        drawn = runner.sample([Draw(GREEDY, 0)] * 3).wait().tokens
        for sequence, token in zip(sequences, drawn, strict=True):
            sequence.tokens.append(token.token_id)

    for prompt, sequence in zip(prompts, sequences, strict=True):
        generated = model.generate(  # type: ignore[operator]
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=20,
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        )
        assert sequence.tokens == generated[0].tolist()


def test_bfloat16_with_packed_linears_stays_close_to_float32(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", dtype="bfloat16")
    sequence = PagedSequence(range(3, 20), list(range(40)))
    [found] = row_logprobs(runner, [sequence.span(17, 4)], [(0, 16)])
    plain = eager_model(str(tmp_path), dtype="bfloat16").float()
    expected = expected_logprobs(plain, sequence.tokens)[-1]
    assert np.corrcoef(found, expected)[0, 1] > 0.99
