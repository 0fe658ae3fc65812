"""From a JSON Schema to an expression: every string of it is a valid value, written one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from types import FunctionType
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.json.text import JsonText, json_text
from app.constraint.language.expressions import Expression
from app.constraint.language.rewriting import unspelled
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import (
    EXACT_CHOICE,
    NOT_ENUM,
    NOT_UNIQUE,
    OWN_ASSERTIONS,
    VERBATIM,
    SubschemaCache,
    admits_kind,
    identity,
    integers_only,
    kinds_of,
    restricts,
)
from app.constraint.schema.logic.applicators import Branch
from app.constraint.schema.logic.branches import Branches
from app.constraint.schema.logic.disjointness import Summaries
from app.constraint.schema.logic.evaluation import Evaluation, admits_type
from app.constraint.schema.lowering.array_text import ArrayWriter
from app.constraint.schema.lowering.distinct_items import DistinctCounts, Form, LevelsNeeded
from app.constraint.schema.lowering.free_names import FreeNames
from app.constraint.schema.lowering.object_text import ObjectWriter
from app.constraint.schema.numeric import build_numbers
from app.constraint.schema.shapes import array_shape, object_shape
from app.constraint.schema.strings import Strings
from app.core.choices import MOST_BYTES, MOST_WAYS
from app.core.errors import ConstraintTooComplex, InvalidSchema, UnsupportedSchema

_DEEPEST = 24
"""Maximum nesting of goals built on one stack; deeper ones become rules and are built later."""

_ANY = Form.ANY
"""Cached: access to members of enumerations is slow in Python 3.11."""

_MANY_VALUES = 100
"""Number of values in a schema above which ``with_room_on_stack`` pays."""

_STACK_WORDS = 33_000
"""A little more than half of a piece of 512 KB. What is not used of it is never touched."""


def _call(function: Callable[[], Any]) -> Any:
    return function()


with_room_on_stack = FunctionType(_call.__code__.replace(co_stacksize=_STACK_WORDS), globals())
"""Calls a function with 250 KB of frames in one chunk of Python's stack. Costs some 50 us.

CPython keeps the frames of Python functions in chunks of 16 KB. A loop with a call right at the end
of a chunk makes the system map the next chunk and unmap it again in every iteration: that was up to
a quarter of the time to compile a large schema. A frame that does not fit into a chunk gets a
larger one, and its callees use the rest of it.
"""

_ASKING = OWN_ASSERTIONS - {"type", "enum", "const"}
"""Keywords that restrict a value's content."""

_Unit = tuple[tuple[Branch, ...], int, Form]
"""Key of what is built once: the branches of a goal, the depth in the text, and the form."""


