"""Reading the files of adapters, and refusing unsupported ones by name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from app.core.errors import InvalidAdapter, UnsupportedModel
from app.model.adapters import peft
from app.model.adapters.peft import CONFIG, WEIGHTS, read_adapter
from app.model.adapters.slots import AdapterSlots, make_slots
from app.model.composition import load_runner
from app.model.config import AdaptersConfig
from app.model.layers.attention import AttentionRoute
from tests.model.peft_files import ATTENTION, adapted_modules, save_adapter
from tests.model.tiny import eager_model, runner_config, save_config

Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return eager_model(save_config(tmp_path_factory.mktemp("llama"), "llama"))


@pytest.fixture(scope="module")
def slots(model: Any) -> AdapterSlots:
    made = make_slots(model, AttentionRoute(), runner_config("", adapters=AdaptersConfig(rank=4)))
    assert made is not None
    return made


def test_scales_and_ranks_are_those_of_each_module(model: Any, tmp_path: Path) -> None:
    wide = {f"{Q}A.weight": torch.ones(8, 32), f"{Q}B.weight": torch.ones(32, 8)}
    folder = save_adapter(
        tmp_path,
        model,
        ATTENTION,
        changes=wide,
        use_rslora=True,
        rank_pattern={"layers.0.self_attn.q_proj": 8},
        alpha_pattern={r"layers\.[01].*v_proj": 3},
    )
    pairs = read_adapter(str(folder)).pairs
    assert pairs["model.layers.0.self_attn.q_proj"].rank == 8
    torch.testing.assert_close(
        pairs["model.layers.0.self_attn.q_proj"].b, torch.full((32, 8), 8 / math.sqrt(8))
    )
    plain = read_adapter(str(save_adapter(tmp_path / "plain", model, ATTENTION, lora_alpha=4)))
    for name, scale in (("v_proj", 3 / 2), ("k_proj", 8 / 2)):
        module = f"model.layers.1.self_attn.{name}"
        torch.testing.assert_close(pairs[module].b, plain.pairs[module].b * scale)


def test_a_pattern_is_compiled_once_however_many_modules_there_are(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    compile_pattern = peft._compiled

    def counted(pattern: str) -> re.Pattern[str]:
        compiled.append(pattern)
        return compile_pattern(pattern)

    monkeypatch.setattr(peft, "_compiled", counted)
    each = dict.fromkeys(adapted_modules(model, ATTENTION), 4)
    read_adapter(str(save_adapter(tmp_path, model, ATTENTION, rank_pattern=each)))
    assert len(compiled) == len(each) == 8


def test_an_adapters_identity_follows_from_its_files(model: Any, tmp_path: Path) -> None:
    def identity(folder: str, **changes: Any) -> str:
        return read_adapter(str(save_adapter(tmp_path / folder, model, **changes))).identity

    assert identity("a") == identity("b")
    assert len({identity("a"), identity("b", seed=1), identity("c", lora_alpha=3)}) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "LOHA"}, "peft_type must be LORA"),
        ({"use_dora": True}, "use_dora: True"),
        ({"bias": "all"}, "bias: 'all'"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save: \['lm_head'\]"),
        ({"target_parameters": ["experts.up"]}, "target_parameters"),
        ({"invented": 1}, "invented: 1"),
        ({"init_lora_weights": "pissa"}, "pissa.*changes the base model"),
        ({"r": 5}, r"q_proj: lora_A is \[4, 32\] and lora_B \[32, 4\], but the rank is 5"),
        ({"lora_alpha": None}, "lora_alpha in .* must be above 0"),
        ({"lora_alpha": 1e308}, "q_proj: lora_B times its scale 2.5e.307 exceeds float32"),
        ({"r": math.inf}, "r in .* must be above 0"),
        ({"lora_alpha": 10**400}, "lora_alpha in .* must be above 0"),
        ({"rank_pattern": {"(": 4}}, "invalid pattern"),
        ({"rank_pattern": {"q_proj": "x"}}, "rank_pattern in .* numbers above 0"),
        ({"alpha_pattern": {"q_proj": "8"}}, "alpha_pattern in .* numbers above 0"),
        ({"target_modules": 5}, "target_modules in .* list of names"),
        ({"target_modules": [1]}, "target_modules in .* list of names"),
        ({"target_modules": ["q_proj", "gate_proj"]}, "gate_proj.*which have no weights"),
        ({"target_modules": r".*\.(q|up)_proj"}, "up_proj.*which have no weights"),
    ],
    ids=str,
)
def test_a_configuration_that_asks_for_more_is_refused_by_name(
    changes: dict[str, Any], said: str, model: Any, slots: AdapterSlots, tmp_path: Path
) -> None:
    folder = save_adapter(tmp_path, model, ("q_proj",), **changes)
    with pytest.raises(InvalidAdapter, match=said):
        slots.read(str(folder))


def test_layers_chosen_by_number_need_no_weights_elsewhere(
    model: Any, slots: AdapterSlots, tmp_path: Path
) -> None:
    left_out: dict[str, Any] = {
        f"{Q}{part}.weight".replace("layers.0", "layers.1"): None for part in "AB"
    }
    folder = save_adapter(tmp_path, model, ("q_proj",), changes=left_out, layers_to_transform=0)
    assert [*slots.read(str(folder)).pairs] == ["model.layers.0.self_attn.q_proj"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{Q}B.weight": None}, "layers.0.self_attn.q_proj has no lora_B"),
        ({f"{Q}A.weight": torch.zeros(4, 31)}, "lora_A takes 31 numbers.*the module takes 32"),
        ({f"{Q}B.weight": torch.full((32, 4), torch.nan)}, "q_proj.lora_B.* not finite"),
        (
            {f"{Q}A.weight".removeprefix("base_model.model."): torch.zeros(4, 32)},
            "q_proj.lora_A.weight with and without base_model.model.",
        ),
        (
            {
                f"{Q}{part}.weight".replace("model.l", "model.language_model.l"): torch.zeros(shape)
                for part, shape in (("A", (4, 32)), ("B", (32, 4)))
            },
            "adapts a module under two names",
        ),
        (
            {
                "base_model.model.lm_head.lora_A.weight": torch.zeros(4, 32),
                "base_model.model.lm_head.lora_B.weight": torch.zeros(96, 4),
            },
            "it adapts lm_head, which.*cannot be adapted",
        ),
        (
            {"base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 96)},
            "embed_tokens.lora_embedding_A in adapter_model.safetensors is not supported",
        ),
    ],
    ids=["half", "shape", "nan", "twice", "two names", "output layer", "embedding"],
)
def test_weights_that_do_not_fit_are_refused_with_their_module(
    changes: dict[str, Any], said: str, model: Any, slots: AdapterSlots, tmp_path: Path
) -> None:
    folder = save_adapter(tmp_path, model, ("q_proj",), changes=changes)
    with pytest.raises(InvalidAdapter, match=said):
        slots.read(str(folder))


def test_a_rank_above_the_room_is_refused(model: Any, slots: AdapterSlots, tmp_path: Path) -> None:
    folder = save_adapter(tmp_path, model, rank=5)
    with pytest.raises(InvalidAdapter, match="rank is 5 and the limit is 4; raise max_adapt"):
        slots.read(str(folder))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / CONFIG).unlink(),
        lambda folder: (folder / CONFIG).write_text("{"),
        lambda folder: (folder / CONFIG).write_text(json.dumps([1])),
        lambda folder: (folder / CONFIG).write_text("[" * 100_000),
        lambda folder: (folder / WEIGHTS).unlink(),
        lambda folder: (folder / WEIGHTS).write_bytes(b"no"),
    ],
)
def test_files_that_are_missing_or_broken_are_named(
    spoil: Callable[[Path], object], model: Any, tmp_path: Path
) -> None:
    folder = save_adapter(tmp_path, model)
    spoil(folder)
    with pytest.raises(InvalidAdapter, match="adapter_"):
        read_adapter(str(folder))


def test_a_start_with_an_adapter_that_is_wrong_says_which_one(model: Any, tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "wrong", model, use_dora=True)
    config = runner_config(
        save_config(tmp_path / "model", "llama"),
        adapters=AdaptersConfig(named={"legal": str(folder)}),
    )
    with pytest.raises(UnsupportedModel, match=r"the adapter legal in .*wrong: use_dora"):
        load_runner(config)


def test_what_cannot_be_kept_beside_adapters_is_refused(tmp_path: Path) -> None:
    config = runner_config(
        save_config(tmp_path, "llama"), adapters=AdaptersConfig(), batch_invariant=True
    )
    with pytest.raises(UnsupportedModel, match=r"batch_invariant.*adapters"):
        load_runner(config)
