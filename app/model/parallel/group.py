"""Exchanges between the processes of one model while they compute."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from app.model.config import ModelConfig
from app.model.device import choose_device

_TIMEOUT = timedelta(hours=2)
"""Time limit of one exchange: ranks read their weights at different speeds. A dead rank is noticed
by its connection (``rank_processes``), a stuck one by the watchdog for steps."""


_FileStore: Any = dist.FileStore  # type: ignore[attr-defined]
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""The name before torch 2.13 is deprecated there."""


class Group(Protocol):
    """Ranks that call the same methods in the same order, with tensors of the same shapes."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, tensor: Tensor) -> Tensor:
        """``tensor``, replaced by the sum over all ranks."""

    def gather(self, tensor: Tensor) -> Tensor:
        """All ranks' tensors joined along the last dimension: [..., n] -> [..., size * n]."""

    def broadcast(self, tensor: Tensor) -> Tensor:
        """``tensor``, replaced by that of rank 0."""

    def empty_ids(self, count: int) -> Tensor:
        """An uninitialised tensor of ``count`` int64 on this rank's device."""

    def least(self, number: int) -> int:
        """The smallest of all ranks' numbers."""


class TorchGroup:
    """By torch.distributed: NCCL between GPUs, gloo between CPU processes of one machine."""

    def __init__(self, rank: int, size: int, device: torch.device, store: str) -> None:
        """Joins the other ranks over the file ``store``, which must not exist before the first."""
        self.rank = rank
        self.size = size
        self._device = device
        cuda = device.type == "cuda"
        if not cuda:
            # gloo would look its own host name up, which in a container may not resolve.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            store=_FileStore(store, size),
            rank=rank,
            world_size=size,
            timeout=_TIMEOUT,
            device_id=device if cuda else None,
        )

    def sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        *outer, width = tensor.shape
        rows = tensor.reshape(-1, width)
        parts = tensor.new_empty(self.size * len(rows), width)
        if len(rows):
            _all_gather(parts, rows)
        joined = parts.view(self.size, len(rows), width).transpose(0, 1)
        return joined.reshape(*outer, self.size * width)

    def broadcast(self, tensor: Tensor) -> Tensor:
        dist.broadcast(tensor, 0)
        return tensor

    def empty_ids(self, count: int) -> Tensor:
        return torch.empty(count, dtype=torch.int64, device=self._device)

    def least(self, number: int) -> int:
        value = torch.tensor([number], device=self._device)
        dist.all_reduce(value, dist.ReduceOp.MIN)
        return int(value)


def join(config: ModelConfig, rank: int, store: str) -> TorchGroup:
    """Take this rank's device, and meet the others over the file ``store``."""
    device = choose_device(config.device)
    if device.type == "cuda":
        torch.cuda.set_device(rank)
        device = torch.device("cuda", rank)
        os.environ["LOCAL_RANK"] = str(rank)  # transformers reads weights to the GPU it names
    return TorchGroup(rank, config.tensor_parallel, device, store)


def leave(*, alone: bool) -> None:
    """Leave the group, if any. ``alone``: other ranks are gone, for which NCCL would wait."""
    if dist.is_initialized() and not (alone and dist.get_backend() == "nccl"):
        dist.destroy_process_group()
