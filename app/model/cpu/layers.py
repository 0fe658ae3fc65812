"""transformers' decoder layers of the Llama kind, replaced by ``kernels.jobs``.

One layer of transformers is some forty operations of torch. Each is over before a second core has
woken up for it, and a decoding step has little more to do: of the 34 ms of a step of one answer
(160M parameters, two Zen 4 cores) reading the weights takes 10. Here a layer is two calls, whatever
it mixes its tokens by (``mixers``).

A model of such layers runs from token ids to logits without transformers' code around the layers,
which is some hundred calls of Python and thirty small operations: 1 to 1.5 ms of a step, whose
products take 2 with weights of 4 bits.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.cpu.kernels import jobs, panels
from app.model.cpu.kernels.compiled import as_numpy
from app.model.cpu.mixers import Mixer, Routes, is_swiglu, read_norm
from app.model.cpu.packed_linear import replace_modules
from app.model.cpu.weights import Linear, PanelWeights, has_panels
from app.model.cpu.workspace import CpuTeam, Workspace
from app.model.layers.architecture import Norm, is_plain_embedding
from app.model.layers.attention import AttentionRoute
from app.model.layers.quantized import QuantizedEmbedding, refine_inputs, scaled
from app.model.layers.recurrent import RecurrentRoute


class PanelLinear(nn.Module):
    """Same result as ``linear``, whose weight it replaces by panels."""

    def __init__(self, linear: Linear, team: CpuTeam) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.team = team
        self.weights = [PanelWeights([linear])]
        self.weight = torch.empty(0, dtype=torch.bfloat16)
        """Some models ask for its dtype."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], self.out_features)
        rows = x.numel() // self.in_features
        (weights,) = self.weights
        self.team.reserve(rows * weights.rounded_bytes)
        jobs.product(
            *self.team.shared,
            jobs.PRODUCT,
            jobs.ROUND,
            rows,
            x.data_ptr(),
            weights.address,
            1,
            0,
            out.data_ptr(),
            self.out_features,
        )
        return out


class PanelEmbedding(nn.Module):
    """Same result as ``embedding``, whose weight it reads from the panels of the output layer."""

    def __init__(self, embedding: nn.Module, output: PanelLinear) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = output.out_features, output.in_features
        self.weight = output.weight
        self._rows_of = output.weights[0].row_reader()
        self.scalar_embed_scale: float | None = getattr(embedding, "scalar_embed_scale", None)

    def forward(self, ids: Tensor) -> Tensor:
        """[...] -> [..., embedding_dim]."""
        rows = self._rows_of(ids.flatten()).view(*ids.shape, self.embedding_dim)
        return scaled(rows, self.scalar_embed_scale)


