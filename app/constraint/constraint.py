"""The constraint of a schema and its state in a request (the Protocols of ``app.core``)."""

from __future__ import annotations

from collections.abc import Mapping

from app.constraint.automaton.automaton import START, Automaton, State
from app.constraint.automaton.bits import set_bits
from app.constraint.automaton.choices import Choices
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.masks import Masks
from app.constraint.automaton.trie import DEAD
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.language.expressions import Kind
from app.constraint.language.rows import TooMuchWork
from app.constraint.memory.memory import Memory
from app.constraint.memory.places import Place as PlaceInMemory
from app.constraint.memory.plans import UNREACHABLE
from app.constraint.pieces.automaton import PieceAutomaton
from app.constraint.pieces.binding import BoundDerivatives, bind, holes_of
from app.constraint.pieces.document import Document
from app.constraint.pieces.masks import PieceMasks
from app.constraint.program import Program
from app.core.choices import Choice, TokenIds, Way
from app.core.constraint import Mask
from app.core.errors import ConstraintTooComplex, RejectedToken, WorkPending
from app.core.json_scan import Place
from app.core.verbatim import Source

_WORK_PER_CALL = 160_000
"""Steps of work that one call may cost: tens of milliseconds. Real schemas stay far below."""

_WORK_PER_MASK = 5_000_000
"""Steps of work that one mask may cost in all, over several calls. What takes more is not worked
out: the answer then goes on along its shortest completion."""


class CompiledConstraint:
    """A program linked to a vocabulary; states and masks fill up as requests visit them.

    Shared by any number of ``AutomatonState``, all on one thread.
    """

    def __init__(self, program: Program, index: VocabularyIndex) -> None:
        self.automaton, self.distances, self.masks = _run_over(program, index)
        self.choices = Choices(self.automaton, index)
        self.index = index
        self.memory = self._memory()
        is_bound = isinstance(program.derivatives, BoundDerivatives)
        self.holes = () if is_bound else tuple(holes_of(program))
        self._program = program
        self.relaxed = program.relaxed

    def _memory(self) -> Memory | None:
        if not self.automaton.pool.index[Kind.MARKED]:
            return None
        memory = Memory(self.automaton, self.distances, self.masks)
        return memory if memory.is_needed else None

    def bind(self, documents: Mapping[Source, Document]) -> CompiledConstraint:
        bound = CompiledConstraint(bind(self._program, documents), self.index)
        assert isinstance(bound.masks, PieceMasks)
        bound.masks.walk_beginnings()
        return bound

    def start(self) -> AutomatonState:
        if self.memory is not None:
            return RememberingState(self, self.memory, self.memory.start())
        return AutomatonState(self, START)

    @property
    def learned(self) -> int:
        """Grows with what is worked out: so it shows whether a call that gave up got any further.

        What is kept elsewhere, of what was said and of documents, does not show.
        """
        return self.automaton.learned + len(self.distances) + len(self.masks)

    @property
    def nbytes(self) -> int:
        memory = 0 if self.memory is None else self.memory.nbytes
        return self.automaton.nbytes + self.masks.nbytes + self.choices.nbytes + memory

    @property
    def num_states(self) -> int:
        return len(self.automaton)

    @property
    def num_masks(self) -> int:
        return len(self.masks)


def _run_over(program: Program, index: VocabularyIndex) -> tuple[Automaton, Distances, Masks]:
    """What runs a program over a vocabulary."""
    if isinstance(program.derivatives, BoundDerivatives):
        bound = PieceAutomaton(program)
        distances = Distances(bound, index)
        return bound, distances, PieceMasks(bound, index, distances)
    automaton = Automaton(program)
    distances = Distances(automaton, index)
    return automaton, distances, Masks(automaton, index, distances)


