"""Fused layers of models with recurrent layers against transformers' own, in bfloat16."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.core.cache import StateSlots
from app.core.step import Span
from app.model.config import QuantizeName
from app.model.cpu.attention import CpuAttention
from app.model.cpu.layers import FusedLayer, WholePass, fuse
from app.model.cpu.mixers import read_norm
from app.model.cpu.scan import CpuScan
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.quantized import kinds_of, quantize_linears
from app.model.layers.recurrent import RecurrentRoute
from app.model.self_check import row_errors
from app.model.state_storage import allocate_states
from tests.model.cpu.test_layers import FITS
from tests.model.hybrid import Slots, StatefulSequence, hybrid_runner, lively_model
from tests.model.tiny import VOCAB, mean_error
from tests.steps import planned

BLOCK, CPU = 4, torch.device("cpu")
KINDS: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {},
    "qwen3_next": {"mlp_only_layers": [0, 1, 2]},
    "qwen3_5_moe_text": {},
}
LINEARS = {
    "qwen3_5_text": 2 * 8 + 7 + 1,
    "qwen3_next": 2 * 6 + 7 + 1,
}


def varied(kind: str) -> PreTrainedModel:
    """A bfloat16 model with random changes to norms and other one-dimensional weights."""
    model: Any = lively_model(kind, **KINDS[kind])
    with torch.no_grad():
        for part in model.parameters():
            if part.ndim == 1:
                part.add_(torch.randn_like(part) * 0.2)
    whole: PreTrainedModel = model.bfloat16()
    return whole


class Fused:
    """A fused model with its own cache."""

    def __init__(self, model: PreTrainedModel, *, own_pass: bool = True) -> None:
        self.model: Any = copy.deepcopy(model)
        route, recurrent = AttentionRoute(), RecurrentRoute(self.model)
        shapes = probe_layers(self.model, route, recurrent)
        self.linears = fuse(self.model, route, recurrent)
        self.model.set_attn_implementation(route.name)
        if not own_pass:
            self.model.forward = type(self.model).forward.__get__(self.model)
        storage = allocate(shapes, num_blocks=200, block_size=BLOCK, device=CPU)
        self.slots = StateSlots(count=64, interval=BLOCK)
        scan = CpuScan(allocate_states(recurrent.shapes, self.slots, CPU))
        attention = CpuAttention(storage, batch_invariant=True)
        self.forward = RaggedForward(self.model, route, recurrent, attention, scan)

    def run(self, spans: list[Span]) -> Tensor:
        """Logits of all tokens."""
        rows = [(i, at) for i, span in enumerate(spans) for at in range(len(span.tokens))]
        return self.forward.run(lay_out(planned(spans, rows), BLOCK)).float()


def random_steps(fused: Fused, texts: list[list[int]], seed: str) -> list[Tensor]:
    """Logits of every text, in random chunks and batches, with drafts that are rejected."""
    dice = random.Random(seed)
    slots, blocks = Slots(fused.slots.count, dice), iter(range(200))
    sequences = [
        StatefulSequence(text, [[next(blocks) for _ in range(-(-len(text) // BLOCK))]], slots)
        for text in texts
    ]
    found = [torch.zeros(len(text), VOCAB) for text in texts]
    while any(s.computed < len(s.text) for s in sequences):
        chosen = [s for s in sequences if s.computed < len(s.text) and dice.random() < 0.8]
        spans, backs = [], []
        for sequence in chosen:
            left = len(sequence.text) - sequence.computed
            length = min(left, dice.choice([1, 1, 2, 5, 20, 70]))
            wrong = min(left - length, dice.choice([0, 0, 3]))
            backs.append((sequence, sequence.computed, length))
            spans.append(sequence.span(length, dice, wrong=wrong))
        logits = list(fused.run(spans)) if spans else []
        for span, (sequence, start, length) in zip(spans, backs, strict=True):
            own = [logits.pop(0) for _ in span.tokens]
            found[sequences.index(sequence)][start : start + length] = torch.stack(own[:length])
            sequence.go_back(start + length)
            while len(sequence.kept) > 4:
                slots.give_back([sequence.kept.pop(1)[1]])
    return found


def random_texts(seed: str) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(VOCAB) for _ in range(n)] for n in (41, 3, 17, 150, 1)]


def typical_error(found: list[Tensor], exact: list[Tensor]) -> float:
    """Median of the rows' relative errors: rounding may send single tokens to other experts."""
    return float(row_errors(torch.cat(found), torch.cat(exact)).median())


