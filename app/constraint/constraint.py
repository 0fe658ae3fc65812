"""The constraint of a schema and its state in a request (the Protocols of ``app.core``)."""

from __future__ import annotations

from collections.abc import Mapping

from app.constraint.automaton.automaton import START, Automaton, State
from app.constraint.automaton.bits import set_bits
from app.constraint.automaton.choices import Choices
from app.constraint.automaton.distances import Distances, Plan
from app.constraint.automaton.masks import Masks
from app.constraint.automaton.trie import DEAD
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.distinct.places import Place as PlaceInText
from app.constraint.distinct.places import Places, Repeated
from app.constraint.distinct.plans import Plans
from app.constraint.language.expressions import INFINITE
from app.constraint.language.rows import InTurns, TooMuchWork, at_once, in_turns
from app.constraint.program import Program
from app.constraint.quotes.automaton import PieceAutomaton
from app.constraint.quotes.binding import BoundDerivatives, bind, holes_of
from app.constraint.quotes.document import Document
from app.constraint.quotes.masks import PieceMasks
from app.core.choices import Choice, TokenIds, Way
from app.core.constraint import Mask
from app.core.errors import ConstraintTooComplex, DrawAgain, RejectedToken, WorkPending
from app.core.json_scan import Place
from app.core.verbatim import Source

_WORK_PER_CALL = 160_000
"""Steps of work that one call may cost: tens of milliseconds. Real schemas stay far below."""

_WORK_PER_MASK = 3_000_000
"""Steps of work that one mask may cost in all, over several calls. A mask that needs more is given
up: the answer then follows its shortest completion."""

_MOST_IN_VAIN = 200_000
"""Steps of work in calls that learned nothing, after which a mask is given up."""
_GROWTH = 3
"""Divisor of these steps for the limit of the next call: a search that restarts needs more."""

_MOST_GROWN = 8_000
"""Limit up to which the work of a call grows fast on a mask that was given up."""

MOST_TRIED = 16
"""Rejected tokens at one position, after which the shortest completion is followed, too."""

_MOST_PLANNED = 1_500
"""Bytes of an answer up to which a completion that repeats nothing is computed to tell a caller how
many tokens are needed; for longer answers the number is an upper bound."""


class CompiledConstraint:
    """A program linked to a vocabulary; states and masks fill up as requests visit them.

    Shared by any number of ``AutomatonState``, all on one thread.
    """

    def __init__(self, program: Program, index: VocabularyIndex) -> None:
        is_bound = isinstance(program.derivatives, BoundDerivatives)
        self.automaton = PieceAutomaton(program) if is_bound else Automaton(program)
        self.distances = Distances(self.automaton, index)
        self.masks = (
            PieceMasks(self.automaton, index, self.distances)
            if isinstance(self.automaton, PieceAutomaton)
            else Masks(self.automaton, index, self.distances)
        )
        self.choices = Choices(self.automaton, index)
        self.index = index
        places = Places(self.automaton, program.notation)
        self.places = places if places.is_needed else None
        """None where no items or names have to differ."""
        self.plans = Plans(places)
        self.holes = () if is_bound else tuple(holes_of(program))
        self._program = program
        self.relaxed = program.relaxed

    def bind(self, documents: Mapping[Source, Document]) -> CompiledConstraint:
        bound = CompiledConstraint(bind(self._program, documents), self.index)
        assert isinstance(bound.masks, PieceMasks)
        bound.masks.walk_beginnings()
        return bound

    def start(self) -> AutomatonState:
        if self.places is not None:
            return PlaceState(self, self.places.start())
        return AutomatonState(self, START)

    @property
    def learned(self) -> int:
        """A number that changes with the caches: whether a call that gave up made progress.

        Caches about texts seen and about documents are not counted.
        """
        return self.automaton.learned + len(self.distances) + self.masks.nbytes

    @property
    def nbytes(self) -> int:
        places = 0 if self.places is None else self.places.nbytes
        return self.automaton.nbytes + self.masks.nbytes + self.choices.nbytes + places

    @property
    def num_states(self) -> int:
        return len(self.automaton)

    @property
    def num_masks(self) -> int:
        return len(self.masks)


