"""Layers that ranks share give the logits of the whole model; the ranks are threads here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.parallel.plan import check_plan
from app.model.parallel.shares import Gathered, SharedEmbedding, Split, Summed, part_of, share
from tests.model.hybrid import lively_model
from tests.model.parallel.threads import ThreadGroup, on_all_ranks
from tests.model.tiny import CONFIGS, VOCAB, save_kind, varied_model

WITHOUT_PLAN = {"gpt2", "gpt-oss with sinks and a window"}
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama with biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama, uneven": ("LlamaConfig", {"vocab_size": 95, "intermediate_size": 45}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3 with experts": (
        "Qwen3MoeConfig",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "mlp_only_layers": [0],
        },
    ),
    "deepseek with experts": (
        "DeepseekV3Config",
        CONFIGS["deepseek with latent attention"][1]
        | {
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 16,
        },
    ),
    "olmo3 with norms over all heads": ("Olmo3Config", {"sliding_window": 6}),
    "glm4": ("Glm4Config", {}),
    "cohere2": ("Cohere2Config", {"sliding_window": 6}),
    "granite": ("GraniteConfig", {}),
}
KINDS = CONFIGS | MORE


@torch.inference_mode()
def logits_of(model: PreTrainedModel, ids: Tensor, rows: Tensor) -> Tensor:
    model.set_attn_implementation("eager")
    found: Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=rows).logits
    return found


@pytest.mark.parametrize("name", sorted(KINDS.keys() - WITHOUT_PLAN))
def test_two_ranks_give_the_logits_of_one(name: str, tmp_path: Path) -> None:
    class_name, settings = KINDS[name]
    folder = save_kind(tmp_path, class_name, **settings)
    check_plan(AutoConfig.from_pretrained(folder), 2)
    ids = torch.arange(3, 33).unsqueeze(0) % (VOCAB - 1)
    rows = torch.tensor([0, 7, 29])
    whole = varied_model(folder, torch.float32)
    expected = logits_of(whole, ids, rows)
    models = [varied_model(folder, torch.float32) for _ in range(2)]

    def run(group: ThreadGroup) -> Tensor:
        model = models[group.rank]
        share(model, group)
        return logits_of(model, ids, rows)

    for found in on_all_ranks(2, run):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    weights = sum(parameter.numel() for parameter in whole.parameters())
    mine = sum(parameter.numel() for parameter in models[0].parameters())
    assert mine < 0.8 * weights


HYBRIDS = (
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "olmo_hybrid",
    "kimi_linear",
    "nemotron_h",
    "granitemoehybrid",
    "jamba",
    "lfm2_moe",
)


@pytest.mark.parametrize("name", HYBRIDS)
def test_two_ranks_give_the_logits_of_one_with_recurrent_layers(name: str) -> None:
    ids, rows = torch.arange(3, 33).unsqueeze(0), torch.tensor([0, 7, 29])
    expected = logits_of(lively_model(name), ids, rows)
    models = [lively_model(name) for _ in range(2)]
    check_plan(models[0].config, 2)

    def run(group: ThreadGroup) -> Tensor:
        share(models[group.rank], group)
        return logits_of(models[group.rank], ids, rows)

    for found in on_all_ranks(2, run):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "changes", "ranks", "said"),
    [
        ("GPT2Config", {}, 2, "has no plan for sharing gpt2"),
        ("GptOssConfig", {"num_local_experts": 2}, 2, "no plan for sharing gpt_oss"),
        ("LlamaConfig", {}, 3, "num_attention_heads is 4"),
        ("LlamaConfig", {}, 4, "num_key_value_heads is 2"),
        (
            "LlamaConfig",
            {"quantization_config": {"quant_method": "fp8"}},
            2,
            "the weights of this llama are quantised",
        ),
        ("LlamaConfig", {"base_model_tp_plan": {"norm": "sequence_parallel"}}, 2, "has the style"),
    ],
)
def test_what_ranks_cannot_share_is_refused_by_name(
    config: str, changes: dict[str, Any], ranks: int, said: str, tmp_path: Path
) -> None:
    changes = dict(changes)
    plan = changes.pop("base_model_tp_plan", None)
    settings = AutoConfig.from_pretrained(save_kind(tmp_path, config, **changes))
    if plan is not None:
        settings.base_model_tp_plan = plan
    with pytest.raises(UnsupportedModel, match=said):
        check_plan(settings, ranks)


def test_heads_of_latent_attention_are_whole_everywhere(tmp_path: Path) -> None:
    class_name, settings = CONFIGS["deepseek with latent attention"]
    folder = save_kind(tmp_path, class_name, **settings)
    check_plan(AutoConfig.from_pretrained(folder), 3)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 7, 12])
def test_parts_are_all_of_it(width: int, size: int) -> None:
    tensor = torch.arange(2 * width * 3).view(2, width, 3)
    parts = [part_of(tensor, -2, 1, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat(parts, -2), tensor)
    assert all(part.is_contiguous() for part in parts)


def test_each_of_two_weights_in_one_tensor_is_cut() -> None:
    gate_up = torch.arange(8).view(8, 1)
    assert part_of(gate_up, -2, 2, 1, 2).flatten().tolist() == [2, 3, 6, 7]


def test_experts_that_cannot_be_cut_evenly_are_refused(tmp_path: Path) -> None:
    folder = save_kind(tmp_path, "MixtralConfig", num_local_experts=2, intermediate_size=45)
    model = varied_model(folder, torch.float32)
    with pytest.raises(UnsupportedModel, match=r"experts\.gate_up_proj"):
        on_all_ranks(2, lambda group: share(model, group))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_modules_put_together_what_ranks_have(size: int) -> None:
    """Uneven parts: of 7 tokens and columns the last of 4 ranks has one."""
    torch.manual_seed(0)
    table, x = nn.Embedding(7, 5, padding_idx=6), torch.randn(3, 5)
    wide, narrow = nn.Linear(5, 7), nn.Linear(7, 5, bias=False)
    ids = torch.tensor([[0, 6, 3, 3]])

    def run(group: ThreadGroup) -> tuple[Tensor, Tensor, Tensor]:
        def own(tensor: Tensor, dim: int) -> nn.Parameter:
            part = part_of(tensor.detach(), dim, 1, group.rank, group.size)
            return nn.Parameter(part, requires_grad=False)

        some = nn.Embedding(7, 5, padding_idx=6)
        some.weight = own(table.weight, 0)
        columns, rows = nn.Linear(5, 7), nn.Linear(7, 5, bias=False)
        columns.weight, columns.bias = own(wide.weight, -2), own(wide.bias, 0)
        rows.weight = own(narrow.weight, -1)
        gathered = Gathered(columns, group, 7)
        assert gathered.weight is columns.weight  # it has the inner module's attributes
        with torch.no_grad():
            looked_up = SharedEmbedding(some, group, 7)(ids)
            return looked_up, gathered(x), Summed(Split(rows, group), group)(gathered(x))

    with torch.no_grad():
        expected = (table(ids), wide(x), narrow(wide(x)))
    for found in on_all_ranks(size, run):
        for mine, whole in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, whole)
