"""transformers' decoder layers of the Llama kind, replaced by ``kernels.jobs``.

One layer of transformers is some forty operations of torch. Each is over before a second core has
woken up for it, and a decoding step has little more to do: of the 34 ms of a step of one answer
(160M parameters, two Zen 4 cores) reading the weights takes 10. Here a layer is two calls.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation

from app.core.errors import UnsupportedModel
from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import jobs, panels, quantized_products, records, team
from app.model.cpu.packed_linear import replace_modules
from app.model.cpu.weights import Linear, PanelWeights, has_panels, kind_of
from app.model.device import cpu_has_amx
from app.model.inputs import Ints
from app.model.kv_storage import KvStorage
from app.model.layers.attention import AttentionRoute
from app.model.layers.quantized import is_quantized

_KNOWN = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"}
"""All are: RMSNorm, attention with RoPE, RMSNorm, SwiGLU; Qwen 3 norms heads too."""
_LAYER_LINEARS = 7


class CpuTeam:
    """Threads for the products of one model, and what they share. Used by one thread at a time."""

    def __init__(self, threads: int, layers: int = 0) -> None:
        board, job = team.new_board(), np.zeros(1, dtype=records.JOB)
        self.layers = np.zeros(max(layers, 1), dtype=records.LAYER)
        self.steps = np.zeros(1, dtype=records.STEP)
        job["run"] = jobs.entry()
        job["layers"], job["step"] = self.layers.ctypes.data, self.steps.ctypes.data
        self.shared: tuple[Any, Any] = (board, job)
        for number in range(1, threads):
            threading.Thread(
                target=jobs.help_out, args=self.shared, name=f"leapjson-pass-{number}", daemon=True
            ).start()
        self._rounded = torch.empty(0, dtype=torch.uint8)
        # The helpers hold what is shared, and nothing else of this object.
        weakref.finalize(self, team.close, board)

    def reserve(self, size: int) -> None:
        """Have memory for so many bytes of rounded rows."""
        if size > len(self._rounded):
            self._rounded = torch.empty(size + size // 4, dtype=torch.uint8)
            _, job = self.shared
            job["rounded"] = self._rounded.data_ptr()


class PanelLinear(nn.Module):
    """Same result as ``linear``, whose weight it replaces by panels."""

    def __init__(self, linear: Linear, workers: CpuTeam) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.team = workers
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
            rows,
            x.data_ptr(),
            weights.address,
            1,
            0,
            out.data_ptr(),
            self.out_features,
        )
        return out


class FusedLayer(nn.Module):
    """Same result as ``layer``, whose weights it replaces by panels."""

    def __init__(
        self, layer: Any, route: AttentionRoute, workers: CpuTeam, workspace: Workspace
    ) -> None:
        super().__init__()
        self.attention_type = getattr(layer, "attention_type", None)
        self._number = number = layer.self_attn.layer_idx
        self._route = route
        self._team = workers
        self._workspace = workspace
        attention, mlp = layer.self_attn, layer.mlp
        self._options = options = route.options[number]
        qkv = PanelWeights([attention.q_proj, attention.k_proj, attention.v_proj])
        out = PanelWeights([attention.o_proj])
        gate_up = PanelWeights.interleaved(mlp.gate_proj, mlp.up_proj)
        down = PanelWeights([mlp.down_proj])
        self.weights = [qkv, out, gate_up, down]
        q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        values = {
            "hidden": attention.q_proj.in_features,
            "intermediate": mlp.gate_proj.out_features,
            "heads": attention.q_proj.out_features // attention.head_dim,
            "kv_heads": attention.k_proj.out_features // attention.head_dim,
            "dim": attention.head_dim,
            "window": options.window or 0,
            "norm": self._keep("norm", layer.input_layernorm.weight),
            "qkv": qkv.address,
            "qkv_parts": qkv.parts,
            "q_norm": self._keep("q_norm", None if q_norm is None else q_norm.weight),
            "k_norm": self._keep("k_norm", None if k_norm is None else k_norm.weight),
            "out": out.address,
            "mlp_norm": self._keep("mlp_norm", layer.post_attention_layernorm.weight),
            "gate_up": gate_up.address,
            "down": down.address,
            "eps": layer.input_layernorm.variance_epsilon,
            "mlp_eps": layer.post_attention_layernorm.variance_epsilon,
            "head_eps": 0.0 if q_norm is None else q_norm.variance_epsilon,
            "scale": options.scale,
        }
        for name, value in values.items():
            workers.layers[number][name] = value
        workspace.rounded_bytes = max(
            workspace.rounded_bytes, *[each.rounded_bytes for each in self.weights]
        )

    def _keep(self, name: str, tensor: Tensor | None) -> int:
        """The address of a tensor that lives as long as this layer; 0 for none."""
        if tensor is None:
            return 0
        kept = tensor.detach().contiguous()
        self.register_buffer(name, kept, persistent=False)
        return kept.data_ptr()

    def forward(
        self, hidden_states: Tensor, *_: Any, position_embeddings: tuple[Tensor, Tensor], **__: Any
    ) -> Tensor:
        """[1, T, H] -> the same tensor, with this layer's results in it."""
        attention = self._route.target
        assert isinstance(attention, CpuAttention), "no step has begun"
        if self._number == 0:
            hidden_states = hidden_states.contiguous()
            self._workspace.begin(hidden_states, position_embeddings, attention)
        self.run(attention)
        return hidden_states

    def run(self, attention: CpuAttention) -> None:
        """This layer, over the workspace, which has begun the step."""
        workspace = self._workspace
        workspace.select(attention, self._number)
        jobs.first_half(*self._team.shared, self._number)
        attention.attend_long(self._number, workspace.queries, self._options, workspace.attended)
        jobs.second_half(*self._team.shared, self._number)


