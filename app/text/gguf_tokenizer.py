"""The tokenizer that a GGUF file describes: vocabulary, merges and chat template are in it.

Byte-level BPE (Llama 3, Qwen, GPT-2) splits text by the file's name for it;
SentencePiece's vocabularies (Llama 2, Gemma, Phi 3) name scores, from which merges follow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as steps
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from app.core.errors import UnsupportedModel
from app.core.gguf_file import CONTROL, USER_DEFINED, GgufFile, open_gguf

_log = logging.getLogger(__name__)

_BLANK = "▁"
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_POSITIONS_AS_SCORES = frozenset({"gemma", "gemma2", "gemma3"})
"""Architectures whose scores do not define the merges; the order of tokens does."""
_NEVER_STRIP = frozenset({"<unk>", "<s>", "<|endoftext|>"})


def gguf_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a GGUF file. Raises ``UnsupportedModel`` for unknown kinds."""
    file = open_gguf(path)
    metadata: dict[str, Any] = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in file.metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    model = metadata.get("model")
    try:
        if model in ("gpt2", "gemma4"):
            kind = _pre_tokenizer(path, "gemma4" if model == "gemma4" else metadata.get("pre"))
            build = _byte_level if kind.bytes else _by_merges
            backend, begins = build(file.tokens, metadata.get("merges", []), kind), kind.begins
        elif model == "llama":
            backend, begins = _by_scores(file, metadata), True
        else:
            raise UnsupportedModel(f"{path} has an unsupported kind of tokenizer: {model}")
        _add_tokens(backend, file)
    except (ValueError, KeyError, IndexError) as error:
        raise UnsupportedModel(f"cannot read the tokenizer of {path}: {error}") from error
    size = backend.get_vocab_size(with_added_tokens=True)
    if size > len(file.tokens):
        raise UnsupportedModel(
            f"the tokenizer of {path} has {size} tokens after conversion, but the file lists "
            f"{len(file.tokens)}"
        )
    special = {}
    for name, key in _SPECIAL.items():
        number = metadata.get(f"{key}_token_id")
        special[f"{name}_token"] = None if number is None else file.tokens[number]
    tokenizer: Any = PreTrainedTokenizerFast
    made: PreTrainedTokenizerBase = tokenizer(
        tokenizer_object=_Uncopied(backend),
        chat_template=file.metadata.get("tokenizer.chat_template"),
        add_bos_token=metadata.get("add_bos_token", begins) and special["bos_token"] is not None,
        add_eos_token=metadata.get("add_eos_token", False),
        **special,
    )
    return made


@dataclass(frozen=True)
class _Uncopied:
    """transformers makes a deep copy of a tokenizer, which takes 3 s for 262,144 tokens."""

    backend: Tokenizer

    def __deepcopy__(self, _: Any) -> Tokenizer:
        return self.backend


def _pre_tokenizer(path: str, name: str | None) -> PreTokenizer:
    if name is None:
        _log.warning("%s names no pre-tokenizer; using llama.cpp's default", path)
        name = "default"
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModel(
            f"{path} has the unsupported pre-tokenizer {name}; supported are "
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


def _by_scores(file: GgufFile, metadata: dict[str, Any]) -> Tokenizer:
    tokens, scores = list(file.tokens), metadata["scores"]
    if file.architecture in _POSITIONS_AS_SCORES:
        # Tokens that are runs of blanks, and no others, are spelled with blanks there.
        tokens = [_BLANK * len(token) if set(token) == {" "} else token for token in tokens]
        scores = range(0, -len(tokens), -1)
    kinds = metadata.get("token_type") or [0] * len(tokens)
    prefix = metadata.get("add_space_prefix", True)
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
    """Pairs of tokens that form another token, by its score: SentencePiece first merges the pair
    with the highest score, wherever it is."""
    there = {token for token, kind in zip(tokens, kinds, strict=True) if kind != CONTROL}
    found = [
        (-scores[number], number, cut)
        for number, token in enumerate(tokens)
        if token in there
        for cut in range(1, len(token))
        if token[:cut] in there and token[cut:] in there
    ]
    return [(tokens[number][:cut], tokens[number][cut:]) for _, number, cut in sorted(found)]


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
    """Pairs from "left right"; a blank at the start of "left" belongs to the token."""
    cuts = (merge.index(" ", 1) for merge in merges)
    return [(merge[:cut], merge[cut + 1 :]) for merge, cut in zip(merges, cuts, strict=True)]


def _add_tokens(tokenizer: Tokenizer, file: GgufFile) -> None:
    """Special tokens, and others that are never split.

    Phi 3's special tokens include the blanks and line ends after them.
    """
    strips = file.architecture == "phi3" and file.metadata["tokenizer.ggml.model"] == "llama"
    for wanted, special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [
            AddedToken(
                token,
                normalized=False,
                special=special,
                rstrip=strips and special and token not in _NEVER_STRIP,
            )
            for token in _of_kind(file, wanted)
            if tokenizer.token_to_id(token) is not None
        ]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)


