"""``docs/models.md``: writing the page from outcomes, and reading its rows."""

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
"""Heading of the last section of the page, which ``tests.text.real_tokenizers`` writes."""
_LONGEST_REASON = 200
_ROW = re.compile(r"^\| `(?P<kind>[^`]+)` \|.*\|$", re.MULTILINE)

_TEXT = """\
# Models

```
LEAPJSON_MODEL=Qwen/Qwen3-0.6B make run    # a name on the Hugging Face Hub, a folder, or a GGUF file
```

A model that cannot be served is refused when it is loaded, with the reason. Weights in safetensors files that the architecture lacks (layers for
multi-token prediction, buffers of older versions) are ignored, and the log names them; biases that `config.json` turns off are refused. The list
below is written by `python -m tests.model.reach`, not by hand.

**{running} of {kinds} kinds run ({share:.0f}%), {refused} are refused; {encoder_decoders} more are encoder-decoders.** Of the refused, {not_of_text}
do not generate text token by token from text alone in transformers either; {running} of the other {of_text} run ({share_of_text:.0f}%).

The kinds are all that transformers {version} has for causal language modelling and for text with images or sound. Each is built small, with random
weights, in float32 on the CPU, and loaded as a server loads it, with its self-check. Its logits for three texts, in random chunks and batches, are
then compared with transformers' eager attention. The error is the largest relative error of a row of logits. The table shows the power of ten above
twice the measured error, because other processors add up in another order. The test says nothing about the quality of a model.

## Vision models

Images are supported if the model's folder has an image processor and the model passes a test at start-up: the server computes an image of noise in
steps that split it, and compares the result with the model's own forward pass ([decision 57](decisions/0057-images-are-rows-of-a-step.md)). Otherwise
it is served as a text model, and the log says why: Llama 4 is with transformers 5.24.0, whose class for the whole model fails.
An image whose tokens attend to each other is computed in one step
([decision 61](decisions/0061-two-way-attention-in-images.md)).

| kinds | positions | test (`tests/model/vision`) |
|---|---|---|
| `llava`, `llava_onevision`, `idefics3`, `mistral3` | one for each token | complete answers, in both orders of steps, compared with the complete model |
| `qwen2_5_vl`, `qwen3_vl`, `qwen3_5` (three of four layers recurrent) | by axis | the same |
| `gemma3`, `gemma4` | one for each token; those of an image attend to each other | the same |
| `llava_next`, `internvl`, `smolvlm`, `gemma4` with per-layer inputs | one for each token | the start-up test, and prompts expanded as in transformers |
| `qwen2_vl`, `qwen3_vl_moe`, `qwen3_5_moe`, `glm4v` | by axis | the same |

Other models with `get_image_features` are tested when they are loaded. GGUF files, GPTQ and AWQ on a CPU, and models that several devices share are
served as text models.

## GGUF files

GGUF files of [these architectures](operations.md#gguf-files) are supported. If the tokenizer is byte-level, the file names its pre-tokenizer. Each of
these is compared with llama.cpp's code on a page of unusual text (`tests/text/test_pre_tokenizers.py`); where llama.cpp cannot express the original
pattern, the original is used.

| | names |
|---|---|
| supported | {split} |
| a word that is a token is not split | {whole} |
| text is normalised to NFC | {composed} |
| text starts with a beginning-of-sequence token, unless the file says otherwise | {begins}, and all SentencePiece |
| blanks as in SentencePiece | {in_characters} |

Two files of real models compared with the float weights that the package `gguf` reads from them, run by transformers in float32 on a page of text
([decision 63](decisions/0063-gguf-as-people-have-it.md)):

| file | perplexity of transformers, of Leapjson | same most likely token |
|---|---|---|
| SmolLM2-135M-Instruct, Q4_1 | 26.61, 26.62 (+0.01%) | 96.6%; transformers in bfloat16 96.7% |
| Gemma 3 270M, Q4_K_M (no chat template: only `/v1/completions`) | 57.16, 57.28 (+0.20%) | 94.5% |

## Supported kinds

| kind | loaded as | error below |
|---|---|---|
{runs}

## Refused kinds

| kind | reason |
|---|---|
{refusals}

## Refused kinds that are not causal text models

| kind | reason | how it works |
|---|---|---|
{others_than_text}

## Encoder-decoders

| kind | |
|---|---|
{others}
"""  # noqa: E501


def row(outcome: Outcome) -> str:
    """The row of a kind in its table."""
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
    """Whether an outcome matches a row of the page; its error must be below the bound there."""
    if outcome.refusal is None:
        kind, model, bound = (cell.strip() for cell in row_of_page.strip("| ").split("|"))
        return (kind, model) == (f"`{outcome.kind}`", outcome.model) and outcome.error < float(
            bound
        )
    return row_of_page == row(outcome)


def written(outcomes: Iterable[Outcome]) -> str:
    """The page without its section of tokenizers."""
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
    """The rows of a page, by kind."""
    return {found["kind"]: found[0] for found in _ROW.finditer(text)}


def is_of_this_version(text: str) -> bool:
    """Whether the page was written with the installed version of transformers."""
    return f"transformers {transformers.__version__} has" in text


def _rows(outcomes: Sequence[Outcome]) -> str:
    return "\n".join(map(row, outcomes))
