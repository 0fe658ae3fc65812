"""Measures the demo model on examples it has never seen.

Held-out names and words, greedy, plain transformers `generate`, nothing constrained. Two
questions:

- *free*: the prompt alone. Does the answer parse, and is every field right? Only prompts that
  decide the keys are used (they show the schema or the keys, or the default keys are right).
- *given keys*: the values that a server which forces the keys gets. Every value is generated after
  the right answer up to the value's first quotation mark or sign; it is right if its text and its
  end are right.

A field is one scalar, or one list of strings; nested objects count by their own fields.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.core.progress import SILENCE, Progress, reporting
from app.demo import MODEL_PATH
from app.terminal.screen import open_screen
from tools.demo_model.corpus import Example, Kind, examples
from tools.demo_model.records import Json, agreeing, fields

_KINDS: Final[tuple[Kind, ...]] = ("city", "contact", "event", "invoice", "notes", "review")
_BATCH: Final = 20
_VALUE_STARTS: Final = ('["', '"', "-", "")
"""Possible starts of a value that are given to the model; the first that matches counts."""


@dataclass(slots=True)
class Score:
    """Counts over the examples of one kind."""

    examples: int = 0
    parsed: int = 0
    exact: int = 0
    fields: int = 0
    right: int = 0
    given_fields: int = 0
    given_right: int = 0

    @property
    def free(self) -> float:
        """Share of fields right from the prompt alone."""
        return self.right / max(1, self.fields)

    @property
    def given(self) -> float:
        """Share of fields right when the keys are given."""
        return self.given_right / max(1, self.given_fields)

    def add(self, other: "Score") -> None:
        """Adds the counts of another score."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Demo:
    """The committed model with plain `generate`."""

    def __init__(self, folder: Path = MODEL_PATH) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model = model.eval()

    def prompt(self, messages: Sequence[dict[str, str]]) -> str:
        """The messages as the chat template writes them, ready for the answer."""
        text: str = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return text

    def complete(self, prompts: list[str], max_new_tokens: int = 256) -> list[str]:
        """Greedy continuations, up to the end of the turn, special tokens left out."""
        answers: list[str] = []
        for start in range(0, len(prompts), _BATCH):
            batch = self.tokenizer(
                prompts[start : start + _BATCH], padding=True, return_tensors="pt"
            )
            batch.pop("token_type_ids", None)
            with torch.inference_mode():
                ids = self.model.generate(**batch, do_sample=False, max_new_tokens=max_new_tokens)
            answers += self.tokenizer.batch_decode(
                ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
            )
        return answers


def score_free(demo: Demo, asked: Sequence[Example]) -> Score:
    """Score of answers from the prompt alone, field by field."""
    score = Score(examples=len(asked))
    answers = demo.complete([demo.prompt(example.messages) for example in asked])
    for example, said in zip(asked, answers, strict=True):
        try:
            answer = json.loads(said)
            score.parsed += 1
        except ValueError:
            answer = {}
        score.exact += said == example.text
        expected, found = fields(example.answer), fields(answer)
        score.fields += len(expected)
        score.right += agreeing(expected, found)
    return score


def score_given(demo: Demo, asked: Sequence[Example]) -> Score:
    """Score of each field on its own, after the right answer up to the field.

    Greedy text is right exactly if every token of the right text is the likeliest, so one pass over
    each right answer replaces a generation for each of its fields.
    """
    score = Score()
    for example in asked:
        prompt = demo.prompt(example.messages)
        read = demo.tokenizer(
            prompt + example.text + demo.tokenizer.eos_token, return_offsets_mapping=True
        )
        ids, spans = read["input_ids"], read["offset_mapping"]
        with torch.inference_mode():
            likeliest = demo.model(input_ids=torch.tensor([ids])).logits[0].argmax(-1).tolist()
        for before, written in _written_fields(example.answer, ""):
            mark = next(mark for mark in _VALUE_STARTS if written.startswith(mark))
            start = len(prompt) + len(before) + len(mark)
            end = len(prompt) + len(before) + len(written)
            end += written[-1] not in '"]'  # a number ends with the character after it
            score.given_fields += 1
            score.given_right += all(
                _agrees(demo, likeliest[index - 1], ids[index], end - first)
                for index, (first, last) in enumerate(spans)
                if last > start and first < end
            )
    return score


def _agrees(demo: Demo, said: int, expected: int, length: int) -> bool:
    """Whether two tokens are the same, or their first `length` characters where a field ends."""
    if said == expected:
        return True
    right = demo.tokenizer.decode([expected])
    found: str = demo.tokenizer.decode([said])
    return length < len(right) and found[:length] == right[:length]


def _written_fields(value: Json, before: str) -> Iterator[tuple[str, str]]:
    """The text of every field, and the text before it; empty lists are left out."""
    if isinstance(value, dict):
        for index, (key, part) in enumerate(value.items()):
            before += f"{', ' if index else '{'}{json.dumps(key, ensure_ascii=False)}: "
            yield from _written_fields(part, before)
            before += json.dumps(part, ensure_ascii=False)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, part in enumerate(value):
            before += ", " if index else "["
            yield from _written_fields(part, before)
            before += json.dumps(part, ensure_ascii=False)
    elif value != []:
        yield before, json.dumps(value, ensure_ascii=False)


def evaluate(
    demo: Demo, per_kind: int, seed: int, progress: Progress = SILENCE
) -> Iterator[tuple[str, Score]]:
    """Yields the score of each kind of extraction, and of all together under "all"."""
    together = Score()
    for kind in reporting(progress, "evaluating", _KINDS, unit="kinds"):
        asked = list(examples(kind, per_kind, seed, split="held_out"))
        score = score_free(demo, [example for example in asked if example.decided])
        score.add(score_given(demo, asked))
        together.add(score)
        yield kind, score
    yield "all", together


def print_table(demo: Demo, per_kind: int, seed: int) -> None:
    """Prints one line for each kind, then all together."""
    print("kind      free: asked  parsed  exact   fields      given keys: fields")
    for kind, score in evaluate(demo, per_kind, seed, open_screen(sys.stderr).progress):
        asked = max(1, score.examples)
        print(
            f"{kind:9} {score.examples:11}  {score.parsed / asked:6.1%} "
            f"{score.exact / asked:6.1%}  {score.free:6.1%} of {score.fields:4} "
            f"{score.given:6.1%} of {score.given_fields:4}",
            flush=True,
        )
