"""Numbers in decimal digits: ranges, multiples and what is left without them, as expressions."""

from app.constraint.json.numbers.decimals import number
from app.constraint.json.numbers.exclusions import (
    can_follow_non_multiples,
    non_integers,
    non_multiples,
    spellings,
)
from app.constraint.json.numbers.multiples import can_follow_multiples, integer, multiples
from app.constraint.json.numbers.ranges import Bound, natural, written

__all__ = [
    "Bound",
    "can_follow_multiples",
    "can_follow_non_multiples",
    "integer",
    "multiples",
    "natural",
    "non_integers",
    "non_multiples",
    "number",
    "spellings",
    "written",
]
