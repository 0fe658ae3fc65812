"""A compiled specification, before it meets a vocabulary: what a worker process sends back."""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.formats.strict import known_formats
from app.constraint.front_end import Limits, build
from app.constraint.json.text import CHARACTER, SPELLED_ONCE, character, spelled_once
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression
from app.constraint.language.pruning import pruned
from app.constraint.language.rows import UNBOUNDED
from app.core.constraint import ConstraintSpec, JsonSchema
from app.core.errors import UnsatisfiableSchema

_COMPILE_WORK = 300_000
"""Steps of work that lengths and emptiness may cost: a fraction of a second."""


SPELLINGS = {CHARACTER: character, SPELLED_ONCE: spelled_once}
"""The characters that strings mostly consist of, by their landmarks."""


@dataclass(frozen=True, slots=True)
class Program:
    """A language over bytes, ready to run. Picklable; holds no vocabulary and no states yet."""

    root: Expression
    derivatives: Derivatives
    characters: tuple[Expression | None, ...] = ()
    """The characters of strings in this pool, as by ``SPELLINGS``; None where there are none."""


def everyday_schema() -> JsonSchema:
    """Uses what a process makes once and keeps (formats, classes of characters), some 0.1 s.

    A worker that has compiled it is quick from its first request on.
    """
    formats = {name: {"type": "string", "format": name} for name in sorted(known_formats())}
    words = {"type": "string", "pattern": r"^\w\d\s$"}
    return JsonSchema({"type": "object", "properties": {**formats, "words": words}})


def compile_program(spec: ConstraintSpec, limits: Limits | None = None) -> Program:
    """Compile a specification as far as it goes without a vocabulary.

    Pure Python: neither numba nor torch is imported, so a small worker process can do it.
    Raises ``InvalidSchema``, ``UnsupportedSchema``, ``UnsatisfiableSchema`` or
    ``ConstraintTooComplex``.
    """
    pool, root = pruned(*build(spec, limits or Limits()))
    derivatives = Derivatives(pool)
    derivatives.allow(_COMPILE_WORK)
    derivatives.measure()
    empty = derivatives.length(root) >= INFINITE
    derivatives.allow(UNBOUNDED)
    if empty:
        raise UnsatisfiableSchema
    return Program(root, derivatives, tuple([pool.landmarks.get(name) for name in SPELLINGS]))
