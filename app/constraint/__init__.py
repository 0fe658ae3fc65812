"""Specification -> byte expression -> lazily compiled automaton -> token masks.

limits     bounds on the cost of a specification
language/  expressions over bytes, and their derivatives
json/ regex/ formats/ schema/ grammar/ composite
           the front ends: from each kind of specification to an expression
program    compiles a specification with one of them, in a worker process
quotes/    strings that are pieces of documents: holes in a program, filled by requests
automaton/ a program run over a vocabulary: states, forced paths, masks, distances
constraint a constraint and its state in a request
compiler   from a specification, or a program, to a constraint over a vocabulary
python_types
           from Python types to specifications
cached_method
           a decorator that memoises methods while compiling
"""

from __future__ import annotations

from app.constraint.compiler import Compiler, read_document
from app.constraint.program import compile_program, everyday_schema
from app.constraint.python_types import from_python_type
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex

__all__ = [
    "Choice",
    "Compiler",
    "Grammar",
    "JsonObject",
    "JsonSchema",
    "Regex",
    "compile_program",
    "everyday_schema",
    "from_python_type",
    "read_document",
]
