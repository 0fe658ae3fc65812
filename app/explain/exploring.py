"""The graph of a program, explored from its start; large values are folded, one by one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Set

from app.constraint.cached_method import cached_method
from app.constraint.language.expressions import INFINITE, Expression, Kind, byte_set
from app.constraint.language.nodes import bytes_of
from app.constraint.language.rows import Row
from app.constraint.limits import Limits
from app.constraint.program import Program, compile_program
from app.core.graphs import MOST_STATES, GraphSpec
from app.core.specs import JsonSchema
from app.explain.graph import ChoiceKind, Edge, Graph, GraphNode
from app.explain.marks import Marks, Unmarked
from app.explain.measures import Mode, Texts
from app.explain.spelling import first_bytes, spell_class

_LONGEST_COUNTED = 1 << 20
"""Bytes of one choice that are counted."""
_UNROLLED = 4
"""Items up to which an array is drawn item by item."""
_MOST_WORK = 100_000
"""Maximum work of an exploration, about a second; an expression that it makes counts 1."""
_WORK_OF_PART = 2
"""Work of each part of an expression whose derivative is taken."""
_BY_NAME = (Kind.RULE, Kind.DISTINCT, Kind.CASES)
"""Kinds that appear by name in the graph and are not explored."""
_ANY_VALUE_FIRST = byte_set(b'"-0123456789ntf[{')
_OBJECT, _ARRAY = byte_set(b"{"), byte_set(b"[")
_MOST_LOOKED_INTO = 200
"""Maximum values whose size is measured."""
_ANSWER = ""
"""Pointer to the whole answer, which is never folded."""
_ENDS = 2
"""Nodes that every graph of a value has: its start and its end."""


class Exploration:
    """Explores one program, whose pool grows: nothing else should use it at that time."""

    def __init__(self, program: Program, *, json: bool = True) -> None:
        """``json``: whether its strings are JSON texts."""
        self.program = program
        self.mode = Mode.OUTSIDE if json else Mode.PLAIN
        self.texts = Texts(program.derivatives)
        self.unmarked = Unmarked(program.derivatives.pool)
        self.built = len(program.derivatives.pool)
        """Number of expressions at first; later ones may be the rest of a value that was begun."""

    def graph(
        self,
        max_nodes: int,
        folded: Callable[[str], bool] = lambda pointer: False,
        start: Expression | None = None,
    ) -> Graph:
        """The graph of all answers, or of the texts of ``start``.

        ``folded``: whether the value at a pointer is drawn as one edge; for programs compiled with
        ``pointers``, and for values that may be objects or arrays.
        """
        root = self.program.root if start is None else start
        return _Explorer(self, max_nodes, folded).run(root)


class _Explorer:
    def __init__(
        self, exploration: Exploration, max_nodes: int, folded: Callable[[str], bool]
    ) -> None:
        self._derivatives = exploration.program.derivatives
        self._pool = self._derivatives.pool
        self._mode = exploration.mode
        self._max_nodes = max_nodes
        self._began = len(self._pool)
        self._work = 0
        self._folded = folded
        self._built = exploration.built
        self._marks = Marks(self._pool, self._is_fold)
        self._texts = exploration.texts
        self._unmarked = exploration.unmarked
        self._nodes = [GraphNode(accepting=False)]
        self._known: dict[tuple[Expression, int], int] = {}
        self._states: list[tuple[int, Expression, Mode]] = []
        """Of every node but the first: its number, expression and mode."""
        self._rules: dict[int, int] = {}
        """Numbers of rules, in the order they are met."""
        self._whole = True

    def run(self, root: Expression) -> Graph:
        pool = self._pool
        split = self._marks.split(root)
        if pool.kinds[split.head] == Kind.RULE and split.then(pool, pool.epsilon) == pool.epsilon:
            self._rules[pool.operands[split.head]] = 1
            self._nodes[0].rule = 1
            root = split.then(pool, pool.body(split.head))
        self._add(0, "start", "", pool.epsilon, root, self._mode, self._pointer(root))
        for number, expression, mode in self._states:  # which grows
            if self._work + len(pool) - self._began > _MOST_WORK:
                self._cut(number, expression)
            else:
                self._add_ways(number, expression, mode)
        return Graph(self._nodes, self._whole)

    @cached_method
    def _row(self, expression: Expression) -> Row:
        self._work += _WORK_OF_PART * self._breadth(expression)
        return self._derivatives.live_row(expression)

    def _breadth(self, expression: Expression) -> int:
        """Approximate number of parts of a derivative."""
        pool, count = self._pool, 0
        while True:
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.MARKED:
                expression = operand[0]
            elif kind == Kind.CONCATENATION:
                head, tail = operand
                count += 1
                expression = tail if pool.nullable[head] else head
            else:
                return count + (len(operand) if kind == Kind.UNION else 1)

    def _cut(self, source: int, expression: Expression) -> None:
        """Add one edge out of the graph in place of the ways from ``source``, if any."""
        if expression != self._pool.epsilon:
            self._whole = False
            nothing, pointer = self._pool.empty, self._nodes[source].pointer
            self._nodes[source].edges.append(
                Edge(source, None, "start", "", 0, b"", nothing, pointer)
            )

    def _add(
        self,
        source: int,
        kind: ChoiceKind,
        choice: str,
        decides: Expression,
        on: Expression,
        mode: Mode,
        pointer: str | None,
    ) -> None:
        """Add an edge for a choice of ``decides``, after which ``on`` follows, in ``mode``."""
        leap, end, mode = self._leap(on, mode)
        decided = min(self._derivatives.length(decides), _LONGEST_COUNTED)
        if kind == "text":
            decided = max(1, decided)
        edge = Edge(source, self._node(end, mode), kind, choice, decided, leap, decides, pointer)
        self._nodes[source].edges.append(edge)

    def _node(self, expression: Expression, mode: Mode) -> int | None:
        expression, repeats = self._loosen(expression, mode)
        key = self._unmarked.plain(expression), mode
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._nodes) >= self._max_nodes:
            self._whole = False
            return None
        number = self._known[key] = len(self._nodes)
        pointer = self._pointer(expression)
        self._nodes.append(GraphNode(self._pool.nullable[expression], repeats, pointer=pointer))
        self._states.append((number, expression, mode))
        return number

    def _pointer(self, expression: Expression) -> str | None:
        return self._marks.pointer(self._marks.split(expression))

    def _loosen(self, expression: Expression, mode: Mode) -> tuple[Expression, str]:
        """Forget how many items are still to come, so that all of them share their states."""
        pool, split = self._pool, self._marks.split(expression)
        if pool.kinds[split.head] != Kind.REPETITION or self._texts.is_text(split.head, mode):
            return expression, ""
        inner, low, high = pool.operands[split.head]
        if high is not None and high <= _UNROLLED:
            return expression, ""
        repeats = f"{low} or more" if high is None else f"{low} to {high}"
        if low == high or (low, high) == (0, None):
            repeats = "any number of" if high is None else str(low)
        return split.then(pool, pool.repeat(inner)), f"{repeats} times"

    def _leap(self, expression: Expression, mode: Mode) -> tuple[bytes, Expression, Mode]:
        """The forced bytes from here, and the expression and mode after them."""
        pool, parts = self._pool, []
        while not pool.nullable[expression]:
            split = self._marks.split(expression)
            head = split.head
            if pool.kinds[head] == Kind.LITERAL:
                text, expression = pool.operands[head], split.then(pool, pool.epsilon)
            elif (
                self._is_named(head)
                or self._texts.is_text(head, mode)
                or self._loosen(expression, mode)[1]
                or self._apart(head, mode)
            ):
                break
            else:
                row = self._row(expression)
                if len(row) != 1 or row[0][0].bit_count() > 1:
                    break
                text, expression = bytes(bytes_of(row[0][0])), row[0][1]
            parts.append(text)
            mode = mode.after(text)
        return b"".join(parts), expression, mode

    def _add_ways(self, source: int, expression: Expression, mode: Mode) -> None:
        """Add edges for the choices of a state without forced bytes."""
        pool, split = self._pool, self._marks.split(expression)
        head, pointer = split.head, self._marks.pointer(split)
        if self._texts.is_text(head, mode):
            self._add_text(source, expression, mode, pointer)
            return
        if self._is_named(head):
            rest = split.then(pool, pool.epsilon)
            if pool.kinds[head] == Kind.MARKED:
                pointer = self._marks.pointer_of(head)
                first = first_bytes(self._derivatives.row(head))
                value = {_OBJECT: "object", _ARRAY: "array"}.get(first, "value")
                self._add(source, "fold", f"{value} {pointer}", head, rest, mode, pointer)
            else:
                self._add(source, "rule", self._name(head, pointer), head, rest, mode, pointer)
            return
        apart = self._apart(head, mode)
        for member in apart:
            way = split.then(pool, member)
            if self._derivatives.length(way) < INFINITE:
                self._add_ways(source, way, mode)
        if apart:
            others = [member for member in pool.operands[head] if member not in apart]
            expression = split.then(pool, pool.union(others))
        for bits, target in self._row(expression):
            single = bits.bit_count() == 1
            after = mode.after(bytes(bytes_of(bits))) if single else mode
            kind: ChoiceKind = "byte" if single else "class"
            self._add(source, kind, spell_class(bits), pool.byte(bits), target, after, pointer)

    def _add_text(
        self, source: int, expression: Expression, mode: Mode, pointer: str | None
    ) -> None:
        """One choice of all the text up to the next literal."""
        pool, parts, after = self._pool, list[Expression](), mode
        while expression != pool.epsilon:
            split = self._marks.split(expression)
            head = split.head
            if pool.kinds[head] == Kind.LITERAL or not self._texts.is_text(head, mode):
                break
            parts.append(head)
            self._derivatives.length(head)  # which shortest builds on
            after = after.after(self._derivatives.shortest(head))
            expression = split.then(pool, pool.epsilon)
        label = self._texts.label(parts, mode)
        self._add(source, "text", label, pool.concatenate(*parts), expression, after, pointer)

    def _name(self, head: Expression, pointer: str | None) -> str:
        """Label of a rule, whose body becomes a separate node, or of a set of items or members."""
        pool, operand = self._pool, self._pool.operands[head]
        if pool.kinds[head] == Kind.DISTINCT:
            items, _, low, high = operand
            return f"{low} to {high} of {len(items)} items, all different"
        if pool.kinds[head] == Kind.CASES:
            return f"members by {len(operand.choices)} independent alternatives"
        if operand not in self._rules:
            if first_bytes(self._derivatives.row(head)) == _ANY_VALUE_FIRST:
                return "any JSON value"
            number = self._rules[operand] = len(self._rules) + 1
            body = pool.body(head)
            start = self._node(body if pointer is None else pool.pointed(body, pointer), self._mode)
            if start is not None:
                self._nodes[start].rule = number
        return f"rule {self._rules[operand]}"

    def _apart(self, head: Expression, mode: Mode) -> list[Expression]:
        """Members of a union that become separate ways: rules, folds and free text.

        Free text may have texts in common with other members; a row would separate them byte by
        byte.
        """
        if self._pool.kinds[head] != Kind.UNION:
            return []
        firsts = {member: self._marks.split(member).head for member in self._pool.operands[head]}
        return [
            member
            for member, first in firsts.items()
            if self._is_named(first) or self._texts.is_text(first, mode)
        ]

    def _is_named(self, head: Expression) -> bool:
        return self._pool.kinds[head] in (*_BY_NAME, Kind.MARKED)

    @cached_method
    def _is_fold(self, marked: Expression) -> bool:
        """Whether it is a whole value, one that may be an object or array, and folded."""
        pointer = self._marks.pointer_of(marked)
        inside = self._pool.operands[marked][0]
        return (
            marked < self._built
            and pointer is not None
            and self._folded(pointer)
            and self._pool.kinds[inside] != Kind.RULE
            and first_bytes(self._derivatives.row(marked)) & (_OBJECT | _ARRAY) != 0
        )


def folded_graph(asked: GraphSpec, limits: Limits | None = None) -> tuple[Graph, Program]:
    """The graph, and the program that owns its expressions.

    If the whole graph is too large, only values that fit are open, outer ones first, and those in
    ``options.open``, which do not fold others. A graph still too large is cut. Raises
    ``ConstraintError``. Cost: some explorations of the program, each bounded.
    """
    program = compile_program(asked.spec, limits, pointers=True)
    options = asked.options
    exploration = Exploration(program, json=isinstance(asked.spec, JsonSchema))
    graph = exploration.graph(options.max_states)
    if graph.whole:
        return graph, program
    fitting = _fitting(exploration, options.max_states)
    opened = set(fitting)
    for pointer in options.open:
        while pointer:  # and those that lead there
            opened.add(pointer)
            pointer = pointer.rpartition("/")[0]
    most = options.max_states if opened == fitting else MOST_STATES
    return exploration.graph(most, _all_but(opened)), program


def _fitting(exploration: Exploration, most: int) -> set[str]:
    """Pointers of the values that can be open in a graph of so many nodes."""
    opened = {_ANSWER}
    graph = exploration.graph(most, _all_but(opened))
    size, looked_into = len(graph.nodes), 0
    waiting = deque(_folds(graph))
    while graph.whole and waiting and looked_into < _MOST_LOOKED_INTO:
        pointer, value, times = waiting.popleft()
        if pointer in opened:
            continue
        looked_into += 1
        inside = exploration.graph(most, _all_but({pointer}), value)
        more = times * max(0, len(inside.nodes) - _ENDS)
        if inside.whole and size + more <= most:
            opened.add(pointer)
            size += more
            waiting.extend(_folds(inside))
    return opened


def _all_but(opened: Set[str]) -> Callable[[str], bool]:
    return lambda pointer: pointer not in opened


def _folds(graph: Graph) -> list[tuple[str, Expression, int]]:
    """Pointer and expression of each folded value, and how often it occurs."""
    found = [(edge.pointer, edge.decides) for edge in graph.edges if edge.kind == "fold"]
    return [
        (pointer, value, times)
        for (pointer, value), times in Counter(found).items()
        if pointer is not None
    ]
