"""What a specification may cost, in one place. Passing a limit is ``ConstraintTooComplex``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what is read and on what is built; deterministic, so equal everywhere."""

    schema_bytes: int = 4 << 20
    """Characters of keys and strings in a schema, plus one for every other value."""
    schema_values: int = 500_000
    """JSON values in a schema, containers included."""
    schema_nesting: int = 128
    """Depth of a schema as JSON; ``$ref`` may go as deep as it likes."""
    branches: int = 2_000
    """Alternatives of one subschema after ``anyOf`` is distributed over its siblings."""
    overlaps: int = 3_000
    """Pairs of alternatives of one ``oneOf`` that are not distinguished at a glance."""
    branch_steps: int = 800_000
    """Subschemas and disjunctions looked at to work out the alternatives, in the whole schema."""
    counted_members: int = 20_000
    """Members of an object, or items of an array, times the counts that must be distinguished."""
    different_items: int = 500
    """Values of a finite set of which those that are left are kept in states; where there are more,
    ``uniqueItems`` goes by the texts seen."""
    choices: int = 200_000
    """Values of one ``enum``, options of one ``Choice``."""
    pattern_characters: int = 8_192
    pattern_nesting: int = 64
    nested_counts: int = 100_000
    """Product of the counts of repetitions inside one another; a count alone is not bounded."""
    verbatim_states: int = 1_024
    """States of the patterns and lengths beside one ``x-verbatim``, over bytes."""
    integer_digits: int = 20
    """Digits before the point where no bound asks for more: 64-bit identifiers fit."""
    fraction_digits: int = 18
    """Digits after the point."""
    nodes: int = 2_000_000
    """Expressions in the pool."""
    missing: int = 0
    """Bytes that the tokenizer cannot spell, as a ``ByteSet``: see ``language.spelling``."""
