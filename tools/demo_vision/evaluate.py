"""Measures the model on unseen pictures, with invented words that are in no training picture.

Greedy, plain transformers `generate`, nothing constrained; with the fonts of training, and with
fonts that it has never seen. A field is one scalar; it is right if it is present and equal.
`Served` measures a server instead, which enforces the schema.
"""

import base64
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import torch
from PIL import Image
from transformers import AutoProcessor, LlavaForConditionalGeneration

from app.core.progress import reporting
from app.demo import VISION_MODEL_PATH
from app.terminal.screen import open_screen
from tools.demo_model.records import Json
from tools.demo_model.words import Split
from tools.demo_vision.corpus import IMAGE, Example, examples
from tools.demo_vision.scenes import KINDS
from tools.demo_vision.tokenizer import prompt

_MAX_NEW_TOKENS: Final = 200
_BATCH: Final = 16


class Demo:
    """The model and its processor, as transformers loads them."""

    def __init__(self, folder: Path = VISION_MODEL_PATH) -> None:
        self.processor: Any = AutoProcessor.from_pretrained(folder)
        # Prompts of different lengths end together, where the answers begin.
        self.processor.tokenizer.padding_side = "left"
        self.model: Any = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self.model.eval()

    @torch.inference_mode()
    def answers(self, asked: Sequence[Example]) -> list[str]:
        """The model's answers, one for each picture."""
        inputs = self.processor(
            images=[Image.fromarray(example.picture.pixels) for example in asked],
            text=[prompt(example.messages) for example in asked],
            padding=True,
            return_tensors="pt",
        )
        inputs.pop("token_type_ids", None)
        found = self.model.generate(**inputs, max_new_tokens=_MAX_NEW_TOKENS, do_sample=False)
        said = found[:, inputs["input_ids"].shape[1] :]
        texts: list[str] = self.processor.tokenizer.batch_decode(said, skip_special_tokens=True)
        return texts


class Served:
    """A server of the model, which enforces the schema of each kind."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=60)
        self.model = self.client.get("/v1/models").json()["data"][0]["id"]

    def answers(self, asked: Sequence[Example]) -> list[str]:
        """The server's answers, one request after another."""
        return [self._answer(example) for example in asked]

    def _answer(self, example: Example) -> str:
        *before, user = example.messages
        first, last = user["content"].split(IMAGE)
        image = {"type": "image_url", "image_url": {"url": _url(example)}}
        texts = [{"type": "text", "text": text} for text in (first, last) if text]
        content = [*texts, image] if first else [image, *texts]
        form = {"name": example.kind, "schema": schema_of(example.record)}
        body = {
            "model": self.model,
            "temperature": 0,
            "messages": [*before, {"role": "user", "content": content}],
            "response_format": {"type": "json_schema", "json_schema": form},
        }
        response = self.client.post("/v1/chat/completions", json=body)
        response.raise_for_status()
        said: str = response.json()["choices"][0]["message"]["content"]
        return said


def schema_of(value: Json) -> dict[str, Any]:
    """The schema of a record: its keys in their order, and the types of its values."""
    if isinstance(value, dict):
        parts = {key: schema_of(part) for key, part in value.items()}
        return {
            "type": "object",
            "properties": parts,
            "required": list(parts),
            "additionalProperties": False,
        }
    if isinstance(value, list):
        return {"type": "array", "items": schema_of(value[0])}
    return {"type": {str: "string", int: "integer", float: "number"}[type(value)]}


def _url(example: Example) -> str:
    file = io.BytesIO()
    Image.fromarray(example.picture.pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


@dataclass
class Score:
    """Counts of pictures, of answers that parse and that are exact, and of fields."""

    pictures: int = 0
    parsed: int = 0
    exact: int = 0
    fields: int = 0
    right: int = 0

    def add(self, other: "Score") -> None:
        """Adds the counts of another score."""
        self.pictures += other.pictures
        self.parsed += other.parsed
        self.exact += other.exact
        self.fields += other.fields
        self.right += other.right


def scored(example: Example, answer: str) -> Score:
    """The score of one answer."""
    wanted = dict(_scalars(example.record))
    try:
        said = json.loads(answer)
    except json.JSONDecodeError:
        return Score(pictures=1, fields=len(wanted))
    given = dict(_scalars(said))
    right = sum(path in given and given[path] == value for path, value in wanted.items())
    return Score(1, 1, int(said == example.record), len(wanted), right)


def evaluate(
    demo: Demo | Served, per_kind: int, seed: int, fonts: Split
) -> Iterator[tuple[str, Score]]:
    """Yields the score of each kind of picture, and of all together under "all"."""
    together = Score()
    told = open_screen(sys.stderr).progress
    for kind in reporting(told, f"reading {fonts} fonts", KINDS, unit="kinds"):
        asked = list(examples(kind, per_kind, seed, fonts=fonts))
        score = Score()
        for first in range(0, len(asked), _BATCH):
            part = asked[first : first + _BATCH]
            for example, answer in zip(part, demo.answers(part), strict=True):
                score.add(scored(example, answer))
        together.add(score)
        yield kind, score
    yield "all", together


def print_table(demo: Demo | Served, per_kind: int, seed: int) -> None:
    """Prints one line for each kind and set of fonts."""
    print("kind      fonts     pictures  parsed   exact  fields right")
    fonts: Split
    for fonts in ("train", "held_out"):
        for kind, score in evaluate(demo, per_kind, seed, fonts):
            asked = max(1, score.pictures)
            print(
                f"{kind:9} {fonts:9} {score.pictures:8}  {score.parsed / asked:6.1%}  "
                f"{score.exact / asked:6.1%}  {score.right / max(1, score.fields):6.1%} "
                f"of {score.fields}",
                flush=True,
            )


def _scalars(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _scalars(part, f"{path}.{key}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _scalars(part, f"{path}.{index}")
    else:
        yield path, value
