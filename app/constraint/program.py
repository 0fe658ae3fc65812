"""Compiles a specification to a program, by the front end for its kind.

Pure Python: neither numba nor torch is imported, so a small worker process can do it.
"""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import dataclass, replace

from app.constraint.composite import Leaf, lower_composite
from app.constraint.formats import known_formats
from app.constraint.grammar import lowering as grammar
from app.constraint.grammar.complexity import check_grammars
from app.constraint.grammar.rules import parse as parse_grammar
from app.constraint.json.literals import LiteralText
from app.constraint.json.text import SPELLINGS, JsonText, json_pool
from app.constraint.json.whitespace import Whitespace
from app.constraint.language.codepoints import utf8
from app.constraint.language.counting import COUNTED, Counting
from app.constraint.language.derivatives import Derivatives, measured
from app.constraint.language.expressions import (
    INFINITE,
    ByteSet,
    Expression,
    ExpressionPool,
    Kind,
    Mark,
    Notation,
)
from app.constraint.language.rewriting import pruned, spelled, unspelled
from app.constraint.language.rows import UNBOUNDED
from app.constraint.limits import Limits
from app.constraint.regex.lowering import Lowering
from app.constraint.regex.parser import parse_keyword
from app.constraint.relaxation import as_sent, explained, may_be_relaxed, relaxed
from app.constraint.schema.lowering.arguments import LiteralsBuilder, ParametersBuilder
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.core.arguments import Arguments
from app.core.composite import Composite
from app.core.constraint import ConstraintSpec, Relaxation
from app.core.errors import (
    ConstraintError,
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.literals import Literals
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex

_COMPILE_WORK = 1_000_000
"""Steps of work for computing lengths and checking emptiness: a fraction of a second."""
_ITEM_WORK = 50_000
"""Steps of work for ``longer_items``, some 0.1 s: twice what SARIF's schema needs."""
_MAY_BE_EMPTY = frozenset([Kind.INTERSECTION, Kind.COMPLEMENT, Kind.RULE])
"""Kinds of expressions that may turn out to be empty although no part is plainly empty."""

_SHOWN_BYTES = 80
"""Maximum bytes of an impossible answer that an error shows."""


@dataclass(frozen=True, slots=True)
class Program:
    """A language over bytes, ready to run. Picklable; holds no vocabulary and no states yet."""

    root: Expression
    derivatives: Derivatives
    characters: tuple[Expression | None, ...] = ()
    """A string's character in this pool, for each of ``SPELLINGS``; None if it has none."""
    relaxed: tuple[Relaxation, ...] = ()
    """Keywords that are not enforced, or not in the way of every validator."""
    notation: Notation | None = None
    """Notation of the answer if all of it is JSON whose names must differ."""


def everyday_schema() -> JsonSchema:
    """A schema that fills the caches of a process (formats, character classes) in some 0.1 s.

    A worker that has compiled it is fast from its first request on.
    """
    formats = {name: {"type": "string", "format": name} for name in sorted(known_formats())}
    words = {"type": "string", "pattern": r"^\w\d\s$"}
    return JsonSchema({"type": "object", "properties": {**formats, "words": words}})


def compile_program(
    spec: ConstraintSpec, limits: Limits | None = None, *, pointers: bool = False
) -> Program:
    """Compile a specification as far as possible without a vocabulary.

    Schemas that may be relaxed are relaxed if they do not compile. ``pointers``: mark the values of
    a JSON Schema with their places in it, for inspection rather than answers. Raises
    ``InvalidSchema``, ``UnsupportedSchema``, ``UnsatisfiableSchema`` or ``ConstraintTooComplex``.
    """
    limits = limits or Limits()
    try:
        try:
            return _compile(spec, limits, pointers=pointers)
        except ConstraintError as error:
            if not may_be_relaxed(spec):
                raise
            failed = error
        compiled: dict[str, Program] = {}

        def alone(part: JsonSchema | Arguments) -> None:
            compiled[part.cache_key()] = _compile(part, limits, pointers=pointers)

        spec, relaxations = relaxed(spec, limits, alone, failed)
        program = compiled.get(spec.cache_key()) or _compile(spec, limits, pointers=pointers)
        return replace(program, relaxed=relaxations + as_sent(program.relaxed, relaxations))
    except UnsatisfiableSchema as error:
        raise explained(error, spec, limits) from None
    except RecursionError:
        raise ConstraintTooComplex("nested too deeply") from None


def _compile(
    spec: ConstraintSpec | Arguments, limits: Limits, *, pointers: bool = False
) -> Program:
    pool, root = build(spec, limits, pointers=pointers)
    _check_named(pool, limits.missing)
    program = _program(pool, root, limits.missing)
    is_json = pool.has_free_names and isinstance(spec, JsonSchema | JsonObject)
    return replace(program, notation=Notation()) if is_json else program


def _check_named(pool: ExpressionPool, missing: ByteSet) -> None:
    """Raise for an empty named part, which would otherwise disappear silently."""
    parts = {subject: spelled(pool, part, missing) for subject, part in pool.named.items()}
    if not parts or _MAY_BE_EMPTY.isdisjoint(pool.kinds[pool.num_shared :]):
        return
    derivatives = measured(pool, _COMPILE_WORK)
    for subject, part in parts.items():
        if derivatives.length(part) >= INFINITE:
            raise _unsatisfiable(pool, pool.named[subject], missing).about(subject)


def _program(built: ExpressionPool, whole: Expression, missing: ByteSet) -> Program:
    """The program of the strings of ``whole`` that the tokenizer can spell."""
    root = spelled(built, whole, missing)
    for name in SPELLINGS if root != whole else ():
        if name in built.landmarks:
            built.landmarks[name] = spelled(built, built.landmarks[name], missing)
    if missing:
        built.needed_names = {spelled(built, names, missing) for names in built.needed_names}
    pool, root = pruned(built, root)
    items = [inner for inner, mark in pool.index[Kind.MARKED] if mark == Mark.ITEM]
    if items and Kind.HOLE in pool.kinds:
        reason = "items without an enum are not kept distinct beside x-verbatim"
        raise UnsupportedSchema("uniqueItems", "", reason)
    derivatives = measured(pool, _COMPILE_WORK)
    empty = derivatives.length(root) >= INFINITE
    derivatives.allow(UNBOUNDED)
    if empty:
        raise _unsatisfiable(built, whole, missing)
    if items:
        pool.longer_items = _longer_items(items, derivatives)
    characters = tuple([pool.landmarks.get(name) for name in SPELLINGS])
    return Program(root, derivatives, characters, tuple(pool.inexact))


def _longer_items(items: list[Expression], derivatives: Derivatives) -> dict[int, int]:
    """Compute ``ExpressionPool.longer_items``, in a copy, as it takes derivatives of all items."""
    derivatives = pickle.loads(pickle.dumps(derivatives))
    derivatives.allow(_ITEM_WORK)
    counting, found = Counting(derivatives), dict[int, int]()
    with contextlib.suppress(ConstraintTooComplex, RecursionError):
        for size in (COUNTED, COUNTED**2):
            found[size] = counting.longer(items, size + 1)
    return found


def _unsatisfiable(
    pool: ExpressionPool, whole: Expression, missing: ByteSet
) -> UnsatisfiableSchema:
    """The error for a ``whole`` that cannot be spelled; it shows the shortest answer, if any."""
    if not missing:
        return UnsatisfiableSchema()
    derivatives = measured(pool, _COMPILE_WORK)
    if derivatives.length(whole) >= INFINITE:
        return UnsatisfiableSchema()
    text = derivatives.shortest(whole)
    shown = text[:_SHOWN_BYTES].decode(errors="ignore")
    return UnsatisfiableSchema(
        f"no answer can be written: {unspelled(text, missing)}, and the shortest answer contains "
        f"it: {shown!r}{'...' if len(text) > _SHOWN_BYTES else ''}"
    )


def build(
    spec: ConstraintSpec | Arguments, limits: Limits | None = None, *, pointers: bool = False
) -> tuple[ExpressionPool, Expression]:
    """The expression of all answers to ``spec``, in a new pool.

    Raises as ``compile_program``, but detects only plain emptiness: whether an intersection turns
    out to be empty shows in the length of the root.
    """
    limits = limits or Limits()
    bare = isinstance(spec, Regex | Choice)
    pool = ExpressionPool(limits.nodes) if bare else json_pool(limits.nodes)
    try:
        root = _lower(pool, spec, limits, pointers=pointers)
        if pool.grammars:
            check_grammars(pool)
    except RecursionError:
        raise ConstraintTooComplex("nested too deeply") from None
    if root == pool.empty:
        raise UnsatisfiableSchema()
    return pool, root


def _lower(
    pool: ExpressionPool,
    spec: ConstraintSpec | Arguments,
    limits: Limits,
    *,
    pointers: bool = False,
) -> Expression:
    match spec:
        case Composite(root):
            return lower_composite(pool, root, limits, lambda leaf: _part(pool, leaf, limits))
        case Regex(pattern):
            tree = parse_keyword(pattern, limits, "regex", "")
            return Lowering(pool, lambda members: utf8(pool, members)).whole(tree)
        case Choice(options):
            if not options:
                raise InvalidSchema("a choice needs at least one option")
            if len(options) > limits.choices:
                raise ConstraintTooComplex(f"more than {limits.choices} options in a choice")
            try:
                texts = [option.encode() for option in options]
            except UnicodeEncodeError as error:
                raise InvalidSchema("an option contains half of a surrogate pair") from error
            for number, option in enumerate(texts if limits.missing else ()):
                if reason := unspelled(option, limits.missing):
                    raise UnsupportedSchema("choice", f"/{number}", reason)
            return pool.one_of(texts)
        case Arguments():
            notation = spec.notation
            if isinstance(notation, Literals):
                return LiteralsBuilder(spec, LiteralText(pool, limits, notation)).build()
            text = JsonText(pool, limits, Whitespace.named(spec.schema.whitespace))
            if notation.nested is not None:
                text = LiteralText(pool, limits, notation.nested)
            return ParametersBuilder(spec, notation, text).build()
        case Grammar(source, syntax):
            rules = parse_grammar(source, syntax, limits)
            inline = JsonText(pool, limits, apart=False)
            return grammar.lower(
                pool,
                rules,
                limits,
                lambda s: SchemaBuilder(s, inline, close=True).build(),
                grammar.in_utf8(pool),
            )
    json = JsonText(pool, limits, Whitespace.named(spec.whitespace), pointers=pointers)
    if isinstance(spec, JsonObject):
        pool.has_free_names = True
        return json.any_object()
    return SchemaBuilder(spec.schema, json, close=spec.close_objects).build()


def _part(pool: ExpressionPool, leaf: Leaf, limits: Limits) -> Expression:
    """Lower a leaf of a composite; raises if nothing of it can be spelled.

    JSON whose names must differ is marked as such.
    """
    before, pool.has_free_names = pool.has_free_names, False
    part = _lower(pool, leaf, limits)
    if part != pool.empty == spelled(pool, part, limits.missing):
        raise _unsatisfiable(pool, part, limits.missing)
    if pool.has_free_names and isinstance(leaf, JsonSchema | JsonObject):
        part = pool.text(part, Notation())
    pool.has_free_names |= before
    return part
