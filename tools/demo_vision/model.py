"""The model: a SigLIP tower, LLaVA's projector and a Llama, all of transformers' own classes.

The tower's first layers start as a convolution: each head attends to one neighbour of a patch, by
the position embedding alone, so that the parts of a character on the border of two patches come
together before any training. This start is from d'Ascoli et al. 2021, "ConViT".
"""

import math
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import (
    AttentionInterface,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tools.demo_vision.corpus import ACROSS, HEADS, IMAGE, PATCH, PATCHES
from tools.demo_vision.picture import SIDE

HIDDEN: Final = 128
_WAVES: Final = 8
"""Frequencies of the position embedding: sine and cosine of each, for the row and the column."""
_HEAD: Final = 4 * _WAVES
"""Dimensions of a head of the tower: as many as the position embedding has."""
_SHARPNESS: Final = 1.75
"""Scale of the first attention: with a higher one, a head sees its one neighbour alone."""
_OFFSETS: Final = (
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -1), (0, 1), (0, -2), (0, 2)),
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
)
"""For each of the first layers, the offset (rows down, columns right) that each head attends to."""


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in the type of its inputs, which is fastest on a CPU for short rows.

    Rows are padded on the right, so that causal attention needs no other mask.
    """
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    scores = (query * scaling) @ key.transpose(-1, -2)
    if module.is_causal:
        length = scores.shape[-1]
        scores = scores + torch.full((length, length), -torch.inf, dtype=scores.dtype).triu(1)
    weights = scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


PLAIN: Final = "plain_bfloat16"
AttentionInterface.register(PLAIN, _attend)


def vision_config(channels: int = 3) -> SiglipVisionConfig:
    """Four layers of 128 dimensions over 144 patches, without a head."""
    config = SiglipVisionConfig(
        hidden_size=HIDDEN,
        intermediate_size=4 * HIDDEN,
        num_hidden_layers=4,
        num_attention_heads=HIDDEN // _HEAD,
        num_channels=channels,
        hidden_act="relu",
        image_size=SIDE,
        patch_size=PATCH,
    )
    config.vision_use_head = False
    return config


class Reader(nn.Module):
    """The tower and the projector, and the heads by which the tower learns to read: see `HEADS`.

    It has one input channel, the mean of the colours; `coloured` makes a tower with three from it.
    """

    def __init__(self, projector: LlavaMultiModalProjector) -> None:
        super().__init__()
        self.tower = SiglipVisionModel(vision_config(channels=1))
        self.tower.set_attn_implementation(PLAIN)
        self.projector = projector
        self.norm = nn.LayerNorm(HIDDEN)
        self.heads = nn.Linear(HIDDEN, sum(HEADS.values()))
        _start_as_convolution(self.tower)

    def features(self, pictures: torch.Tensor) -> torch.Tensor:
        """The language model's input, [pictures, PATCHES, HIDDEN], of [pictures, 1, SIDE, SIDE].

        The values of a pixel go from -1 to 1.
        """
        hidden = self.tower.embeddings(pictures)
        for layer in self.tower.encoder.layers:
            hidden = layer(hidden, None)
        projected: torch.Tensor = self.projector(hidden)
        return projected

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The scores of each head, in the order of `HEADS`."""
        return self.scores(self.features(pictures))

    def scores(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The scores of each head, from features."""
        scores = self.heads(self.norm(features))
        return torch.split(scores, list(HEADS.values()), dim=-1)


@torch.no_grad()
def coloured(tower: SiglipVisionModel) -> SiglipVisionModel:
    """A tower for colour pictures, equal to `tower` on the mean of their channels."""
    made = SiglipVisionModel(vision_config())
    weights = dict(tower.state_dict())
    name = "embeddings.patch_embedding.weight"
    name = next(key for key in weights if key.endswith(name))
    weights[name] = weights[name].repeat(1, 3, 1, 1) / 3
    made.load_state_dict(weights)
    return made


def _positions() -> torch.Tensor:
    """[PATCHES, 4 * _WAVES]: cosines and sines of the row, then of the column."""
    where = torch.arange(ACROSS).float()
    angles = where[:, None] * _speeds()
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    rows = waves[:, None].expand(ACROSS, ACROSS, -1)
    columns = waves[None].expand(ACROSS, ACROSS, -1)
    return torch.cat([rows, columns], dim=-1).reshape(PATCHES, -1)


def _speeds() -> torch.Tensor:
    """Angle of each wave per patch; all repeat after two picture widths, so that places differ."""
    return torch.arange(1, _WAVES + 1) * (2 * math.pi / (2 * ACROSS))


def _shift(by: int) -> torch.Tensor:
    """[2 * _WAVES, 2 * _WAVES]: maps the waves of a place to those of the place `by` further."""
    cos, sin = torch.diag((by * _speeds()).cos()), torch.diag((by * _speeds()).sin())
    return torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])


@torch.no_grad()
def _start_as_convolution(tower: SiglipVisionModel) -> None:
    """Sets the position embedding, and queries and keys that compare nothing else."""
    positions = tower.embeddings.position_embedding.weight
    positions.normal_(std=0.02)
    positions[:, :_HEAD] = _positions()
    tower.embeddings.patch_embedding.weight[:_HEAD] *= 0.1
    layers: Any = tower.encoder.layers
    for layer, around in zip(layers, _OFFSETS, strict=False):
        query, key = layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight
        query.normal_(std=0.02)
        key.normal_(std=0.02)
        for head, (down, right) in enumerate(around):
            rows = slice(head * _HEAD, (head + 1) * _HEAD)
            key[rows, :_HEAD] = _SHARPNESS * torch.eye(_HEAD)
            turned: Any = torch.block_diag(_shift(down), _shift(right))  # type: ignore[no-untyped-call]
            query[rows, :_HEAD] = _SHARPNESS * turned


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlavaForConditionalGeneration:
    """The whole model, with random weights."""
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    image: Any = tokenizer.convert_tokens_to_ids(IMAGE)
    config = LlavaConfig(
        vision_config=vision_config(),
        text_config=text,
        image_token_index=image,
        image_seq_length=PATCHES,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=True,
    )
    return LlavaForConditionalGeneration(config)


def new_projector() -> LlavaMultiModalProjector:
    """LLaVA's two layers from the tower to the language model, which is as wide as the tower."""
    text = LlamaConfig(hidden_size=HIDDEN)
    return LlavaMultiModalProjector(LlavaConfig(vision_config=vision_config(), text_config=text))


def export(
    model: LlavaForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, out: Path
) -> None:
    """Writes the weights in bfloat16, the configuration, the processor and the tokenizer."""
    config: Any = deepcopy(model.config)
    for part in (config, config.text_config, config.vision_config):
        part.dtype = torch.bfloat16
    copy = LlavaForConditionalGeneration(config)
    copy.to(dtype=torch.bfloat16)  # type: ignore[call-arg]
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    out.mkdir(parents=True, exist_ok=True)
    copy.save_pretrained(out)
    processor = LlavaProcessor(
        SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE}),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        chat_template=tokenizer.chat_template,
    )
    processor.save_pretrained(out, save_jinja_files=False)
