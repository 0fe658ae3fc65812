"""Servers do not import torch's compiler, export, sympy and DTensor, which work when used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM

PROGRAM = """
import sys
from app.model.lean_imports import leave_out

leave_out(distributed=True)
import torch
import torch.fx.experimental.symbolic_shapes
from app.server.backend import load_backend
from app.server.settings import Settings
from app.telemetry.metrics import Metrics

torch.fx.experimental.symbolic_shapes.guard_or_false(True)
load_backend(Settings(), Metrics())
unused = {"torch._inductor", "torch.distributed.tensor", "torch.export.unflatten"}
unused |= {"triton", "sympy.core", "torch._refs", "torch._prims", "torch.ao.quantization"}
assert not unused & sys.modules.keys(), unused & sys.modules.keys()
assert torch.distributed.is_available()
assert torch.Generator().manual_seed(0).initial_seed() == 0

leave_out(distributed=True)
doubled = torch.compile(lambda x: x + x, backend="eager")
assert doubled(torch.ones(3)).tolist() == [2, 2, 2]
assert "torch._dynamo.convert_frame" in sys.modules
assert torch._dynamo is sys.modules["torch._dynamo"]
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from transformers import masking_utils

assert masking_utils.TransformGetItemToIndex is TransformGetItemToIndex
import torch._dynamo.utils
assert torch._refs.where is sys.modules["torch._refs"].where
assert torch.export.Dim("rows", min=2).min == 2
assert torch.quantization.QConfig is torch.ao.quantization.QConfig
assert torch.nn.quantized.Linear is torch.ao.nn.quantized.Linear
import torch._prims.rng_prims
assert torch.Generator().manual_seed(0).initial_seed() == 0
from torch.distributed.tensor import DTensor

from app.model.lean_imports import _STAND_INS
from torch.fx.experimental import symbolic_shapes as real

own = _STAND_INS[real.__name__]
assert len(own.keys() & vars(real).keys()) > 5
for name in own.keys() & vars(real).keys():  # other versions of torch lack some
    if name.startswith("sym_"):
        pairs = [(a, b) for a in (False, True) for b in (False, True)]
    else:
        pairs = [(True,), (False,)]
    if name == "sym_eq":
        pairs += [(2, 3), (2, 2), ((2, 3), [2, 3]), ((2, 3), (2, 4)), ((2,), (2, 3)), ((), ())]
    for arguments in pairs:
        assert own[name](*arguments) == getattr(real, name)(*arguments), (name, arguments)
"""


KERNELS = """
import sys
from app.model.lean_imports import leave_out

leave_out(distributed=True)
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import import_utils
from app.model.checkpoints.assembly import empty_model
from app.model.checkpoints.loading import load_whole
from app.model.config import ModelConfig

try:
    with torch.device("meta"):
        LlamaForCausalLM(LlamaConfig.from_pretrained(sys.argv[1]))
except NotImplementedError:
    pass
else:
    raise AssertionError("torch has this kernel; the test needs another model")
assert "torch._refs" not in sys.modules
load_whole(ModelConfig(model=sys.argv[1]), torch.device("cpu"), torch.float32)
assert "torch._refs" in sys.modules
empty_model(LlamaConfig.from_pretrained(sys.argv[1]), torch.float32)

models = transformers.__path__[0] + "/models"
read = import_utils.spread_import_structure(import_utils.create_import_structure_from_path(models))
import_utils.create_import_structure_from_path = None  # they are not read again
found = import_utils.define_import_structure(models + "/__init__.py")
assert found == read
assert "llama.modeling_llama" in found[frozenset({"torch"})]
more = import_utils.define_import_structure(models, prefix="models")
assert more == {a: {"models." + at: names for at, names in b.items()} for a, b in read.items()}
"""


def run(program: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=300)


def test_the_compiler_and_dtensor_are_imported_at_their_first_use() -> None:
    run(PROGRAM)


def test_models_get_kernels_if_they_need_them_and_are_listed_once(
    tmp_path: Path,
) -> None:
    scaled: dict[str, Any] = {
        "rope_type": "llama3",
        "factor": 8.0,
        "rope_theta": 5e5,
        "low_freq_factor": 1.0,
    }
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, rope_parameters=scaled)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    run(KERNELS, str(tmp_path))
