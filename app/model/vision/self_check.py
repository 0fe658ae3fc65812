"""The self-check of a vision model: its tower and image processor on a picture of noise.

As with text, the oracle is the model as it was loaded: two ragged steps must give the logits of its
own forward pass over the whole prompt, with eager attention.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.images import ExpandedPrompt, PreparedImage, PromptImages, TwoWay
from app.core.step import Span, SpanImages
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.self_check import TOLERANCE, TOLERANCE_AT_MOST, worst_error
from app.model.vision.embeddings import ImageEmbeddings, TowerThread
from app.model.vision.processing import HfImageProcessor, load_image_processor
from app.model.vision.tower import ModelVisionSpec, Tower, language_name

_log = logging.getLogger(__name__)

_KINDS = ("mm_token_type_ids", "token_type_ids")
"""Arguments that mark the tokens of images."""
_NOISE = (72, 56)
"""Pixels of the picture."""
_MOST_TOKENS = 1 << 14


@dataclass(frozen=True, slots=True)
class LoadedVision:
    """The vision parts of a loaded model, and the trial that it has to pass."""

    tower: Tower
    prompts: ModelVisionSpec
    processor: HfImageProcessor
    trial: ExpandedPrompt
    expected: Tensor
    """Logits of the trial's last rows: [R, width], float32."""
    allowed: float
    """Largest relative error of a row."""
    depth: int
    """Number of layers after which features are added."""
    token_bytes: int
    """Memory of the features of one token."""
    embedded_as: int
    """See ``Tower``."""


@torch.inference_mode()
def open_vision(model: PreTrainedModel, name: str) -> LoadedVision | None:
    """The vision parts of a whole model as it was loaded; None, and a line in the log, on failure.

    Costs some passes over a short prompt.
    """
    try:
        processor = load_image_processor(name)
    except UnsupportedModel as error:
        _log.info("served as a text model: %s", error)
        return None
    try:
        tower = Tower(model)
        prompts = ModelVisionSpec(tower, processor.marker, processor.placeholder)
        image = processor.prepare(_noise(0), "low", _MOST_TOKENS)
        trial = _trial_of(prompts, [image])
        whole = _Whole(model, trial)
        expected = whole.logits()
        if not tower.has_axes and whole.looks_both_ways(expected):
            another = processor.prepare(_noise(1), "low", _MOST_TOKENS)
            trial = _trial_of(prompts, [image, another])
            whole = _Whole(model, trial)
            expected, two_way = whole.logits_and_masks()
            prompts = ModelVisionSpec(tower, processor.marker, processor.placeholder, two_way)
            trial = _trial_of(prompts, [image, another])
        allowed = TOLERANCE[model.dtype]
        if model.dtype != torch.float32:
            allowed = min(max(allowed, 2 * whole.noise(expected)), TOLERANCE_AT_MOST)
        tower.set_attention()
        features = tower.encode(image)
        return LoadedVision(
            tower,
            prompts,
            processor,
            trial,
            expected,
            allowed,
            depth=features.shape[1] - 1,
            token_bytes=features[:1].nbytes,
            embedded_as=tower.embedded_as(image),
        )
    except Exception as error:  # models of any kind are tried
        _log.warning("served as a text model: %s cannot process an image: %s", name, error)
        return None


