"""Programs that were dumped and loaded equal the compiled programs."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from app.constraint import Compiler, stored
from app.constraint.limits import Limits
from app.constraint.program import compile_program, everyday_schema
from app.constraint.stored import compile_and_dump, dump, load
from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintError
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from tests.conformance.random_schemas import random_schema
from tests.constraint.walks import Walker
from tests.fakes import ByteVocabulary
from tests.wide import many

LIMITS = Limits()
SPECS: tuple[ConstraintSpec, ...] = (
    everyday_schema(),
    JsonObject(),
    Regex("a(b|ü)*"),
    Choice(["yes", "no", "né"]),
    Grammar('start: "a" start | "b"', "lark"),
    JsonSchema({"type": "number", "multipleOf": 997}),
    JsonSchema({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True}),
    JsonSchema({"type": "string", "x-verbatim": True, "pattern": "[a-z]+"}),
    JsonSchema({"type": "string", "format": "unheard-of"}, relax=True),
    JsonSchema({"not": {"type": "string"}, "if": {"type": "object"}, "then": {"required": ["a"]}}),
)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.cache_key()[:60])
def test_a_program_comes_back_as_it_was(spec: ConstraintSpec) -> None:
    program, data = compile_and_dump(spec, LIMITS)
    back = load(data, LIMITS)
    assert dump(back, LIMITS) == data
    pool, other = program.derivatives.pool, back.derivatives.pool
    assert other.index == pool.index
    assert back == replace(program, derivatives=back.derivatives)
    json.loads(data)  # the dump is plain JSON


def test_masks_along_random_answers_are_those_of_the_program_itself() -> None:
    compiler = Compiler(ByteVocabulary())
    rng, steps = random.Random(5), 0
    for seed in range(many(60, 4)):
        spec = JsonSchema(random_schema(random.Random(seed)), relax=True)
        try:
            program, data = compile_and_dump(spec, compiler.limits)
            text = Walker.of(spec).sample(rng)
        except ConstraintError:
            continue
        first = compiler.link(program).start()
        second = compiler.link(load(data, compiler.limits)).start()
        for byte in text:
            assert first.mask().tolist() == second.mask().tolist()
            first.accept_bytes(bytes([byte]))
            second.accept_bytes(bytes([byte]))
            steps += 1
    assert steps > many(500, 4)


def test_a_program_that_is_too_large_to_be_sent_twice_is_not_dumped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored, "_MOST_EXPRESSIONS", 3)
    assert compile_and_dump(Regex("ab"), LIMITS)[1]
    program, data = compile_and_dump(Regex("a(b|cd)*e"), LIMITS)
    assert (data, program.root) == (b"", compile_program(Regex("a(b|cd)*e"), LIMITS).root)


def test_data_of_other_code_or_other_limits_is_refused() -> None:
    program, data = compile_and_dump(Regex("ab"), LIMITS)
    with pytest.raises(ValueError, match="other limits"):
        load(data, replace(LIMITS, nodes=LIMITS.nodes + 1))
    altered = data.replace(b'"identity"', b'"__import__"')
    with pytest.raises(LookupError):
        load(altered, LIMITS)
    for wrong in (b"", b"[]", b'{"dict":[]}', b'{"eval":["1"]}', data[:-9]):
        with pytest.raises((ValueError, TypeError, LookupError)):
            load(wrong, LIMITS)
    assert compile_program(Regex("ab"), LIMITS).root == program.root
