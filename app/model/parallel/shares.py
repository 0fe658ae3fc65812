"""Reduces a model to a rank's part: cut from whole weights, or as transformers has read it.

Layers that are cut get wrappers, which split their inputs and combine their outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.parallel.group import Group
from app.model.parallel.plan import Style, styles_of


def share(model: PreTrainedModel, group: Group) -> None:
    """Reduce ``model`` to this rank's part, and wrap its modules for exchanges between ranks.

    Its weights are whole, the same on every rank, or those that transformers has read for this
    rank alone (``from_pretrained`` with a ``DistributedConfig``).
    """
    styles = styles_of(model)
    modules = dict(model.named_modules())
    widths = {name: _width(modules[name]) for name in styles if name in modules}
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        for module in modules.values():  # remove transformers' wrappers for DTensors
            if module.__dict__.pop("_is_hooked", False):
                module.__dict__.pop("forward", None)
        styles = _as_read(model, styles)
    _cut_parameters(model, styles, group)
    for name, style in styles.items():
        if name in modules:
            parent, _, leaf = name.rpartition(".")
            wrapped = _wrapped(modules[name], style, group, widths[name])
            setattr(model.get_submodule(parent), leaf, wrapped)


def part_of(tensor: Tensor, dim: int, packs: int, rank: int, size: int) -> Tensor:
    """A rank's part of a tensor, along ``dim``: a copy; the last ranks may get less, or nothing."""
    found = []
    for pack in tensor.chunk(packs, dim):
        length = pack.shape[dim]
        each = -(length // -size)
        start = min(rank * each, length)
        found.append(pack.narrow(dim, start, min(each, length - start)))
    return (
        torch.cat(found, dim)
        if packs > 1
        else found[0].clone(memory_format=torch.contiguous_format)
    )


def _width(module: nn.Module) -> int:
    """Output columns of a whole module, or tokens of a whole embedding."""
    weight: Any = getattr(module, "weight", None)
    return 0 if weight is None else int(weight.shape[0])


def _as_read(model: PreTrainedModel, styles: Mapping[str, Style]) -> dict[str, Style]:
    """``styles`` as far as transformers has followed the plan: some versions leave embeddings."""
    cut = {
        name
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if isinstance(parameter, DTensor)
    }
    owners = cut | {name.rpartition(".")[0] for name in cut}
    return {name: style for name, style in styles.items() if style.dim is None or name in owners}


def _cut_parameters(model: PreTrainedModel, styles: Mapping[str, Style], group: Group) -> None:
    cut: dict[int, nn.Parameter] = {}  # tied weights stay one
    kept: list[nn.Parameter] = []
    for prefix, module in model.named_modules():
        for leaf, parameter in module._parameters.items():
            style = styles.get(f"{prefix}.{leaf}" if prefix else leaf) or styles.get(prefix)
            if parameter is None or style is None or style.dim is None:
                continue
            if id(parameter) not in cut:
                kept.append(parameter)  # or another may get its id
                own = _own_part(parameter, style, group, f"{prefix}.{leaf}")
                cut[id(parameter)] = nn.Parameter(own, requires_grad=False)
            module._parameters[leaf] = cut[id(parameter)]
            if leaf == "bias" and style.sums and group.rank:
                module._parameters[leaf] = None  # it is added once, by rank 0
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape
        elif isinstance(module, nn.Embedding):
            module.num_embeddings, module.embedding_dim = module.weight.shape


def _own_part(parameter: nn.Parameter, style: Style, group: Group, name: str) -> Tensor:
    if isinstance(parameter, DTensor):
        local: Tensor = parameter.to_local()
        return local.detach().contiguous()
    assert style.dim is not None
    tensor = parameter.detach()
    if tensor.ndim == 1:
        if style.dim != -2:
            return tensor
        return part_of(tensor, 0, style.packs, group.rank, group.size)
    if style.packs > 1 and tensor.shape[style.dim] % (style.packs * group.size):
        raise UnsupportedModel(
            f"{group.size} devices cannot share {name}, whose {tensor.shape[style.dim]} rows are "
            f"{style.packs} joined weights: tensor_parallel must divide each"
        )
    return part_of(tensor, style.dim, style.packs, group.rank, group.size)


def _wrapped(module: nn.Module, style: Style, group: Group, width: int) -> nn.Module:
    if style.looks_up:
        assert isinstance(module, nn.Embedding)
        return SharedEmbedding(module, group, width)
    if style.splits:
        module = Split(module, group)
    if style.sums:
        module = Summed(module, group)
    if style.gathers:
        module = Gathered(module, group, width)
    return module


class _Wrapper(nn.Module):
    """Replaces a module, its ``inner``, and passes its other attributes on."""

    inner: Any

    def __init__(self, inner: nn.Module, group: Group) -> None:
        super().__init__()
        self.inner = inner
        self.group = group

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


class Summed(_Wrapper):
    """Adds the ranks' outputs: each has multiplied its part of the input by its rows."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.inner(*args, **kwargs)
        return self.group.sum(out)


class Gathered(_Wrapper):
    """Joins the ranks' outputs, each its part of the columns: [..., width]."""

    def __init__(self, inner: nn.Module, group: Group, width: int) -> None:
        super().__init__(inner, group)
        self._width = width
        self._part = -(width // -group.size)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.inner(*args, **kwargs)
        if out.shape[-1] < self._part:  # the last ranks have fewer columns, or none
            out = nn.functional.pad(out, (0, self._part - out.shape[-1]))
        return self.group.gather(out)[..., : self._width]


class Split(_Wrapper):
    """Gives the inner module this rank's part of the input's columns."""

    def forward(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        part = -(width // -self.group.size)
        start = min(self.group.rank * part, width)
        out: Tensor = self.inner(x[..., start : min(start + part, width)])
        return out


class SharedEmbedding(_Wrapper):
    """Looks up this rank's tokens; rows of others are 0, and the ranks' outputs are added."""

    def __init__(self, inner: nn.Embedding, group: Group, tokens: int) -> None:
        super().__init__(inner, group)
        inner.padding_idx = None  # matters to gradients alone, and may be another rank's
        self._start = min(group.rank * -(tokens // -group.size), tokens)

    def forward(self, ids: Tensor) -> Tensor:
        own = ids - self._start
        count = self.inner.weight.shape[0]
        mine = (own >= 0) & (own < count)
        if count == 0:
            width = self.inner.weight.shape[1]
            return self.group.sum(self.inner.weight.new_zeros(*ids.shape, width))
        found: Tensor = self.inner(torch.where(mine, own, 0))
        return self.group.sum(found.masked_fill(~mine.unsqueeze(-1), 0))
