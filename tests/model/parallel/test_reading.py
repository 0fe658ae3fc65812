"""The weights that transformers reads for one rank equal those cut from the whole model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig

from app.model.parallel.shares import share
from tests.model.parallel.threads import ThreadGroup, lone_rank
from tests.model.tiny import save_kind, varied_model

pytestmark = pytest.mark.skipif(
    torch.accelerator.current_accelerator() is not None,
    reason="transformers would read to the accelerator that this torch is built for",
)


@contextmanager
def rank_alone(rank: int, size: int) -> Iterator[ThreadGroup]:
    """A rank of a group of ``size`` that exchanges nothing with the others."""
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield lone_rank(rank, size)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("LlamaConfig", {}),
        ("LlamaConfig", {"tie_word_embeddings": True, "attention_bias": True}),
        ("Gemma2Config", {}),
        ("Phi3Config", {}),
        ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ],
)
def test_weights_read_for_a_rank_are_those_cut_for_it(
    kind: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = save_kind(tmp_path, kind, **settings)
    whole = varied_model(folder, torch.float32)
    whole.save_pretrained(folder)
    with rank_alone(1, 2) as group:
        auto: Any = AutoModelForCausalLM
        read: PreTrainedModel = auto.from_pretrained(
            folder, dtype=torch.float32, distributed_config=DistributedConfig(tp_size=2)
        )
        assert any(isinstance(parameter, DTensor) for parameter in read.parameters())
        share(read, group)
        share(whole, group)
    found, expected = weights(read), weights(whole)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert not isinstance(found[name], DTensor), name
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, msg=name)
    assert not any("forward" in module.__dict__ for module in read.modules())


def weights(model: PreTrainedModel) -> dict[str, Tensor]:
    return dict(model.named_parameters(remove_duplicate=False))
