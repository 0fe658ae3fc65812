"""Splits of a page of unusual text by each pre-tokenizer, compared with llama.cpp's own code.

``pre_tokenizer_pieces.json`` has the lengths of the pieces, in code points, that llama.cpp's
``unicode_regex_split`` gives for the page with its own expressions of each kind. Some of them only
approximate an original that its engine cannot express; ``CASED`` and ``WIDE_BLANKS`` list these.
"""

from __future__ import annotations

import json
import random
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import regex
from tokenizers import Regex, pre_tokenizers

from app.text.gguf_tokenizer import PRE_TOKENIZERS, PreTokenizer

HERE = Path(__file__).parent
PAGE = (
    "Order 12345678 of 2026-11-25: 3.14159, 1,000,000 and 0x1F; ½ kg, ٣٤٥, Ⅷ.\n"
    "I'm sure they'll say WE'RE done, it's John'S, don't you'd rather've?\r\n"
    "  two blanks, a\ttab,\t\tor    four\n\n\n   and  lines   \n \n"
    "naïve café cafe\u0301 Ærøskøbing ΣΊΣΥΦΟΣ ǅungla McDonald camelCaseHTTPServer2Go\n"
    "日本語のテキスト、中文字符。한국어 텍스트! ภาษาไทย हिन्दी العَرَبِيَّة עִבְרִית\n"
    '🤖👩\u200d👧🏽 ❤️ ==> <b>x</b> {"a": [1, -2.5e+10]} $9.99 '
    "C:\\dir/file_name.txt #tag @me `code` ~|^\n"
    "<sentinel:42>IMGIMGABCZ \u00a0nbsp\u3000wide\u2028line\x0bvt  end  "
)
THEIRS: dict[str, list[int]] = json.loads((HERE / "pre_tokenizer_pieces.json").read_text())
CASED = {"tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m",
         "tiny_aya", "cohere2moe", "youtu", "kimi-k2"}  # fmt: skip
"""Kinds that end words before a capital after a small letter, and keep marks with letters; in
llama.cpp only A to Z are capitals, or nothing is, and marks are not part of words."""
WIDE_BLANKS = {"deepseek-llm", "deepseek-coder"}
"""Kinds whose later expressions split U+2028 or U+3000 from a word; llama.cpp does not."""


def pieces(text: str, kind: PreTokenizer) -> list[str]:
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in kind.splits]
    return [piece for piece, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


def cuts(lengths: list[int]) -> set[int]:
    return set(accumulate(lengths))


@pytest.mark.parametrize("name", THEIRS)
def test_a_page_is_split_as_by_llama_cpp(name: str) -> None:
    found = pieces(PAGE, PRE_TOKENIZERS[name])
    assert "".join(found) == PAGE
    ours, theirs = cuts([len(piece) for piece in found]), cuts(THEIRS[name])
    differing = sorted(ours ^ theirs)
    if name in WIDE_BLANKS:
        assert {PAGE[at - 1] for at in differing} == {"\u3000", "\u2028"} & set(PAGE)
    elif name in CASED:
        for at in differing:
            around = PAGE[at - 1 : at + 1]
            case = regex.fullmatch(r"\p{Ll}\p{Lu}|\p{Lu}\p{Lu}|\p{L}\p{Lt}", around)
            assert case or regex.search(r"\p{M}|\p{Lo}", around), (around, at)
    else:
        assert not differing


def test_all_that_llama_cpp_knows_are_there() -> None:
    assert len(THEIRS) == 90  # without whitespace, of embedding models
    assert PRE_TOKENIZERS.keys() >= THEIRS.keys()
    assert {name for name, kind in PRE_TOKENIZERS.items() if kind.begins} == {
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        *("lfm2", "jina-v5-nano", "tekken", "chameleon"),
    }


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "I'll add 1234  \n now", "I|'ll| add| 1234|  \n| now"),
        ("smollm", " 2026 DON'T", " |2|0|2|6| DON|'|T"),
        ("llama-bpe", " 12345 DON'T", " |123|45| DON|'T"),
        ("qwen2", "cafe\u0301 12!\n\n", "cafe|\u0301| |1|2|!\n\n"),
        ("qwen35", "cafe\u0301 12!\n\n", "cafe\u0301| |1|2|!\n\n"),
        ("gpt-4o", "HTTPServer's myVar/\n", "HTTPServer's| my|Var|/\n"),
        ("tekken", "HTTPServer's 12", "HTTPServer|'s| |1|2"),
        ("deepseek-v3", ".foo 1234本x", ".foo| |123|4|本|x"),
        ("deepseek-llm", "a b\n12 本", "a| b|\n|12| |本"),
        ("kimi-k2", "本語abc1234", "本語|abc|123|4"),
        ("afmoe", "1234567 é", "1|234|567| é"),
        ("tiny_aya", "1234567", "1|234|567"),
        ("superbpe", "1234567 two words", "1|234|567| two words"),
        ("falcon", "a=b; 12345", "a|=|b|;| |123|45"),
        ("bloom", "one, two three", "one|,| two| three"),
        ("chameleon", "a    b\tc.d", "a|    |b|\t|c|.|d"),
        ("exaone-moe", "two words/\n", "two words|/\n"),
        ("jais-2", "a" + " " * 7 + "b", "a|" + " " * 4 + "|" + " " * 2 + "| b"),
        ("gemma4", "two words\n\nmore", "two words|\n\n|more"),
    ],
)
def test_kinds_are_known_by_what_they_split(name: str, text: str, expected: str) -> None:
    assert "|".join(pieces(text, PRE_TOKENIZERS[name])) == expected


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen35", "gpt-4o", "deepseek-v3"])
def test_an_expression_means_to_one_engine_what_it_means_to_another(name: str) -> None:
    """Oniguruma, which pre-tokenizers use, and the package ``regex`` as an oracle."""
    dice = random.Random(1)
    letters = "abcXYZ019'\"{}[]:,.\n\r\t é日本の한국ß\u0301🤖-_/\\\u3000ǅ٣½Ω$+<>"
    kind = PRE_TOKENIZERS[name]
    for _ in range(200):
        text = "".join(dice.choices(letters, k=dice.randint(1, 40)))
        found = [text]
        for split in kind.splits:
            found = [part for piece in found for part in isolated(split, piece)]
        assert pieces(text, kind) == found, text


def isolated(split: str, text: str) -> list[str]:
    spans = [match.span() for match in regex.finditer(split, text)]
    ends = sorted({0, len(text), *(end for span in spans for end in span)})
    return [text[begin:end] for begin, end in pairwise(ends)]
