"""A compiled specification, before it meets a vocabulary: what a worker process sends back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.constraint.codepoints import CHARACTERS
from app.constraint.derivatives import Derivatives
from app.constraint.expressions import INFINITE, Expression, ExpressionPool
from app.constraint.front_end import Limits, build
from app.constraint.json_text import character, json_spelling
from app.constraint.rows import UNBOUNDED
from app.core.constraint import ConstraintSpec
from app.core.errors import UnsatisfiableSchema

_COMPILE_WORK = 300_000
"""Steps of work that lengths and emptiness may cost: a fraction of a second."""


def _spelled_once(pool: ExpressionPool) -> Expression:
    return json_spelling(pool, CHARACTERS)


SPELLINGS: tuple[Callable[[ExpressionPool], Expression], ...] = (character, _spelled_once)
"""The characters that strings mostly consist of: in every spelling, and in one spelling each."""


@dataclass(frozen=True, slots=True)
class Program:
    """A language over bytes, ready to run. Picklable; holds no vocabulary and no states yet."""

    root: Expression
    derivatives: Derivatives
    characters: tuple[Expression, ...] = ()
    """The characters of strings in this pool, as by ``SPELLINGS``; none where it is not JSON."""


def compile_program(spec: ConstraintSpec, limits: Limits | None = None) -> Program:
    """Compile a specification as far as it goes without a vocabulary.

    Pure Python: neither numba nor torch is imported, so a small worker process can do it.
    Raises ``InvalidSchema``, ``UnsupportedSchema``, ``UnsatisfiableSchema`` or
    ``ConstraintTooComplex``.
    """
    pool, root = build(spec, limits or Limits())
    derivatives = Derivatives(pool)
    derivatives.allow(_COMPILE_WORK)
    derivatives.measure()
    empty = derivatives.length(root) >= INFINITE
    derivatives.allow(UNBOUNDED)
    if empty:
        raise UnsatisfiableSchema
    characters = () if pool.character is None else tuple(spell(pool) for spell in SPELLINGS)
    return Program(root, derivatives, characters)
