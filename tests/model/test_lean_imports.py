"""Servers import neither torch's compiler nor sympy nor DTensor, and they work when used."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from app.model.lean_imports import leave_out

leave_out(distributed=True)
import torch
import app.model.composition
from transformers import LlamaConfig, LlamaForCausalLM

with torch.device("meta"):
    LlamaForCausalLM(LlamaConfig(num_hidden_layers=1))
unused = {"torch._inductor", "torch.distributed.tensor", "triton", "sympy.core"}
assert not unused & sys.modules.keys(), unused & sys.modules.keys()
assert torch.distributed.is_available()

leave_out(distributed=True)
doubled = torch.compile(lambda x: x + x, backend="eager")
assert doubled(torch.ones(3)).tolist() == [2, 2, 2]
assert "torch._dynamo.convert_frame" in sys.modules
assert torch._dynamo is sys.modules["torch._dynamo"]
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from transformers import masking_utils

assert masking_utils.TransformGetItemToIndex is TransformGetItemToIndex
import torch._dynamo.utils
from torch.distributed.tensor import DTensor
"""


SYMBOLS = """
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


def test_the_compiler_and_dtensor_are_imported_at_their_first_use() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)


def test_functions_for_symbolic_shapes_give_what_those_of_torch_give() -> None:
    subprocess.run([sys.executable, "-c", SYMBOLS], check=True, timeout=300)
