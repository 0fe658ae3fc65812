"""The tokenizer that a GGUF file describes: vocabulary, merges and chat template are in it.

Of byte-level BPE (Llama 3, Qwen, GPT-2) transformers knows how llama.cpp's kinds split text; what
else their original tokenizers do is added here, where transformers leaves it out: Qwen's is NFC,
Llama 3's takes a word that is a token as it is, whatever the merges say. SentencePiece
vocabularies are transformers' own conversion.
"""

from __future__ import annotations

import struct
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from app.core.errors import UnsupportedModel
from app.core.model_name import require_gguf_reader

_GPT2 = frozenset({"gpt-2", "gpt2"})
_NFC = frozenset({"qwen2", "qwen35", "deepseek-r1-qwen"})
_LIKE_LLAMA_3 = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "midm-2.0", "pixtral", "tekken"}
)
"""Kinds whose words are looked up before they are merged, and whose texts begin with a beginning of
sequence where the file does not say, as llama.cpp has it."""
_CONTROL, _USER_DEFINED = 3, 4
_BROKEN = (OSError, ValueError, KeyError, IndexError, OverflowError, struct.error)


def gguf_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Raises ``UnsupportedModel`` for a kind of tokenizer that is not known here."""
    require_gguf_reader()
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    try:
        architecture, described, settings = get_gguf_tokenizer(path)
        if described.get("tokenizer_type") == "gpt2":
            kind = described.get("pre_tokenizer_type")
            if kind not in GGUF_PRE_TOKENIZER_SPLITS and kind not in _GPT2:
                raise UnsupportedModel(f"{path} splits text as {kind}, which is not known here")
            backend = _byte_level(described, kind, GGUF_PRE_TOKENIZER_SPLITS.get(kind))
            settings.setdefault("add_bos_token", kind in _LIKE_LLAMA_3)
        else:
            backend, _ = convert_gguf_tokenizer(architecture, described)
    except _BROKEN as error:
        raise UnsupportedModel(f"cannot read the tokenizer of {path}: {error}") from error
    size = backend.get_vocab_size(with_added_tokens=True)
    if size > len(described["tokens"]):
        raise UnsupportedModel(
            f"the tokenizer of {path} comes out with {size} tokens, and the file has "
            f"{len(described['tokens'])}"
        )
    tokenizer: Any = PreTrainedTokenizerFast
    made: PreTrainedTokenizerBase = tokenizer(tokenizer_object=backend, **settings)
    return made


def _byte_level(described: dict[str, Any], kind: str, split: str | None) -> Tokenizer:
    tokens = described["tokens"]
    merges = [tuple(merge.split(" ")) for merge in described.get("merges", ())]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, ignore_merges=kind in _LIKE_LLAMA_3)
    )
    if kind in _NFC:
        tokenizer.normalizer = normalizers.NFC()
    if split is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = described.get("token_type") or ()
    for number, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        added = [
            AddedToken(token, normalized=False, special=special)
            for token, each in zip(tokens, kinds, strict=False)
            if each == number
        ]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)
    return tokenizer