class AutomatonState:
    """Where one answer stands. See ``app.core.choices.ChoosingState``.

    A call whose work is not bounded in advance raises ``TooMuchWork`` when it has done as much as
    one call may; what it learned is kept.
    """

    __slots__ = (
        "_allow",
        "_automaton",
        "_bounded",
        "_constraint",
        "_distances",
        "_index",
        "_learned",
        "_masks",
        "_state",
        "_work",
    )

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
        """Whether this is a bounded look-ahead, with the work that is left to it."""
        self._work = 0
        """Steps of work so far for the mask that is being worked on, or for what is prepared."""
        self._learned = 0
        """What was worked out when that was last left."""

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        self._allow(_WORK_PER_MASK if work is None else work)
        try:
            mask = self._mask(budget)
        except TooMuchWork as error:
            if work is not None and self._work + work <= self._most_work:
                raise self._pending(work) from error
            mask = self._narrow_mask()
        except ConstraintTooComplex:
            mask = self._narrow_mask()
        self._work = 0
        return mask

    def is_closing(self, mask: Mask, plain: Mask) -> bool:
        inside = self._masks.is_quoted(self._state)
        going_on = self._index.unquoted if inside else self._index.not_closing
        return bool((plain & going_on).any()) and not (mask & going_on).any()

    def prepare(self, *, work: int) -> None:
        self._allow(work)
        try:
            if not self.is_complete or not self._automaton.is_final(self._state):
                self._automaton.forced(self._state)
        except TooMuchWork as error:
            if self._work + work <= self._most_work:
                raise self._pending(work) from error
            raise
        self._work = 0

    def _pending(self, work: int) -> WorkPending:
        """Leave what is worked on for now."""
        self._work += work
        before, self._learned = self._learned, self._constraint.learned
        return WorkPending(learned=self._learned > before)

    @property
    def _most_work(self) -> int:
        """Steps of work that a mask may cost in all: few where not many states are left."""
        return _WORK_PER_MASK if self._automaton.has_room else _WORK_PER_CALL

    def _narrow_mask(self) -> Mask:
        """The one token that a shortest completion begins with, or the end where that is empty."""
        self._allow(2 * _WORK_PER_CALL)
        text = self.shortest_completion()
        self._automaton.derivatives.lead_along(self._automaton.expression(self._state), text)
        mask = self._index.new_mask()
        tokens = self._distances.beginning(text) if text else self._index.eos
        set_bits(mask, tokens)
        return mask

    def _mask(self, budget: int | None) -> Mask:
        if budget is None:
            return self._masks.mask(self._state)
        return self._masks.budget_mask(self._state, budget)

    def accept(self, token_id: int) -> None:
        """Advance by a token; an end of sequence leaves the state where it is."""
        if token_id in self._index.eos_ids:
            if not self.is_complete:
                raise RejectedToken("end of sequence before the answer is whole")
            return
        known = 0 <= token_id < len(self._index.token_bytes)
        data = self._index.token_bytes[token_id] if known else None
        if data is None:
            raise RejectedToken(f"token {token_id} stands for no bytes")
        self.accept_bytes(data)

    def accept_bytes(self, data: bytes) -> None:
        after = self._automaton.steps.get((self._state, data))
        if after is None:
            self._renew()
            after = self._automaton.step(self._state, data)
        if after == DEAD:
            raise RejectedToken(f"{data!r} cannot follow here")
        self._state = after

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
            return max(distance, self._distances.told(self._state))
        return distance

    def quoted(self, most: int) -> bytes:
        return self._automaton.quoted(self._state, most)

    def can_extend(self, tail: bytes) -> bool:
        self._renew()
        try:
            return self._masks.can_extend(self._state, tail)
        except TooMuchWork:
            if self._bounded:
                raise  # a look-ahead must see what the sequence itself will see
            return True  # to hold text back is always right

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
        """Allow a call what one may cost; a bounded look-ahead has what is left to it."""
        if not self._bounded:
            self._allow(_WORK_PER_CALL)


class RememberingState(AutomatonState):
    """Where an answer stands that carries what it said, as items must differ from one another.

    ``state_id`` is that of the automaton: what is forced, and so the leap, is the same for all
    places of a state, as no answer can be finished from a place whose forced text repeats an item.
    """

    __slots__ = ("_memory", "_place")

    def __init__(
        self,
        constraint: CompiledConstraint,
        memory: Memory,
        place: PlaceInMemory,
        *,
        bounded: bool = False,
    ) -> None:
        super().__init__(constraint, place.state, bounded=bounded)
        self._memory = memory
        self._place = place

    def _mask(self, budget: int | None) -> Mask:
        if budget is None:
            return self._memory.masks.mask(self._place)
        return self._memory.masks.budget_mask(self._place, budget)

    def accept_bytes(self, data: bytes) -> None:
        self._renew()
        after = self._memory.places.advance(self._place, data)
        if after is None:
            raise RejectedToken(f"{data!r} cannot follow here")
        self._place, self._state = after, after.state

    def shortest_completion(self) -> bytes:
        return self._memory.plans.text(self._place)

    def shortest_tokens(self, limit: int | None = None) -> int:
        self._renew()
        distance = self._memory.plans.of(self._place, limit)
        assert distance < UNREACHABLE, "an answer that cannot be finished"
        return distance

    def copy(self, *, work: int | None = None) -> RememberingState:
        if work is not None:
            self._allow(work)
        bounded = self._bounded or work is not None
        return RememberingState(self._constraint, self._memory, self._place, bounded=bounded)

    def choice(self, place: Place) -> Choice | None:
        """Inside a list whose items must differ those of its state's ways that what was said
        leaves."""
        choice = super().choice(place)
        begun = any(self._place.begun) or any(frame.said.texts for frame in self._place.frames)
        return self._memory.left(self._place, choice) if choice and begun else choice

    def only(self, way: Way, before: bytes = b"") -> RememberingState:
        self._renew()
        place = self._memory.only(self._place, way, before)
        return RememberingState(self._constraint, self._memory, place, bounded=self._bounded)