@FITS
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_random_steps_differ_from_float32_no_more_than_transformers_does(kind: str) -> None:
    plain_model, texts = varied(kind), random_texts(kind)
    exact_model: Any = copy.deepcopy(plain_model).float()
    exact = [exact_model(torch.tensor([text])).logits[0] for text in texts]
    plain = [plain_model(torch.tensor([text])).logits[0].float() for text in texts]
    fused = Fused(plain_model)
    layers = [m for m in fused.model.modules() if isinstance(m, FusedLayer)]
    assert len(layers) == 3
    assert all(layer.is_whole for layer in layers) == (kind in LINEARS)
    if kind in LINEARS:
        assert fused.linears == LINEARS[kind]
        assert not any(type(m) is torch.nn.Linear for m in fused.model.modules())
    found = random_steps(fused, texts, kind)
    assert typical_error(found, exact) < 1.3 * typical_error(plain, exact) < 0.1


@FITS
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_logits_are_those_of_transformers_code_around_the_same_layers(kind: str) -> None:
    model, texts = varied(kind), random_texts(kind)
    found = []
    for own in (True, False):
        fused = Fused(model, own_pass=own)
        assert isinstance(fused.model.forward, WholePass) == own
        found.append(random_steps(fused, texts, kind))
    assert mean_error(*found) < 0.004


@FITS
@pytest.mark.parametrize("kind", LINEARS)
@torch.inference_mode()
def test_a_token_has_the_same_bits_in_any_chunks_and_any_batch(
    kind: str,
) -> None:
    model, texts = varied(kind), random_texts(kind)
    alone = []
    fused = Fused(model)
    for text in texts:
        table = [[*range(-(-len(text) // BLOCK))]]
        rows = [
            fused.run([Span([token], at, table, state=min(at, 1), saves=[(1, 1)])])
            for at, token in enumerate(text)
        ]
        alone.append(torch.cat(rows))
    for seed in range(3):
        found = random_steps(Fused(model), texts, str(seed))
        assert all(map(torch.equal, found, alone))


@FITS
@pytest.mark.parametrize("kind", LINEARS)
def test_a_hybrid_of_these_layers_alone_has_the_batch_invariant_mode(
    kind: str, tmp_path: Path
) -> None:
    runner = hybrid_runner(tmp_path, varied(kind), dtype="bfloat16", batch_invariant=True)
    assert runner.description.batch_invariant


@FITS
@pytest.mark.parametrize("quantize", ["int8", "int4"])
@pytest.mark.parametrize("kind", LINEARS)
@torch.inference_mode()
def test_weights_of_fewer_bits_run_through_the_same_loops(
    kind: str, quantize: QuantizeName
) -> None:
    """Some weights keep 16 bits: the gates of a layer have too few outputs to be quantised."""
    model: Any = varied(kind)
    texts = random_texts(kind)
    assert quantize_linears(model, quantize)
    expected = [model(torch.tensor([text])).logits[0].float() for text in texts]
    fused = Fused(model)
    assert fused.linears == LINEARS[kind]
    assert not kinds_of(fused.model)
    found = random_steps(fused, texts, quantize)
    assert typical_error(found, expected) < 0.06
    again = random_steps(Fused(model), texts, "in other company")
    assert all(map(torch.equal, found, again))


def test_norms_are_told_apart_by_what_they_give() -> None:
    model: Any = varied("qwen3_5_text")
    body = model.model
    shifted = read_norm(body.norm)
    assert shifted is not None
    assert shifted.shifted
    own = body.layers[0].linear_attn.norm
    gated = read_norm(own, gated=True)
    assert gated is not None
    assert not gated.shifted
    assert read_norm(torch.nn.LayerNorm(32, dtype=torch.bfloat16)) is None

    class BySigmoid(type(own)):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, gate: Tensor) -> Tensor:
            plain = super().forward(hidden_states, torch.full_like(gate, 20.0)) / 20
            out: Tensor = (plain * gate.float().sigmoid()).to(hidden_states.dtype)
            return out

    own.__class__ = BySigmoid
    assert read_norm(own, gated=True) is None
