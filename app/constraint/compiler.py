"""From a specification to a constraint over a vocabulary."""

from __future__ import annotations

from app.constraint.front_end import Limits
from app.constraint.program import Program, compile_program
from app.constraint.state import CompiledConstraint
from app.constraint.vocabulary_index import VocabularyIndex
from app.core.constraint import ConstraintSpec, Vocabulary


class Compiler:
    """Compiles specifications for one vocabulary; made once per process."""

    def __init__(self, vocabulary: Vocabulary, limits: Limits | None = None) -> None:
        self._index = VocabularyIndex(vocabulary)
        self._limits = limits

    def compile(self, spec: ConstraintSpec) -> CompiledConstraint:
        """Compile in this process. Raises as ``compile_program`` does."""
        return self.link(compile_program(spec, self._limits))

    def link(self, program: Program) -> CompiledConstraint:
        """Join a program, perhaps compiled elsewhere, with the vocabulary. Costs microseconds."""
        return CompiledConstraint(program, self._index)