def _of_kind(file: GgufFile, wanted: int) -> list[str]:
    kinds = file.metadata.get("tokenizer.ggml.token_type", [])
    return [token for token, kind in zip(file.tokens, kinds, strict=False) if kind == wanted]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    splits: tuple[str, ...]
    """Regular expressions (Oniguruma); both matches and the text between them become pieces."""
    whole_words: bool = False
    """Whether a piece that is a token is taken whole, without merges."""
    begins: bool = False
    """Whether texts begin with a beginning of sequence, if the file does not say."""
    composed: bool = False
    """Whether text is normalised to NFC first; llama.cpp does not do that."""
    bytes: bool = True
    """Whether pieces are in GPT-2's byte alphabet; otherwise blanks are SentencePiece's, and bytes
    without a token are ``<0x00>`` to ``<0xFF>``."""


def _any(*parts: str) -> str:
    return "|".join(parts)


_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_DIGIT, _UP_TO_3, _THREE = r"\p{N}", r"\p{N}{1,3}", "[0-9][0-9][0-9]"
_FROM_THE_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_SIGNS, _PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LINES, _EACH_LINE, _BLANKS = r"\s*[\r\n]+", r"[^\n]+|[\n]+", r"\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = [
    rf"[^\r\n\p{{L}}\p{{N}}]?{word}" for word in (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
]
_ENDING = [f"{word}{_ENDINGS}?" for word in _CASED]
_LLAMA_3 = _any(_ENDINGS, _WORD, _UP_TO_3, _SIGNS, _LINES, _BLANKS)
_QWEN_2 = _any(_ENDINGS, _WORD, _DIGIT, _SIGNS, _LINES, _BLANKS)
_GPT_4O = _any(*_ENDING, _UP_TO_3, _PATHS, _LINES, _BLANKS)
_DEEPSEEK_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
)
_DEEPSEEK_3 = _any(_DEEPSEEK_WORDS, r" ?[\p{P}\p{S}]+[\r\n]*", _LINES, _BLANKS)
_ASIAN, _EASTERN = "[一-龥぀-ゟ゠-ヿ]+", "[一-龥ࠀ-一가-퟿]+"
_SOUTH_EASTERN = "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"
_NO_STOPS = r" ?[^(\s|.,!?…。，、।۔،)]+"
_LETTERS = (  # those with cases, but for Georgian, mathematical and a few rare ones
    r"[\p{Lu}\p{Ll}\p{Lt}&&[^\x{560}\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C88}\x{2D00}-\x{2D2D}"
    r"\x{A790}-\x{A7FA}\x{AB30}-\x{AB68}\x{10570}-\x{105BC}\x{16E40}-\x{16E7F}\x{1D400}-\x{1DF1E}]]+"
)

