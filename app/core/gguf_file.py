"""A GGUF file, llama.cpp's format: its metadata, its tensors, and the tokens that end an answer.

The layout is that of ``docs/gguf.md`` in ggml's repository, versions 2 and 3. The package ``gguf``
has a reader, too, which takes seconds of processor time for a vocabulary of 128k tokens.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.errors import UnsupportedModel
from app.core.model_name import PART

CONTROL, USER_DEFINED = 3, 4
"""Types in ``tokenizer.ggml.token_type``: special tokens, and plain ones that are never split."""
FLOATS = frozenset({0, 1, 30})
"""ggml's numbers for F32, F16 and BF16."""

_SPELLED_ENDS = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>",
        "<|flush|>", "<|calls|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<turn|>",
        "<eos>", "</s>", "<|tool_response>", "<end_of_utterance>", "<EOT>", "_<EOT>", "[EOT]",
        "[EOS]", "[e~[", "<｜end▁of▁sentence｜>",
    }
)  # fmt: skip
"""End tokens as in llama.cpp: files name one end of sequence, and chat models have several."""
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""``struct``'s letters by the number of a value's type; 8 are strings, 9 arrays."""
_LENGTH = struct.Struct("<Q")
_MOST_AXES = 4
"""ggml's ``GGML_MAX_DIMS``."""
_BROKEN = (
    OSError, ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError,
    struct.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufTensor:
    kind: int
    """ggml's number of its type."""
    shape: tuple[int, ...]
    """Of its values, rows first."""
    data: NDArray[np.uint8]
    """[bytes], mapped from the file: nothing is read until it is used."""

    def rows(self) -> NDArray[np.uint8]:
        """[rows, bytes of a row], copied."""
        return np.array(self.data).reshape(math.prod(self.shape[:-1]), -1)


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: str
    """Of the first part."""
    metadata: Mapping[str, Any]
    """By llama.cpp's keys."""
    tensors: Mapping[str, GgufTensor]
    """Of all parts, by llama.cpp's names."""

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def is_quantized(self) -> bool:
        return any(tensor.kind not in FLOATS for tensor in self.tensors.values())

    @property
    def tokens(self) -> list[str]:
        tokens: list[str] = self.metadata.get("tokenizer.ggml.tokens", [])
        return tokens

    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer: those the metadata names, and special ones known by name."""
        keys = [f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom")]
        named = [self.metadata[key] for key in keys if self.metadata.get(key) is not None]
        kinds = self.metadata.get("tokenizer.ggml.token_type", [])
        spelled = {
            token: number
            for number, (token, kind) in enumerate(zip(self.tokens, kinds, strict=False))
            if kind == CONTROL and token in _SPELLED_ENDS
        }
        pairs = {"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"}
        if any(pair <= spelled.keys() for pair in pairs):
            spelled.pop("<|end|>", None)  # there it ends a part of an answer
        if "<|tool_response>" in spelled:
            spelled.pop("</s>", None)  # a plain token that Gemma 4's files say is special
        return frozenset([*spelled.values(), *named])


def parts_of(path: str) -> list[str]:
    """The files that make up the one that ``path`` is a part of, in their order; by name alone."""
    found = PART.search(path)
    if found is None:
        return [path]
    stem, count = path[: found.start()], int(found[2])
    return [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def open_gguf(path: str) -> GgufFile:
    """Open a GGUF file; of a file in parts any part will do.

    Raises ``UnsupportedModel`` if the file is invalid or truncated, a part is missing or a tensor
    type is unknown.
    """
    paths = parts_of(path)
    for part in paths[1:]:
        if not Path(part).exists():
            raise UnsupportedModel(f"{path} is one of {len(paths)} parts, and {part} is missing")
    try:
        return _opened(*[(part, os.stat(part).st_mtime_ns) for part in paths])
    except _BROKEN as error:
        raise UnsupportedModel(f"cannot read {path}: {error}") from error


def forget_gguf() -> None:
    """Drop the last file of ``open_gguf``, which keeps it as a start opens it several times."""
    _opened.cache_clear()


@lru_cache(maxsize=1)
def _opened(*parts: tuple[str, int]) -> GgufFile:
    """``parts``: their paths, and when each was changed."""
    metadata, tensors = _read(parts[0][0])
    count = metadata.get("split.count", 1) or 1
    if count != len(parts):
        raise UnsupportedModel(
            f"{parts[0][0]} is one of {count} parts by its metadata; their names must end in "
            f"-00001-of-{count:05}.gguf and so on"
        )
    for part, _ in parts[1:]:
        tensors |= _read(part)[1]
    if "general.architecture" not in metadata:
        raise ValueError("the metadata lacks general.architecture")
    expected = metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise UnsupportedModel(
            f"{parts[0][0]} has {len(tensors)} tensors; its header declares {expected}"
        )
    return GgufFile(parts[0][0], metadata, tensors)


def _read(path: str) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    with Path(path).open("rb") as file:
        blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if blob[:4] != b"GGUF":
        raise ValueError("it is not a GGUF file: the first four bytes are not GGUF")
    cursor = _Cursor(blob, 4)
    version, tensor_count, count = cursor.number("I"), cursor.number("Q"), cursor.number("Q")
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version} is not supported; 2 and 3 are")
    metadata = {cursor.string(): cursor.value(cursor.number("I")) for _ in range(count)}
    infos = []
    for _ in range(tensor_count):
        name, axes = cursor.string(), cursor.number("I")
        if axes > _MOST_AXES:
            raise ValueError(f"{name} has {axes} axes; the limit is {_MOST_AXES}")
        shape = tuple(reversed([cursor.number("Q") for _ in range(axes)]))
        infos.append((name, shape, cursor.number("I"), cursor.number("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-cursor.at // alignment) * alignment
    data = np.frombuffer(blob, dtype=np.uint8)
    tensors = {}
    for name, shape, kind, offset in infos:
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except ValueError as error:
            raise UnsupportedModel(
                f"{path} stores {name} in an unsupported ggml type (number {kind})"
            ) from error
        begin, length = start + offset, int(np.prod(shape, dtype=object)) // block * size
        if begin + length > len(data) or shape[-1] % block:
            raise ValueError(f"{name} ends beyond the end of the file: the file is truncated")
        tensors[name] = GgufTensor(kind, shape, data[begin : begin + length])
    return metadata, tensors


class _Cursor:
    def __init__(self, blob: mmap.mmap, at: int) -> None:
        self._blob = blob
        self.at = at

    def number(self, letter: str) -> Any:
        (value,) = struct.unpack_from("<" + letter, self._blob, self.at)
        self.at += struct.calcsize("<" + letter)
        return value

    def string(self) -> str:
        (length,), begin = _LENGTH.unpack_from(self._blob, self.at), self.at + _LENGTH.size
        self.at = begin + length
        if self.at > len(self._blob):
            raise ValueError("a string ends beyond the end of the file: the file is truncated")
        return self._blob[begin : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == 8:
            return self.string()
        if kind != 9:
            raise ValueError(f"the metadata has a value of unknown type {kind}")
        kind, count = self.number("I"), self.number("Q")
        if kind not in _SCALARS:
            return [self.value(kind) for _ in range(count)]
        layout = f"<{count}{_SCALARS[kind]}"
        values = struct.unpack_from(layout, self._blob, self.at)
        self.at += struct.calcsize(layout)
        return list(values)
