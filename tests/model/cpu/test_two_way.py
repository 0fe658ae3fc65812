"""The CPU attention of images whose tokens attend to each other, against naive attention."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.core.images import PreparedImage, PromptImage, TwoWay
from app.core.step import Span, SpanImages
from app.model.cpu.attention import CpuAttention
from app.model.cpu.layers import FusedLayer
from app.model.inputs import lay_out
from app.model.kv_storage import LayerShape, allocate
from tests.model.cpu.test_attention import OPTIONS, TOLERANCES, assert_naive_attention, scattered
from tests.model.cpu.test_layers import FITS, fused_forward, saved
from tests.model.tiny import VOCAB, mean_error, varied_model
from tests.model.trees import random_tree
from tests.steps import planned

NAMES = ["plain", "window", "softcap", "sinks", "everything"]
SPANS = [
    (1, 30, []),
    (20, 9, [(12, 4), (18, 6)]),
    (12, 9, [(5, 14)]),  # its prefix ended inside the image
    (150, 5, [(5, 3), (20, 100), (121, 34)]),
    (5, 3, []),
]
"""Length and start of each span, and the places of its images."""


def image_at(places: list[tuple[int, int]], two_way: TwoWay) -> PromptImage:
    return PromptImage(PreparedImage(b"", (), {}), places, two_way)


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("two_way", ["all", "windows"])
@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_tokens_of_an_image_get_plain_attention_over_all_of_it(
    dtype: torch.dtype, name: str, kv_heads: int, two_way: TwoWay, trees: bool
) -> None:
    torch.manual_seed(0)
    dice, options = random.Random(0), OPTIONS[name]
    spans = []
    for plain, (_, _, places) in zip(scattered([s[:2] for s in SPANS], dice), SPANS, strict=True):
        tree = random_tree(dice, len(plain.tokens)) if trees and not places else ()
        vision_input = SpanImages([image_at(places, two_way)]) if places else None
        spans.append(replace(plain, vision_input=vision_input, tree=tree))
    shape = LayerShape(kv_heads, 8, 6, 4 // kv_heads, dtype, window=options.window)
    assert_naive_attention(spans, shape, options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_token_has_the_same_bits_however_the_prompt_around_images_is_cut(
    name: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    dice, tokens, size = random.Random(0), 150, 16
    image = image_at([(20, 70), (93, 5), (101, 30)], "all")
    inside = {at for start, length in image.places for at in range(start + 1, start + length)}
    shape = LayerShape(2, 64, 64, 2, dtype)
    parts = [torch.randn(heads, tokens, 64, dtype=dtype) for heads in (4, 2, 2)]
    found = []
    for longest in (tokens, 1, 20, 80):
        storage = allocate({0: shape}, num_blocks=10, block_size=size, device=torch.device("cpu"))
        for pool in (storage.keys[0], storage.values[0]):
            pool.fill_(torch.nan)  # unwritten slots must not be read
        attention, out, start = CpuAttention(storage), torch.empty(tokens, 4, 64, dtype=dtype), 0
        while start < tokens:
            end = min(start + dice.randint(1, longest) if longest < tokens else tokens, tokens)
            while end in inside:
                end += 1
            span = Span([0] * (end - start), start, [range(10)], vision_input=SpanImages([image]))
            attention.begin(lay_out([span], size))
            query, key, value = (part[:, start:end].contiguous() for part in parts)
            out[start:end] = attention.attend(0, query, key, value, OPTIONS[name])
            start = end
        found.append(out)
    assert not found[0].isnan().any()
    for out in found[1:]:
        assert torch.equal(out, found[0])


@FITS
@torch.inference_mode()
@pytest.mark.parametrize("two_way", ["all", "windows"])
@pytest.mark.parametrize("kind", ["llama", "qwen2 with a window in some layers"])
def test_fused_layers_see_what_others_see_of_an_image(
    kind: str, two_way: TwoWay, tmp_path: Path
) -> None:
    folder, dice = saved(tmp_path, kind), random.Random(0)
    text = [dice.randrange(VOCAB) for _ in range(100)]
    image = image_at([(3, 5), (20, 70)], two_way)

    def logits(*, layers: bool, vision_input: SpanImages | None) -> torch.Tensor:
        model = varied_model(folder)
        forward, groups, _ = fused_forward(model, layers=layers)
        assert any(isinstance(each, FusedLayer) for each in model.modules()) == layers
        tables, found = [range(30)] * groups, []
        for start, end in ((0, 10), (10, 100)):
            span = Span(text[start:end], start, tables, vision_input=vision_input)
            rows = [(0, row) for row in range(end - start)]
            found.append(forward.run(lay_out(planned([span], rows), 4)).float())
        return torch.cat(found)

    fused, others = (
        logits(layers=layers, vision_input=SpanImages([image])) for layers in (True, False)
    )
    causal = logits(layers=True, vision_input=None)
    assert mean_error([fused], [others]) < 0.03
    seen_by_none = two_way == "windows" and kind == "llama"
    assert (mean_error([fused], [causal]) < 0.03) == seen_by_none