class SchemaBuilder:
    """Builds one schema into the pool of ``text``.

    Goals with the same branches are built once. A goal met again inside itself becomes a rule, so
    recursive schemas have no depth limit.
    """

    def __init__(self, schema: Any, text: JsonText, *, close: bool, start: str = "") -> None:
        """``start``: pointer to the subschema that is built."""
        self._schema = schema
        self._text = text
        self._one_form = text.on_one_form()
        self._pool = text.pool
        self._limits = text.limits
        self._close = close
        self._start = start
        self._document = Document(schema, text.limits)
        self._summaries = Summaries(self._document)
        self._strings = Strings(text)
        self._evaluation = self._evaluate(loosely=False)
        self._branches = self._evaluation.branches
        self._free_names = FreeNames(text, self._strings, self._evaluation, self._contents)
        self._known: dict[_Unit, Expression] = {}
        self._alike: dict[tuple[int | None, int, Form], Expression] = {}
        """Expressions by number of the subschema, depth in the text, and form."""
        placed = text.pointers or self._document.places_count
        self._subschema_cache = None if placed else SubschemaCache()
        self._open: set[_Unit] = set()
        self._waiting: list[tuple[_Unit, Expression]] = []
        self._distinct_counts = DistinctCounts(self._pool, text.limits.missing)

    @cached_property
    def _loose_evaluation(self) -> Evaluation:
        return self._evaluate(loosely=True)

    def _evaluate(self, *, loosely: bool) -> Evaluation:
        branches = Branches(
            self._document,
            self._summaries,
            self._limits,
            lambda branch: evaluation.is_void(branch),
            None if loosely else lambda goal: self._loose_evaluation.branches.may_be_any(goal),
        )
        opposite = (lambda: self._evaluation) if loosely else (lambda: self._loose_evaluation)
        evaluation = Evaluation(branches, self._strings, opposite, loosely=loosely)
        return evaluation

    @property
    def steps(self) -> int:
        """Steps so far: those that ``Limits.branch_steps`` bounds, and one for two values."""
        made = [each for each in vars(self).values() if isinstance(each, Evaluation)]
        return self._document.num_values // 2 + sum(each.branches.steps for each in made)

    def build(self) -> Expression:
        """The values of the whole schema. Call once."""
        large = self._document.num_values > _MANY_VALUES
        return with_room_on_stack(self._build) if large else self._build()

    def _build(self) -> Expression:
        try:
            root = self._root()
            while self._waiting:
                unit, rule = self._waiting.pop()
                self._pool.define_rule(rule, self._any_of(unit))
        except LevelsNeeded as needed:
            if not self._text.apart:
                reason = "inside a grammar, unique items need a list of values (enum)"
                raise UnsupportedSchema("uniqueItems", needed.pointer, reason) from None
            for expression in self._known.values():  # nothing refers to these any more
                if self._pool.is_undefined(expression):
                    self._pool.define_rule(expression, self._pool.empty)
            return self._with_levels().build()
        self._distinct_counts.check()
        self._pool.inexact |= self._document.read_as
        for node in self._document.nodes_with(EXACT_CHOICE):
            self._pool.exact_choices.update(self._exact_choice(node))
        return root

    def _root(self) -> Expression:
        start = self._document.find(self._start)
        if start is None:
            raise InvalidSchema("there is no subschema at this pointer", pointer=self._start)
        return self._value((start,), 0)

    def _with_levels(self) -> SchemaBuilder:
        """A builder of the same schema with marked containers."""
        text = self._text.with_levels()
        return SchemaBuilder(self._schema, text, close=self._close, start=self._start)

    def _exact_choice(self, node: Node) -> Iterator[frozenset[bytes]]:
        """Texts of a node's values that are drawn as wholes: as listed, and with 1 for 1.0."""
        pointer = node.pointer_to(EXACT_CHOICE)
        if node.schema[EXACT_CHOICE] != "exact":
            raise InvalidSchema(f"{EXACT_CHOICE} must be 'exact'", pointer=pointer)
        values = self._finite_values((node,))
        if values is None or any(isinstance(value, dict | list) for value in values):
            reason = "its values must be a list of strings, numbers, booleans and nulls"
            raise UnsupportedSchema(EXACT_CHOICE, pointer, reason)
        texts = frozenset(map(json_text, values))
        if len(texts) > MOST_WAYS or len(b" ".join(texts)) >= MOST_BYTES:
            reason = f"exact choices have at most {MOST_WAYS} values and {MOST_BYTES - 1} bytes"
            raise UnsupportedSchema(EXACT_CHOICE, pointer, reason)
        yield texts
        yield frozenset(
            json_text(int(value) if isinstance(value, float) and value.is_integer() else value)
            for value in values
        )

    def _value(self, goal: Goal, depth: int, form: Form = _ANY) -> Expression:
        """The values that satisfy ``goal``, written at ``depth``, in ``form``."""
        meaning: int | None = None
        if self._subschema_cache is not None and len(goal) == 1 and not goal[0].aspect:
            meaning = self._subschema_cache.of(goal[0].schema)  # the same at other places
        alike = meaning, depth, form
        value = None if meaning is None else self._alike.get(alike)
        if value is None:
            try:
                value = self._built(goal, depth, form)
            except ConstraintTooComplex as error:
                if goal:
                    error.within(goal[0].pointer)
                raise
            if meaning is not None:
                self._alike[alike] = value
        return self._pool.pointed(value, goal[0].pointer) if goal and self._text.pointers else value

    def _built(self, goal: Goal, depth: int, form: Form) -> Expression:
        unit = (self._branches.of(goal), depth, form)
        known = self._known.get(unit)
        if known is not None:
            return known
        if unit in self._open or len(self._open) >= _DEEPEST:
            rule = self._known[unit] = self._pool.declare_rule()
            if unit not in self._open:
                self._waiting.append((unit, rule))
            return rule
        self._open.add(unit)
        built = self._any_of(unit)
        self._open.discard(unit)
        if unit in self._known:  # a rule, declared on the way
            self._pool.define_rule(self._known[unit], built)
        else:
            self._known[unit] = built
        return self._known[unit]

    def _any_of(self, unit: _Unit) -> Expression:
        repeats = [n for branch in unit[0] for n in branch if NOT_UNIQUE in n.schema]
        built = self._any_branch(unit)
        if repeats and built == self._pool.empty:
            pointer = repeats[0].pointer_to("uniqueItems")
            raise UnsupportedSchema(
                "uniqueItems", pointer, "an array that must repeat an item is not supported"
            )
        for node in repeats:
            reason = "its negation allows arrays that repeat an item; these are not generated"
            self._pool.inexact[node.inexact("uniqueItems", reason)] = None
        return built

    def _any_branch(self, unit: _Unit) -> Expression:
        branches, depth, form = unit
        if len(branches) == 1:
            return self._branch(branches[0], depth, form)
        if form == Form.ONCE:
            form = Form.SORTED
        built = [self._branch(branch, depth, form) for branch in branches]
        if self._text.pointers and branches:
            everywhere = set(branches[0]).intersection(*branches)
            own = [next((n for n in branch if n not in everywhere), None) for branch in branches]
            built = [
                self._pool.pointed(value, node.pointer) if node else value
                for value, node in zip(built, own, strict=True)
            ]
        return self._pool.union(built)

    @cached_method
    def _branch(self, branch: Branch, depth: int, form: Form) -> Expression:
        if form != _ANY and (node := next((n for n in branch if VERBATIM in n.schema), None)):
            reason = "not supported inside items that must be unique (uniqueItems)"
            raise UnsupportedSchema(VERBATIM, node.pointer_to(VERBATIM), reason)
        if not branch:
            self._pool.has_free_names |= form == _ANY
            return self._text_in(form).any_value(depth, once=form != _ANY)
        values = self._listed(branch)
        if values is not None:
            return self._written(branch, values, depth, form)
        kinds = kinds_of(branch)
        if len(kinds) == 1:
            return self._kind(branch, kinds[0], depth, form)
        return self._pool.union([self._kind(branch, kind, depth, form) for kind in kinds])

    def _text_in(self, form: Form) -> JsonText:
        return self._text if form == _ANY else self._one_form

    def _written(self, branch: Branch, values: list[Any], depth: int, form: Form) -> Expression:
        """One of ``values``; of strings only quotes from the prompt, if those are asked for."""
        strings = [value for value in values if isinstance(value, str)]
        write = self._text_in(form).written
        if not (strings and self._strings.is_verbatim(branch)):
            return self._pool.one_of([write(form.value_of(value), depth) for value in values])
        others = [write(value, depth) for value in values if not isinstance(value, str)]
        return self._pool.union((self._strings.listed(branch, strings), self._pool.one_of(others)))

    def _listed(self, branch: Branch) -> list[Any] | None:
        """Values listed by ``const`` or ``enum`` that the whole branch admits; None: no list.

        Raises ``UnsupportedSchema`` for one that the tokenizer cannot spell.
        """
        listing = [node for node in branch if "const" in node.schema or "enum" in node.schema]
        if not listing:
            return None
        source, schema = listing[0], listing[0].schema
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if len(values) > self._limits.choices:
            raise ConstraintTooComplex(f"more than {self._limits.choices} values in an enum")
        both = "const" in schema and "enum" in schema
        other = tuple(node for node in branch if both or node is not source)
        distinct = {identity(value): value for value in reversed(values)}
        typed = [value for value in reversed(distinct.values()) if admits_type(source, value)]
        if other or not _ASKING.isdisjoint(schema):
            typed = [
                value
                for value in typed
                if self._sure(value, lambda v: self._evaluation.admits_content((source,), v))
                and (
                    not other
                    or self._sure(value, lambda v: self._evaluation.branch_admits(other, v))
                )
            ]
        for value in typed if self._limits.missing else ():
            reason = unspelled(self._text.written(value), self._limits.missing)
            if reason:
                keyword = "const" if "const" in schema else "enum"
                raise UnsupportedSchema(keyword, source.pointer_to(keyword), reason)
        return typed

    def _sure(self, value: Any, admits: Callable[[Any], bool]) -> bool:
        """Whether ``value`` is admitted; raises if an array or object depends on the prompt."""
        self._strings.take_met()
        admitted = admits(value)
        met = self._strings.take_met()
        if admitted and met is not None and not isinstance(value, str):
            reason = "not supported inside an array or object of an enum"
            raise UnsupportedSchema(VERBATIM, met.pointer_to(VERBATIM), reason)
        return admitted

    def _kind(self, branch: Branch, kind: str, depth: int, form: Form) -> Expression:
        """The values of one type that the branch admits."""
        nodes = tuple([node for node in branch if restricts(node, kind)])
        text, once = self._text_in(form), form != _ANY
        if kind in ("null", "boolean"):
            return self._pool.union([text.constant(value) for value in words_of(kind, nodes)])
        if kind == "number":
            return self._numbers(nodes, any(map(integers_only, branch)), once)
        if kind == "string":
            if once:
                return text.quoted(self._strings.content(nodes))
            return self._strings.build(nodes) if nodes else text.string()
        inside = text.inside(depth)
        if kind == "array":
            if any(NOT_UNIQUE in node.schema for node in nodes):
                return self._pool.empty
            return ArrayWriter(
                text,
                lambda goal, form: self._value(goal, inside, form),
                lambda goal, form: self._finite(goal, inside, form),
                self._distinct_counts,
                depth,
                form,
            ).write(array_shape(nodes))
        if not nodes:
            self._pool.has_free_names |= not once
            return text.any_object(depth, once=once)
        shape = form.shape_of(object_shape(nodes, self._strings.key_matches, close=self._close))
        if shape.some and form == Form.ONCE:
            form = Form.SORTED
        writer = ObjectWriter(
            text,
            self._strings,
            self._free_names,
            lambda goal, _: self._value(goal, inside, form),
            self._distinct_counts,
            depth,
            once=once,
        )
        return writer.write(nodes, shape)

    @cached_method
    def _numbers(self, nodes: Goal, whole: bool, once: bool) -> Expression:
        return build_numbers(self._pool, nodes, self._limits, integers_only=whole, once=once)

    def _finite_values(self, goal: Goal) -> list[Any] | None:
        """All values of ``goal``, perhaps some twice; None where they cannot be listed."""
        found: list[Any] = []
        for branch in self._branches.of(goal):
            values = None if self._strings.is_verbatim(branch) else self._listed(branch)
            if values is None:
                kinds = kinds_of(branch)
                if not {"null", "boolean"}.issuperset(kinds):
                    return None
                values = [value for kind in kinds for value in words_of(kind, branch)]
            found += values
        return found

    def _contents(self, goal: Goal) -> Expression:
        """The strings among the values of ``goal``, as contents of names."""
        options = []
        for branch in self._branches.of(goal):
            values = self._listed(branch)
            if values is not None and not self._strings.is_verbatim(branch):
                texts = [self._text.spelled(value) for value in values if isinstance(value, str)]
                options.append(self._pool.one_of(texts))
            elif all(admits_kind(node, "string") for node in branch):
                nodes = tuple(node for node in branch if restricts(node, "string"))
                options.append(self._strings.content(nodes))
        return self._pool.union(options)

    def _finite(self, goal: Goal, depth: int, form: Form) -> list[Expression] | None:
        """All values of ``goal``, each written; None where they cannot be listed or are many."""
        values = self._finite_values(goal)
        if values is None:
            return None
        write = self._text_in(form).written
        found = {identity(value): write(form.value_of(value), depth) for value in values}
        if len(found) > self._limits.different_items:
            return None
        if any(EXACT_CHOICE in node.schema for each in self._branches.of(goal) for node in each):
            self._pool.exact_lists.add(frozenset(found.values()))
        return [self._pool.literal(written) for written in found.values()]


def words_of(kind: str, nodes: Goal) -> list[Any]:
    """The values of ``null`` or ``boolean`` that ``nodes`` do not exclude."""
    words: list[Any] = [None] if kind == "null" else [True, False]
    excluded = {identity(value) for node in nodes for value in node.schema.get(NOT_ENUM, ())}
    return [word for word in words if identity(word) not in excluded]
