"""Servers import neither torch's compiler nor DTensor, and both work for those who use them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from app.model.lean_imports import leave_out

leave_out(distributed=True)
import torch
import app.model.composition
from transformers import LlamaForCausalLM

unused = {"torch._inductor", "torch.distributed.tensor", "triton"}
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


def test_the_compiler_and_dtensor_are_imported_at_their_first_use() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)
