"""Tiny random vision models, each in a folder with its image processor and a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForImageTextToText, PreTrainedModel, PreTrainedTokenizerFast

from app.core.images import PreparedImage, PromptImages
from app.model.runner import TorchRunner
from app.model.vision import processing
from app.model.vision.processing import HfImageProcessor, load_image_processor
from tests.fakes import ByteTokenizer, ByteVocabulary

_ROWS = [f"<row_{row}_col_{column}>" for row in range(1, 3) for column in range(1, 3)]
_MARKS = (
    "<image>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<|image_pad|>", "<|video_pad|>",
    "<|vision_start|>", "<|vision_end|>", "<fake_token_around_image>", "<global-img>",
    "<end_of_utterance>", "<video>", *_ROWS,
)  # fmt: skip


class SeeingVocabulary(ByteVocabulary):
    """A byte vocabulary with the marks of images after its other tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = {mark: super(SeeingVocabulary, self).size + i for i, mark in enumerate(_MARKS)}
        self._token_bytes = (*self._token_bytes, *[None] * len(_MARKS))


VOCABULARY = SeeingVocabulary()
TOKENIZER = ByteTokenizer(VOCABULARY)

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY.size,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": VOCABULARY.eos,
    "tie_word_embeddings": False,
}
_ENCODER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
}
_SMALL_ENCODER = _ENCODER | {"patch_size": 14}


@dataclass(frozen=True, slots=True)
class Kind:
    model_type: str
    settings: dict[str, Any]
    marker: str
    processor: Callable[[PreTrainedTokenizerFast], Any]
    around: tuple[str, str] = ("", "")
    """Text that a chat template puts before and after an image."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The processor's names for marks of the tokenizer."""
    seed: int = 0
    """Seed of the weights, chosen so that no answer draws an image token, which the whole model
    would take for an image."""


def _llava(tokenizer: Any) -> Any:
    from transformers import LlavaProcessor, SiglipImageProcessor

    images = SiglipImageProcessor(size={"height": 28, "width": 28})
    return LlavaProcessor(images, tokenizer, patch_size=7, vision_feature_select_strategy="full")


def _onevision(tokenizer: Any) -> Any:
    from transformers import LlavaOnevisionImageProcessor

    pinpoints = [[28, 28], [28, 56], [56, 28], [56, 56]]
    images = LlavaOnevisionImageProcessor(
        size={"height": 28, "width": 28}, image_grid_pinpoints=pinpoints
    )
    settings = {"num_image_tokens": 4, "vision_feature_select_strategy": "full"}
    return _made("llava_onevision", images, tokenizer, **settings)


def _idefics(tokenizer: Any) -> Any:
    from transformers import Idefics3ImageProcessor

    images = Idefics3ImageProcessor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    return _made("idefics3", images, tokenizer, image_seq_len=4)


def _smolvlm(tokenizer: Any) -> Any:
    from transformers import SmolVLMImageProcessor

    images = SmolVLMImageProcessor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    return _made("smolvlm", images, tokenizer, image_seq_len=4)


def _next(tokenizer: Any) -> Any:
    from transformers import LlavaNextImageProcessor

    images = LlavaNextImageProcessor(
        size={"shortest_edge": 28},
        crop_size={"height": 28, "width": 28},
        image_grid_pinpoints=[[28, 56], [56, 28], [56, 56]],
    )
    settings: dict[str, Any] = {"patch_size": 14, "vision_feature_select_strategy": "full"}
    return _made("llava_next", images, tokenizer, **settings)


def _internvl(tokenizer: Any) -> Any:
    from transformers import GotOcr2ImageProcessor

    side = {"height": 28, "width": 28}
    images = GotOcr2ImageProcessor(size=side, min_patches=1, max_patches=4, crop_to_patches=True)
    return _made("internvl", images, tokenizer, image_seq_length=4)


def _glm(tokenizer: Any) -> Any:
    from transformers import Glm4vImageProcessor

    size = {"shortest_edge": 4 * 196, "longest_edge": 24 * 196}
    kind: Any = Glm4vImageProcessor
    return _made("glm4v", kind(patch_size=7, merge_size=2, size=size), tokenizer)


def _gemma(tokenizer: Any) -> Any:
    from transformers import Gemma3ImageProcessor

    images = Gemma3ImageProcessor(size={"height": 28, "width": 28})
    return _made("gemma3", images, tokenizer, image_seq_length=16)


def _gemma4(tokenizer: Any) -> Any:
    from transformers import Gemma4ImageProcessor

    kind: Any = Gemma4ImageProcessor
    images = kind(patch_size=4, pooling_kernel_size=2, max_soft_tokens=70)
    return _made("gemma4", images, tokenizer)


