"""Tool calls with one text per argument, through constraint, engine and model."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from app.answer.formats import detect
from app.answer.language import answer
from app.answer.pieces import CallArguments, CallEnd, CallStart
from app.answer.reader import AnswerReader
from app.answer.tools import FunctionTool, ToolUse
from app.constraint import Compiler
from app.core.request import SamplingParams
from app.engine import EngineConfig
from tests.answer import templates
from tests.e2e.test_exactness import SHAPE, EagerModel, engine_of
from tests.engine.harness import GREEDY, TOKENIZER, VOCABULARY, answers_of, request
from tests.engine.naive import naive_answer
from tests.model.tiny import eager_model, save_config

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"type": ["string", "null"], "enum": ["ab", "null", None]},
        "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "rest": {"type": ["string", "number"]},
    },
    "required": ["name", "kind"],
}
USE = ToolUse((FunctionTool("name_it", None, PARAMETERS), FunctionTool("now")), mode="required")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_config(tmp_path_factory.mktemp("llama"), "llama", **SHAPE)


@pytest.mark.parametrize("name", ["qwen 3 coder", "glm 4.7", "deepseek v4"])
def test_every_answer_is_whole_and_valid_within_its_budget_and_as_plain_decoding_has_it(
    name: str, folder: str
) -> None:
    format = detect(templates.WITH_PARAMETERS[name], ())
    spec = answer(None, USE, format.tools)
    assert spec is not None
    constraint = Compiler(VOCABULARY).compile(spec)
    shortest = constraint.start().shortest_tokens()
    engine = engine_of(folder, EngineConfig(), blocks=400)
    hot = SamplingParams(temperature=5.0)
    requests = [
        request(f"r{index}", "call: ", allowed=constraint, max_tokens=shortest + more,
                sampling=GREEDY if index % 2 else hot, seed=index)
        for index, more in enumerate([0, 0, 1, 3, 10, 40, 90, 20, 60])
    ]  # fmt: skip
    answers = answers_of(engine, requests)
    model = EagerModel(eager_model(folder))
    for each in requests:
        found = answers[each.request_id]
        assert found.finish_reason == "stop"
        assert len(found.tokens) <= each.max_tokens
        if each.options.sampling is GREEDY:
            assert found.data == naive_answer(each, model, VOCABULARY, TOKENIZER).text
        reader = AnswerReader(format, use=USE)
        pieces = [piece for byte in found.data.decode() for piece in reader.push(byte)]
        names = [piece.name for piece in pieces if isinstance(piece, CallStart)]
        assert len(names) == sum(isinstance(piece, CallEnd) for piece in pieces) > 0
        for index, called in enumerate(names):
            text = "".join(
                piece.text
                for piece in pieces
                if isinstance(piece, CallArguments) and piece.index == index
            )
            schema = PARAMETERS if called == "name_it" else {"maxProperties": 0}
            jsonschema.validate(json.loads(text), schema)


def test_names_of_parameters_are_leapt_over() -> None:
    format = detect(templates.QWEN3_CODER, ())
    use = ToolUse(USE.tools[:1], mode="required", most_calls=1)
    spec = answer(None, use, format.tools)
    assert spec is not None
    state = Compiler(VOCABULARY).compile(spec).start()
    begin = b"<tool_call>\n<function=name_it>\n<parameter=name>\n"
    assert state.forced() == begin
    state.accept_bytes(begin + b"x\n</parameter>")
    assert state.forced() == b"\n<parameter=kind>\n"
