"""Training conversations with functions: prompts as the server writes them, and valid calls."""

import json
import random
from typing import Any, get_args

import jsonschema
import pytest

from app.answer.formats import ChatFormat
from app.answer.formats.families import PLAIN
from app.answer.pieces import CallArguments, CallStart, Content
from app.answer.prompt import Conversation, template_input
from app.answer.reader import AnswerReader
from app.answer.tools import ToolUse
from tools.demo_model.corpus import Example, ToolKind, examples
from tools.demo_model.evaluate_functions import CALL
from tools.demo_model.functions import FUNCTIONS
from tools.demo_model.records import fields
from tools.demo_model.scene import Scene
from tools.demo_model.schema_variants import schema_variant
from tools.demo_model.words import Words

_KINDS: tuple[ToolKind, ...] = get_args(ToolKind)
_FORMAT = ChatFormat(tools=PLAIN, reads_schemas=False)


def scene_of(example: Example) -> Scene:
    assert example.scene is not None
    return example.scene


@pytest.mark.parametrize("kind", _KINDS)
def test_the_model_is_trained_on_the_prompts_that_the_server_writes(kind: ToolKind) -> None:
    for example in examples(kind, count=80, seed=3):
        scene = scene_of(example)
        served = template_input(Conversation(scene.turns, scene.tools), _FORMAT)
        assert served.tools is None
        assert [(each["role"], each["content"]) for each in served.messages] == [
            (each["role"], each["content"]) for each in example.messages
        ]


@pytest.mark.parametrize("kind", ["call", "form"])
def test_a_call_names_a_function_of_the_prompt_and_its_arguments_are_valid(kind: ToolKind) -> None:
    for example in examples(kind, count=80, seed=4):
        scene = scene_of(example)
        shown = {tool.name: tool.parameters for tool in scene.tools}
        assert len(shown) == len(scene.tools)
        assert scene.calls
        for name, arguments in scene.calls:
            jsonschema.Draft202012Validator.check_schema(shown[name])
            jsonschema.validate(arguments, shown[name])


@pytest.mark.parametrize("kind", _KINDS)
def test_the_server_reads_the_calls_that_are_trained_and_takes_text_for_text(
    kind: ToolKind,
) -> None:
    for example in examples(kind, count=40, seed=5):
        scene = scene_of(example)
        reader = AnswerReader(_FORMAT, use=ToolUse(tuple(scene.tools)) if scene.tools else None)
        pieces = [*reader.push(example.text), *reader.finish()]
        names = [piece.name for piece in pieces if isinstance(piece, CallStart)]
        written = ["" for _ in names]
        for piece in pieces:
            if isinstance(piece, CallArguments):
                written[piece.index] += piece.text
        read = [(name, json.loads(text)) for name, text in zip(names, written, strict=True)]
        assert read == list(scene.calls)
        content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
        assert content == ("" if scene.calls else example.text)
        assert example.text.startswith(CALL) == bool(scene.calls)


def test_what_a_function_is_given_stands_in_the_request() -> None:
    for example in examples("call", count=150, seed=6):
        request = example.messages[-1]["content"]
        for _, arguments in scene_of(example).calls:
            for value in fields(arguments).values():
                assert value is None or str(value) in request


def test_a_statement_repeats_what_the_functions_returned() -> None:
    for example in examples("result", count=150, seed=7):
        if example.text.startswith("Done"):
            continue
        for turn in scene_of(example).turns:
            if turn["role"] == "tool":
                numbers = [word for word in turn["content"].split() if word.isdecimal()]
                assert all(number in example.text for number in numbers)


@pytest.mark.parametrize("topic", FUNCTIONS)
def test_two_requests_of_a_topic_are_different(topic: str) -> None:
    words = Words(random.Random(8), "train")
    drawn = [FUNCTIONS[topic](words) for _ in range(40)]
    assert len({(each.request, each.statement) for each in drawn}) > 30
    assert all(each.statement.endswith((".", '".')) for each in drawn)


def test_a_variant_of_a_schema_admits_what_the_schema_admits() -> None:
    plain: dict[str, Any] = {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
            "wand": {"type": "object", "properties": {"core": {"type": "string"}}},
        },
        "required": ["items"],
        "additionalProperties": False,
    }
    variants = [
        schema_variant(plain, "Order", Words(random.Random(seed), "train")) for seed in range(60)
    ]
    for variant in variants:
        jsonschema.Draft202012Validator.check_schema(variant)
        jsonschema.validate({"items": [{"name": "lamp"}], "wand": {"core": "x"}}, variant)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"items": [{}]}, variant)
    texts = [json.dumps(variant) for variant in variants]
    for mark in ('"$defs"', '"title"', '"$schema"', '"additionalProperties"'):
        assert 0 < sum(mark in text for text in texts) < len(texts)