def _mistral(tokenizer: Any) -> Any:
    from transformers import PixtralImageProcessor

    images = PixtralImageProcessor(size={"longest_edge": 56}, patch_size=7)
    return _made("mistral3", images, tokenizer, patch_size=7, spatial_merge_size=2)


def _qwen(model_type: str, patch: int) -> Callable[[Any], Any]:
    def make(tokenizer: Any) -> Any:
        from transformers import Qwen2VLImageProcessor

        side = 2 * patch
        images = Qwen2VLImageProcessor(
            patch_size=patch, merge_size=2, min_pixels=side**2, max_pixels=12 * side**2
        )
        return _made(model_type, images, tokenizer)

    return make


def _made(model_type: str, images: Any, tokenizer: Any, **settings: Any) -> Any:
    kind: Any = processing._class_for(model_type)
    parts = {"image_processor": images, "tokenizer": tokenizer}
    names: Sequence[str] = kind.__bases__[0].get_attributes()
    return kind(*[parts.get(name) for name in names], **settings)


def _axes(*sections: int) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections)}
    return {"rope_parameters": rope}


_QWEN_MARKS = {
    "image_token_id": VOCABULARY.marks["<|image_pad|>"],
    "video_token_id": VOCABULARY.marks["<|video_pad|>"],
    "vision_start_token_id": VOCABULARY.marks["<|vision_start|>"],
    "vision_end_token_id": VOCABULARY.marks["<|vision_end|>"],
}
_AROUND = ("<|vision_start|>", "<|vision_end|>")

KINDS: dict[str, Kind] = {
    "llava": Kind(
        "llava",
        {
            "vision_config": {"model_type": "siglip_vision_model", **_ENCODER},
            "text_config": {"model_type": "llama", **_TEXT},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "image_token_id": VOCABULARY.marks["<image>"],
        },
        "<image>",
        _llava,
    ),
    "llava_onevision": Kind(
        "llava_onevision",
        {
            "vision_config": {"model_type": "siglip_vision_model", **_SMALL_ENCODER},
            "text_config": {"model_type": "qwen2", **_TEXT},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "image_grid_pinpoints": [[28, 28], [28, 56], [56, 28], [56, 56]],
            "image_token_id": VOCABULARY.marks["<image>"],
            "video_token_id": VOCABULARY.marks["<video>"],
        },
        "<image>",
        _onevision,
    ),
    "idefics3": Kind(
        "idefics3",
        {
            "vision_config": _ENCODER,
            "text_config": {"model_type": "llama", **_TEXT},
            "scale_factor": 2,
            "image_token_id": VOCABULARY.marks["<image>"],
            "pad_token_id": 0,
        },
        "<image>",
        _idefics,
    ),
    "mistral3": Kind(
        "mistral3",
        {
            "vision_config": {"model_type": "pixtral", "head_dim": 8, **_ENCODER, "image_size": 56},
            "text_config": {"model_type": "mistral", **_TEXT, "sliding_window": None},
            "vision_feature_layer": -1,
            "spatial_merge_size": 2,
            "image_token_id": VOCABULARY.marks["[IMG]"],
        },
        "[IMG]",
        _mistral,
    ),
    "qwen2_5_vl": Kind(
        "qwen2_5_vl",
        {
            "vision_config": {
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_heads": 4,
                "patch_size": 7,
                "spatial_merge_size": 2,
                "out_hidden_size": 32,
                "window_size": 28,
                "fullatt_block_indexes": [1],
            },
            "text_config": {**_TEXT, **_axes(1, 2, 1)},
            **_QWEN_MARKS,
        },
        "<|image_pad|>",
        _qwen("qwen2_5_vl", 7),
        _AROUND,
    ),
    "qwen3_vl": Kind(
        "qwen3_vl",
        {
            "vision_config": {
                "depth": 3,
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_heads": 4,
                "patch_size": 8,
                "spatial_merge_size": 2,
                "out_hidden_size": 32,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0, 1],
            },
            "text_config": {**_TEXT, **_axes(2, 1, 1)},
            **_QWEN_MARKS,
        },
        "<|image_pad|>",
        _qwen("qwen3_vl", 8),
        _AROUND,
    ),
}

