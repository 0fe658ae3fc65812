"""``docs/models.md``: the outcomes as a page, and what that page says of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import transformers

from app.text.gguf_tokenizer import PRE_TOKENIZERS
from tests.model.reach.kinds import NOT_OF_TEXT
from tests.model.reach.trial import Outcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"
TOKENIZERS = "## Tokenizers"
"""Heading of what ``tests.text.real_tokenizers`` writes, at the page's end."""
_LONGEST_REASON = 200
_ROW = re.compile(r"^\| `(?P<kind>[^`]+)` \|.*\|$", re.MULTILINE)

_TEXT = """\
# Which models run

Written by `python -m tests.model.reach`, not by hand. Every kind of model that transformers {version} has for causal language, and
for text beside images and sound, made small and random, in float32 on the CPU: loaded as a server loads it, with its
self-check, then three texts in random chunks and random company against transformers' own eager attention, row by row.
What is refused is refused when it is loaded, with the reason in this list. Encoder-decoders are no causal language models.

**{running} of {kinds} kinds run ({share:.0f}%), {refused} are refused; {encoder_decoders} more are encoder-decoders.**
Of the refused, {not_of_text} write no text from text alone, one token after the other, with transformers either; {running} of the others'
{of_text} run ({share_of_text:.0f}%).

The error is the largest relative error of a row of logits; its bound is the power of ten above twice what was measured, as another
processor adds up in another order. Weights are random: what holds here is that the numbers are those of transformers, not that a
model is any good.

## Which see

Images are shown to a model where its folder has an image processor and it passes a trial at the start: a picture of noise, in steps cut inside the image,
against the model's own forward pass ([decision 57](decisions/0057-images-are-rows-of-a-step.md)). The log says why one is served as text. An image whose tokens see one
another is computed in one step ([decision 61](decisions/0061-two-way-attention-in-images.md)).

| kinds | positions | tried how (`tests/model/vision`) |
|---|---|---|
| `llava`, `llava_onevision`, `idefics3`, `mistral3` | one for each token | whole answers, in both orders of steps, against the whole model |
| `qwen2_5_vl`, `qwen3_vl`, `qwen3_5` (three of four layers recurrent) | by axis | the same |
| `gemma3`, `gemma4` | one for each token; those of an image see one another | the same |
| `llava_next`, `internvl`, `smolvlm`, `gemma4` with inputs of layers | one for each token | the trial, and prompts expanded as by transformers |
| `qwen2_vl`, `qwen3_vl_moe`, `qwen3_5_moe`, `glm4v` | by axis | the same |

Others with `get_image_features` are tried when they are loaded. Served as text
are GGUF files, GPTQ and AWQ on a CPU, and models that several devices share.

## GGUF files

Kinds of [these architectures](operations.md#gguf-files) are read from GGUF files, too. A file names the way its byte-level tokenizer splits
text. Each is tried on a page of odd text against what llama.cpp's own code makes of it (`tests/text/test_pre_tokenizers.py`); where that stands for an
original that llama.cpp's engine cannot write, it is split as by the original.

| | names |
|---|---|
| known | {split} |
| a word that is a token stays whole | {whole} |
| text is made NFC | {composed} |
| text begins with a beginning of sequence, unless the file says | {begins}, and all SentencePiece |
| blanks as in SentencePiece | {in_characters} |

Two files of real models against the package `gguf`'s floats of them, run by transformers in float32, on a page of text
([decision 63](decisions/0063-gguf-as-people-have-it.md)):

| file | perplexity | likeliest token the same |
|---|---|---|
| SmolLM2-135M-Instruct, Q4_1 | 26.61, here 26.62 (+0.01%) | 96.6%; transformers in bfloat16 96.7% |
| Gemma 3 270M, Q4_K_M (no chat template: `/v1/completions` alone) | 57.16, here 57.28 (+0.20%) | 94.5% |

## They run

| kind | loaded as | error below |
|---|---|---|
{runs}

## They are refused

| kind | reason |
|---|---|
{refusals}

## Refused, and no causal models of text alone

| kind | reason | what they do |
|---|---|---|
{others_than_text}

## Encoder-decoders

| kind | |
|---|---|
{others}
"""  # noqa: E501


def row(outcome: Outcome) -> str:
    """The kind's row of its table."""
    if outcome.refusal is None:
        return f"| `{outcome.kind}` | {outcome.model} | {outcome.bound} |"
    if outcome.is_encoder_decoder:
        return f"| `{outcome.kind}` | refused |"
    reason = outcome.refusal.replace("|", "/")
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON].rsplit(" ", 1)[0] + " ..."
    if outcome.kind in NOT_OF_TEXT:
        reason = f"{reason} | {NOT_OF_TEXT[outcome.kind]}"
    return f"| `{outcome.kind}` | {reason} |"


def promises(row_of_page: str, outcome: Outcome) -> bool:
    """Whether an outcome is what a row of the page says: an error is below the one there."""
    if outcome.refusal is None:
        kind, model, bound = (cell.strip() for cell in row_of_page.strip("| ").split("|"))
        return (kind, model) == (f"`{outcome.kind}`", outcome.model) and outcome.error < float(
            bound
        )
    return row_of_page == row(outcome)


def written(outcomes: Iterable[Outcome]) -> str:
    """The whole page."""
    each = sorted(outcomes, key=lambda outcome: outcome.kind)
    others = [outcome for outcome in each if outcome.is_encoder_decoder]
    runs = [outcome for outcome in each if outcome.refusal is None]
    refused = [o for o in each if o.refusal is not None and not o.is_encoder_decoder]
    kinds = len(runs) + len(refused)
    not_of_text = [outcome for outcome in refused if outcome.kind in NOT_OF_TEXT]
    splits = PRE_TOKENIZERS.items()
    of_text = kinds - len(not_of_text)
    return _TEXT.format(
        version=transformers.__version__,
        split=", ".join(sorted(PRE_TOKENIZERS)),
        whole=", ".join(sorted([name for name, kind in splits if kind.whole_words])),
        composed=", ".join(sorted([name for name, kind in splits if kind.composed])),
        begins=", ".join(sorted([name for name, kind in splits if kind.begins])),
        in_characters=", ".join(sorted([name for name, kind in splits if not kind.bytes])),
        running=len(runs),
        kinds=kinds,
        refused=len(refused),
        share=100 * len(runs) / max(kinds, 1),
        encoder_decoders=len(others),
        runs=_rows(runs),
        refusals=_rows([o for o in refused if o.kind not in NOT_OF_TEXT]),
        others_than_text=_rows(not_of_text),
        not_of_text=len(not_of_text),
        of_text=of_text,
        share_of_text=100 * len(runs) / max(of_text, 1),
        others=_rows(others),
    )


def rows_of(text: str) -> Mapping[str, str]:
    """What a page says, by kind."""
    return {found["kind"]: found[0] for found in _ROW.finditer(text)}


def is_of_this_version(text: str) -> bool:
    """Whether the page was written with the transformers that is installed."""
    return f"transformers {transformers.__version__} has" in text


def _rows(outcomes: Sequence[Outcome]) -> str:
    return "\n".join(map(row, outcomes))
