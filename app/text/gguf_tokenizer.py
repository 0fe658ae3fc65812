"""The tokenizer that a GGUF file describes: vocabulary, merges and chat template are in it.

Byte-level BPE (Llama 3, Qwen, GPT-2) splits text by the file's name for it (``pre_tokenizers``);
SentencePiece's vocabularies (Llama 2, Gemma, Phi 3) name scores, from which merges follow.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as steps
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from app.core.errors import UnsupportedModel
from app.core.gguf_file import CONTROL, USER_DEFINED, GgufFile, open_gguf
from app.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

_log = logging.getLogger(__name__)

_BLANK = "▁"
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_POSITIONS_AS_SCORES = frozenset({"gemma", "gemma2", "gemma3"})
"""Whose scores are not those of the merges, which follow the tokens' order."""
_NEVER_STRIP = frozenset({"<unk>", "<s>", "<|endoftext|>"})


def gguf_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Raises ``UnsupportedModel`` for a kind of tokenizer that is not known here."""
    file = open_gguf(path)
    told: dict[str, Any] = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in file.metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    model = told.get("model")
    try:
        if model in ("gpt2", "gemma4"):
            kind = _pre_tokenizer(path, "gemma4" if model == "gemma4" else told.get("pre"))
            build = _byte_level if kind.bytes else _by_merges
            backend, begins = build(file.tokens, told.get("merges", []), kind), kind.begins
        elif model == "llama":
            backend, begins = _by_scores(file, told), True
        else:
            raise UnsupportedModel(
                f"{path} has a tokenizer of the kind {model}, which is not known here"
            )
        _add_tokens(backend, file)
    except (ValueError, KeyError, IndexError) as error:
        raise UnsupportedModel(f"cannot read the tokenizer of {path}: {error}") from error
    size = backend.get_vocab_size(with_added_tokens=True)
    if size > len(file.tokens):
        raise UnsupportedModel(
            f"the tokenizer of {path} comes out with {size} tokens, and the file has "
            f"{len(file.tokens)}"
        )
    special = {}
    for name, key in _SPECIAL.items():
        number = told.get(f"{key}_token_id")
        special[f"{name}_token"] = None if number is None else file.tokens[number]
    tokenizer: Any = PreTrainedTokenizerFast
    made: PreTrainedTokenizerBase = tokenizer(
        tokenizer_object=backend,
        chat_template=file.metadata.get("tokenizer.chat_template"),
        add_bos_token=told.get("add_bos_token", begins) and special["bos_token"] is not None,
        add_eos_token=told.get("add_eos_token", False),
        **special,
    )
    return made


def _pre_tokenizer(path: str, name: str | None) -> PreTokenizer:
    if name is None:
        _log.warning("%s does not say how it splits text: it is split as llama.cpp does then", path)
        name = "default"
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModel(
            f"{path} splits text as {name}, which is not known here; known are "
            f"{', '.join(PRE_TOKENIZERS)}"
        )
    return PRE_TOKENIZERS[name]


def _byte_level(tokens: list[str], merges: list[str], kind: PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=_pairs(merges),
            ignore_merges=kind.whole_words,
        )
    )
    if kind.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = steps.Sequence(
        [
            *(steps.Split(Regex(split), behavior="isolated") for split in kind.splits),
            steps.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _by_merges(tokens: list[str], merges: list[str], kind: PreTokenizer) -> Tokenizer:
    tokenizer = _sentence_piece(tokens, _pairs(merges), prefix=False)
    tokenizer.pre_tokenizer = steps.Sequence(
        [steps.Split(Regex(split), behavior="isolated") for split in kind.splits]
    )
    return tokenizer


def _by_scores(file: GgufFile, told: dict[str, Any]) -> Tokenizer:
    tokens, scores = list(file.tokens), told["scores"]
    if file.architecture in _POSITIONS_AS_SCORES:
        # Runs of blanks are spelled with blanks there, and nothing else is.
        tokens = [_BLANK * len(token) if set(token) == {" "} else token for token in tokens]
        scores = range(0, -len(tokens), -1)
    kinds = told.get("token_type") or [0] * len(tokens)
    prefix = told.get("add_space_prefix", True)
    tokenizer = _sentence_piece(tokens, _merges(tokens, scores, kinds), prefix=prefix)
    if prefix and "[INST]" in _of_kind(file, CONTROL):
        # Mistral's third version: a blank is put before a text, and not after each special token.
        tokenizer.pre_tokenizer = steps.Metaspace(_BLANK, prepend_scheme="first", split=False)
    elif prefix:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(_BLANK), tokenizer.normalizer]
        )
    return tokenizer


def _merges(tokens: list[str], scores: Sequence[float], kinds: list[int]) -> list[tuple[str, str]]:
    """Every two tokens that make up a third, by its score: SentencePiece puts together what scores
    most, wherever it is."""
    there = {token for token, kind in zip(tokens, kinds, strict=True) if kind != CONTROL}
    found = []
    for number, token in enumerate(tokens):
        if token in there:
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in there and right in there:
                    found.append((-scores[number], number, cut, left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def _sentence_piece(tokens: list[str], merges: list[tuple[str, str]], *, prefix: bool) -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = "<unk>" if "<unk>" in vocabulary else None
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, fuse_unk=True, byte_fallback=True, unk_token=unknown
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", _BLANK)
    undo = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*undo, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return tokenizer


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """Of "left right"; a blank that is a token's own is its first character."""
    cuts = (merge.index(" ", 1) for merge in merges)
    return [(merge[:cut], merge[cut + 1 :]) for merge, cut in zip(merges, cuts, strict=True)]


def _add_tokens(tokenizer: Tokenizer, file: GgufFile) -> None:
    """Special tokens, and others that are never split.

    What Phi 3's special ones are followed by, blanks and ends of lines, belongs to them.
    """
    strips = file.architecture == "phi3" and file.metadata["tokenizer.ggml.model"] == "llama"
    vocabulary = tokenizer.get_vocab()
    for wanted, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [
            AddedToken(
                token,
                normalized=False,
                special=special,
                rstrip=strips and special and token not in _NEVER_STRIP,
            )
            for token in _of_kind(file, wanted)
            if token in vocabulary
        ]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)


def _of_kind(file: GgufFile, wanted: int) -> list[str]:
    kinds = file.metadata.get("tokenizer.ggml.token_type", [])
    return [token for token, kind in zip(file.tokens, kinds, strict=False) if kind == wanted]
