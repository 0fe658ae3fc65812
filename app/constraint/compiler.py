"""From a specification to a constraint over a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.constraint.language.nodes import ByteSet
from app.constraint.language.rewriting import missing_bytes
from app.constraint.limits import Limits
from app.constraint.program import Program, compile_program
from app.core.constraint import ConstraintSpec, Vocabulary
from app.core.specs import JsonSchema

if TYPE_CHECKING:
    from app.constraint.constraint import CompiledConstraint
    from app.constraint.quotes.document import Document

_WARMING = JsonSchema(
    {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 1},
            "b": {"type": "string", "pattern": "^(a+b)*$", "maxLength": 9},
            "c": {"enum": ["a", "b", "c", "d", "e", "f", "g", "h"]},
        },
        "required": ["a"],
        "additionalProperties": {"type": "string"},
    }
)
"""Warm-up schema: its masks use every way of computing masks."""

_QUOTING = JsonSchema(
    {
        "type": "object",
        "properties": {
            "a": {"type": "string", "x-verbatim": True},
            "bc": {"type": "string", "x-verbatim": "words", "pattern": "[a-z]"},
        },
        "required": ["a", "bc"],
    }
)
"""Warm-up schema for ``x-verbatim`` strings."""


class _Bytes:
    """A vocabulary of single bytes, one of them twice, and a few longer tokens."""

    size = 262
    eos_ids = frozenset({261})
    token_bytes = (
        *(bytes([byte]) for byte in range(256)), b"a", b"aa", b'a"', b'"a', b'"":', None,
    )  # fmt: skip


def read_document(texts: Sequence[str], words: bool, missing: ByteSet = 0) -> Document:
    """The document that fills holes of constraints; see ``Document``. Some 20 ms, on any thread."""
    from app.constraint.quotes.document import Document

    return Document(texts, words=words, missing=missing)


class Compiler:
    """Compiles specifications for one vocabulary; made once per process.

    The constructor loads the mask kernels, or compiles them on a new machine (seconds), so that
    the first request does not, in the engine's thread.
    """

    def __init__(self, vocabulary: Vocabulary, limits: Limits | None = None) -> None:
        # Imported here: the compile workers import this package and need no numba.
        from app.constraint.automaton.vocabulary_index import VocabularyIndex
        from app.constraint.constraint import CompiledConstraint

        self._link = CompiledConstraint
        self._index = VocabularyIndex(vocabulary)
        self.limits = replace(limits or Limits(), missing=missing_bytes(vocabulary.token_bytes))
        """Limits for compiling programs of this vocabulary."""
        small = VocabularyIndex(_Bytes())
        warmed = CompiledConstraint(compile_program(_WARMING), small)
        _run_kernels(warmed, b'{"a": "x", "b": "ab", "c": "h", "bc": "y"}')
        quote = CompiledConstraint(compile_program(_QUOTING), small)
        texts = {hole.source: ["x"] for hole in quote.holes}
        documents = {each: read_document(texts[each], each.words) for each in texts}
        _run_kernels(quote.bind(documents), b'{"a": "x", "bc": "x"}')
        for document in documents.values():
            document.find("x")

    def compile(self, spec: ConstraintSpec) -> CompiledConstraint:
        """Compile in this process. Raises as ``compile_program`` does."""
        return self.link(compile_program(spec, self.limits))

    def link(self, program: Program) -> CompiledConstraint:
        """Join a program, compiled with ``limits``, perhaps elsewhere, with the vocabulary. Costs
        microseconds."""
        return self._link(program, self._index)


def _run_kernels(constraint: CompiledConstraint, answer: bytes) -> None:
    """Run every kernel once, on a vocabulary small enough to take milliseconds."""
    state = constraint.start()
    for byte in answer:
        state.mask()
        state.mask(budget=state.shortest_tokens())
        state.can_extend(b"a")
        state.accept_bytes(bytes([byte]))
