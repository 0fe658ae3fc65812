"""Reads a Llama's bfloat16 weights as bits, for the conversion to GGUF. Needs only numpy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]


def read_safetensors(path: Path) -> Iterator[tuple[str, Bits]]:
    """Pairs of a name and the weight's bits as uint16."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    content = np.memmap(path, mode="r", offset=8 + length)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", f"{name} is {entry['dtype']}"
        first, last = entry["data_offsets"]
        yield name, np.asarray(content[first:last]).view(np.uint16).reshape(entry["shape"])


def interleave(weight: Bits, heads: int) -> Bits:
    """Rows of queries or keys in llama.cpp's order.

    Hugging Face rotates rows of a head's first half with rows of its second, llama.cpp rotates
    neighbouring rows: the order for a head of 64 becomes h0 h32 h1 h33 ...
    """
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)
