from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from app.constraint import Compiler, JsonSchema, Regex, compile_program, read_document
from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintTooComplex
from app.core.specs import Choice, Grammar
from tests.fakes import ByteVocabulary

KERNELS = """
import json
from numba.core.dispatcher import Dispatcher
from app.constraint import Compiler, JsonSchema
from app.constraint.automaton import beginnings, bits, trie, walks
from tests.fakes import ByteVocabulary

def compiled():
    modules = [trie, bits, walks, beginnings]
    found = {name: each for module in modules for name, each in vars(module).items()}
    kernels = {name: each for name, each in found.items() if isinstance(each, Dispatcher)}
    return {name: len(kernel.signatures) for name, kernel in kernels.items()}

compiler = Compiler(ByteVocabulary())
before = compiled()
schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 9},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", *"bcdefgh"]}},
        "code": {"type": "string", "pattern": "^[^x]*xy$"},
    },
    "required": ["name"],
    "additionalProperties": {"type": "number"},
}
state = compiler.compile(JsonSchema(schema)).start()
for byte in b'{"name": "abc", "tags": ["a", "ab"], "code": "abxy", "else": 1.5}':
    state.mask(budget=state.shortest_tokens())
    state.mask(budget=100)
    state.can_extend(b"a")
    state.accept_bytes(bytes([byte]))
print(json.dumps([before, compiled()]))
"""


def test_no_kernel_is_left_to_be_compiled_by_a_request() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KERNELS],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    before, after = json.loads(done.stdout)
    assert all(before.values()), before
    assert after == before


def test_a_compiler_serves_any_number_of_specifications() -> None:
    compiler = Compiler(ByteVocabulary())
    assert compiler.compile(Choice(["yes"])).start().shortest_completion() == b"yes"
    assert compiler.compile(JsonSchema({"const": 1})).start().forced() == b"1"


def test_a_bounded_look_ahead_and_its_copies_share_the_work_they_may_do() -> None:
    ways = "|".join(f"(.*{first}.*{last}){{2}}" for first in "abc" for last in "xyz")
    state = Compiler(ByteVocabulary()).compile(Regex(ways)).start()

    def look_ahead() -> None:
        ahead = state.copy(work=50)
        for _ in range(50):
            ahead = ahead.copy()
            ahead.accept_bytes(b"abxcya")

    with pytest.raises(ConstraintTooComplex):
        look_ahead()
    state.accept_bytes(b"abxcya" * 50 + b"x")
    assert state.is_complete


_TEXT = {"type": "string"}
_OBJECT = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[^x]*xy$"},
        "tags": {"type": "array", "items": {"enum": ["a", "ab"]}, "uniqueItems": True},
        "quote": {"type": "string", "x-verbatim": True},
    },
    "required": ["code", "tags", "quote"],
    "additionalProperties": {"anyOf": [_TEXT, {"type": "number", "multipleOf": 0.5}]},
}
FREED: list[tuple[ConstraintSpec, bytes]] = [
    (JsonSchema(_OBJECT), b'{"code": "axy", "tags": ["a", "ab"], "quote": "he said", "b": 1.5}'),
    (JsonSchema({"type": "array", "items": _TEXT, "uniqueItems": True}), b'["a", "ab"]'),
    (
        JsonSchema({"type": "array", "items": _TEXT, "uniqueItems": True, "minItems": 2}),
        b'["", "a"]',
    ),
    (JsonSchema({"if": {"properties": {"a": _TEXT}}, "then": {"minProperties": 1}}), b'{"ab": 1}'),
    (Regex("(a|ab)*[0-9]{2,5}"), b"aab123"),
    (Choice(["yes", "no", "yes and no"]), b"yes and no"),
    (Grammar('root ::= "(" root ")" | [a-z]+'), b"((ab))"),
]


@pytest.mark.parametrize(("spec", "answer"), FREED)
def test_a_constraint_is_freed_without_the_garbage_collector(
    spec: ConstraintSpec, answer: bytes
) -> None:
    """The server hides programs from the garbage collector, so a cycle would never be freed."""
    compiler = Compiler(ByteVocabulary())
    program = pickle.dumps(compile_program(spec, compiler.limits))

    def answered() -> None:
        constraint = compiler.link(pickle.loads(program))
        documents = {hole.source: read_document(["he said"], False) for hole in constraint.holes}
        state = (constraint.bind(documents) if documents else constraint).start()
        for byte in answer:
            state.mask()
            state.mask(budget=state.shortest_tokens())
            state.can_extend(b"a")
            state.copy().forced()
            state.accept_bytes(bytes([byte]))
        assert state.is_complete

    answered()  # creates what the process caches
    gc.collect()
    gc.disable()
    try:
        before = gc.get_objects()
        known = set(map(id, before))
        answered()
        # A collection does not show all cycles: closing a generator ends a cycle through it.
        new = [each for each in gc.get_objects() if id(each) not in known]
        left = {type(each).__qualname__ for each in new if "app." in type(each).__module__}
    finally:
        gc.enable()
    assert not left