KINDS["qwen3_5"] = Kind(
    "qwen3_5",
    {
        "vision_config": {
            name: size
            for name, size in KINDS["qwen3_vl"].settings["vision_config"].items()
            if name != "deepstack_visual_indexes"
        },
        "text_config": {
            **_TEXT,
            "rope_parameters": {**_axes(2, 1, 1)["rope_parameters"], "partial_rotary_factor": 1.0},
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
        **_QWEN_MARKS,
    },
    "<|image_pad|>",
    _qwen("qwen3_5", 8),
    _AROUND,
)

KINDS["gemma3"] = Kind(
    "gemma3",
    {
        "vision_config": {"model_type": "siglip_vision_model", **_ENCODER},
        # The window is smaller than an image of 16 tokens.
        "text_config": _TEXT | {"num_hidden_layers": 6, "sliding_window": 12},
        "mm_tokens_per_image": 16,
        "image_token_id": VOCABULARY.marks["<image>"],
        "boi_token_index": VOCABULARY.marks["<|vision_start|>"],
        "eoi_token_index": VOCABULARY.marks["<|vision_end|>"],
    },
    "<|vision_start|>",
    _gemma,
    names={
        "boi_token": "<|vision_start|>",
        "eoi_token": "<|vision_end|>",
        "image_token": "<image>",
    },
    seed=1,
)

_GEMMA4: dict[str, Any] = {
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "patch_size": 4,
        "pooling_kernel_size": 2,
        "position_embedding_size": 64,
    },
    "text_config": _TEXT
    | {
        "num_hidden_layers": 6,
        "sliding_window": 40,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 0,
        "use_bidirectional_attention": "vision",
    },
    "audio_config": None,
    "image_token_id": VOCABULARY.marks["<image>"],
    "video_token_id": VOCABULARY.marks["<video>"],
    "boi_token_id": VOCABULARY.marks["<|vision_start|>"],
    "eoi_token_id": VOCABULARY.marks["<|vision_end|>"],
}
_GEMMA4_NAMES = {
    "boi_token": "<|vision_start|>",
    "eoi_token": "<|vision_end|>",
    "image_token": "<image>",
    "boa_token": "[IMG_BREAK]",
    "eoa_token": "[IMG_END]",
    "audio_token": "[IMG]",
}
KINDS["gemma4"] = Kind("gemma4", _GEMMA4, "<image>", _gemma4, names=_GEMMA4_NAMES)

_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
}
_WIDE = KINDS["llava_onevision"].settings | {"image_grid_pinpoints": [[28, 56], [56, 28], [56, 56]]}
_QWEN3_VL, _QWEN3_5 = KINDS["qwen3_vl"].settings, KINDS["qwen3_5"].settings
_QWEN_ENCODER = KINDS["qwen2_5_vl"].settings["vision_config"]

MORE_KINDS: dict[str, Kind] = {
    "llava_next": Kind("llava_next", _WIDE, "<image>", _next),
    "internvl": Kind(
        "internvl",
        {
            "vision_config": _ENCODER | {"image_size": [28, 28], "patch_size": [7, 7]},
            "text_config": {"model_type": "qwen2", **_TEXT},
            "image_token_id": VOCABULARY.marks["<image>"],
            "image_seq_length": 4,
        },
        "<image>",
        _internvl,
        names={
            "start_image_token": "<|vision_start|>",
            "end_image_token": "<|vision_end|>",
            "context_image_token": "<image>",
            "video_token": "<video>",
        },
    ),
    "smolvlm": Kind("smolvlm", KINDS["idefics3"].settings, "<image>", _smolvlm),
    "qwen2_vl": Kind(
        "qwen2_vl",
        {
            "vision_config": {
                "depth": 2,
                "embed_dim": 32,
                "hidden_size": 32,
                "num_heads": 4,
                "mlp_ratio": 2,
                "patch_size": 7,
                "spatial_merge_size": 2,
            },
            "text_config": {**_TEXT, **_axes(1, 2, 1)},
            **_QWEN_MARKS,
        },
        "<|image_pad|>",
        _qwen("qwen2_vl", 7),
        _AROUND,
    ),
    "qwen3_vl_moe": Kind(
        "qwen3_vl_moe",
        _QWEN3_VL | {"text_config": _QWEN3_VL["text_config"] | _EXPERTS},
        "<|image_pad|>",
        _qwen("qwen3_vl_moe", 8),
        _AROUND,
    ),
    "qwen3_5_moe": Kind(
        "qwen3_5_moe",
        _QWEN3_5
        | {
            "text_config": _QWEN3_5["text_config"]
            | _EXPERTS
            | {"shared_expert_intermediate_size": 32}
        },
        "<|image_pad|>",
        _qwen("qwen3_5_moe", 8),
        _AROUND,
    ),
    "gemma4 with inputs of layers": Kind(
        "gemma4",
        _GEMMA4
        | {
            "text_config": _GEMMA4["text_config"]
            | {
                "hidden_size_per_layer_input": 8,
                "vocab_size_per_layer_input": VOCABULARY.size,
                "use_bidirectional_attention": None,
            }
        },
        "<image>",
        _gemma4,
        names=_GEMMA4_NAMES,
    ),
    "glm4v": Kind(
        "glm4v",
        {
            "vision_config": _QWEN_ENCODER | {"image_size": 56},
            "text_config": {**_TEXT, **_axes(1, 2, 1)},
            "image_token_id": VOCABULARY.marks["<image>"],
            "video_token_id": VOCABULARY.marks["<video>"],
            "image_start_token_id": VOCABULARY.marks["<|vision_start|>"],
            "image_end_token_id": VOCABULARY.marks["<|vision_end|>"],
        },
        "<image>",
        _glm,
        _AROUND,
        names={"image_token": "<image>", "video_token": "<video>"},
    ),
}


