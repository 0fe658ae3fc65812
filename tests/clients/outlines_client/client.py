"""outlines: its models for the servers of OpenAI, vLLM and SGLang."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import openai
import outlines
import PIL.Image
from features import (
    BASE_URL,
    CARD,
    CARD_TEXT,
    CONTACT_TEXT,
    MODEL,
    PICTURE,
    REVIEW_TEXT,
    Card,
    Checks,
    Contact,
    Review,
)
from outlines.inputs import Image
from outlines.types import CFG, JsonSchema, Regex

check = Checks()
client = openai.OpenAI(base_url=BASE_URL, api_key="none")
by_openai = outlines.from_openai(client, MODEL)
by_vllm = outlines.from_vllm(client, MODEL)
by_sglang = outlines.from_sglang(client, MODEL)

LARK = """
start: "Stars: " stars
stars: DIGIT | DIGIT "." DIGIT
%import common.DIGIT
"""
GBNF = """
root ::= "Stars: " stars
stars ::= [0-9] | [0-9] "." [0-9]
"""
STARS = re.compile(r"Stars: \d(\.\d)?")


@check("text", "from_openai: no output type")
def _() -> None:
    assert by_openai("Hello", temperature=0)


@check("json_schema", "from_openai: a pydantic model")
def _() -> None:
    answer = by_openai(CONTACT_TEXT, Contact, temperature=0)
    assert Contact.model_validate_json(answer).name == "Daniel Okafor"


@check("json_schema", "from_openai: a JSON Schema")
def _() -> None:
    schema = JsonSchema(json.dumps(Contact.model_json_schema()))
    Contact.model_validate_json(by_openai(CONTACT_TEXT, schema, temperature=0))


@check("json_object", "from_openai: dict")
def _() -> None:
    answer = by_openai(f"{CONTACT_TEXT} Reply in JSON.", dict, temperature=0)
    assert isinstance(json.loads(answer), dict)


@check("stream", "from_openai: stream")
def _() -> None:
    streamed = "".join(by_openai.stream(CONTACT_TEXT, Contact, temperature=0))
    assert streamed == by_openai(CONTACT_TEXT, Contact, temperature=0)


@check("json_schema", "from_openai: asynchronous")
async def _() -> None:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="none") as aclient:
        answer = await outlines.from_openai(aclient, MODEL)(CONTACT_TEXT, Contact, temperature=0)
    Contact.model_validate_json(answer)


for name, model in (("from_openai", by_openai), ("from_vllm", by_vllm), ("from_sglang", by_sglang)):

    def register_images(name: str, model: Any) -> None:
        @check("images", f"{name}: an Image, a pydantic model")
        def _() -> None:
            picture = Image(PIL.Image.open(PICTURE))
            answer = model([CARD_TEXT, picture], Card, temperature=0)
            assert Card.model_validate_json(answer) == CARD

    register_images(name, model)


for name, model, grammar in (("from_vllm", by_vllm, LARK), ("from_sglang", by_sglang, GBNF)):

    def register(name: str, model: Any, grammar: str) -> None:
        @check("text", f"{name}: no output type")
        def _() -> None:
            assert model("Hello", temperature=0)

        @check("json_schema", f"{name}: a pydantic model")
        def _() -> None:
            answer = model(REVIEW_TEXT, Review, temperature=0, max_tokens=200)
            assert Review.model_validate_json(answer).rating == 2

        @check("constraints", f"{name}: Literal")
        def _() -> None:
            answer = model(REVIEW_TEXT, Literal["positive", "negative"], temperature=0)
            assert answer in ("positive", "negative")

        @check("constraints", f"{name}: int, and a Regex")
        def _() -> None:
            int(model(REVIEW_TEXT, int, temperature=0, max_tokens=8))
            answer = model(REVIEW_TEXT, Regex(r"[1-5] stars?"), temperature=0)
            assert re.fullmatch(r"[1-5] stars?", answer)

        @check("constraints", f"{name}: CFG")
        def _() -> None:
            assert STARS.fullmatch(model(REVIEW_TEXT, CFG(grammar), temperature=0))

        @check("stream", f"{name}: stream")
        def _() -> None:
            streamed = "".join(model.stream(CONTACT_TEXT, Contact, temperature=0, max_tokens=200))
            assert streamed == model(CONTACT_TEXT, Contact, temperature=0, max_tokens=200)

    register(name, model, grammar)


@check("constraints", "from_vllm: CFG in GBNF")
def _() -> None:
    assert STARS.fullmatch(by_vllm(REVIEW_TEXT, CFG(GBNF), temperature=0))


@check("json_schema", "from_vllm: a JSON Schema with a whitespace_pattern")
def _() -> None:
    schema = JsonSchema(json.dumps(Contact.model_json_schema()), whitespace_pattern=r"[ ]?")
    answer = by_vllm(CONTACT_TEXT, schema, temperature=0, max_tokens=200)
    Contact.model_validate_json(answer)


check.run()