class AutomatonState:
    """State of one answer. See ``app.core.choices.ChoosingState``.

    A call whose work is not bounded in advance raises ``TooMuchWork`` at the limit of one call;
    its results so far stay cached.
    """

    def __init__(
        self, constraint: CompiledConstraint, state: State, *, bounded: bool = False
    ) -> None:
        self._automaton = constraint.automaton
        self._allow = constraint.automaton.derivatives.allow
        self._masks = constraint.masks
        self._distances = constraint.distances
        self._index = constraint.index
        self._constraint = constraint
        self._state = state
        self._bounded = bounded
        """Whether this is a look-ahead, whose calls share one work limit."""
        self._work = 0
        """Steps of work so far for the current mask, or for ``prepare``."""
        self._learned = 0
        """``CompiledConstraint.learned`` when that work was last interrupted."""
        self._in_vain = 0
        """Steps of work in calls without progress."""
        self._narrowing: tuple[int | None, InTurns[Mask]] | None = None
        """Budget of the mask that was given up, and the computation that replaces it."""
        self.gave_up = False
        """See ``ConstraintState.gave_up``."""

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        if self._narrowing is None or self._narrowing[0] != budget:
            self.gave_up = False
            self._allow(_WORK_PER_MASK if work is None else self._in_turn(work))
            try:
                mask = self._mask(budget)
                self._work = self._in_vain = 0
                return mask
            except TooMuchWork as error:
                if work is not None and self._may_go_on(work):
                    raise WorkPending from error
            except ConstraintTooComplex:
                pass
            self.give_up(budget)
        assert self._narrowing is not None
        narrowing, self._narrowing = self._narrowing, None
        self.gave_up = True
        # The limit grows with all work before, so that work that cannot be suspended ends at last.
        most = 2 * _WORK_PER_CALL
        grown = max(min(self._work // 8, _MOST_GROWN), self._work // 256)
        allowed = most if work is None else min(work and max(work, grown), most)
        self._allow(allowed)
        try:
            mask = at_once(narrowing[1])
        except TooMuchWork as error:
            if allowed == most:
                raise
            self._narrowing = narrowing
            self._work += allowed
            raise WorkPending from error
        self._work = 0
        return mask

    def is_closing(self, mask: Mask, plain: Mask) -> bool:
        inside = self._masks.is_quoted(self._state)
        going_on = self._index.unquoted if inside else self._index.not_closing
        return bool((plain & going_on).any()) and not (mask & going_on).any()

    def give_up(self, budget: int | None) -> None:
        """Replace the mask under ``budget`` by the first token of a shortest completion."""
        self._work = self._in_vain = 0
        self._narrowing = budget, self._narrow_mask()

    def prepare(self, *, work: int) -> None:
        self._allow(self._in_turn(work))
        try:
            if not self.is_complete or not self._automaton.is_final(self._state):
                self._automaton.forced(self._state)
        except TooMuchWork as error:
            if self._may_go_on(work):
                raise WorkPending from error
            raise
        self._work = self._in_vain = 0

    def _in_turn(self, work: int) -> int:
        """Work limit of a call that is allowed ``work``: more after calls that learned nothing."""
        return work and max(work, self._in_vain // _GROWTH)

    def _may_go_on(self, work: int) -> bool:
        """Count a call that needed more than ``work``; whether a later call may continue it."""
        self._work += work
        before, self._learned = self._learned, self._constraint.learned
        if self._learned == before:
            self._in_vain += self._in_turn(work)
        # A mask may cost little if the automaton is nearly full.
        most = _WORK_PER_MASK if self._automaton.has_room else _WORK_PER_CALL
        return self._work <= most and self._in_vain < _MOST_IN_VAIN

    def _narrow_mask(self) -> InTurns[Mask]:
        """A mask of the first token of a shortest completion, or of the end if that is empty."""
        plan = yield from self._completion()
        text = plan.text[plan.position :]
        derivatives = self._automaton.derivatives
        yield from derivatives.note_string(self._automaton.expression(self._state), text)
        mask = self._index.new_mask()
        set_bits(mask, self._distances.first(plan))
        return mask

    def _completion(self) -> InTurns[Plan]:
        """A shortest completion."""
        return in_turns(lambda: self._distances.plan(self.shortest_completion()))

    def _mask(self, budget: int | None) -> Mask:
        if budget is None:
            return self._masks.mask(self._state)
        return self._masks.budget_mask(self._state, budget)

    def accept(self, token_id: int, *, budget: int | None = None) -> None:
        """Advance by a token; an end of sequence leaves the state where it is."""
        data = self._spelled(token_id)
        if data:
            self.accept_bytes(data)

    def _spelled(self, token_id: int) -> bytes:
        """The bytes of a token, b"" for an allowed end of sequence."""
        if token_id in self._index.eos_ids:
            if not self.is_complete:
                raise RejectedToken("end of sequence before the answer is complete")
            return b""
        known = 0 <= token_id < len(self._index.token_bytes)
        data = self._index.token_bytes[token_id] if known else None
        if data is None:
            raise RejectedToken(f"token {token_id} stands for no bytes")
        return data

    def accept_bytes(self, data: bytes) -> None:
        after = self._automaton.steps.get((self._state, data))
        if after is None:
            self._renew()
            after = self._automaton.step(self._state, data)
        if after == DEAD:
            raise RejectedToken(f"{data!r} cannot follow here")
        self._state, self._narrowing = after, None

    def forced(self) -> bytes:
        path = self._automaton.paths.get(self._state)
        if path is None:
            self._renew()
            path = self._automaton.forced(self._state)
        return path.text

    @property
    def state_id(self) -> State:
        return self._state

    @property
    def is_complete(self) -> bool:
        return self._automaton.is_accepting(self._state)

    @property
    def is_final(self) -> bool:
        if not self._automaton.is_accepting(self._state):
            return False
        self._renew()
        return self._automaton.is_final(self._state)

    def shortest_completion(self) -> bytes:
        return self._automaton.shortest(self._state)

    def shortest_tokens(self, limit: int | None = None) -> int:
        self._renew()
        distance = self._distances.of(self._state, limit)
        if limit is not None and distance > limit:
            return max(distance, self._distances.needed(self._state))
        return distance

    def fits(self, budget: int) -> bool:
        self._renew()
        return self._distances.fits(self._state, budget)

    def quoted(self, most: int) -> bytes:
        return self._automaton.quoted(self._state, most)

    def can_extend(self, tail: bytes) -> bool:
        self._renew()
        try:
            return self._masks.can_extend(self._state, tail)
        except TooMuchWork:
            if self._bounded:
                raise  # a look-ahead must see what the sequence itself will see
            return True  # holding text back is always correct

    def copy(self, *, work: int | None = None) -> AutomatonState:
        if work is not None:
            self._allow(work)
        bounded = self._bounded or work is not None
        return AutomatonState(self._constraint, self._state, bounded=bounded)

    @property
    def has_exact_choices(self) -> bool:
        return bool(self._automaton.pool.exact_choices)

    def choice(self, place: Place) -> Choice | None:
        self._renew()
        return self._constraint.choices.of(self._state, place)

    def only(self, way: Way, before: bytes = b"") -> AutomatonState:
        self._renew()
        state = self._constraint.choices.only(self._state, way, before)
        if state == DEAD:
            raise RejectedToken(f"{way} cannot follow here")
        return AutomatonState(self._constraint, state, bounded=self._bounded)

    def beginning(self, text: bytes) -> TokenIds:
        return self._constraint.choices.beginning(text)

    def _renew(self) -> None:
        """Reset the work limit for a call; a look-ahead keeps what is left of its own."""
        if not self._bounded:
            self._allow(_WORK_PER_CALL)


class PlaceState(AutomatonState):
    """State of an answer whose items or names must differ from one another.

    Masks and ``state_id`` are those of the automaton's state: forced text, and so the leap, does
    not depend on the texts seen, as no answer can be finished from a place whose forced text
    repeats something. Only ``accept`` notices that a token repeats something: see ``DrawAgain``.
    """

    def __init__(
        self, constraint: CompiledConstraint, place: PlaceInText, *, bounded: bool = False
    ) -> None:
        super().__init__(constraint, place.state, bounded=bounded)
        assert constraint.places is not None
        self._places, self._plans = constraint.places, constraint.plans
        self._watchful = False
        """Whether a draw repeated something: masks then exclude repetitions beforehand."""
        self._drawn = False
        """Whether a choice was drawn: it may need an item, and the shortest one may repeat."""
        self._stand(place, None)

    def _stand(self, place: PlaceInText, plan: Plan | None) -> None:
        self._place, self._state, self._plan = place, place.state, plan
        self._narrowing = None
        self._barred: Mask | None = None
        """Tokens of the state's mask that repeat, cannot end within the budget or cost too much."""
        self._looked = False
        """Whether ``_look`` has added the tokens that repeat texts seen."""
        self._tried = 0

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        if self._watchful and not self._looked:
            self._look()
        return super().mask(budget, work=work)

    def _mask(self, budget: int | None) -> Mask:
        plan, first = self._plan, None
        if budget is not None and plan is not None:
            # Other completions may exceed the state's distance by as much as the plan does.
            budget -= max(0, plan.left - self._distances.of(self._state))
            first = self._distances.first(plan)
        mask = super()._mask(budget)
        if self._tried >= MOST_TRIED:
            raise ConstraintTooComplex("too many rejected tokens")
        if self._barred is not None or first is not None:
            mask = mask.copy()
            if first is not None:
                set_bits(mask, first)
            if self._barred is not None:
                mask &= ~self._barred
            if not mask.any():
                raise ConstraintTooComplex("every token was rejected")
        return mask

    def _look(self) -> None:
        """Bar the tokens that repeat texts seen, once.

        The result does not depend on cached work: otherwise answers would.
        """
        self._looked = True
        self._allow(_WORK_PER_CALL)
        if not self._place.may_repeat and self._places.next_item(self._place) is None:
            return
        trie = self._index.trie
        for text in self._places.repeats(self._place, lambda text: trie.find(text) >= 0):
            self._bar(self._index.beginning(text))

    def accept(self, token_id: int, *, budget: int | None = None) -> None:
        data = self._spelled(token_id)
        if not data:
            return
        self._renew()
        try:
            place = self._places.advance(self._place, data)
            if place is None:
                raise RejectedToken(f"{data!r} cannot follow here")
            plan = self._plan and self._plan.behind(data)
            if budget is not None:
                plan = self._within(place, plan, budget, data)
        except Repeated as repeated:
            self._bar(self._index.beginning(data[: repeated.length]))
            self._watchful = True
        except (TooMuchWork, _NotWithin):
            self._bar(self._index.spelled(data))
            self._tried += MOST_TRIED // 2  # others cost as much to try, and may fit as little
        else:
            self._stand(place, plan)
            return
        self._tried += 1
        raise DrawAgain(
            "the drawn token repeats an item or a name, or leaves no answer within the budget"
        )

    def _bar(self, tokens: TokenIds) -> None:
        """Exclude ``tokens`` from the masks at this position."""
        self._barred = self._index.new_mask() if self._barred is None else self._barred.copy()
        set_bits(self._barred, tokens)

    def accept_bytes(self, data: bytes) -> None:
        self._renew()
        place = self._places.advanced(self._place, data)
        if place is None:
            raise RejectedToken(f"{data!r} cannot follow here")
        self._stand(place, self._plan and self._plan.behind(data))

    def shortest_completion(self) -> bytes:
        plan = self._plan or self._planned(self._place)
        return plan.text[plan.position :]

    def shortest_tokens(self, limit: int | None = None) -> int:
        if self._plans.is_plain(self._place) and not self._drawn:
            return super().shortest_tokens(limit)
        self._renew()
        if self._plan is None:
            bound = self._plans.bound(self._place)
            least = self._distances.least(self._state)
            long = bound < INFINITE and self._automaton.length(self._state) > _MOST_PLANNED
            if limit is not None and long and not least <= limit < bound:
                return bound
            try:
                self._plan = self._planned(self._place)
            except TooMuchWork:
                if bound == INFINITE:
                    raise
                return bound
        return self._plan.left

    def fits(self, budget: int) -> bool:
        self._renew()
        try:
            self._plan = self._within(self._place, self._plan, budget)
        except (TooMuchWork, _NotWithin):
            return False
        return True

    def _within(
        self, place: PlaceInText, plan: Plan | None, budget: int, data: bytes = b""
    ) -> Plan | None:
        """A completion of ``place`` within ``budget`` tokens; None if one surely exists.

        ``data`` leads to ``place`` from the current place. Raises ``_NotWithin``.
        """
        if self._plans.is_plain(place) and not self._drawn:
            if self._distances.fits(place.state, budget):
                return None
        elif self._plans.bound(place) <= budget:
            return None
        if plan is not None and plan.left <= budget:
            return plan
        planned = self._planned(place)
        if planned.left <= budget:
            return planned
        if data and self._plan is None:  # from now on there is a plan to follow
            self._plan = self._planned(self._place)
            plan = self._plan and self._plan.behind(data)
            if plan is not None and plan.left <= budget:
                return plan
        raise _NotWithin

    def _planned(self, place: PlaceInText) -> Plan:
        return at_once(self._plan_of(place))

    def _completion(self) -> InTurns[Plan]:
        if self._plan is None:
            self._plan = yield from self._plan_of(self._place)  # later masks follow it, too
        return self._plan

    def _plan_of(self, place: PlaceInText) -> InTurns[Plan]:
        text = yield from self._plans.completion(place)
        if text is None:
            raise ConstraintTooComplex("search limit reached before a completion was found")
        return (yield from in_turns(lambda: self._distances.plan(text)))

    def copy(self, *, work: int | None = None) -> PlaceState:
        if work is not None:
            self._allow(work)
        bounded = self._bounded or work is not None
        other = PlaceState(self._constraint, self._place, bounded=bounded)
        for name in ("_plan", "_barred", "_looked", "_tried", "_watchful", "_drawn"):
            setattr(other, name, getattr(self, name))
        return other

    def choice(self, place: Place) -> Choice | None:
        """The choice of the state, without the ways that repeat texts seen."""
        choice = super().choice(place)
        return self._places.left(self._place, choice) if choice else choice

    def only(self, way: Way, before: bytes = b"") -> PlaceState:
        self._renew()
        whole = before + way.text if way.ends_answer else None
        place = self._places.only(self._place, [before + text for text in way.texts], whole)
        other = PlaceState(self._constraint, place, bounded=self._bounded)
        other._drawn = True
        return other


class _NotWithin(Exception):
    """No completion within the budget is known."""
