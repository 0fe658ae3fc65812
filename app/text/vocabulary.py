"""The bytes of every token id, read from a ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.core.errors import UnsupportedModel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_METASPACE = "▁"


class Vocabulary:
    """Token ids and their bytes (the Protocol ``app.core.constraint.Vocabulary``). Immutable.

    Byte-level BPE (GPT-2, Llama 3, Qwen) and SentencePiece-like vocabularies with byte fallback
    (Llama 2, Mistral, Gemma) are understood. Special tokens and unused ids have no bytes, but for
    special tokens in ``writable``, which are marks that an answer may hold.
    """

    def __init__(self, token_bytes: Iterable[bytes | None], eos_ids: Iterable[int]) -> None:
        self.token_bytes: Final = tuple(token_bytes)
        self.eos_ids: Final = frozenset(eos_ids)
        self.size: Final = len(self.token_bytes)
        if wrong := [eos for eos in self.eos_ids if eos not in range(self.size)]:
            raise UnsupportedModel(
                f"the end-of-sequence ids {wrong} are not token ids below {self.size}: "
                "correct eos_token_id in generation_config.json, config.json or the GGUF metadata"
            )

    @classmethod
    def from_file(cls, path: str | Path, eos_ids: Iterable[int] = ()) -> Vocabulary:
        """Read a ``tokenizer.json``. Raises ``UnsupportedModel`` for kinds not listed above."""
        return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")), eos_ids)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        eos_ids: Iterable[int] = (),
        writable: Collection[str] = (),
    ) -> Vocabulary:
        """The vocabulary of a fast Hugging Face tokenizer; its own end of sequence is added."""
        ends = set(eos_ids)
        own_eos = getattr(tokenizer, "eos_token_id", None)
        if isinstance(own_eos, int):
            ends.add(own_eos)
        backend = backend_of(tokenizer)
        content: dict[str, Any] = {  # without the merges, which can take a second to read
            "model": {"vocab": backend.get_vocab(with_added_tokens=False)},
            "added_tokens": [
                {"id": number, "content": token.content, "special": token.special}
                for number, token in backend.get_added_tokens_decoder().items()
            ],
            "decoder": backend.decoder and json.loads(backend.decoder.__getstate__()),
        }
        return cls.from_json(content, ends, writable)

    @classmethod
    def from_json(
        cls,
        tokenizer: Mapping[str, Any],
        eos_ids: Iterable[int] = (),
        writable: Collection[str] = (),
    ) -> Vocabulary:
        """As ``from_file``, from the parsed ``tokenizer.json``."""
        ends = frozenset(eos_ids)
        entries = _entries(tokenizer["model"])
        added = tokenizer.get("added_tokens") or []
        ids = [*entries.values(), *(token["id"] for token in added)]
        table: list[bytes | None] = [None] * (max(ids) + 1)
        byte_level = _is_byte_level(tokenizer)
        to_bytes = _byte_level if byte_level else _metaspace
        for text, number in entries.items():
            table[number] = to_bytes(text)
        for token in added:
            # Decoders also replace the blank mark in added tokens: Gemma adds runs of blanks.
            content = token["content"].encode() if byte_level else _metaspace(token["content"])
            spelled = not token["special"] or (
                token["content"] in writable and token["id"] not in ends
            )
            table[token["id"]] = content if spelled else None
        return cls(table, ends)


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Any:
    """The ``tokenizers.Tokenizer`` of a fast tokenizer. Raises ``UnsupportedModel`` for others."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UnsupportedModel("only fast tokenizers are supported (tokenizer.json is missing)")
    return backend


def _entries(model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        return vocabulary
    if isinstance(vocabulary, list):  # Unigram: [text, score] by id
        return {entry[0]: number for number, entry in enumerate(vocabulary)}
    raise UnsupportedModel(f"tokenizer models of type {model.get('type')!r} are not supported")


def _is_byte_level(tokenizer: Mapping[str, Any]) -> bool:
    """Whether token texts are in GPT-2's byte alphabet; raises if in no alphabet known here."""
    kinds = _component_types(tokenizer.get("decoder"))
    if "ByteLevel" in kinds:
        return True
    if kinds & {"Metaspace", "ByteFallback"}:
        return False
    raise UnsupportedModel(f"tokenizers with the decoders {sorted(kinds)} are not supported")


def _component_types(component: Mapping[str, Any] | None) -> set[str]:
    if component is None:
        return set()
    parts = component.get("decoders", ())
    return {component["type"]}.union(*(_component_types(part) for part in parts))


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's one printable character for each byte: itself, or the next from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = (byte for byte in range(256) if byte not in printable)
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + place), byte) for place, byte in enumerate(shifted))
    return alphabet


_ALPHABET = _byte_alphabet()


def _byte_level(text: str) -> bytes | None:
    try:
        return bytes(_ALPHABET[character] for character in text)
    except KeyError:
        return None


def _metaspace(text: str) -> bytes:
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return bytes([int(text[3:5], 16)])
    return text.replace(_METASPACE, " ").encode()
