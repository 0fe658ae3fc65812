"""How byte-level tokenizers split text into words, by the names that GGUF files call it.

The names are those that llama.cpp knows (``llama-vocab.cpp``). The expressions are those of the
original tokenizers where llama.cpp's say that they stand for one (its own engine knows no
``\\p{Lu}``, for one); they are applied one after the other, each to the pieces of the last.

Not here are ``whitespace`` and ``hybriddna``, of models that embed text or write none. Blanks are
never cleaned up, whatever a kind of llama.cpp's does: an answer's text is that of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    splits: tuple[str, ...]
    """Regular expressions of Oniguruma; what matches is a piece, and so is what lies between."""
    whole_words: bool = False
    """A piece that is a token is taken as it is, whatever the merges say."""
    begins: bool = False
    """Texts begin with a beginning of sequence, where a file does not say."""
    composed: bool = False
    """Text is NFC first; llama.cpp leaves that out."""
    bytes: bool = True
    """Pieces are in GPT-2's alphabet of bytes; else blanks are SentencePiece's, and bytes that are
    in no token ``<0x00>`` to ``<0xFF>``."""


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
"""By the names in files."""
