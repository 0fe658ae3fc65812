"""The interface of constraints to the rest of the program: specifications in, masks out.

Three lifetimes, three types: ``Vocabulary`` lives as long as the process, ``Constraint`` as long
as its schema is cached (immutable, shared by requests), ``ConstraintState`` as long as a request.
The implementations are in ``app.text`` and ``app.constraint``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.core.composite import Composite
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from app.core.verbatim import Hole, Source

Mask = NDArray[np.uint32]
"""Packed token mask, shape [ceil(V / 32)]: bit ``i % 32`` of word ``i // 32`` is token ``i``."""


def full_mask(vocab_size: int) -> Mask:
    """The mask that allows every token id below ``vocab_size``."""
    mask = np.full(-(-vocab_size // 32), 0xFFFFFFFF, dtype=np.uint32)
    if vocab_size % 32:
        mask[-1] = (1 << vocab_size % 32) - 1
    return mask


ConstraintSpec = JsonSchema | JsonObject | Regex | Choice | Grammar | Composite


class Vocabulary(Protocol):
    """Token ids and the bytes they stand for; fixed for a model."""

    @property
    def size(self) -> int:
        """Number of token ids, V; logits may be wider (padding), never narrower."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Token ids that end an answer."""

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """Bytes of every token id; None for special tokens and unused ids."""


class ConstraintState(Protocol):
    """Where one answer stands in its constraint. Not thread-safe; owned by the engine."""

    gave_up: bool
    """Whether the last mask has only the first token of a shortest completion, because the full
    mask was too much work, or too many draws were rejected."""

    def mask(self, budget: int | None = None, *, work: int | None = None) -> Mask:
        """Tokens allowed next, end of sequence included where ``is_complete``. Read only.

        A token that ``accept`` raised ``DrawAgain`` for is left out.

        With ``budget`` (tokens left for the answer, this one included, end of sequence not
        counted) only tokens after which the answer can still be finished are allowed. Callers
        keep ``fits(budget)``; the mask then is never empty, and accepting any of its tokens with
        ``budget - 1`` keeps that true.

        ``work`` bounds what the call may cost, in steps of about a microsecond; where that is not
        enough it raises ``WorkPending``, and the same call later goes on from there. Some work
        cannot be resumed: after unsuccessful calls the next may cost more. A cached mask costs
        nothing. A mask that takes too many calls is given up: later calls only compute the first
        token of a shortest completion.
        """

    def prepare(self, *, work: int) -> None:
        """Compute ``forced`` and ``is_final`` of this state, with a limit of ``work``.

        Raises ``WorkPending`` as ``mask`` does, or ``ConstraintTooComplex`` where a mask would be
        given up.
        """

    def is_closing(self, mask: Mask, plain: Mask) -> bool:
        """Whether ``mask``, which a budget leaves of ``plain``, ends the JSON string or container
        that is being written, although it could continue without the budget."""

    def accept(self, token_id: int, *, budget: int | None = None) -> None:
        """Advance by a token. Raises ``RejectedToken`` if the mask excludes it.

        Masks do not depend on earlier values. If items or names must be distinct, a token may
        repeat one, or leave no distinct one, or no answer within ``budget`` more tokens: then
        ``DrawAgain`` is raised, and the next mask excludes the token.
        """

    def accept_bytes(self, data: bytes) -> None:
        """Advance by raw bytes, all or nothing.

        Raises ``RejectedToken`` and leaves the state as it was if ``data`` leaves the language.
        """

    def forced(self) -> bytes:
        """The singular path from here: the bytes every answer must go on with; b"" at a branch.

        Empty also where the answer may end here. Memoised: costs a lookup after the first time.
        """

    @property
    def state_id(self) -> Hashable:
        """Identifies the state in its constraint: equal ids have equal continuations."""

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is a whole answer (end of sequence allowed)."""

    @property
    def is_final(self) -> bool:
        """Whether the text so far is a whole answer and nothing can follow it."""

    def shortest_completion(self) -> bytes:
        """Bytes of a shortest way to a whole answer; b"" when complete."""

    def shortest_tokens(self, limit: int | None = None) -> int:
        """Upper bound, in tokens, of a shortest way to a whole answer; 0 when complete.

        Above ``limit`` it costs little, and beyond 64 KiB of text is only a lower bound.
        """

    def fits(self, budget: int) -> bool:
        """Whether it is known that the answer can be finished in ``budget`` tokens."""

    def quoted(self, most: int) -> bytes:
        """The document's text after the unfinished verbatim value, as the answer spells it.

        A guess of at most ``most`` bytes; b"" outside of verbatim values, and at their
        beginning.
        """

    def can_extend(self, tail: bytes) -> bool:
        """Whether some token spells ``tail`` and then a possible continuation.

        ``tail``: the last bytes of the text up to this state. If true, the tokenizer may merge
        them with the text after them, so a leap holds them back.
        """

    def copy(self, *, work: int | None = None) -> ConstraintState:
        """An independent state where this one stands.

        With ``work`` it is a bounded look-ahead: all calls on it and on its copies together may
        cost so many steps (see ``mask``), and raise ``ConstraintTooComplex`` beyond them. It is
        over when another one starts, or when any other state of the constraint is used.
        """


class Constraint(Protocol):
    """A compiled constraint: immutable to its users, shared by every request that names it."""

    def start(self) -> ConstraintState:
        """The state before the first byte of an answer.

        While ``holes`` are there, any text that their bounds admit may fill them.
        """

    @property
    def holes(self) -> Sequence[Hole]:
        """Holes to fill from documents before a request is answered; empty in most constraints."""

    @property
    def relaxed(self) -> Sequence[Relaxation]:
        """Parts of the specification that are not enforced."""

    def bind(self, documents: Mapping[Source, Any]) -> Constraint:
        """This constraint with its holes filled; it stays as it is, and any thread may ask.

        ``documents``: for the source of each hole, of the kind that the implementation reads.
        Raises ``UnsatisfiableSchema`` or ``ConstraintTooComplex``.
        """

    @property
    def nbytes(self) -> int:
        """Memory held for states and masks, in bytes; grows as states are visited."""

    @property
    def num_states(self) -> int:
        """States that were visited. Any thread may ask."""

    @property
    def num_masks(self) -> int:
        """States whose mask is kept. Any thread may ask."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One place of a schema that is not enforced."""

    pointer: str
    """A JSON Pointer into the schema as it was sent: to the keyword, or to the whole subschema."""
    keyword: str
    """Keyword that is not enforced there; "": all keywords but ``type``."""
    reason: str
    place: str
    """Pointer to the subschema, in the schema with the earlier relaxations applied."""
    subject: str = ""
    """The schema that it is about, if there are several: see ``JsonSchema``."""
    inexact: bool = False
    """The keyword is enforced, in one of the ways in which validators read it."""
    moves: bool = False
    """Whether places behind it have other pointers since: ``oneOf`` became ``anyOf``, or a name in
    ``required`` was dropped."""


@dataclass(frozen=True, slots=True)
class Written:
    """Texts that were written under a relaxed schema."""

    schema: Any
    """The schema as it was sent."""
    relaxed: tuple[Relaxation, ...]
    """All relaxations of this schema, in the order of their application."""
    texts: tuple[str, ...]