def _noise(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (*_NOISE, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _trial_of(prompts: ModelVisionSpec, images: Sequence[PreparedImage]) -> ExpandedPrompt:
    """Some tokens, the images one behind the other, and some tokens more."""
    words = [token for token in range(1, 8) if token != prompts.placeholder]
    marks = [prompts.placeholder] * len(images)
    trial = prompts.expand([*words[:3], *marks, *words[3:]], images)
    if not trial.images.images[0].places:
        raise ValueError("its processor writes no image token")
    return trial


class _Whole:
    """A whole model's own forward pass over the trial."""

    def __init__(self, model: PreTrainedModel, trial: ExpandedPrompt) -> None:
        images = trial.images.images
        self._model = model
        self._trial = trial
        self._rows = _compared(trial)
        ids = torch.tensor([list(trial.tokens)], device=model.device)
        kinds = torch.zeros_like(ids)
        for start, length in chain.from_iterable([seen.places for seen in images]):
            kinds[0, start : start + length] = 1
        given: dict[str, Any] = {"input_ids": ids, **dict.fromkeys(_KINDS, kinds)}
        for name in images[0].image.inputs:
            array = np.concatenate([seen.image.inputs[name] for seen in images])
            tensor = torch.from_numpy(array).to(model.device)
            given[name] = tensor.to(model.dtype) if tensor.is_floating_point() else tensor
        whole: Any = getattr(model, model.base_model_prefix)
        taken: set[str] = set()
        for each in (type(model), type(whole)):
            taken |= inspect.signature(each.forward).parameters.keys()
        self._given = {name: each for name, each in given.items() if name in taken}

    def logits(self, **others: Tensor) -> Tensor:
        """Logits of the trial's last rows: [R, width], float32."""
        found: Tensor = self._model(use_cache=False, **(self._given | others)).logits[0]
        return found[-self._rows :].float()

    def looks_both_ways(self, logits: Tensor) -> bool:
        """Whether tokens of an image attend to later ones: clearing their token types then changes
        ``logits``, though the features are the same."""
        kinds = [name for name in _KINDS if name in self._given]
        cleared = {name: torch.zeros_like(self._given[name]) for name in kinds}
        return bool(cleared) and not torch.equal(self.logits(**cleared), logits)

    def logits_and_masks(self) -> tuple[Tensor, TwoWay]:
        """``logits``, and the layers in which tokens of an image attend to each other, by the masks
        that the language model gets. Raises ``ValueError`` for any other masks."""
        noted: list[Any] = []

        def note(_: nn.Module, __: Any, given: dict[str, Any]) -> None:
            noted.append(given.get("attention_mask"))

        whole: Any = getattr(self._model, self._model.base_model_prefix)
        text = whole.get_submodule(language_name(whole))
        with text.register_forward_pre_hook(note, with_kwargs=True):
            logits = self.logits()
        (masks,) = noted
        return logits, two_way_of(masks, self._trial.images)

    def noise(self, logits: Tensor) -> float:
        """Relative error between two of transformers' own attentions."""
        self._model.set_attn_implementation("sdpa")
        try:
            return worst_error(self.logits(), logits)
        finally:
            self._model.set_attn_implementation("eager")


def two_way_of(masks: Any, images: PromptImages) -> TwoWay:
    """Layers with two-way attention, by ``masks`` [1, 1, T, T] for each kind of layer or for all.

    Raises ``ValueError`` for unsupported masks: attention from one image to another, to a part of
    the later tokens of an image, or in layers of another kind.
    """
    kinds = masks if isinstance(masks, Mapping) else {"every layer": masks}
    both = {name: _both_ways(mask, images) for name, mask in kinds.items()}
    if all(both.values()):
        return "all"
    if both == {"full_attention": False, "sliding_attention": True}:
        return "windows"
    raise ValueError(f"image tokens attend to each other only in some layers: {both}")


def _both_ways(mask: Any, images: PromptImages) -> bool:
    """Whether tokens attend to all later ones in their run of an image; False: to none."""
    if not isinstance(mask, Tensor) or mask.ndim != 4:
        raise ValueError("image tokens attend to each other, but there is no mask for it")
    seen = (mask if mask.dtype == torch.bool else mask == 0)[0, 0]
    later = seen.triu(1).cpu()
    if not later.any():
        return False
    expected = torch.zeros_like(later)
    for image in images.images:
        for start, length in image.places:
            own = slice(start, start + length)
            expected[own, own] = True
    if not torch.equal(later, expected.triu(1)):
        raise ValueError("image tokens attend to tokens outside their image")
    return True


def _compared(trial: ExpandedPrompt) -> int:
    """Rows from the last image's last token on."""
    return len(trial.tokens) - trial.images.images[-1].end + 1


def connect_vision(
    model: PreTrainedModel,
    vision: LoadedVision,
    forward: RaggedForward,
    *,
    block_size: int,
    groups: int,
    states: bool,
    rounded: bool,
) -> ImageEmbeddings | None:
    """Connect image features to ``model`` as it is served; None if the self-check then fails.

    ``forward`` has a cache of ``groups`` cache groups with room for the trial. ``states``: there
    are recurrent layers. ``rounded``: weights were quantised after they were loaded.
    """
    vision_encoder = TowerThread(vision.tower, vision.token_bytes)
    embeddings = ImageEmbeddings(model, vision_encoder, vision.depth, vision.embedded_as)
    images = [each.image for each in vision.trial.images.images]
    features = {each.digest: vision_encoder.encode(each).result() for each in images}
    trial = replace(vision.trial, images=vision.trial.images.encoded(features))
    for span in _steps(trial, block_size, groups, states=states):
        step = lay_out([span], block_size)
        with embeddings.of_step(step):
            logits = forward.run(step)
    error = worst_error(logits, vision.expected)
    allowed = TOLERANCE_AT_MOST if rounded else vision.allowed
    if error <= allowed:
        return embeddings
    embeddings.remove()
    _log.warning(
        "served as a text model: self-check failed: logits of a ragged step with an image differ "
        "from the model's own forward pass (relative error %.2g, limit %.2g)",
        error,
        allowed,
    )
    return None


def _steps(trial: ExpandedPrompt, block_size: int, groups: int, *, states: bool) -> list[Span]:
    """The trial in two steps of a span each: cut inside the image, or between two images."""
    seen = trial.images.images
    length = len(trial.tokens)
    cut = (seen[0].start + seen[0].end) // 2 if len(seen) == 1 else seen[1].start
    table = tuple(range(-(length // -block_size)))
    positions = trial.images.positions
    spans = []
    for start, end in ((0, cut), (cut, length)):
        axes = None if positions is None else positions[:, start:end]
        spans.append(
            Span(
                trial.tokens[start:end],
                start,
                (table,) * groups,
                state=1 if states and start else 0,
                saves=[(end - start, 1)] if states else (),
                rows=range(end - start - _compared(trial), end - start) if end == length else (),
                vision_input=SpanImages(
                    [each for each in seen if each.start < end and start < each.end], axes=axes
                ),
            )
        )
    return spans
