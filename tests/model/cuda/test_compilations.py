"""The count of compiled kernels, by Triton's own launch path over a fake driver without a GPU."""

from __future__ import annotations

from tests.model.compiled_mode import in_compiled_mode

SCRIPT = """
import logging, sys
import torch
from triton.runtime import driver
from app.model.cuda.compilations import KernelCompilations
from app.model.cuda.kernels.attention import take_drawn
from tests.model.compiled_mode import NoGpu

driver.set_active(NoGpu())
logging.basicConfig(stream=sys.stdout, format="%(message)s")
first, second = KernelCompilations(), KernelCompilations()

def launch(drawn):
    ids, rows = torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.int32)
    for tokens in (1, 4, 16):
        take_drawn.run(ids, rows, drawn, tokens, SIZE=16, grid=(1,), warmup=True)

launch(torch.zeros(4, dtype=torch.long))
second.loaded()
launch(torch.zeros(8, dtype=torch.long))
print(second.while_loading, second.while_serving)
launch(torch.zeros(9, dtype=torch.long)[1:])
print(second.while_loading, second.while_serving, first.while_loading)
"""


def test_a_kernel_that_is_compiled_while_serving_is_counted_and_named() -> None:
    output = in_compiled_mode("-c", SCRIPT)
    before, warning, after = output.splitlines()
    assert before == "1 0", "other numbers need no variant"
    assert after == "1 1 2", "an address that is no multiple of 16 needs one; both counted it"
    assert "all requests waited for a kernel to compile" in warning
    assert "take_drawn" in warning
