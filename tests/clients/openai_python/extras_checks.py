"""Request fields of other servers, completions, and schemas compiled in advance."""

from __future__ import annotations

import json
from typing import Any

import openai
from features import MODEL, Review
from openai.types import Completion
from shared import REVIEW, chat, check, client, validate_type

STARS = 'root ::= "Stars: " [1-5]'


def constrained(**extra_body: Any) -> str:
    completion = chat.create(model=MODEL, messages=REVIEW, temperature=0, extra_body=extra_body)
    content: str = completion.choices[0].message.content or ""
    return content


@check("constraints", "vLLM's structured_outputs: json, regex, choice, grammar, json_object")
def _() -> None:
    schema = Review.model_json_schema()
    Review.model_validate_json(constrained(structured_outputs={"json": schema}))
    assert constrained(structured_outputs={"regex": "[1-5] stars"})[1:] == " stars"
    assert constrained(structured_outputs={"choice": ["good", "bad"]}) in ("good", "bad")
    assert constrained(structured_outputs={"grammar": STARS}).startswith("Stars: ")
    assert isinstance(json.loads(constrained(structured_outputs={"json_object": True})), dict)


@check("constraints", "vLLM's structured_outputs: structural_tag")
def _() -> None:
    content = {"type": "json_schema", "json_schema": Review.model_json_schema()}
    tag = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<review>", "content": content, "end": "</review>"},
    }
    answer = constrained(structured_outputs={"structural_tag": json.dumps(tag)})
    Review.model_validate_json(answer.removeprefix("<review>").removesuffix("</review>"))


@check("constraints", "SGLang's regex and ebnf")
def _() -> None:
    assert constrained(regex="[1-5] stars?")[1:] in (" star", " stars")
    assert constrained(ebnf=STARS).startswith("Stars: ")


@check("constraints", "llama.cpp's grammar and json_schema")
def _() -> None:
    assert constrained(grammar=STARS).startswith("Stars: ")
    Review.model_validate_json(constrained(json_schema=Review.model_json_schema()))


@check("constraints", "response_format regex, choice and grammar")
def _() -> None:
    formats = {
        "regex": {"type": "regex", "regex": "Stars: [1-5]"},
        "choice": {"type": "choice", "choices": ["Stars: 1", "Stars: 2"]},
        "grammar": {"type": "grammar", "grammar": STARS},
    }
    for each in formats.values():
        assert constrained(response_format=each).startswith("Stars: ")


@check("constraints", "two constraints at once are a 400")
def _() -> None:
    refused = None
    try:
        constrained(regex="[1-5]", ebnf=STARS)
    except openai.BadRequestError as error:
        refused = error
    assert refused is not None, "accepted"


@check("constraints", "a schema compiled ahead, by its id")
def _() -> None:
    ahead: Any = client.post(
        "/schemas", cast_to=object, body={"schema": Review.model_json_schema()}
    )
    answer = constrained(response_format={"type": "json_schema", "schema_id": ahead["id"]})
    Review.model_validate_json(answer)


@check("completions", "completions.create")
def _() -> None:
    completion = client.completions.create(model=MODEL, prompt="Hello", max_tokens=8, temperature=0)
    assert completion.choices[0].text
    assert completion.object == "text_completion"


@check("completions", "several prompts, n, logprobs, and their types")
def _() -> None:
    raw = client.completions.with_raw_response.create(
        model=MODEL, prompt=["Hello", "Good day"], n=2, logprobs=2, max_tokens=8
    )
    validate_type(Completion, raw.text)
    assert [choice.index for choice in raw.parse().choices] == [0, 1, 2, 3]


@check("completions", "streamed")
def _() -> None:
    arguments: Any = {"model": MODEL, "prompt": "Hello", "max_tokens": 16, "temperature": 0}
    chunks = list(client.completions.create(**arguments, stream=True))
    whole = client.completions.create(**arguments)
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text
