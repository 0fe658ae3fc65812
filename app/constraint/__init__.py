"""Specification -> byte expression -> lazily compiled automaton -> token masks.

    front_end.build      specification to expression (schema, regex, grammar, json_text, ...)
    compile_program      ... with lengths: picklable, made in a worker process
    Compiler.link        ... with a vocabulary: a constraint whose states fill up on demand

The names are imported on first use: worker processes only compile and need no numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from app.core.constraint import Choice, Grammar, JsonObject, JsonSchema, Regex, Structure

if TYPE_CHECKING:
    from app.constraint.compiler import Compiler
    from app.constraint.front_end import Limits
    from app.constraint.program import Program, compile_program, everyday_schema
    from app.constraint.python_types import from_python_type

__all__ = [
    "Choice",
    "Compiler",
    "Grammar",
    "JsonObject",
    "JsonSchema",
    "Limits",
    "Program",
    "Regex",
    "Structure",
    "compile_program",
    "everyday_schema",
    "from_python_type",
]

_HOMES = {
    "Compiler": "compiler",
    "Limits": "front_end",
    "Program": "program",
    "compile_program": "program",
    "everyday_schema": "program",
    "from_python_type": "python_types",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
