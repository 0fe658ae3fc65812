"""Limits on the cost of a specification. Exceeding one raises ``ConstraintTooComplex``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the input and on what is built from it: counts, so equal on every machine."""

    schema_bytes: int = 4 << 20
    """Characters of keys and strings in a schema, plus one for every other value."""
    schema_values: int = 500_000
    """JSON values in a schema, containers included."""
    schema_nesting: int = 128
    """JSON nesting of a schema; chains of ``$ref`` do not count."""
    branches: int = 2_000
    """Alternatives of one subschema after ``anyOf`` is distributed over its siblings."""
    overlaps: int = 3_000
    """Pairs of alternatives of one ``oneOf`` that are not plainly disjoint."""
    branch_steps: int = 800_000
    """Subschemas and disjunctions visited to expand alternatives, in the whole schema."""
    counted_members: int = 20_000
    """Members of an object, or items of an array, times the counts that must be distinguished."""
    different_items: int = 500
    """Values of a finite set of unique items whose remaining values are kept in states; for larger
    sets ``uniqueItems`` uses the texts seen."""
    choices: int = 200_000
    """Values of one ``enum``, options of one ``Choice``."""
    pattern_characters: int = 8_192
    pattern_nesting: int = 64
    nested_counts: int = 100_000
    """Product of the counts of nested repetitions; a single count is not bounded."""
    verbatim_states: int = 1_024
    """States of the byte automaton of the patterns and lengths beside one ``x-verbatim``."""
    integer_digits: int = 20
    """Digits before the point where no bound asks for more: 64-bit identifiers fit."""
    fraction_digits: int = 18
    """Digits after the point."""
    nodes: int = 2_000_000
    """Expressions in the pool."""
    missing: int = 0
    """Bytes that the tokenizer cannot spell, as a ``ByteSet``: see ``language.rewriting``."""
