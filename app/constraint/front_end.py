"""From a specification to its expression: the one door to the front ends.

Pure Python without numeric libraries, so that a small worker process can do it.
"""

from __future__ import annotations

from app.constraint.composite import lower_structure
from app.constraint.grammar import lower, read
from app.constraint.json.text import JsonText, json_pool
from app.constraint.json.whitespace import Layout
from app.constraint.language.codepoints import utf8
from app.constraint.language.expressions import Expression, ExpressionPool
from app.constraint.limits import Limits
from app.constraint.regex.lowering import Lowering
from app.constraint.regex.parser import PatternError, PatternNotSupported, parse
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.core.constraint import (
    Choice,
    ConstraintSpec,
    Grammar,
    JsonObject,
    JsonSchema,
    Regex,
    Structure,
)
from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)

__all__ = ["Limits", "build"]


def build(spec: ConstraintSpec, limits: Limits | None = None) -> tuple[ExpressionPool, Expression]:
    """The answers that ``spec`` admits, in a pool of their own.

    Raises ``InvalidSchema``, ``UnsupportedSchema``, ``ConstraintTooComplex``, and
    ``UnsatisfiableSchema`` where it is plain that nothing is admitted; intersections that turn
    out empty show in the length of the root only.
    """
    limits = limits or Limits()
    bare = isinstance(spec, Regex | Choice)
    pool = ExpressionPool(limits.nodes) if bare else json_pool(limits.nodes)
    try:
        root = _root(pool, spec, limits)
    except RecursionError:
        raise ConstraintTooComplex("it is nested too deeply") from None
    if root == pool.empty:
        raise UnsatisfiableSchema()
    return pool, root


def _root(pool: ExpressionPool, spec: ConstraintSpec, limits: Limits) -> Expression:
    if isinstance(spec, Structure):
        return lower_structure(pool, spec.root, limits, lambda leaf: _root(pool, leaf, limits))
    if isinstance(spec, Regex):
        return _regex(pool, spec.pattern, limits)
    if isinstance(spec, Choice):
        return _choice(pool, spec, limits)
    if isinstance(spec, Grammar):
        return _grammar(pool, spec, limits)
    return _json(pool, spec, limits)


def _json(pool: ExpressionPool, spec: JsonSchema | JsonObject, limits: Limits) -> Expression:
    text = JsonText(pool, limits, Layout.named(spec.whitespace))
    if isinstance(spec, JsonObject):
        return text.any_object()
    return SchemaBuilder(spec.schema, text, limits, close=spec.close_objects).build()


def _regex(pool: ExpressionPool, pattern: str, limits: Limits) -> Expression:
    try:
        tree = parse(pattern, limits)
    except PatternError as error:
        raise InvalidSchema(str(error)) from error
    except PatternNotSupported as error:
        raise UnsupportedSchema("regex", "", str(error)) from error
    return Lowering(pool, lambda members: utf8(pool, members)).whole(tree)


def _choice(pool: ExpressionPool, spec: Choice, limits: Limits) -> Expression:
    if not spec.options:
        raise InvalidSchema("a choice needs one option or more")
    if len(spec.options) > limits.choices:
        raise ConstraintTooComplex(f"more than {limits.choices} options in a choice")
    try:
        return pool.one_of(option.encode() for option in spec.options)
    except UnicodeEncodeError as error:
        raise InvalidSchema("an option holds half of a surrogate pair") from error


def _grammar(pool: ExpressionPool, spec: Grammar, limits: Limits) -> Expression:
    rules = read(spec.text, spec.syntax, limits)
    text = JsonText(pool, limits, Layout.named("spaced"))
    return lower(
        pool,
        rules,
        limits,
        json=lambda schema: SchemaBuilder(schema, text, limits, close=True).build(),
    )