class Workspace:
    """Memory for a step's intermediate values; all layers use it, one after the other."""

    def __init__(self, workers: CpuTeam) -> None:
        self._team = workers
        self._size = 0
        self._group = 0
        self._storage: KvStorage | None = None
        self._pools: Ints = np.empty((0, 2), dtype=np.int64)
        self._alive: tuple[Any, ...] = ()
        self.rounded_bytes = 0
        """Of a token's rounded row, the longest of any product's input."""
        self.queries = torch.empty(0)
        """[Hq, T, D], a view."""
        self.attended = torch.empty(0)
        """[T, Hq, D]."""

    def begin(
        self, hidden: Tensor, position_embeddings: tuple[Tensor, Tensor], attention: CpuAttention
    ) -> None:
        layer = self._team.layers[0]
        tokens = hidden.shape[1]
        queries, keys, dim = int(layer["heads"]), int(layer["kv_heads"]), int(layer["dim"])
        if tokens > self._size:
            self._size = tokens + tokens // 4
            widths = (
                layer["hidden"],
                (queries + 2 * keys) * dim,
                queries * dim,
                layer["intermediate"],
            )
            self._normed, self._heads, self._attended, self._intermediate = [
                torch.empty(self._size * int(width), dtype=torch.bfloat16) for width in widths
            ]
        self._team.reserve(tokens * self.rounded_bytes)
        heads = self._heads[: tokens * (queries + 2 * keys) * dim].view(tokens, -1, dim)
        self.queries = heads[:, :queries].transpose(0, 1)
        self.attended = self._attended[: tokens * queries * dim].view(tokens, queries, dim)
        cos, sin = (part.contiguous() for part in position_embeddings)
        short, pools = attention.short, self._addresses(attention.storage)
        self._group = 0
        self._team.steps[0] = (
            tokens,
            hidden.data_ptr(),
            self._normed.data_ptr(),
            heads.data_ptr(),
            self.attended.data_ptr(),
            self._intermediate.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            cos.shape[-1],
            attention.slots[0].ctypes.data,
            short.spans.ctypes.data,
            len(short.spans),
            short.blocks[0].ctypes.data,
            attention.storage.block_size,
            pools.ctypes.data,
            _pool_slots(attention.storage, 0),
        )
        self._alive = (hidden, cos, sin, attention.slots, short, pools)

    def select(self, attention: CpuAttention, layer: int) -> None:
        """Have the loops read and write the blocks of the cache group of ``layer``."""
        group = attention.storage.group_of[layer]
        if group == self._group:
            return
        self._group = group
        step = self._team.steps
        step["slots"] = attention.slots[group].ctypes.data
        step["blocks"] = attention.short.blocks[group].ctypes.data
        step["pool_slots"] = _pool_slots(attention.storage, group)

    def _addresses(self, storage: KvStorage) -> Ints:
        if storage is not self._storage:
            self._storage = storage
            pools = [(storage.keys[i], storage.values[i]) for i in range(len(storage.keys))]
            self._pools = np.array([(k.data_ptr(), v.data_ptr()) for k, v in pools], np.int64)
        return self._pools


def _pool_slots(storage: KvStorage, group: int) -> int:
    return len(storage.keys[storage.groups[group].layers[0]])


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether these loops are the fastest way to run the model.

    With AMX they are not: it multiplies many rows several times as fast as AVX512-BF16. Quantised
    weights have no other.
    """
    if model.device.type != "cpu" or model.dtype != torch.bfloat16:
        return False
    if is_quantized(model):
        return quantized_products.runs_here()
    return panels.runs_here() and not cpu_has_amx()


def fuse(model: PreTrainedModel, route: AttentionRoute, *, layers: bool = True) -> int:
    """Replace what can be of ``model``: layers of a known kind, then every plain linear layer.

    Without ``layers`` the linear layers alone. Returns how many of these there were in what was
    replaced. ``route`` must have seen a pass.
    """
    # Imported here, as it stands on this module.
    from app.model.cpu.whole_pass import put_whole_pass

    fused = sum(map(_is_plain, model.modules())) if layers else 0
    workers = CpuTeam(torch.get_num_threads(), fused)
    workspace = Workspace(workers)
    replaced = 0
    if fused == len(route.options):
        replaced += _LAYER_LINEARS * replace_modules(
            model, _is_plain, lambda layer: FusedLayer(layer, route, workers, workspace)
        )
    replaced += replace_modules(model, has_panels, lambda linear: PanelLinear(linear, workers))
    put_whole_pass(model, route, workers, workspace)
    return replaced


def require_invariance(model: PreTrainedModel) -> None:
    """Raises ``UnsupportedModel`` unless the layers of ``model`` have been fused.

    The products of torch's libraries add in another order for another number of rows, in float32
    as in bfloat16.
    """
    if not any(isinstance(module, FusedLayer) for module in model.modules()):
        raise UnsupportedModel(
            "no batch-invariant mode here: on the CPU it takes bfloat16, AVX512-BF16 without AMX, "
            f"Linux, and a model of {', '.join(sorted(_KNOWN))}"
        )


def _is_plain(module: Any) -> bool:
    """Whether it is a decoder layer of a known kind, all of whose linears fit into panels."""
    if type(module).__name__ not in _KNOWN:
        return False
    attention, mlp = module.self_attn, module.mlp
    linears = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    if not isinstance(mlp.act_fn, nn.SiLU | SiLUActivation) or not all(map(has_panels, linears)):
        return False
    rounding = {kind_of(linear) is None for linear in linears[:3]}
    return len(rounding) == 1 and kind_of(mlp.gate_proj) == kind_of(mlp.up_proj)
