"""The CPU sampler against a naive one, and against itself in other batches."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.constraint import Mask, full_mask
from app.core.request import SamplingParams
from app.core.step import Draw
from app.model.cpu.kernels import sampling as kernels
from app.model.cpu.sampling import CpuSampler
from app.model.sampling import FIRST_TOKEN
from tests.model import naive_sampling as naive
from tests.model.sampling_cases import CASES, VOCAB, WIDTH, random_logits, row_of, sample_one
from tests.wide import many

SAMPLER = CpuSampler(VOCAB)


@pytest.mark.parametrize("name", CASES)
def test_a_draw_is_the_one_that_the_plain_rules_give(name: str) -> None:
    params = CASES[name]
    masks: list[Mask | None] = [None, naive.pack(set(range(0, VOCAB, 3)) | {70}, VOCAB)]
    for seed, mask in itertools.product(range(20), masks):
        logits = random_logits(seed)
        row = row_of(params, key=seed * 7919)
        token = sample_one(SAMPLER, logits, row, mask)
        ids = naive.unpack(mask, VOCAB)
        expected = naive.distribution(logits[0].numpy(), row, ids)
        if params.temperature == 0.0:
            assert expected == {token.token_id: 1.0}
        else:
            assert token.token_id == naive.winner(expected, row.key)


@pytest.mark.parametrize("name", ["plain", "cool", "hot", "top_k", "top_p", "min_p", "all three"])
@pytest.mark.parametrize("allowed", [None, {1, 2, 31, 32, 40, 69, 74}], ids=["all", "some"])
def test_draws_follow_the_distribution(allowed: set[int] | None, name: str) -> None:
    logits = random_logits(1)
    mask = None if allowed is None else naive.pack(allowed, VOCAB)
    count = 4000
    rows = [Draw(CASES[name], key, mask) for key in range(count)]
    batch = logits.expand(count, -1).clone()
    tokens = SAMPLER.sample(batch, rows).wait().tokens
    expected = naive.distribution(logits[0].numpy(), rows[0], naive.unpack(mask, VOCAB))
    seen = np.bincount([t.token_id for t in tokens], minlength=VOCAB)
    wanted = np.array([expected.get(i, 0.0) for i in range(VOCAB)]) * count
    frequent = wanted >= 5
    statistic = ((seen - wanted)[frequent] ** 2 / wanted[frequent]).sum()
    # Chi-square with n degrees of freedom has mean n and deviation sqrt(2n); the keys are fixed.
    degrees = int(frequent.sum())
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5
    assert not seen[wanted == 0.0].any()


@pytest.mark.parametrize(("name", "spread"), [("plain", 0.3), ("plain", 3.0), ("top_p", 0.3)])
def test_noise_in_the_logits_changes_no_more_draws_than_it_is_large(
    name: str, spread: float
) -> None:
    size, count, noise = 5000, 500, 1e-3
    generator = torch.Generator().manual_seed(9)
    logits = torch.randn(count, size, generator=generator) * spread
    noisy = logits + torch.randn(count, size, generator=generator) * noise
    sampler = CpuSampler(size)
    rows = [Draw(CASES[name], key) for key in range(count)]
    quiet = sampler.sample(logits, rows).wait().tokens
    disturbed = sampler.sample(noisy, rows).wait().tokens
    changed = sum(one != other for one, other in zip(quiet, disturbed, strict=True))
    # About one in a thousand is expected. Inverse transform sampling, where a token's interval
    # moves with all the weights before it, changed 8, 25 and 207 of these draws.
    assert changed <= 3


def test_a_row_alone_and_in_a_batch_of_32_draws_the_same_token() -> None:
    logits = random_logits(2, rows=32)
    params = list(itertools.islice(itertools.cycle(CASES.values()), 32))
    rows = [row_of(p, key=1 << 63 | i) for i, p in enumerate(params)]
    masks = [None if i % 2 else naive.pack(set(range(i, VOCAB)), VOCAB) for i in range(32)]
    asked = [replace(row, mask=mask) for row, mask in zip(rows, masks, strict=True)]
    together = SAMPLER.sample(logits.clone(), asked).wait().tokens
    alone = [sample_one(SAMPLER, logits[i : i + 1], rows[i], masks[i]) for i in range(32)]
    assert together == alone
    backwards = SAMPLER.sample(logits.flip(0), asked[::-1]).wait().tokens
    assert backwards[::-1] == alone


ODD_LOGITS = st.sampled_from(
    [0.0, -0.0, 1.0, -1e30, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]
)


@given(
    allowed=st.sets(st.integers(0, VOCAB - 1), min_size=1, max_size=6),
    odd=st.lists(st.tuples(st.integers(0, VOCAB - 1), ODD_LOGITS), max_size=20),
    params=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1e-300, 1e-8, 0.7, 1.0, 100.0]),
        top_p=st.sampled_from([0.0, 0.5, 1.0]),
        top_k=st.sampled_from([0, 1, 3]),
        min_p=st.sampled_from([0.0, 0.5, 1.0]),
    ),
    key=st.integers(0, 2**64 - 1),
)
@settings(max_examples=many(150, 4))
def test_no_token_outside_the_mask_is_ever_drawn(
    allowed: set[int],
    odd: list[tuple[int, float]],
    params: SamplingParams,
    key: int,
) -> None:
    logits = random_logits(4)
    for token, value in odd:
        logits[0, token] = value
    row = Draw(params, key)
    mask = naive.pack(allowed, VOCAB)
    assert sample_one(SAMPLER, logits, row, mask).token_id in allowed


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.zeros(1, WIDTH)
    row = Draw(SamplingParams(temperature=0.0), key=0)
    assert sample_one(SAMPLER, logits, row, None).token_id == 0
    mask = naive.pack({40, 41, 74}, VOCAB)
    assert sample_one(SAMPLER, logits, row, mask).token_id == 40
    logits[0, 40], logits[0, 41] = -0.0, 0.0
    assert sample_one(SAMPLER, logits, row, mask).token_id == 40


def test_logprobs_are_of_the_allowed_tokens_before_temperature() -> None:
    params = SamplingParams(
        temperature=0.2, top_k=2, logprobs=4, presence_penalty=0.5, logit_bias={30: 2.0}
    )
    for seed in range(10):
        logits = random_logits(seed)
        row = row_of(params, key=seed)
        ids = list(range(1, VOCAB, 2))
        token = sample_one(SAMPLER, logits, row, naive.pack(set(ids), VOCAB))
        expected = naive.logprobs(logits[0].numpy(), row, ids)
        ranked = sorted(expected, key=lambda i: (-expected[i], i))
        assert [t.token_id for t in token.top] == ranked[:4]
        assert [t.logprob for t in token.top] == pytest.approx([expected[i] for i in ranked[:4]])
        assert token.logprob == pytest.approx(expected[token.token_id])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [VOCAB, 5000])
def test_sets_are_scored_by_the_plain_softmax_of_all_tokens(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(6, size + 5, generator=generator) * 4).to(dtype)
    logits[:, size:] = 50.0
    logits[2, 7] = -torch.inf
    sets = [np.arange(i, size, 3 + i, dtype=np.int32) for i in range(4)]
    sets += [np.array(ids, dtype=np.int32) for ids in ([], [7], [*range(size)], [9, 3])]
    penalised = replace(CASES["bias and a penalty on one token"], top_p=0.3)
    mask = naive.pack({3, 9}, size)
    draws = [
        None,
        Draw(penalised, 1, mask, answer=(9, 9), scored=sets),
        Draw(CASES["greedy"], 2, scored=sets),
        Draw(CASES["greedy"], 3, mask, scored=sets[:2]),
        Draw(CASES["greedy"], 4),
        Draw(CASES["greedy"], 5, scored=sets[4:5]),
    ]
    exact = logits[:, :size].double().log_softmax(-1)
    tokens = CpuSampler(size).sample(logits.clone(), draws).wait().tokens
    for row, draw in enumerate(draws):
        wanted = [] if draw is None else draw.scored
        expected = [float(exact[row, ids.tolist()].logsumexp(0)) for ids in wanted]
        assert [*tokens[row].scores] == pytest.approx(expected, abs=1e-6)
    ids = [token.token_id for token in tokens]
    assert ids[0] == ids[2] == ids[5] == -1
    assert ids[1] in (3, 9)
    assert ids[3] in (3, 9)
    assert ids[4] == int(logits[4, :size].argmax())


def test_no_more_alternatives_are_reported_than_tokens_allowed() -> None:
    row = Draw(SamplingParams(logprobs=5), key=0)
    token = sample_one(SAMPLER, random_logits(5), row, naive.pack({8}, VOCAB))
    assert token.token_id == 8
    assert token.logprob == pytest.approx(0.0)
    assert [t.token_id for t in token.top] == [8]


def test_an_empty_mask_is_an_error() -> None:
    row = Draw(SamplingParams(), key=0)
    with pytest.raises(ValueError, match="allows no token"):
        sample_one(SAMPLER, random_logits(6), row, naive.pack(set(), VOCAB))


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "all three", "top_p of nothing"])
@pytest.mark.parametrize("step", [0.0, 0.001, 0.5])
def test_large_vocabularies_follow_the_same_rules(name: str, step: float) -> None:
    size = 5000  # too many to sort all of them; coarse steps make many logits equal
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(1, size, generator=generator) * 3
    logits = (logits / step).round() * step if step else torch.zeros(1, size)
    for key in range(8):
        row = Draw(CASES[name], key)
        expected = naive.distribution(logits[0].numpy(), row, list(range(size)))
        token = sample_one(CpuSampler(size), logits, row, None)
        assert token.token_id == naive.winner(expected, key)


def test_half_precision_logits_are_sampled_as_float32() -> None:
    logits = random_logits(7).bfloat16()
    row = Draw(SamplingParams(logprobs=1), key=3)
    halved = sample_one(SAMPLER, logits, row, None)
    assert halved == sample_one(SAMPLER, logits.float(), row, None)


def test_the_numbers_of_a_key_are_the_outputs_of_splitmix64() -> None:
    # The first outputs of Vigna's splitmix64.c for the state 0.
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    for place, output in enumerate(outputs):
        assert kernels.uniform(np.uint64(0), np.uint64(place)) == (output >> 11) * 2.0**-53
    for key in (0, 1, 2**63, 2**64 - 1):
        for place in (0, 5, FIRST_TOKEN, FIRST_TOKEN + 200_000):
            drawn = kernels.uniform(np.uint64(key), np.uint64(place))
            assert drawn == naive.number(key, place)
            assert 0.0 <= drawn < 1.0


def test_the_full_mask_ends_with_the_vocabulary() -> None:
    assert naive.unpack(full_mask(40), 64) == list(range(40))
    assert full_mask(64).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