# fmt: off
_KINDS: Final[Mapping[str, PreTokenizer]] = MappingProxyType({
    """gpt-2 gpt2 phi-2 gigachat mellum exaone4 trillion granite-docling jais a.x-4.0 jina-es
    jina-de jina-v1-en jina-v2-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe modern-bert""":
        PreTokenizer((_GPT_2,)),
    "olmo mpt": PreTokenizer((_GPT_2,), composed=True),
    "starcoder refact smollm codeshell exaone minerva-7b mellum2": PreTokenizer((_DIGIT, _GPT_2)),
    "command-r": PreTokenizer((_DIGIT, _GPT_2), composed=True),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano":
        PreTokenizer((_LLAMA_3,), whole_words=True, begins=True),
    "glm4 glm5": PreTokenizer((_LLAMA_3,), whole_words=True),
    "dbrx smaug-bpe chatglm-bpe": PreTokenizer((_LLAMA_3,)),
    "qwen2 deepseek-r1-qwen f2llmv2": PreTokenizer((_QWEN_2,), composed=True),
    "stablelm2 hunyuan solar-open grok-2 kormo megrez": PreTokenizer((_QWEN_2,)),
    "qwen35": PreTokenizer(
        (_any(_ENDINGS, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", _DIGIT,
              r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _LINES, _BLANKS),),
        composed=True),
    "ufakzeka": PreTokenizer((_any(_WORD, _DIGIT, _SIGNS, _LINES, _BLANKS),)),
    "laguna": PreTokenizer((_EACH_LINE, _QWEN_2)),
    "minicpm5": PreTokenizer(
        (_UP_TO_3, _any(_ENDINGS, _WORD, r"\p{N}+", _SIGNS, _LINES, _BLANKS)), whole_words=True),
    "jais-2": PreTokenizer(
        (_any(_ENDINGS, _WORD, _UP_TO_3, _SIGNS, _LINES,
              *(rf"\s{{{1 << power}}}(?!\S)" for power in range(9, 1, -1)),
              r"\s{1,2}(?!\S)|\s{1}"),)),
    "seed-coder": PreTokenizer(
        (_any(_ENDINGS, _WORD, _DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+", _LINES, _BLANKS),)),
    "bailingmoe bailingmoe2 llada-moe": PreTokenizer(
        (_any(r"'(?i:[sdmt]|ll|ve|re)", r"[^\r\n\p{L}\p{N}]?+\p{L}+", _DIGIT,
              r" ?[^\s\p{L}\p{N}]++[\r\n]*", r"\s*[\r\n]", _BLANKS),)),
    "exaone-moe": PreTokenizer(
        (_any(_ENDINGS, r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", _DIGIT,
              r" ?[^\s\p{L}\p{N}]+[\r\n/]?", r"\s*[\r\n]", _BLANKS),)),
    "tekken": PreTokenizer(
        (_any(*_CASED, _DIGIT, _PATHS, _LINES, _BLANKS),), whole_words=True, begins=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((_GPT_4O,)),
    "granite-embed-multi-97m": PreTokenizer((_GPT_4O,), whole_words=True),
    "tiny_aya cohere2moe": PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT_4O)),
    "youtu": PreTokenizer(
        ("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + _ASIAN,
         _any(*_ENDING, _DIGIT, _PATHS, _LINES, _BLANKS)),
        whole_words=True),
    "kimi-k2": PreTokenizer(
        (_any(r"\p{Han}+", *(each.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]") for each in _ENDING),
              _UP_TO_3, _SIGNS, _LINES, _BLANKS),)),
    "deepseek-llm": PreTokenizer(
        (r"[\r\n]", rf"\s?{_LETTERS}", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _EASTERN,
         r"\p{N}+")),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EASTERN, _DIGIT)),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": PreTokenizer((_UP_TO_3, _ASIAN, _DEEPSEEK_3)),
    "spark2_5": PreTokenizer(
        (_UP_TO_3, _ASIAN,
         _any(_DEEPSEEK_WORDS, r" ?[\p{P}\p{S}]+", r"[\r\n]", _BLANKS), _DIGIT)),
    "afmoe": PreTokenizer((_FROM_THE_RIGHT, _SOUTH_EASTERN, _DEEPSEEK_3)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT_2, _THREE)),
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT_2, r"\p{N}+", _THREE)),
    "poro-chat bloom gpt3-finnish": PreTokenizer((_NO_STOPS,)),
    "viking": PreTokenizer((_NO_STOPS, _DIGIT)),
    "chameleon": PreTokenizer(
        ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )",
         _DIGIT, r"[\p{P}!-/:-@\[-`{-~]", _GPT_2),
        begins=True),
    "superbpe": PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "gemma4 sarvam-moe granite-embed-multi-311m": PreTokenizer((_EACH_LINE,), bytes=False),
})
# fmt: on
PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = MappingProxyType(
    {name: kind for names, kind in _KINDS.items() for name in names.split()}
)
"""How byte-level tokenizers split text into words, by the names in files.

The names are llama.cpp's (``llama-vocab.cpp``). The expressions are those of the original
tokenizers if llama.cpp's are replacements for them (its engine has no ``\\p{Lu}``, for one); each
is applied to the pieces of the one before. ``whitespace`` and ``hybriddna`` are missing: their
models embed text or write none. Blanks are never cleaned up, as they are in some of llama.cpp's
kinds: an answer's text is that of its tokens."""
