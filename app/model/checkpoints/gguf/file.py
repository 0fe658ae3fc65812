"""A GGUF file: its metadata, its tensors, and the tokens that end an answer."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.errors import UnsupportedModel
from app.core.model_name import is_gguf, require_gguf_reader
from app.core.progress import SILENCE, Progress

_SPELLED_ENDS = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<eos>",
        "</s>",
    }
)
"""Special tokens that end an answer though a file may not say so, as llama.cpp has them: a file
names one end of sequence, and chat models have several."""
FLOATS = frozenset({0, 1, 30})
"""ggml's numbers for F32, F16 and BF16."""
_CONTROL = 3
"""The type of special tokens in ``tokenizer.ggml.token_type``."""
_BROKEN = (OSError, ValueError, KeyError, OverflowError, IndexError, struct.error)


def file_on_disk(model: str, progress: Progress = SILENCE) -> str:
    """Where the model lies: ``model`` itself, unless it is ``repository:file.gguf`` of the Hub.

    That is fetched into the Hub's cache where it is not there. Raises ``UnsupportedModel``.
    """
    if not is_gguf(model) or Path(model).exists():
        return model
    place, colon, name = model.partition(":")
    if not colon:
        raise UnsupportedModel(
            f"there is no file {model}; a GGUF file of the Hub is named repository:file.gguf"
        )
    from transformers.utils.hub import cached_file

    from app.model.checkpoints.told_bars import telling_downloads

    try:
        with telling_downloads(progress) as downloads:
            path = cached_file(place, name, tqdm_class=downloads)
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"cannot find {name} in {place}: {error}") from error
    return str(path)


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: str
    metadata: Mapping[str, Any]
    """By llama.cpp's keys; of an array of strings its length, but for the tokens."""
    tensors: Mapping[str, Any]
    """transformers' lazy tensors by llama.cpp's names: ``ggml_type``, ``shape``, and ``[...]`` to
    read one, blocks as uint8 [rows, bytes of a row]."""

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def is_quantized(self) -> bool:
        return any(tensor.ggml_type not in FLOATS for tensor in self.tensors.values())

    @property
    def tokens(self) -> list[str]:
        tokens: list[str] = self.metadata.get("tokenizer.ggml.tokens", [])
        return tokens

    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer: those the metadata names, and special ones known by name."""
        named = (self.metadata.get(f"tokenizer.ggml.{end}_token_id") for end in _NAMED_ENDS)
        kinds = self.metadata.get("tokenizer.ggml.token_type", [])
        spelled = (
            number
            for number, (token, kind) in enumerate(zip(self.tokens, kinds, strict=False))
            if kind == _CONTROL and token in _SPELLED_ENDS
        )
        return frozenset([*(number for number in named if number is not None), *spelled])


_NAMED_ENDS = ("eos", "eot", "eom")


def open_gguf(path: str) -> GgufFile:
    """Reads the metadata. Raises ``UnsupportedModel`` for what is no whole GGUF file, or has
    tensors of a type that transformers does not know."""
    require_gguf_reader()
    try:
        from transformers.integrations.gguf.reader import (
            GgufHeader,
            load_gguf_state_dict,
            read_gguf_metadata,
        )

        metadata, _ = read_gguf_metadata(path, ("tokenizer.ggml.tokens",))
        parts = metadata.get("split.count", 1)
        if parts > 1:
            raise UnsupportedModel(
                f"{path} is one of {parts} parts; merge them first: llama-gguf-split --merge"
            )
        tensors = load_gguf_state_dict(GgufHeader.from_file(path))
    except _BROKEN as error:
        raise UnsupportedModel(f"cannot read {path}: {error}") from error
    return GgufFile(path, metadata, tensors)