def tokenizer(names: Mapping[str, str]) -> PreTrainedTokenizerFast:
    """A tokenizer with the ids of ``VOCABULARY``: bytes and marks, without merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_of = {letter: _byte_of(letter) for letter in letters}
    ids = dict(byte_of)
    for token in range(256, len(VOCABULARY.token_bytes)):
        ids[f"<other {token}>"] = token
    for mark, token in VOCABULARY.marks.items():
        del ids[f"<other {token}>"]
        ids[mark] = token
    made = Tokenizer(models.BPE(vocab=ids, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    named = {"extra_special_tokens": dict(names)} if names else {}
    return PreTrainedTokenizerFast(
        **named,
        tokenizer_object=made,
        eos_token=f"<other {VOCABULARY.eos}>",
        pad_token=f"<other {VOCABULARY.special}>",
        additional_special_tokens=list(VOCABULARY.marks),
    )


def _byte_of(letter: str) -> int:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for byte in range(256):
        if byte < 128 and split.pre_tokenize_str(chr(byte))[0][0] == letter:
            return byte
    return _others()[letter]


def _others() -> dict[str, int]:
    """GPT-2's byte-level alphabet: the byte of each letter."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + i): b for i, b in enumerate(rest)}


@dataclass(frozen=True, slots=True)
class Seeing:
    """A vision model in a folder, and its processor."""

    folder: str
    kind: Kind
    model: PreTrainedModel
    processor: HfImageProcessor

    def prepared(self, *pictures: Image.Image) -> list[PreparedImage]:
        return [self.processor.prepare(picture, "auto", 1000) for picture in pictures]

    def text(self, prompt: str) -> str:
        """``prompt`` with the chat template's text for an image in place of each ``IMAGE``."""
        before, behind = self.kind.around
        return prompt.replace("IMAGE", before + self.kind.marker + behind)

    def tokens(self, prompt: str) -> list[int]:
        """Token ids of ``prompt`` before its images are expanded."""
        ids: list[int] = self.processor.whole.tokenizer.encode(self.text(prompt))
        return ids

    def inputs(self, prompt: str, *pictures: Image.Image) -> dict[str, torch.Tensor]:
        """Inputs for the whole model, by transformers' own processor."""
        own: Any = self.processor.whole
        found = own(text=[self.text(prompt)], images=list(pictures), return_tensors="pt")
        return {name: each for name, each in found.items() if name != "attention_mask"}

    def logits(self, inputs: dict[str, torch.Tensor], answer: Sequence[int] = ()) -> torch.Tensor:
        """Logits after each token by the whole model's own forward pass: [T, width]."""
        more = torch.tensor([list(answer)], dtype=torch.int64)
        given = dict(inputs)
        given["input_ids"] = torch.cat([inputs["input_ids"], more], dim=1)
        for name in {"mm_token_type_ids", "token_type_ids"} & inputs.keys():
            given[name] = torch.cat([inputs[name], torch.zeros_like(more)], dim=1)
        with torch.inference_mode():
            logits: torch.Tensor = self.model(use_cache=False, **given).logits[0]
        return logits


def seeing(folder: Path, name: str) -> Seeing:
    """One of ``KINDS``, saved with random weights, its processor and its tokenizer."""
    return saved(folder, KINDS[name])


def saved(folder: Path, kind: Kind) -> Seeing:
    torch.manual_seed(kind.seed)
    config = transformers.AutoConfig.for_model(kind.model_type, **kind.settings)
    made: Any = AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    model: PreTrainedModel = made.float().eval()
    with torch.no_grad():
        for part in model.parameters():
            if part.ndim >= 2:
                part.add_(torch.randn_like(part) * 0.12)
    model.save_pretrained(folder)
    own = tokenizer(kind.names)
    kind.processor(own).save_pretrained(folder)
    own.save_pretrained(folder)
    return Seeing(str(folder), kind, model, load_image_processor(str(folder)))


def encoded(runner: TorchRunner, images: PromptImages) -> PromptImages:
    """``images`` with the features of the runner's encoder."""
    encoder = runner.vision_encoder
    assert encoder is not None, "the model is served as text"
    found = [each.image for each in images.images]
    return images.encoded(
        {each.digest: encoder.encode(each, lambda: True).result() for each in found}
    )


def picture(number: int, width: int = 60, height: int = 40) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
