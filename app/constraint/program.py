"""A compiled specification, before it meets a vocabulary: what a worker process sends back."""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.derivatives import Derivatives
from app.constraint.expressions import INFINITE, Expression
from app.constraint.front_end import Limits, build
from app.core.constraint import ConstraintSpec
from app.core.errors import UnsatisfiableSchema


@dataclass(frozen=True, slots=True)
class Program:
    """A language over bytes, ready to run. Picklable; holds no vocabulary and no states yet."""

    root: Expression
    derivatives: Derivatives


def compile_program(spec: ConstraintSpec, limits: Limits | None = None) -> Program:
    """Compile a specification as far as it goes without a vocabulary.

    Pure Python: neither numba nor torch is imported, so a small worker process can do it.
    Raises ``InvalidSchema``, ``UnsupportedSchema``, ``UnsatisfiableSchema`` or
    ``ConstraintTooComplex``.
    """
    pool, root = build(spec, limits or Limits())
    derivatives = Derivatives(pool)
    derivatives.measure()
    if derivatives.length(root) >= INFINITE:
        raise UnsatisfiableSchema
    return Program(root, derivatives)
