"""A compiled specification, before it meets a vocabulary: what a worker process sends back."""

from __future__ import annotations

from dataclasses import dataclass

from app.constraint.derivatives import Derivatives
from app.constraint.expressions import Expression


@dataclass(frozen=True, slots=True)
class Program:
    """A language over bytes, ready to run. Picklable; holds no vocabulary and no states yet."""

    root: Expression
    derivatives: Derivatives
