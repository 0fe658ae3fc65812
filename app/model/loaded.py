"""A loaded model, the routes of its layers, and the attention and scan that these call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from app.core.progress import SILENCE, Progress
from app.model.checkpoints.loading import language_part, load_whole
from app.model.config import ModelConfig
from app.model.cpu.attention import CpuAttention
from app.model.cpu.scan import CpuScan
from app.model.forward import RaggedForward, StepAttention
from app.model.kv_storage import KvStorage, LayerShape
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.latent import keep_latents
from app.model.layers.model_call import give_positions
from app.model.layers.nearness import route_nearness
from app.model.layers.own_attention import route_own_attention
from app.model.layers.own_recurrence import route_own_recurrence
from app.model.layers.recurrent import RecurrentRoute, StepScan
from app.model.layers.sparse import run_densely
from app.model.parallel.group import Group
from app.model.state_storage import StateStorage
from app.model.vision.self_check import LoadedVision, open_vision
from app.model.vision.tower import has_vision


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with the routes for its forward passes and the shapes of its caches."""

    model: PreTrainedModel
    route: AttentionRoute
    recurrent: RecurrentRoute
    shapes: dict[int, LayerShape]
    """Shapes of keys and values, by layer. Shapes of states: ``recurrent.shapes``."""
    vision: LoadedVision | None = None
    """None: served as a text model."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    def in_fp8(self) -> LoadedModel:
        """This model with 8-bit KV caches."""
        shapes = {layer: replace(shape, fp8=True) for layer, shape in self.shapes.items()}
        return replace(self, shapes=shapes)

    def forward_over(
        self,
        storage: KvStorage,
        states: StateStorage | None,
        max_model_len: int,
        config: ModelConfig,
    ) -> RaggedForward:
        """A pass over keys and values in ``storage``, and over ``states`` of recurrent layers."""
        if not self.recurrent.shapes:
            states = None
        attention: StepAttention
        scan: StepScan | None = None
        if self.device.type == "cpu":
            attention = CpuAttention(storage, batch_invariant=config.batch_invariant)
            if states is not None:
                scan = CpuScan(states)
        else:  # imported where it is needed: triton is there with CUDA builds of torch only
            from app.model.cuda.attention import TritonAttention
            from app.model.cuda.scan import TritonScan

            attention = TritonAttention(
                storage,
                self.shapes,
                max_model_len=max_model_len,
                recurrent=states is not None,
                batch_invariant=config.batch_invariant,
                has_adapters=config.adapters is not None,
            )
            if states is not None:
                scan = TritonScan(states, attention)
        return RaggedForward(self.model, self.route, self.recurrent, attention, scan)


def load(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    group: Group | None = None,
    progress: Progress = SILENCE,
) -> LoadedModel:
    """Load a model; with a ``group``, this rank's share. Raises ``UnsupportedModel`` if it cannot
    be loaded or has unsupported layers."""
    whole = load_whole(config, device, dtype, group, progress)
    vision = None
    if config.images and group is None and has_vision(whole):
        with progress.stage("self-check with an image"):
            vision = open_vision(whole, config.model)
    model = language_part(whole, device, group, () if vision is None else vision.tower.parts)
    if vision is not None:
        vision.tower.to(device)
    route, recurrent = AttentionRoute(), RecurrentRoute(model)
    run_densely(model, route)
    route_own_attention(model, route)
    route_nearness(model, route)
    route_own_recurrence(model, recurrent)
    give_positions(model)
    shapes = keep_latents(model, route, probe_layers(model, route, recurrent))
    return LoadedModel(model, route, recurrent, shapes, vision)
