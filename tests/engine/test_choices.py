"""Choices are scored as whole texts, and drawn so where that is asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from app.constraint import Compiler, JsonSchema
from app.core.choices import ScoredChoice
from app.core.constraint import Constraint
from app.core.request import ChoiceOptions, EngineRequest, SamplingParams
from app.engine import Engine
from tests.engine import harness
from tests.engine.harness import VOCABULARY, make_engine, request

REPORT = ChoiceOptions(report=True)
EXACT = ChoiceOptions(report=True, exact=True)


def compiled(schema: Any) -> Constraint:
    return Compiler(VOCABULARY).compile(JsonSchema(schema, close_objects=True))


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def run(engine: Engine, *requests: EngineRequest) -> dict[str, tuple[bytes, list[ScoredChoice]]]:
    """By request the answer, and the choices that were scored."""
    for each in requests:
        engine.add(each)
    texts = {each.request_id: b"" for each in requests}
    choices: dict[str, list[ScoredChoice]] = {each.request_id: [] for each in requests}
    for _ in range(5000):
        if not engine.has_work:
            break
        for chunk in harness.step(engine):
            texts[chunk.request_id] += chunk.data
            choices[chunk.request_id] += chunk.choices
            assert chunk.finish_reason in (None, "stop"), chunk
        engine.check_integrity()
    assert not engine.has_work
    assert engine.kv_usage == 0.0
    return {name: (texts[name], choices[name]) for name in texts}


def test_dev() -> None:
    c = compiled(
        an_object(
            a={"enum": ["ab", "abab", "name", None]},
            b={"type": "boolean"},
            n={"type": ["string", "null"], "maxLength": 3},
            t={"type": "array", "items": {"const": 1}, "maxItems": 3},
        )
    )
    for options in (REPORT, EXACT):
        r = replace(request(allowed=c, max_tokens=80, sampling=SamplingParams()), choices=options)
        text, choices = run(make_engine(), r)["r"]
        print(text)
        for x in choices:
            print(
                x.start,
                x.place,
                [(w.way.kind, w.way.text, round(math.exp(w.logprob), 5)) for w in x.ways],
            )
