"""Derivatives of byte expressions, which of them are alive, and their shortest strings.

Lengths of plain expressions come from their parts, those of rules from a fixpoint, those of
intersections and complements from an A* search over their derivatives. Whether an expression has
any string is needed far more often and costs less: a best-first search to a state known to be
alive.

Searches are bounded. At the bound, compilation fails. Within an answer, the length is then that of
some string, and a language without a known string counts as empty. Each live state was found by a
string, and all states along that string are noted as alive, so an answer can always continue.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from app.constraint.language.expressions import INFINITE, ByteSet, Expression, ExpressionPool, Kind
from app.constraint.language.rows import UNBOUNDED, InTurns, Row, Rows, T, TooMuchWork, in_turns
from app.constraint.language.widths import NOTHING_FITS, Fit, Widths, fit
from app.core.errors import ConstraintTooComplex

_MOST_IN_ANSWERS = 5_000
"""Maximum states that a search visits within an answer."""

_MOST_LEFT, _VISIT_BYTES = 32, 400
"""Maximum interrupted searches that are kept, and their memory per visited state."""

_BYTES_A_STEP = 128
"""Bytes of repeated text written for one step of work; some texts have billions."""

_MOST_TO_IMPROVE = 500
"""Maximum states visited to find a string that is shorter than a known one."""

_WORK_OF_COMBINATION = 20
"""Steps of work for each combination of alternatives whose length is not cached."""

_MOST_LOOKED_AT = 2_000
"""Maximum parts of an expression examined to see that it needs no search."""
_PLAINLY_ALIVE = {
    *(Kind.EMPTY, Kind.EPSILON, Kind.BYTES, Kind.LITERAL, Kind.CONCATENATION, Kind.UNION),
    *(Kind.REPETITION, Kind.RULE, Kind.MARKED),
}
"""Forms that are alive if their parts are."""

_PREFERRED = b"a0A _"
"""Bytes preferred in shortest completions of equal length."""


class _Search:
    """A search over derivatives that can be interrupted and resumed."""

    __slots__ = ("came", "cost", "frontier", "here", "pushed")

    def __init__(self, start: Expression, bound: int) -> None:
        self.frontier = [(bound, 0, 0, start)]
        self.came: dict[Expression, tuple[Expression, ByteSet]] = {}
        self.cost = {start: 0}
        self.pushed = 0
        self.here: tuple[int, int, int, Expression] | None = None
        """The state that is being expanded."""

    def next(self) -> tuple[int, int, int, Expression] | None:
        """The state that is being expanded, else the most promising one; None if there is none."""
        if self.here is None and self.frontier:
            self.here = heapq.heappop(self.frontier)
        return self.here


class Derivatives(Rows):
    """Derivatives and lengths over one pool, memoised. Picklable together with the pool.

    ``measure`` must be called once after all rules are defined. Until then, a search that visits
    more than ``max_search`` states raises ``ConstraintTooComplex``.
    """

    def __init__(self, pool: ExpressionPool, max_search: int = 20_000) -> None:
        super().__init__(pool)
        self.max_search = max_search
        self.widths = Widths(pool)
        self._measured = False
        self._lengths: list[int | None] = _lengths_of(pool.base).copy()
        self._alive = bytearray()
        """1 for each expression found to have a string; 0 where that is not known."""
        self._dead: set[Expression] = set()
        """Expressions found to have no string."""
        self._pruned: set[Expression] = set()
        """Expressions without dead derivatives in their cached row."""
        self._nearest_steps: dict[Expression, tuple[int, Expression]] = {}
        """First byte of a shortest string of an intersection or complement, and its derivative."""
        self._steps: dict[Expression, tuple[int, Expression]] = {}
        """First byte of some string of an expression, and its derivative."""
        self._noted: set[Expression] = set()
        """Expressions with a complete string from ``note_string``."""
        self._given_up: set[Expression] = set()
        """Expressions that may have strings, though none was found."""
        self._searches: dict[tuple[Expression, int], _Search] = {}
        """Interrupted searches by start and maximum states (0: searches for any string)."""
        self._visited = 0
        """Number of states visited by searches."""

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {"_pruned": set(), "_searches": {}, "_visited": 0}
        lengths = self._lengths[len(_lengths_of(self.pool.base)) :]
        return {**super().__getstate__(), **fresh, "_lengths": lengths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lengths = _lengths_of(self.pool.base) + self._lengths

    @property
    def learned(self) -> int:
        """Counter of cached results and visited states."""
        steps = len(self._nearest_steps) + len(self._steps)
        found = len(self._given_up) + len(self.widths) + self._visited
        return len(self._rows) + len(self._dense) + len(self._pruned) + steps + found

    @property
    def nbytes(self) -> int:
        known = len(self._pruned) + len(self._dead) + len(self._given_up) + len(self._noted)
        steps = len(self._nearest_steps) + len(self._steps)
        sizes = 9 * len(self._lengths) + 40 * known + 110 * steps + 140 * len(self.widths)
        visited = sum([len(search.came) for search in [*self._searches.values()]])
        return super().nbytes + sizes + _VISIT_BYTES * visited

    def live_row(self, expression: Expression) -> Row:
        """``row`` without empty derivatives. Memoised."""
        row = self.row(expression)
        if expression not in self._pruned:
            if not all(self.is_alive(target) for _, target in row):
                row = [(bits, target) for bits, target in row if self.is_alive(target)]
                self._rows[expression] = row
            self._pruned.add(expression)
        return row

    def has_live_row(self, expression: Expression) -> bool:
        """Whether ``live_row`` of ``expression`` is cached."""
        return expression in self._pruned

    def derivative(self, expression: Expression, byte: int) -> Expression:
        """The derivative by ``byte``; ``pool.empty`` if it has no string."""
        self.spend(2)
        target = self.derivative_of(expression, byte)
        return target if self.is_alive(target) else self.pool.empty

    def is_alive(self, expression: Expression) -> bool:
        """Whether the language has any string. Memoised."""
        if expression >= len(self._alive):
            self._alive.extend(bytes(len(self.pool) + 256 - len(self._alive)))
        elif self._alive[expression]:
            return True
        elif expression in self._dead:
            return False
        alive = self._is_alive(expression)
        if alive:
            self._alive[expression] = 1
        elif self._measured:
            self._note_dead(expression)
        return alive

    def _note_dead(self, expression: Expression) -> None:
        """Note ``expression`` and its tails up to the dead part; derivatives have these tails."""
        kinds, operands = self.pool.kinds, self.pool.operands
        self._dead.add(expression)
        while kinds[expression] == Kind.CONCATENATION and self.is_alive(operands[expression][0]):
            expression = operands[expression][1]
            if expression in self._dead:
                break
            self._dead.add(expression)

    def _is_alive(self, expression: Expression) -> bool:
        pool = self.pool
        while True:
            if pool.nullable[expression]:
                return True
            known = self._known_length(expression)
            if known is not None:
                return known < INFINITE
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.CONCATENATION:
                if not self.is_alive(operand[0]):
                    return False
                expression = operand[1]
                if expression < len(self._alive) and self._alive[expression]:
                    return True
                if expression in self._dead:
                    return False
            elif kind == Kind.REPETITION or kind == Kind.MARKED:
                expression = operand[0]
            elif kind == Kind.UNION:
                return any(self.is_alive(member) for member in operand)
            elif kind == Kind.DRAWN or kind == Kind.REMAINDER:
                return True
            elif kind == Kind.INTERSECTION or kind == Kind.COMPLEMENT:
                fitting = self._fit(expression)
                if fitting is not None:
                    return fitting.text is not None
                return expression not in self._given_up and self._searched(
                    expression, 0, self._find_any
                )
            else:
                return self.length(expression) < INFINITE

    def length(self, expression: Expression) -> int:
        """Bytes in a shortest string of the language; ``INFINITE`` if there is none."""
        known = self._known_length(expression)
        if known is None:
            known = self._length(expression)
            self._set_length(expression, known)
        return known

    def measure(self) -> None:
        """Compute the lengths of all rules: the least fixpoint, from the shortest bodies upwards.

        Cost: about the number of nodes, if the lengths of few rules change more than once.
        """
        pool = self.pool
        rules = [rule for rule in pool.index[Kind.RULE].values() if rule >= pool.num_shared]
        plain = {rule for rule in rules if self._is_one_byte(pool.body(rule))}
        self._measure_parts(plain)
        if len(plain) < len(rules):
            self._measure_rules({pool.body(rule) for rule in rules if rule not in plain})
        self._measured = True
        self.max_search = min(self.max_search, _MOST_IN_ANSWERS)

    def _measure_rules(self, bodies: Iterable[Expression]) -> None:
        pool, wholes = self.pool, self._wholes()
        shortened = sorted(body for body in bodies if self.length(body) < INFINITE)
        while shortened:
            part = heapq.heappop(shortened)
            for whole in wholes.get(part, ()):
                takes_least = pool.kinds[whole] in (Kind.RULE, Kind.UNION)
                before = self.length(whole)
                length = self.length(part) if takes_least else self._length(whole)
                if length < before:
                    self._set_length(whole, length)
                    heapq.heappush(shortened, whole)

    def _is_one_byte(self, body: Expression) -> bool:
        """Whether a rule's shortest string plainly has one byte, as for any JSON value."""
        kinds, operands = self.pool.kinds, self.pool.operands
        if kinds[body] != Kind.UNION or self.pool.nullable[body]:
            return False
        return any(
            kinds[member] == Kind.BYTES
            or (kinds[member] == Kind.LITERAL and len(operands[member]) == 1)
            for member in operands[body]
        )

    def _measure_parts(self, plain: Iterable[Expression]) -> None:
        """Note the lengths of all expressions: 1 for ``plain`` rules, none yet for other rules."""
        pool = self.pool
        kinds, operands, nullable = pool.kinds, pool.operands, pool.nullable
        lengths: list[Any] = _lengths_of(pool.base).copy()
        known = len(lengths)
        lengths += [None] * (len(pool) - known)
        self._lengths = lengths
        for rule in plain:
            lengths[rule] = 1
        for expression in range(known, len(pool)):  # parts precede the expressions with them
            if lengths[expression] is not None:
                continue  # noted by a search
            kind = kinds[expression]
            if nullable[expression]:
                lengths[expression] = 0
            elif kind == Kind.CONCATENATION:
                head, tail = operands[expression]
                lengths[expression] = min(INFINITE, lengths[head] + lengths[tail])
            elif kind == Kind.LITERAL:
                lengths[expression] = len(operands[expression])
            elif kind == Kind.UNION:
                lengths[expression] = min([lengths[member] for member in operands[expression]])
            else:
                lengths[expression] = self._length(expression)

    def _wholes(self) -> dict[Expression, list[Expression]]:
        """For each body its rules, and for each expression with rules the expressions it is in."""
        pool = self.pool
        wholes: dict[Expression, list[Expression]] = {}
        for expression in range(pool.num_shared, len(pool)):
            kind = pool.kinds[expression]
            if pool.regular[expression] or kind == Kind.DISTINCT:
                continue
            for part in pool.parts(expression):
                if kind == Kind.RULE or not pool.regular[part]:
                    wholes.setdefault(part, []).append(expression)
        return wholes

    def shortest(self, expression: Expression) -> bytes:
        """A shortest string of the language, which must not be empty. Deterministic."""
        pool, parts = self.pool, []
        while not pool.nullable[expression]:
            self._left -= 1  # the next ``spend`` checks the limit
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.CONCATENATION:
                parts.append(self.shortest(operand[0]))
                expression = operand[1]
            elif kind == Kind.UNION:
                expression = min(operand, key=self.length)
            elif kind == Kind.RULE:
                expression = pool.body(expression)
            elif kind == Kind.DISTINCT:
                expression = pool.expand(expression)
            elif kind == Kind.CASES:
                parts += map(self.shortest, operand.shortest(self.length, pool.nearest))
                break
            elif kind == Kind.REMAINDER:
                parts.append(operand.shortest())
                break
            elif kind == Kind.MARKED:
                expression = operand[0]
            elif kind == Kind.DRAWN:
                _, text, expression = self._nearest_drawn(expression)
                parts.append(text)
            elif kind == Kind.HOLE or kind == Kind.PIECE:
                parts.append(self._shortest_piece(expression))
                break
            elif kind == Kind.INTERSECTION or kind == Kind.COMPLEMENT:
                fitting = self._fit(expression)
                if fitting is None or not fitting.is_shortest:
                    self.length(expression)
                    step = self._nearest_steps.get(expression)
                    if step is None and fitting is None:
                        step = self._steps[expression]
                    if step is not None:
                        parts.append(bytes([step[0]]))
                        expression = step[1]
                        continue
                assert fitting is not None
                assert fitting.text is not None
                parts.append(fitting.text)
                break
            else:
                if kind == Kind.REPETITION:
                    once = self.shortest(operand[0])
                    self.spend(len(once) * operand[1] // _BYTES_A_STEP)
                    parts.append(once * operand[1])
                else:
                    parts.append(
                        operand if kind == Kind.LITERAL else bytes([preferred_byte(operand)])
                    )
                break
        return b"".join(parts)

    def note_string(self, expression: Expression, text: bytes) -> InTurns[None]:
        """Note that all states along ``text``, a string of ``expression``, are alive.

        Nothing is noted if ``expression`` or its first part needs no search.
        """
        pool, position = self.pool, 0
        first = expression
        if pool.kinds[expression] == Kind.CONCATENATION:
            first = pool.operands[expression][0]
        if self._needs_no_search(expression) or (
            not pool.nullable[first] and self._needs_no_search(first)
        ):
            return
        passed: list[tuple[Expression, int]] = []
        while position < len(text) and expression not in self._noted:
            head, after = expression, pool.epsilon
            size = 1
            if pool.kinds[expression] == Kind.CONCATENATION:
                head, after = pool.operands[expression]
            if pool.kinds[head] == Kind.LITERAL:
                size = len(pool.operands[head])
            else:
                after = yield from in_turns(partial(self.derivative_of, expression, text[position]))
            passed.append((expression, text[position]))
            position, expression = position + size, after
        self._alive.extend(bytes(len(pool) - min(len(self._alive), len(pool))))
        for before, byte in reversed(passed):
            if not self._is_plainly_alive(before):
                self._steps[before] = byte, expression
            self._alive[before] = 1  # always: expressions with this tail then need not examine it
            self._noted.add(before)
            expression = before

    def _needs_no_search(self, expression: Expression) -> bool:
        """Whether ``expression`` and all of its derivatives plainly are alive, or empty."""
        pool, seen = self.pool, {expression}
        waiting = [expression]
        while waiting and len(seen) <= _MOST_LOOKED_AT:
            here = waiting.pop()
            self._left -= 1  # the next ``spend`` checks the limit
            if pool.kinds[here] not in _PLAINLY_ALIVE and here != pool.everything:
                return False
            new = set(pool.parts(here)) - seen
            seen |= new
            waiting += new
        return not waiting

    def _shortest_piece(self, hole: Expression) -> bytes:
        """A shortest string of a hole that is not filled."""
        return self.shortest(self.pool.operands[hole][1])

    def _known_length(self, expression: Expression) -> int | None:
        return self._lengths[expression] if expression < len(self._lengths) else None

    def _set_length(self, expression: Expression, length: int) -> None:
        if expression >= len(self._lengths):
            self._lengths.extend([None] * (len(self.pool) - len(self._lengths)))
        self._lengths[expression] = length

    def _length(self, expression: Expression) -> int:
        pool = self.pool
        if pool.nullable[expression]:
            return 0
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.LITERAL:
            return len(operand)
        if kind == Kind.BYTES:
            return 1
        if kind == Kind.CONCATENATION:
            return self._along(expression, self.length)
        if kind == Kind.UNION:
            return min([self.length(member) for member in operand])
        if kind == Kind.REPETITION:
            return min(INFINITE, self.length(operand[0]) * int(operand[1]))
        if kind == Kind.MARKED:
            return self.length(operand[0])
        if kind == Kind.DRAWN:
            return self._nearest_drawn(expression)[0]
        if kind == Kind.EMPTY or kind == Kind.RULE:  # rules have their lengths from ``measure``
            return INFINITE
        if kind == Kind.HOLE:
            return self.length(operand[1])
        if kind == Kind.REMAINDER:
            return len(operand.shortest())
        if kind == Kind.CASES:
            known = len(pool.nearest)
            length = int(operand.mapped(self.length).nearest(pool.nearest))
            self.spend(_WORK_OF_COMBINATION * (len(pool.nearest) - known))
            return length
        if kind == Kind.DISTINCT:
            items, between, least, _ = operand
            nearest: list[int] = sorted(map(self.length, items))[: int(least)]
            return min(INFINITE, sum(nearest) + self.length(between) * (int(least) - 1))
        fitting = self._fit(expression)
        if fitting is None:
            return self._searched(expression, self.max_search, self._find_nearest)
        if fitting.text is None:
            return INFINITE
        if fitting.is_shortest:
            return len(fitting.text)
        shorter = partial(self._find_nearest, known_one=len(fitting.text))
        return self._searched(expression, _MOST_TO_IMPROVE, shorter)

    def _nearest_drawn(self, expression: Expression) -> tuple[int, bytes, Expression]:
        """The length of a drawn expression, the text on its shortest string, and the rest."""
        start, texts = self.pool.operands[expression]
        found = []
        for text in texts:
            after = start
            for byte in text:
                after = self.derivative_of(after, byte)
            found.append((len(text) + self.length(after), text, after))
        return min(found)

    def _fit(self, expression: Expression) -> Fit | None:
        """``fit`` of a pattern with bounds on its characters; None for other forms."""
        counted = self.pool.counted(expression)
        if counted is None:
            return None
        fitting = fit(self, counted)
        if fitting is NOTHING_FITS:
            self._set_length(expression, INFINITE)
        return fitting

    def _searched(
        self, start: Expression, most: int, find: Callable[[Expression, _Search], T]
    ) -> T:
        """The result of a search over ``most`` states; it resumes where it was interrupted."""
        search = self._searches.pop((start, most), None) or _Search(start, self._bound(start))
        try:
            return find(start, search)
        except TooMuchWork:
            if len(self._searches) >= _MOST_LEFT:  # drop the oldest; its answer may have ended
                del self._searches[next(iter(self._searches))]
            self._searches[start, most] = search
            raise

    def _find_any(self, start: Expression, search: _Search) -> bool:
        """Whether there is a string: best-first search to a state known to be alive.

        Notes that all states on the path are alive, or that all visited states are dead.
        """
        came = search.came
        while (entry := search.next()) is not None:
            _, order, _, here = entry
            fitting = self._fit(here) if here != start else None
            if fitting is not None:
                if fitting.text is not None:
                    self._note_alive(start, here, came)
                    return True
                search.here = None
                continue
            if len(came) > self.max_search:
                if not self._measured:
                    raise ConstraintTooComplex(f"more than {self.max_search} states in a search")
                self._given_up.add(start)
                return False
            row = self.row(here)
            self._visited += 1
            self.spend(2 + len(row))
            for bits, target in row:
                if target in came or target == start:
                    continue
                bound = self._bound(target)
                if bound >= INFINITE:
                    continue
                is_alive = self._is_plainly_alive(target)
                came[target] = here, bits
                if is_alive:
                    self._note_alive(start, target, came)
                    return True
                heapq.heappush(search.frontier, (bound, order - 1, 0, target))
            search.here = None
        for expression in (start, *came):
            self._set_length(expression, INFINITE)
        return False

    def _note_alive(
        self, start: Expression, end: Expression, came: dict[Expression, tuple[Expression, ByteSet]]
    ) -> None:
        """Note that all states on the path to ``end``, which is alive, are alive."""
        self._alive.extend(bytes(len(self.pool) - min(len(self._alive), len(self.pool))))
        self._alive[end] = 1
        while end != start:
            before, bits = came[end]
            self._alive[before] = 1
            self._steps[before] = preferred_byte(bits), end
            end = before

    def _is_plainly_alive(self, expression: Expression) -> bool:
        """Whether ``expression`` is known to have a string, by itself or by its parts."""
        pool = self.pool
        while pool.kinds[expression] == Kind.CONCATENATION:
            if expression < len(self._alive) and self._alive[expression]:
                return True
            head, expression = pool.operands[expression]
            if not self._is_plainly_alive(head):
                return False
        if expression < len(self._alive) and self._alive[expression]:
            return True
        known = 0 if pool.nullable[expression] else self._known_length(expression)
        if known is not None:
            return known < INFINITE
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.UNION:
            return any(map(self._is_plainly_alive, operand))
        if kind == Kind.REPETITION or kind == Kind.MARKED:
            return self._is_plainly_alive(operand[0])
        if kind == Kind.INTERSECTION or kind == Kind.COMPLEMENT:
            return False
        return self.length(expression) < INFINITE

    def _find_nearest(
        self, start: Expression, search: _Search, known_one: int | None = None
    ) -> int:
        """A* over derivatives to the nearest nullable one; notes the lengths it finds.

        ``known_one``: the length of a known string.

        Ties go to the deepest state, so that a long string of plain length is found at once. A
        state of known length ends the search, as its bound is exact.
        """
        cost, came = search.cost, search.came
        while (entry := search.next()) is not None:
            _, negative_depth, _, here = entry
            depth = -negative_depth
            if depth > cost[here]:
                search.here = None
                continue
            known = 0 if self.pool.nullable[here] else self._known_length(here)
            if known is not None:
                end, length = here, known
                self._set_length(end, length)
                while end != start:
                    before, bits = came[end]
                    length += 1
                    self._set_length(before, length)
                    self._nearest_steps[before] = (preferred_byte(bits), end)
                    end = before
                return depth + known
            if len(cost) > (self.max_search if known_one is None else _MOST_TO_IMPROVE):
                return self._some_length(start) if known_one is None else known_one
            row = self.row(here)
            self._visited += 1
            self.spend(2 + len(row))
            for bits, target in row:
                if depth + 1 < cost.get(target, INFINITE):
                    bound = self._bound(target)
                    if bound < INFINITE:
                        cost[target] = depth + 1
                        came[target] = (here, bits)
                        search.pushed -= 1
                        entry = (depth + 1 + bound, -depth - 1, search.pushed, target)
                        heapq.heappush(search.frontier, entry)
            search.here = None
        for expression in cost:
            self._set_length(expression, INFINITE)
        return INFINITE

    def _some_length(self, start: Expression) -> int:
        """The length of the string by which ``start`` was found to be alive."""
        if not self.is_alive(start):
            return INFINITE
        length = 0
        while start in self._steps:
            start = self._steps[start][1]
            length += 1
        return min(INFINITE, length + self.length(start))

    def _bound(self, expression: Expression) -> int:
        """A lower bound of the length without a search, the A* heuristic. Notes exact lengths."""
        known = self._known_length(expression)
        if known is not None:
            return known
        pool = self.pool
        if pool.nullable[expression]:
            return 0
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.INTERSECTION:
            self.spend(1 + len(operand) // 2)
            counted = pool.counted(expression)
            if counted is not None and self._is_exact(counted.pattern):
                fitting = self._fit(expression)
                if fitting is NOTHING_FITS:
                    return INFINITE
                if fitting is not None and fitting.text is not None and fitting.is_shortest:
                    self._set_length(expression, len(fitting.text))
                    return len(fitting.text)
            return max([self._bound(member) for member in operand])
        if kind == Kind.COMPLEMENT:
            return 1
        if kind == Kind.CONCATENATION:
            return self._along(expression, self._bound)
        if kind == Kind.UNION:
            self.spend(1 + len(operand) // 2)
            bounds = [self._bound(member) for member in operand]
            bound = min(bounds)
            parts: tuple[Expression, ...] = (operand[bounds.index(bound)],)
        elif kind == Kind.MARKED:
            parts = operand[:1]
            bound = self._bound(operand[0])
        elif kind == Kind.REPETITION:
            parts = operand[:1]
            bound = min(INFINITE, self._bound(operand[0]) * int(operand[1]))
        else:
            return self.length(expression)
        if all(map(self._is_exact, parts)):
            self._set_length(expression, bound)
        return bound

    def _along(self, concatenation: Expression, of: Callable[[Expression], int]) -> int:
        """The sum of ``of`` (``length`` or ``_bound``) over the parts, without recursion, as they
        may be many. Notes exact lengths."""
        pool, chain = self.pool, [concatenation]
        end = pool.operands[concatenation][1]
        while pool.kinds[end] == Kind.CONCATENATION and not self._is_exact(end):
            chain.append(end)
            end = pool.operands[end][1]
        self.spend(len(chain))
        total, exact = of(end), self._is_exact(end)
        for whole in reversed(chain):
            head = pool.operands[whole][0]
            total = min(INFINITE, total + of(head))
            exact = exact and self._is_exact(head)
            if exact:
                self._set_length(whole, total)
        return total

    def _is_exact(self, expression: Expression) -> bool:
        """Whether the length of an expression is known."""
        return self.pool.nullable[expression] or self._known_length(expression) is not None


def measured(pool: ExpressionPool, work: int = UNBOUNDED) -> Derivatives:
    """The measured derivatives of a pool with all rules defined; ``work``: limit from here on."""
    derivatives = Derivatives(pool)
    derivatives.allow(work)
    derivatives.measure()
    return derivatives


@cache
def _lengths_of(base: ExpressionPool | None) -> list[int | None]:
    """The lengths of all expressions of a pool that does not change. Read only."""
    return measured(base)._lengths if base else []


def preferred_byte(bits: ByteSet) -> int:
    """The byte of a set that shortest completions use."""
    for byte in _PREFERRED:
        if bits >> byte & 1:
            return byte
    return (bits & -bits).bit_length() - 1