class FusedLayer(nn.Module):
    """Same result as ``layer``, whose weights it replaces by panels."""

    def __init__(
        self, layer: Any, mixer: Mixer, routes: Routes, team: CpuTeam, workspace: Workspace
    ) -> None:
        super().__init__()
        self.attention_type = getattr(layer, "attention_type", None)
        # Not the mixer itself: it holds the weights that are in panels now.
        self._layer, self._options = mixer.layer, mixer.options
        self._routes = routes
        self._team = team
        self._workspace = workspace
        self._kept: list[Tensor] = []
        inputs = PanelWeights([part.read() for part in mixer.inputs])
        out = PanelWeights([mixer.out])
        self.weights = [inputs, out]
        self._hidden = mixer.inputs[0].linear.in_features
        values: dict[str, Any] = {
            "hidden": self._hidden,
            "inputs": inputs.address,
            "input_parts": inputs.parts,
            "width": sum(part.width for part in mixer.inputs),
            "out": out.address,
            "mixed": mixer.out.in_features,
            **mixer.values,
        }
        self.mlp: nn.Module | None = None
        """The MLP, if torch computes it; None: the loops do."""
        if is_swiglu(layer.mlp):
            gate_up = PanelWeights([layer.mlp.gate_proj, layer.mlp.up_proj], interleaved=True)
            down = PanelWeights([layer.mlp.down_proj])
            self.weights += [gate_up, down]
            values["intermediate"] = layer.mlp.gate_proj.out_features
            values["gate_up"], values["down"] = gate_up.address, down.address
        else:
            self.mlp = layer.mlp
        for name, value in values.items():
            if isinstance(value, Tensor):  # its address, and the tensor as long as this layer
                self._kept.append(value.detach().contiguous())
                value = self._kept[-1].data_ptr()
            team.layers[mixer.layer][name] = value
        workspace.rounded_bytes = max(
            workspace.rounded_bytes, *[each.rounded_bytes for each in self.weights]
        )

    @property
    def is_whole(self) -> bool:
        """Whether all of it is computed by the loops."""
        return self.mlp is None

    def forward(
        self, hidden_states: Tensor, *_: Any, position_embeddings: tuple[Tensor, Tensor], **__: Any
    ) -> Tensor:
        """[1, T, H] -> the same tensor, with this layer's results in it."""
        if self._layer == 0:
            hidden_states = hidden_states.contiguous()
            self._workspace.begin(hidden_states, *self._routes.targets())
        self._workspace.rotate_by(position_embeddings)
        self.run(hidden_states)
        return hidden_states

    def run(self, hidden: Tensor) -> None:
        """Run this layer in the workspace, which has begun the step of ``hidden`` [1, T, H]."""
        tokens, layer, options = hidden.shape[1], self._layer, self._options
        self._routes.attention.check()
        attention, _ = self._routes.targets()
        if options is not None:
            self._workspace.select(attention, attention.storage.group_of[layer])
        jobs.first_half(*self._team.shared, layer)
        if options is not None and attention.has_long:
            record = self._team.layers[layer]
            dim, count = int(record["dim"]), int(record["heads"])
            heads = self._workspace.heads(tokens, int(record["width"]), dim)
            attended = self._workspace.attended(tokens, int(record["mixed"]), dim)
            attention.attend_long(layer, heads[:, :count].transpose(0, 1), options, attended)
        jobs.second_half(*self._team.shared, layer)
        if self.mlp is not None:
            more = self.mlp(self._workspace.normed(tokens, self._hidden)[None])
            hidden += more[0] if isinstance(more, tuple) else more


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether these loops can run the model on this processor."""
    on_cpu = model.device.type == "cpu" and model.dtype == torch.bfloat16
    return on_cpu and panels.runs_here()


def fuse(
    model: PreTrainedModel,
    route: AttentionRoute,
    recurrent: RecurrentRoute,
    *,
    layers: bool = True,
    amx_from: tuple[int, int] = (0, 0),
) -> int:
    """Replace layers of a known kind, then every other linear layer that panels can hold.

    Without ``layers`` only linear layers; ``amx_from`` as in ``Trial``. Returns the number of
    linear layers in all that was replaced. Both routes must have seen a pass.
    """
    refine_inputs(model)
    routes = Routes(route, recurrent)
    fused = sum(routes.mixer_of(each) is not None for each in model.modules()) if layers else 0
    team = CpuTeam(torch.get_num_threads(), fused)
    team.use_amx(*amx_from)
    workspace = Workspace(team)
    replaced = 0
    if fused == routes.layers:
        linears: list[int] = []

        def make(layer: Any) -> FusedLayer:
            mixer = routes.mixer_of(layer)
            assert mixer is not None
            read = {id(part.linear) for part in mixer.inputs}
            linears.append(len(read) + 1 + 3 * is_swiglu(layer.mlp))
            return FusedLayer(layer, mixer, routes, team, workspace)

        replace_modules(model, lambda each: routes.mixer_of(each) is not None, make)
        replaced += sum(linears)
    embedding: Any = model.get_input_embeddings()
    tied = _are_tied(model, embedding, model.get_output_embeddings())
    replaced += replace_modules(model, has_panels, lambda linear: PanelLinear(linear, team))
    output = model.get_output_embeddings()
    if tied and isinstance(output, PanelLinear):
        replace_modules(
            model, lambda each: each is embedding, lambda each: PanelEmbedding(each, output)
        )
    body: Any = getattr(model, "model", None)
    layers_now = getattr(body, "layers", [None])
    if type(model).__name__ in _KNOWN and all(isinstance(each, FusedLayer) for each in layers_now):
        norm = read_norm(body.norm)
        if norm is not None:
            model.forward = WholePass(model, norm, routes, team, workspace)
    return replaced


def _are_tied(model: PreTrainedModel, embedding: Any, output: Any) -> bool:
    """Whether the embedding's weight is the output layer's too, and no other code reads it."""
    if isinstance(embedding, QuantizedEmbedding):
        return embedding.stored is getattr(output, "stored", None)
    # Gemma 4 reads a row of the weight by itself.
    known = type(model).__name__ in _KNOWN and is_plain_embedding(embedding)
    return known and embedding.weight is getattr(output, "weight", None)


def require_invariance(model: PreTrainedModel) -> None:
    """Raises ``UnsupportedModel`` unless the layers of ``model`` have been fused.

    The products of torch's libraries add in another order for another number of rows, in float32
    as in bfloat16.
    """
    layers = [module for module in model.modules() if isinstance(module, FusedLayer)]
    if not layers or not all(layer.is_whole for layer in layers):
        raise UnsupportedModel(
            "batch_invariant is not supported here: on the CPU it needs bfloat16, AVX2, Linux, "
            "and layers with compiled loops, such as those of Llama, Mistral, Qwen 2, 3 "
            "and 3.5 (without experts)"
        )


_KNOWN = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
}
"""Models that consist of embedding, layers, RMSNorm and output layer, with RoPE by position."""

_LEAST_TABLE, _MOST_TABLE = 1 << 9, 1 << 15
"""Minimum and maximum positions with cached rotations; later ones are computed at every step."""


class WholePass:
    """Replaces the model's ``forward``, for the step that the attention has begun."""

    def __init__(
        self,
        model: PreTrainedModel,
        norm: Norm,
        routes: Routes,
        team: CpuTeam,
        workspace: Workspace,
    ) -> None:
        body: Any = model.model
        self._embed, self._rotary, self._head = body.embed_tokens, body.rotary_emb, model.lm_head
        self._layers: list[FusedLayer] = list(body.layers)
        self._in_loops = all(layer.is_whole for layer in self._layers)
        self._norm = as_numpy(norm.weight), int(norm.shifted), norm.eps
        self._routes, self._team, self._workspace = routes, team, workspace
        self._cos = self._sin = torch.empty(0)

    def __call__(
        self, *, input_ids: Tensor, position_ids: Tensor, logits_to_keep: Tensor | int, **_: Any
    ) -> SimpleNamespace:
        """Ids and positions [1, T] -> ``logits`` [1, R, V] of the rows to keep; 0: of all."""
        attention, scan = self._routes.targets()
        hidden = self._embed(input_ids)
        self._workspace.begin(hidden, attention, scan)
        self._workspace.rotate_by(self._rotations(hidden, position_ids))
        if attention.has_long or len(attention.slots) > 1 or not self._in_loops:
            for layer in self._layers:
                layer.run(hidden)
        elif self._routes.attention.interrupted is None:
            jobs.layers(*self._team.shared, 0, len(self._layers))
        else:
            for number in range(len(self._layers)):
                self._routes.attention.check()
                jobs.layers(*self._team.shared, number, number + 1)
        rows = logits_to_keep
        if isinstance(rows, int):
            assert rows == 0, "all rows, or those of a list"
            rows = torch.arange(hidden.shape[1])
        normed = hidden.new_empty(len(rows), hidden.shape[2])
        jobs.norm_rows(as_numpy(hidden[0]), rows.numpy(), *self._norm, as_numpy(normed))
        return SimpleNamespace(logits=self._head(normed)[None])

    def _rotations(self, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions: [T, D] each."""
        positions = position_ids[0]
        most = int(positions.max()) if len(positions) else 0
        if most >= _MOST_TABLE:
            cos, sin = self._turned(hidden, position_ids)
            return cos[0], sin[0]
        if most >= len(self._cos):
            size = max(_LEAST_TABLE, 1 << most.bit_length())
            cos, sin = self._turned(hidden, torch.arange(size)[None])
            self._cos, self._sin = cos[0].contiguous(), sin[0].contiguous()
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)

    def _turned(self, hidden: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines by the model's own code: [1, T, D] each."""
        if hasattr(self._rotary, "mrope_section"):  # time, height and width, which are one in text
            position_ids = position_ids.expand(3, -1, -1)
        cos, sin = self._rotary(hidden, position_ids)
        return cos, sin
